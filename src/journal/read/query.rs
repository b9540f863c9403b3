//! Reads a journal's records: those that are written, and new ones as they come, as far as a filter chooses them.
//!
//! Checks each line's own hash and returns bad lines as errors; `verify` checks the chain. A last line without a newline is being written,
//! and is read again later.
//!
//! Most fields that a filter has are in each record. The front end is not: it is in the records that open a session and decide in it, and
//! holds for what else is recorded of that session.

use std::{
    collections::HashSet,
    fs::File,
    io::{self, Seek as _, SeekFrom},
    os::fd::AsFd as _,
    time::{Duration, Instant},
    vec,
};

use nix::{
    errno::Errno,
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::inotify::{AddWatchFlags, InitFlags, Inotify},
};

use crate::format::{
    directory::{JournalDirectory, JournalFile},
    line::{JournalLine, LineEnd, LineError, LineReader, RawLine},
    record::{Record, RecordedVerdict},
};

/// A record and where it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JournalEntry {
    /// The record in its envelope.
    pub line: JournalLine,
    /// The line as it was written, without its newline.
    pub text: String,
    /// Its file.
    pub file: String,
    /// Its line there, 1-based.
    pub number: u64,
}

/// Why a record cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum JournalReadError {
    /// A line is no record. Reading can go on behind it.
    #[error("{file}:{number}: not a record")]
    BadLine {
        /// Its file.
        file: String,
        /// Its line there.
        number: u64,
        /// Why.
        #[source]
        source: LineError,
    },
    /// The files cannot be read.
    #[error("the journal cannot be read")]
    Io(#[from] io::Error),
}

/// The records that a filter wants, oldest first, as far as they are written now.
#[derive(Debug)]
pub struct Entries {
    directory: JournalDirectory,
    selection: Selection,
    files: vec::IntoIter<JournalFile>,
    open: Option<(JournalFile, LineReader<File>)>,
}

impl Entries {
    /// Reads a directory.
    pub fn new(directory: &JournalDirectory, filter: RecordFilter) -> io::Result<Self> {
        Ok(Self {
            directory: directory.clone(),
            selection: Selection::new(filter),
            files: directory.files()?.into_iter(),
            open: None,
        })
    }

    /// Reads one record or opens the next file, for callers that must not block for long.
    pub fn look(&mut self) -> Result<ReadStep, JournalReadError> {
        let Some((file, reader)) = &mut self.open else {
            let Some(file) = self.files.next() else { return Ok(ReadStep::End) };
            match self.directory.open(&file) {
                Ok(source) => self.open = Some((file, LineReader::new(source))),
                // The retention rule has deleted it meanwhile.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error.into()),
            }
            return Ok(ReadStep::Skipped);
        };
        match reader.next()? {
            Some(raw) if raw.ending != LineEnd::EndOfFile => {
                let entry = entry_of(&raw, file)?;
                Ok(apply(&mut self.selection, entry))
            }
            Some(_) | None => {
                self.open = None;
                Ok(ReadStep::Skipped)
            }
        }
    }
}

/// The result of reading one record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReadStep {
    /// A record that is wanted.
    Entry(Box<JournalEntry>),
    /// The record is not wanted, or a file was opened: read on.
    Skipped,
    /// There is no more, or no more yet.
    End,
}

impl Iterator for Entries {
    type Item = Result<JournalEntry, JournalReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            match self.look() {
                Ok(ReadStep::Entry(entry)) => return Some(Ok(*entry)),
                Ok(ReadStep::Skipped) => {}
                Ok(ReadStep::End) => return None,
                Err(error @ JournalReadError::BadLine { .. }) => return Some(Err(error)),
                Err(error @ JournalReadError::Io(_)) => {
                    self.open = None;
                    self.files = Vec::new().into_iter();
                    return Some(Err(error));
                }
            }
        }
    }
}

/// The records that a filter wants, as they are written. For a thread that may wait.
#[derive(Debug)]
pub struct Follower {
    directory: JournalDirectory,
    selection: Selection,
    changes: Inotify,
    /// The newest file that is done with.
    finished: Option<JournalFile>,
    open: Option<(JournalFile, LineReader<File>)>,
}

impl Follower {
    /// Begins with the oldest record of the newest `files` files; with 0 at the next new file.
    pub fn new(directory: &JournalDirectory, filter: RecordFilter, files: usize) -> io::Result<Self> {
        let changes = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK)?;
        // Before the first look, so that nothing falls between.
        changes.add_watch(directory.path(), AddWatchFlags::IN_MODIFY | AddWatchFlags::IN_CREATE)?;
        let there = directory.files()?;
        let done = there.len().checked_sub(files + 1).map(|at| there[at].clone());
        Ok(Self {
            directory: directory.clone(),
            selection: Selection::new(filter),
            changes,
            finished: done,
            open: None,
        })
    }

    /// The next record; `None` when none has come in time.
    pub fn next(&mut self, wait: Duration) -> Result<Option<JournalEntry>, JournalReadError> {
        let deadline = Instant::now() + wait;
        loop {
            match self.look()? {
                ReadStep::Entry(entry) => return Ok(Some(*entry)),
                ReadStep::Skipped => {}
                ReadStep::End => {
                    if !self.wait(deadline)? {
                        return Ok(None);
                    }
                }
            }
        }
    }

    /// Reads one record or opens the next file, for callers that must not block for long.
    pub fn look(&mut self) -> Result<ReadStep, JournalReadError> {
        if let Some(found) = self.read()? {
            return Ok(found);
        }
        let Some(newer) = self.next_file()? else { return Ok(ReadStep::End) };
        // All of the old one was written before there was a newer one: what is left of it is there now.
        if let Some(found) = self.read()? {
            return Ok(found);
        }
        self.finished = self.open.take().map(|(file, _)| file).or(self.finished.take());
        match self.directory.open(&newer) {
            Ok(source) => self.open = Some((newer, LineReader::new(source))),
            // The retention rule was quicker.
            Err(error) if error.kind() == io::ErrorKind::NotFound => self.finished = Some(newer),
            Err(error) => return Err(error.into()),
        }
        Ok(ReadStep::Skipped)
    }

    /// The next record of the current file; `None` at what is its end now.
    fn read(&mut self) -> Result<Option<ReadStep>, JournalReadError> {
        let Some((file, reader)) = &mut self.open else { return Ok(None) };
        let Some(raw) = reader.next()? else { return Ok(None) };
        if raw.ending == LineEnd::EndOfFile {
            let (offset, before) = (raw.offset, raw.number - 1);
            let mut source = self.directory.open(file)?;
            source.seek(SeekFrom::Start(offset))?;
            *reader = LineReader::at(source, offset, before);
            return Ok(None);
        }
        let entry = entry_of(&raw, file)?;
        Ok(Some(apply(&mut self.selection, entry)))
    }

    /// The next file with something in it. An empty one has been made for a rotation that is not done, and may be taken
    /// back.
    fn next_file(&self) -> io::Result<Option<JournalFile>> {
        let current = self.open.as_ref().map(|(file, _)| file).or(self.finished.as_ref());
        let holds_some = |file: &JournalFile| {
            self.directory.path().join(&file.name).metadata().is_ok_and(|found| found.len() > 0)
        };
        let mut newer =
            self.directory.files()?.into_iter().filter(|file| current.is_none_or(|current| file > current));
        Ok(newer.find(holds_some))
    }

    /// Waits for a change of the directory. False: the time is over.
    fn wait(&self, deadline: Instant) -> io::Result<bool> {
        let left = deadline.saturating_duration_since(Instant::now());
        // Rounded up, so that the last millisecond is waited for and not spun through.
        let milliseconds = left.as_micros().div_ceil(1000);
        let timeout = PollTimeout::try_from(milliseconds).unwrap_or(PollTimeout::MAX);
        let mut descriptors = [PollFd::new(self.changes.as_fd(), PollFlags::POLLIN)];
        match poll(&mut descriptors, timeout) {
            Ok(0) => return Ok(Instant::now() < deadline),
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        match self.changes.read_events() {
            Ok(_) | Err(Errno::EAGAIN) => Ok(true),
            Err(errno) => Err(errno.into()),
        }
    }
}

fn apply(selection: &mut Selection, entry: JournalEntry) -> ReadStep {
    if selection.admits(&entry.line) { ReadStep::Entry(Box::new(entry)) } else { ReadStep::Skipped }
}

fn entry_of(raw: &RawLine<'_>, file: &JournalFile) -> Result<JournalEntry, JournalReadError> {
    let parsed = match raw.ending {
        LineEnd::Newline => JournalLine::parse(raw.bytes),
        LineEnd::EndOfFile | LineEnd::TooLong => Err(LineError::NotARecord),
    };
    let line = parsed.map_err(|source| JournalReadError::BadLine {
        file: file.name.clone(),
        number: raw.number,
        source,
    })?;
    let text = String::from_utf8_lossy(raw.bytes).into_owned();
    Ok(JournalEntry { line, text, file: file.name.clone(), number: raw.number })
}

/// Sessions of the wanted front end that are known at once. Of more, the rest shows only what names its front end itself.
const SESSIONS_MAX: usize = 65_536;

/// Which records are wanted: those that match every field that is set.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RecordFilter {
    /// About this principal's sessions, terminals and requests.
    pub principal: Option<String>,
    /// About this session.
    pub session: Option<String>,
    /// About this terminal.
    pub terminal: Option<String>,
    /// Decided by this rule.
    pub rule: Option<String>,
    /// Decided so.
    pub verdict: Option<RecordedVerdict>,
    /// About sessions that were opened by this front end, as their callers claim.
    pub front_end: Option<String>,
    /// Written at this wall time or later, in nanoseconds since 1970.
    pub since_ns: Option<u64>,
}

impl RecordFilter {
    /// Whether a record is wanted, as far as the record alone says it: the front end is for [`Selection`].
    pub(crate) fn matches(&self, line: &JournalLine) -> bool {
        let Self { principal, session, terminal, rule, verdict, front_end: _, since_ns } = self;
        let record = &line.record;
        let subject = record.subject();
        let fits = |wanted: &Option<String>, found| wanted.is_none() || wanted.as_deref() == found;
        fits(principal, subject.principal)
            && fits(session, subject.session)
            && fits(terminal, subject.terminal)
            && rule.as_deref().is_none_or(|wanted| record.names_rule(wanted))
            && verdict.is_none_or(|wanted| record.verdict() == Some(wanted))
            && since_ns.is_none_or(|since| line.time >= crate::rfc3339(since))
    }
}

/// A filter on its way through a journal.
#[derive(Debug)]
pub(super) struct Selection {
    filter: RecordFilter,
    /// Open sessions of the wanted front end.
    sessions: HashSet<String>,
}

impl Selection {
    pub(crate) fn new(filter: RecordFilter) -> Self {
        Self { filter, sessions: HashSet::new() }
    }

    /// Whether the next record is wanted.
    pub(super) fn admits(&mut self, line: &JournalLine) -> bool {
        let is_of_front_end = match self.filter.front_end.clone() {
            None => true,
            Some(wanted) => self.is_of_front_end(&line.record, &wanted),
        };
        is_of_front_end && self.filter.matches(line)
    }

    fn is_of_front_end(&mut self, record: &Record, wanted: &str) -> bool {
        let Some(session) = record.subject().session else { return false };
        match (record.front_end(), record) {
            (Some(named), _) if named != wanted => false,
            (Some(_), _) => {
                if self.sessions.len() < SESSIONS_MAX {
                    self.sessions.insert(session.to_owned());
                }
                true
            }
            (None, Record::SessionClosed(_)) => self.sessions.remove(session),
            (None, _) => self.sessions.contains(session),
        }
    }
}
