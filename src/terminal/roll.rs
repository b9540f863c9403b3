//! The roll of a session: which terminals it has, in a file, for the case that their supervisor does not live to tell.
//!
//! A terminal is on it before its spawn is asked for, its outcome before anybody is told of it, and both are taken off
//! when it is released. What its supervisor says goes before what stands here. Holds no argument and no secret, and is
//! not synced: no terminal survives the crash of a host.

use std::{
    collections::{HashMap, HashSet},
    ffi::OsString,
    fs, io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

use prost::Message as _;

use super::{Terminal, TerminalId, keepsake};
use crate::{
    proto::{
        state::{RollRecord, TerminalBegun, TerminalEnded, roll_record::Record},
        v1::Outcome,
    },
    record::{
        ReadError, UNFINISHED,
        series::{self, Condition, Series},
    },
    session::SessionId,
};

/// The folder of all rolls, in the state folder.
const FOLDER: &str = "terminals";
/// What the name of a roll ends with that was found damaged and put aside. Another one of the same session replaces it.
const DAMAGED: &str = ".damaged";
/// A file that is shorter is not written anew, however little of it still counts.
const REWRITE_ABOVE_BYTES: u64 = 256 << 10;
/// How often as long as after it was last written anew a file may become.
const REWRITE_AT_TIMES: u64 = 4;

/// Why a roll says less than it should.
#[derive(Debug, thiserror::Error)]
pub enum RollError {
    /// None of it can be read.
    #[error("the roll of its terminals")]
    Unreadable(#[from] ReadError),
    /// A part of it can be read.
    #[error("the roll of its terminals is damaged at byte {0}")]
    Damaged(u64),
}

/// The rolls of all sessions.
#[derive(Debug)]
pub(super) struct Rolls {
    /// None: what this gateway starts ends with it, and nothing is kept.
    folder: Option<PathBuf>,
    of: Mutex<HashMap<SessionId, Arc<Roll>>>,
}

impl Rolls {
    /// In files of this state folder.
    pub(super) fn in_files(state: &Path) -> Self {
        Self { folder: Some(state.join(FOLDER)), of: Mutex::default() }
    }

    /// Nowhere.
    pub(super) fn nowhere() -> Self {
        Self { folder: None, of: Mutex::default() }
    }

    /// The roll of a session; an empty one, without a file, where there was none.
    pub(super) fn of(&self, session: SessionId) -> Arc<Roll> {
        self.lock().entry(session).or_insert_with(|| Arc::new(Roll::empty(self.file(session)))).clone()
    }

    /// Reads the roll that a gateway before this one has left, before anything else is done with it. What is damaged is
    /// put aside, and what can be read of it is written anew.
    pub(super) fn restore(&self, session: SessionId) -> (Arc<Roll>, Result<(), RollError>) {
        let Some(file) = self.file(session) else { return (self.of(session), Ok(())) };
        let (kept, read) = Kept::restore(file);
        let roll = Arc::new(Roll { kept: Some(Mutex::new(kept)) });
        self.lock().insert(session, roll.clone());
        (roll, read)
    }

    /// Forgets the session, which has no terminals any more.
    pub(super) fn remove(&self, session: SessionId) {
        self.lock().remove(&session);
        let Some(file) = self.file(session) else { return };
        if let Err(error) = remove_if_there(&file) {
            // The next start removes it: its session is not there.
            tracing::error!(session.id = %session, error = %error, "cannot remove the roll of its terminals");
        }
    }

    /// Removes the files of sessions that are not among these, and the names of those that were put aside as damaged,
    /// now or before.
    ///
    /// # Errors
    /// When the folder cannot be read.
    pub(super) fn tidy(&self, sessions: &HashSet<String>) -> io::Result<Vec<String>> {
        let Some(folder) = &self.folder else { return Ok(Vec::new()) };
        let entries = match fs::read_dir(folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let mut damaged = Vec::new();
        for entry in entries {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.ends_with(DAMAGED) {
                damaged.push(name);
            } else if name.ends_with(UNFINISHED) || !sessions.contains(&name) {
                // A failure shows at the next start.
                let _ = fs::remove_file(entry.path());
            }
        }
        damaged.sort();
        Ok(damaged)
    }

    fn file(&self, session: SessionId) -> Option<PathBuf> {
        self.folder.as_ref().map(|folder| folder.join(session.to_string()))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<SessionId, Arc<Roll>>> {
        self.of.lock().expect("no code panics while it holds the table of rolls")
    }
}

/// Where a roll that was put aside lies.
pub fn damaged_file(state: &Path, name: &str) -> PathBuf {
    state.join(FOLDER).join(name)
}

/// The roll of one session.
#[derive(Debug)]
pub(super) struct Roll {
    kept: Option<Mutex<Kept>>,
}

/// What stands on a roll of one terminal.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    pub(super) begun: TerminalBegun,
    pub(super) ended: Option<TerminalEnded>,
}

impl Entry {
    /// How it ended, as it was told.
    pub(super) fn outcome(&self) -> Option<Outcome> {
        // What is on the roll has a checksum: it is what a gateway wrote.
        self.ended.as_ref().and_then(|ended| Outcome::decode(&ended.outcome[..]).ok())
    }
}

impl Roll {
    fn empty(file: Option<PathBuf>) -> Self {
        Self { kept: file.map(|file| Mutex::new(Kept::empty(Series::unwritten(file)))) }
    }

    /// Enters a terminal that is about to be spawned in a sandbox, or that was found in it.
    ///
    /// # Errors
    /// It cannot be written, and must not be spawned.
    pub(super) fn begin(&self, terminal: &Terminal, sandbox_id: &str) -> io::Result<()> {
        let Some(mut kept) = self.lock() else { return Ok(()) };
        if kept.entries.contains_key(&terminal.id) {
            return Ok(());
        }
        let begun = TerminalBegun {
            terminal_id: terminal.id.to_string(),
            sandbox_id: sandbox_id.to_owned(),
            terminal: Some(keepsake::without_arguments(terminal)),
        };
        kept.append(Record::Begun(begun.clone()))?;
        kept.entries.insert(terminal.id, Entry { begun, ended: None });
        Ok(())
    }

    /// Enters how a terminal has ended, once. It has ended whether that can be written or not.
    pub(super) fn end(&self, id: TerminalId, outcome: &Outcome) {
        let Some(mut kept) = self.lock() else { return };
        let ended = TerminalEnded { terminal_id: id.to_string(), outcome: outcome.encode_to_vec().into() };
        match kept.entries.get_mut(&id) {
            Some(entry) if entry.ended.is_none() => entry.ended = Some(ended.clone()),
            Some(_) | None => return,
        }
        if let Err(error) = kept.append(Record::Ended(ended)) {
            tracing::error!(terminal.id = %id, error = %error, "the end of a command is not on its session's roll");
        }
    }

    /// Takes a terminal off the roll that was released, or was never started.
    pub(super) fn forget(&self, id: TerminalId) {
        let Some(mut kept) = self.lock() else { return };
        if kept.entries.remove(&id).is_none() {
            return;
        }
        if let Err(error) = kept.append(Record::Forgotten(id.to_string())) {
            tracing::error!(terminal.id = %id, error = %error, "a released terminal is still on its session's roll");
        }
        kept.rewrite_when_long();
    }

    /// How a terminal ended, where that was told.
    pub(super) fn outcome(&self, id: TerminalId) -> Option<Outcome> {
        self.lock()?.entries.get(&id)?.outcome()
    }

    /// All that stands on it.
    pub(super) fn entries(&self) -> Vec<(TerminalId, Entry)> {
        let Some(kept) = self.lock() else { return Vec::new() };
        kept.entries.iter().map(|(id, entry)| (*id, entry.clone())).collect()
    }

    fn lock(&self) -> Option<std::sync::MutexGuard<'_, Kept>> {
        let kept = self.kept.as_ref()?;
        Some(kept.lock().expect("no code panics while it holds a roll"))
    }
}

/// A roll and its file.
#[derive(Debug)]
struct Kept {
    series: Series,
    entries: HashMap<TerminalId, Entry>,
    rewrite_at_bytes: u64,
    /// Whether something is held here that could not be written.
    is_behind: bool,
}

impl Kept {
    fn empty(series: Series) -> Self {
        Self { series, entries: HashMap::new(), rewrite_at_bytes: REWRITE_ABOVE_BYTES, is_behind: false }
    }

    fn restore(file: PathBuf) -> (Self, Result<(), RollError>) {
        let error = match series::read::<RollRecord>(&file) {
            Err(ReadError::Read(error)) if error.kind() == io::ErrorKind::NotFound => {
                return (Self::empty(Series::unwritten(file)), Ok(()));
            }
            Err(error) => RollError::from(error),
            Ok(back) => {
                let entries = entries_of(back.messages);
                let damage = match back.condition {
                    Condition::Whole => match Series::go_on(file.clone(), back.length) {
                        Ok(series) => return (Self { entries, ..Self::empty(series) }, Ok(())),
                        Err(error) => ReadError::Read(error).into(),
                    },
                    Condition::Damaged { at } => RollError::Damaged(at),
                };
                return (Self::anew(file, entries), Err(damage));
            }
        };
        (Self::anew(file, HashMap::new()), Err(error))
    }

    /// Puts the file aside, and begins another one with what could be read of it.
    fn anew(file: PathBuf, entries: HashMap<TerminalId, Entry>) -> Self {
        let mut aside: OsString = file.clone().into();
        aside.push(DAMAGED);
        if let Err(error) = fs::rename(&file, &aside) {
            tracing::error!(file = %crate::printable::path(&file), error = %error, "cannot put a damaged roll aside");
        }
        let mut kept = Self { entries, ..Self::empty(Series::unwritten(file)) };
        if !kept.entries.is_empty() {
            kept.rewrite_or_say();
        }
        kept
    }

    /// Adds a record. What could not be written before is written first: no end that was told is forgotten because the
    /// disk was full for a moment.
    fn append(&mut self, record: Record) -> io::Result<()> {
        if self.is_behind {
            self.rewrite()?;
        }
        let appended = self.series.append(&RollRecord { record: Some(record) });
        self.is_behind = appended.is_err();
        appended
    }

    fn rewrite_when_long(&mut self) {
        if self.series.length() >= self.rewrite_at_bytes {
            self.rewrite_or_say();
        }
    }

    fn rewrite_or_say(&mut self) {
        if let Err(error) = self.rewrite() {
            tracing::error!(error = %error, "cannot write a session's roll anew");
        }
    }

    fn rewrite(&mut self) -> io::Result<()> {
        let records = self.entries.values().flat_map(|entry| {
            let begun = Some(Record::Begun(entry.begun.clone()));
            begun.into_iter().chain(entry.ended.clone().map(Record::Ended))
        });
        let written = self.series.rewrite(records.map(|record| RollRecord { record: Some(record) }));
        self.is_behind = written.is_err();
        // After a failure, too: it is not tried again with each terminal.
        self.rewrite_at_bytes = (self.series.length() * REWRITE_AT_TIMES).max(REWRITE_ABOVE_BYTES);
        written
    }
}

fn entries_of(records: Vec<RollRecord>) -> HashMap<TerminalId, Entry> {
    let mut entries = HashMap::<TerminalId, Entry>::new();
    for record in records {
        match record.record {
            Some(Record::Begun(begun)) => {
                if let Some(id) = TerminalId::parse(&begun.terminal_id) {
                    entries.insert(id, Entry { begun, ended: None });
                }
            }
            Some(Record::Ended(ended)) => {
                let entry = TerminalId::parse(&ended.terminal_id).and_then(|id| entries.get_mut(&id));
                if let Some(entry) = entry {
                    entry.ended = Some(ended);
                }
            }
            Some(Record::Forgotten(id)) => {
                if let Some(id) = TerminalId::parse(&id) {
                    entries.remove(&id);
                }
            }
            // Of a later version, which is about something else.
            None => {}
        }
    }
    entries
}

fn remove_if_there(file: &Path) -> io::Result<()> {
    match fs::remove_file(file) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}
