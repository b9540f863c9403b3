//! What a gateway could not take back, and left as it is: listed in the state folder, for `provost doctor` to show and
//! `provost reap` to clear.
//!
//! The list is made anew at each start, because another start may do better: an older or newer build, a supervisor
//! that was stopped and goes on. Nothing on it is touched by the gateway that wrote it.

use std::{
    error::Error,
    fs, io,
    path::{Path, PathBuf},
};

use crate::{
    proto::state::{QuarantineRecord, QuarantinedRecord},
    record::{self, ReadError},
    sandbox::leftover::{self, EndError},
    terminal::roll,
};

/// The list's name in the state folder.
const NAME: &str = "quarantine";

/// What something on the list is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A session's file.
    Session,
    /// A sandbox's folder, and what may live in it.
    Sandbox,
    /// A session's damaged roll of its terminals, put aside.
    Roll,
}

impl Kind {
    /// For people.
    pub fn name(self) -> &'static str {
        match self {
            Self::Session => "session",
            Self::Sandbox => "sandbox",
            Self::Roll => "roll",
        }
    }
}

/// Something that was left as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Quarantined {
    /// What it is.
    pub kind: Kind,
    /// The name of its file or folder.
    pub id: String,
    /// Why, for people.
    pub why: String,
}

impl Quarantined {
    pub(super) fn new(kind: Kind, id: String, error: &dyn Error) -> Self {
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
        Self::because(kind, id, why)
    }

    /// Its file or folder.
    pub(super) fn place(&self, state: &Path) -> PathBuf {
        match self.kind {
            Kind::Session => state.join("sessions").join(&self.id),
            Kind::Sandbox => state.join("sandboxes").join(&self.id),
            Kind::Roll => roll::damaged_file(state, &self.id),
        }
    }

    pub(super) fn because(kind: Kind, id: String, why: String) -> Self {
        Self { kind, id, why }
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
    List(#[from] ReadError),
    /// The sandbox may be alive.
    #[error("the sandbox {0} cannot be ended")]
    Sandbox(String, #[source] EndError),
    /// The file cannot be removed.
    #[error("the file {} cannot be removed", crate::printable::path(.0))]
    File(PathBuf, #[source] io::Error),
    /// What was reaped is gone; the list still names it.
    #[error("the list of what was left cannot be written")]
    Write(#[source] io::Error),
}

/// What the last start did not take back.
///
/// # Errors
/// [`ReadError`] when there is a list that cannot be read.
pub fn list(state: &Path) -> Result<Vec<Quarantined>, ReadError> {
    match record::read::<QuarantineRecord>(&state.join(NAME)) {
        Ok(list) => Ok(list.all.into_iter().filter_map(from_record).collect()),
        Err(ReadError::Read(error)) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// Ends and removes one thing on the list, with all that lives in it. Blocks.
///
/// # Errors
/// [`ReapError`].
pub fn reap(state: &Path, id: &str) -> Result<(), ReapError> {
    let mut all = list(state)?;
    let place = all.iter().position(|one| one.id == id).ok_or_else(|| ReapError::NotListed(id.to_owned()))?;
    let what = all[place].place(state);
    match all[place].kind {
        Kind::Sandbox => {
            leftover::end(&what).map_err(|error| ReapError::Sandbox(id.to_owned(), error))?;
        }
        Kind::Session | Kind::Roll => remove(what)?,
    }
    all.remove(place);
    write(state, &all).map_err(ReapError::Write)
}

fn remove(file: PathBuf) -> Result<(), ReapError> {
    match fs::remove_file(&file) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(ReapError::File(file, error)),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Says and lists what was left.
pub(super) fn report(state: &Path, all: &[Quarantined]) {
    for one in all {
        tracing::error!(kind = one.kind.name(), id = %one.id, why = %one.why, "not taken back, and left as it is: see `provost doctor`");
    }
    if let Err(error) = write(state, all) {
        tracing::error!(error = %error, "cannot write the list of what was not taken back");
    }
}

fn write(state: &Path, all: &[Quarantined]) -> io::Result<()> {
    let path = state.join(NAME);
    match all {
        [] => match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            Ok(()) | Err(_) => Ok(()),
        },
        _ => record::write(&path, &QuarantineRecord { all: all.iter().map(to_record).collect() }),
    }
}

fn to_record(one: &Quarantined) -> QuarantinedRecord {
    QuarantinedRecord { kind: one.kind.name().to_owned(), id: one.id.clone(), why: one.why.clone() }
}

/// Names that lead elsewhere, and kinds of a later version, are none of ours to touch.
fn from_record(one: QuarantinedRecord) -> Option<Quarantined> {
    let kind = [Kind::Session, Kind::Sandbox, Kind::Roll].into_iter().find(|kind| kind.name() == one.kind)?;
    let is_plain = !one.id.is_empty() && !one.id.contains('/') && one.id != "." && one.id != "..";
    is_plain.then_some(Quarantined { kind, id: one.id, why: one.why })
}
