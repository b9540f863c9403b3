//! Reads a journal's records: those that are there, and those that come.
//!
//! Checks each line's own hash and passes bad ones on as errors; the chain is for `verify`. A last line that is not
//! finished is one that is being written, and is left for later.

use std::{
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

use super::{
    folder::{Folder, JournalFile},
    line::{Line, LineError},
    reading::{Ending, LineReader, RawLine},
    record::Verdict,
};

/// Which records are wanted: those for which everything that is set holds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter {
    /// About this principal's sessions, terminals and requests.
    pub principal: Option<String>,
    /// About this session.
    pub session: Option<String>,
    /// About this terminal.
    pub terminal: Option<String>,
    /// Decided by this rule.
    pub rule: Option<String>,
    /// Decided so.
    pub verdict: Option<Verdict>,
    /// Written at this wall time or later, in nanoseconds since 1970.
    pub since_ns: Option<u64>,
}

impl Filter {
    /// Whether a record is wanted.
    pub fn wants(&self, line: &Line) -> bool {
        let Self { principal, session, terminal, rule, verdict, since_ns } = self;
        let record = &line.record;
        let subject = record.subject();
        let fits = |wanted: &Option<String>, found| wanted.is_none() || wanted.as_deref() == found;
        fits(principal, subject.principal)
            && fits(session, subject.session)
            && fits(terminal, subject.terminal)
            && rule.as_deref().is_none_or(|wanted| record.names_rule(wanted))
            && verdict.is_none_or(|wanted| record.verdict() == Some(wanted))
            && since_ns.is_none_or(|since| line.time >= super::rfc3339(since))
    }
}

impl Filter {
    fn look_at(&self, entry: Entry) -> Look {
        if self.wants(&entry.line) { Look::Entry(Box::new(entry)) } else { Look::Passed }
    }
}

/// A record and where it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The record in its envelope.
    pub line: Line,
    /// The line as it was written, without its newline.
    pub text: String,
    /// Its file.
    pub file: String,
    /// Its line there, 1-based.
    pub number: u64,
}

/// Why a record cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
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
    folder: Folder,
    filter: Filter,
    files: vec::IntoIter<JournalFile>,
    open: Option<(JournalFile, LineReader<File>)>,
}

impl Entries {
    /// Reads a folder.
    pub fn new(folder: &Folder, filter: Filter) -> io::Result<Self> {
        Ok(Self { folder: folder.clone(), filter, files: folder.files()?.into_iter(), open: None })
    }

    /// Looks at one record, or for the next file: for whoever must not read on for long.
    pub fn look(&mut self) -> Result<Look, ReadError> {
        let Some((file, reader)) = &mut self.open else {
            let Some(file) = self.files.next() else { return Ok(Look::End) };
            match self.folder.open(&file) {
                Ok(source) => self.open = Some((file, LineReader::new(source))),
                // The retention rule was quicker.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error.into()),
            }
            return Ok(Look::Passed);
        };
        match reader.next()? {
            Some(raw) if raw.ending != Ending::EndOfFile => {
                let entry = entry_of(&raw, file)?;
                Ok(self.filter.look_at(entry))
            }
            Some(_) | None => {
                self.open = None;
                Ok(Look::Passed)
            }
        }
    }
}

/// What one look has found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Look {
    /// A record that is wanted.
    Entry(Box<Entry>),
    /// Nothing that is wanted: look on.
    Passed,
    /// There is no more, or no more yet.
    End,
}

impl Iterator for Entries {
    type Item = Result<Entry, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            match self.look() {
                Ok(Look::Entry(entry)) => return Some(Ok(*entry)),
                Ok(Look::Passed) => {}
                Ok(Look::End) => return None,
                Err(error @ ReadError::BadLine { .. }) => return Some(Err(error)),
                Err(error @ ReadError::Io(_)) => {
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
    folder: Folder,
    filter: Filter,
    changes: Inotify,
    /// The newest file that is done with.
    done: Option<JournalFile>,
    open: Option<(JournalFile, LineReader<File>)>,
}

impl Follower {
    /// Begins with the oldest record of the newest `files` files; with 0 at the next new file.
    pub fn new(folder: &Folder, filter: Filter, files: usize) -> io::Result<Self> {
        let changes = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK)?;
        // Before the first look, so that nothing falls between.
        changes.add_watch(folder.path(), AddWatchFlags::IN_MODIFY | AddWatchFlags::IN_CREATE)?;
        let there = folder.files()?;
        let done = there.len().checked_sub(files + 1).map(|at| there[at].clone());
        Ok(Self { folder: folder.clone(), filter, changes, done, open: None })
    }

    /// The next record; `None` when none has come in time.
    pub fn next(&mut self, wait: Duration) -> Result<Option<Entry>, ReadError> {
        let deadline = Instant::now() + wait;
        loop {
            match self.look()? {
                Look::Entry(entry) => return Ok(Some(*entry)),
                Look::Passed => {}
                Look::End => {
                    if !self.wait(deadline)? {
                        return Ok(None);
                    }
                }
            }
        }
    }

    /// Looks at one record, or for the next file: for whoever must not read on for long.
    pub fn look(&mut self) -> Result<Look, ReadError> {
        if let Some(found) = self.read()? {
            return Ok(found);
        }
        let Some(newer) = self.newer()? else { return Ok(Look::End) };
        // All of the old one was written before there was a newer one: what is left of it is there now.
        if let Some(found) = self.read()? {
            return Ok(found);
        }
        self.done = self.open.take().map(|(file, _)| file).or(self.done.take());
        match self.folder.open(&newer) {
            Ok(source) => self.open = Some((newer, LineReader::new(source))),
            // The retention rule was quicker.
            Err(error) if error.kind() == io::ErrorKind::NotFound => self.done = Some(newer),
            Err(error) => return Err(error.into()),
        }
        Ok(Look::Passed)
    }

    /// The next record of the current file; `None` at what is its end now.
    fn read(&mut self) -> Result<Option<Look>, ReadError> {
        let Some((file, reader)) = &mut self.open else { return Ok(None) };
        let Some(raw) = reader.next()? else { return Ok(None) };
        if raw.ending == Ending::EndOfFile {
            let (offset, before) = (raw.offset, raw.number - 1);
            let mut source = self.folder.open(file)?;
            source.seek(SeekFrom::Start(offset))?;
            *reader = LineReader::at(source, offset, before);
            return Ok(None);
        }
        let entry = entry_of(&raw, file)?;
        Ok(Some(self.filter.look_at(entry)))
    }

    /// The next file with something in it. An empty one has been made for a rotation that is not done, and may be taken
    /// back.
    fn newer(&self) -> io::Result<Option<JournalFile>> {
        let current = self.open.as_ref().map(|(file, _)| file).or(self.done.as_ref());
        let holds_some = |file: &JournalFile| {
            self.folder.path().join(&file.name).metadata().is_ok_and(|found| found.len() > 0)
        };
        let mut newer =
            self.folder.files()?.into_iter().filter(|file| current.is_none_or(|current| file > current));
        Ok(newer.find(holds_some))
    }

    /// Waits for a change of the folder. False: the time is over.
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

fn entry_of(raw: &RawLine<'_>, file: &JournalFile) -> Result<Entry, ReadError> {
    let parsed = match raw.ending {
        Ending::Newline => Line::parse(raw.bytes),
        Ending::EndOfFile | Ending::TooLong => Err(LineError::NotARecord),
    };
    let line = parsed.map_err(|source| ReadError::BadLine {
        file: file.name.clone(),
        number: raw.number,
        source,
    })?;
    let text = String::from_utf8_lossy(raw.bytes).into_owned();
    Ok(Entry { line, text, file: file.name.clone(), number: raw.number })
}
