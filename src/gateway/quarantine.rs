//! The quarantine: the list of what a gateway could not restore. `provost doctor` shows it and `provost reap` clears
//! it.
//!
//! Each start writes the list again, because a later start may succeed: with another build, or once a stopped
//! supervisor runs again. A gateway does not touch what is on its list.

use std::{
    error::Error,
    fs, io,
    path::{Path, PathBuf},
};

use crate::{
    proto::state::{QuarantineRecord, QuarantinedKind, QuarantinedRecord},
    sandbox::restore::stale::{self, RemoveStaleError},
    statefile::{self, StatefileError},
    terminal::terminal_log,
};

/// The list's name in the state directory.
const NAME: &str = "quarantine";

/// What something on the list is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QuarantineKind {
    /// A session's file.
    Session,
    /// A sandbox's directory, and what may live in it.
    Sandbox,
    /// A session's damaged terminal log, renamed.
    TerminalLog,
}

impl QuarantineKind {
    /// For people.
    pub fn name(self) -> &'static str {
        match self {
            Self::Session => "session",
            Self::Sandbox => "sandbox",
            Self::TerminalLog => "terminal log",
        }
    }

    fn to_record(self) -> QuarantinedKind {
        match self {
            Self::Session => QuarantinedKind::Session,
            Self::Sandbox => QuarantinedKind::Sandbox,
            Self::TerminalLog => QuarantinedKind::TerminalLog,
        }
    }
}

/// An entry of the list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Quarantined {
    /// What it is.
    pub kind: QuarantineKind,
    /// The name of its file or directory.
    pub id: String,
    /// The reason, for people.
    pub reason: String,
}

impl Quarantined {
    pub(super) fn new(kind: QuarantineKind, id: String, error: &dyn Error) -> Self {
        let mut why = error.to_string();
        let mut cause = error.source();
        while let Some(deeper) = cause {
            let text = deeper.to_string();
            // A transparent error says what its cause says.
            if !why.ends_with(&text) {
                why = format!("{why}: {text}");
            }
            cause = deeper.source();
        }
        Self::with_reason(kind, id, why)
    }

    /// Its file or directory.
    pub(super) fn path(&self, state: &Path) -> PathBuf {
        match self.kind {
            QuarantineKind::Session => state.join("sessions").join(&self.id),
            QuarantineKind::Sandbox => state.join("sandboxes").join(&self.id),
            QuarantineKind::TerminalLog => terminal_log::damaged_file(state, &self.id),
        }
    }

    pub(super) fn with_reason(kind: QuarantineKind, id: String, reason: String) -> Self {
        Self { kind, id, reason }
    }
}

/// Why something on the list is still there.
#[derive(Debug, thiserror::Error)]
pub enum ReapError {
    /// It is not on the list.
    #[error("{0} is not among what was left: see `provost doctor`")]
    NotListed(String),
    /// The list cannot be read.
    #[error("the list of what was left")]
    List(#[from] StatefileError),
    /// The sandbox may be alive.
    #[error("the sandbox {0} cannot be ended")]
    Sandbox(String, #[source] RemoveStaleError),
    /// The file cannot be removed.
    #[error("the file {} cannot be removed", crate::printable::path(.0))]
    File(PathBuf, #[source] io::Error),
    /// What was reaped is gone; the list still names it.
    #[error("the list of what was left cannot be written")]
    Write(#[source] io::Error),
}

/// What the last start could not restore.
///
/// # Errors
/// When there is a list that cannot be read.
pub fn list(state: &Path) -> Result<Vec<Quarantined>, StatefileError> {
    match statefile::read::<QuarantineRecord>(&state.join(NAME)) {
        Ok(list) => Ok(list.entries.into_iter().filter_map(from_record).collect()),
        Err(error) if error.is_missing() => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// Kills and removes one entry of the list with all of its processes. Blocks.
///
/// # Errors
/// [`ReapError`].
pub fn reap(state: &Path, id: &str) -> Result<(), ReapError> {
    let mut entries = list(state)?;
    let index =
        entries.iter().position(|one| one.id == id).ok_or_else(|| ReapError::NotListed(id.to_owned()))?;
    let path = entries[index].path(state);
    match entries[index].kind {
        QuarantineKind::Sandbox => {
            stale::remove(&path).map_err(|error| ReapError::Sandbox(id.to_owned(), error))?;
        }
        QuarantineKind::Session | QuarantineKind::TerminalLog => remove(path)?,
    }
    entries.remove(index);
    write(state, &entries).map_err(ReapError::Write)
}

fn remove(file: PathBuf) -> Result<(), ReapError> {
    match fs::remove_file(&file) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(ReapError::File(file, error)),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Logs the entries and writes the list.
pub(super) fn report(state: &Path, entries: &[Quarantined]) {
    for one in entries {
        tracing::error!(kind = one.kind.name(), id = %one.id, why = %one.reason, "not adopted, and left as it is: see `provost doctor`");
    }
    if let Err(error) = write(state, entries) {
        tracing::error!(error = %error, "cannot write the list of what was not adopted");
    }
}

fn write(state: &Path, entries: &[Quarantined]) -> io::Result<()> {
    let path = state.join(NAME);
    match entries {
        [] => match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            Ok(()) | Err(_) => Ok(()),
        },
        _ => statefile::write(&path, &QuarantineRecord { entries: entries.iter().map(to_record).collect() }),
    }
}

fn to_record(entry: &Quarantined) -> QuarantinedRecord {
    QuarantinedRecord {
        kind: entry.kind.to_record().into(),
        id: entry.id.clone(),
        reason: entry.reason.clone(),
    }
}

/// Names that lead elsewhere, and kinds of a later version, are none of ours to touch.
fn from_record(record: QuarantinedRecord) -> Option<Quarantined> {
    let kind = match record.kind() {
        QuarantinedKind::Session => QuarantineKind::Session,
        QuarantinedKind::Sandbox => QuarantineKind::Sandbox,
        QuarantinedKind::TerminalLog => QuarantineKind::TerminalLog,
        QuarantinedKind::Unspecified => return None,
    };
    let is_plain = !record.id.is_empty() && !record.id.contains('/') && record.id != "." && record.id != "..";
    is_plain.then_some(Quarantined { kind, id: record.id, reason: record.reason })
}
