//! What a gateway could not take back, and left as it is: listed in the state folder, for `provost doctor` to show and
//! `provost reap` to clear.
//!
//! The list is made anew at each start, because another start may do better: an older or newer build, a supervisor
//! that was stopped and goes on. Nothing on it is touched by the gateway that wrote it.

use std::{error::Error, fs, io, path::Path};

use crate::{
    proto::state::{QuarantineRecord, QuarantinedRecord},
    record,
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
}

impl Kind {
    /// For people.
    pub fn name(self) -> &'static str {
        match self {
            Self::Session => "session",
            Self::Sandbox => "sandbox",
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

    pub(super) fn because(kind: Kind, id: String, why: String) -> Self {
        Self { kind, id, why }
    }
}

/// Says and lists what was left.
pub(super) fn report(state: &Path, all: &[Quarantined]) {
    for one in all {
        tracing::error!(kind = one.kind.name(), id = %one.id, why = %one.why, "not taken back, and left as it is: see `provost doctor`");
    }
    let path = state.join(NAME);
    let written = match all {
        [] => match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            Ok(()) | Err(_) => Ok(()),
        },
        _ => record::write(&path, &QuarantineRecord { all: all.iter().map(to_record).collect() }),
    };
    if let Err(error) = written {
        tracing::error!(error = %error, "cannot write the list of what was not taken back");
    }
}

fn to_record(one: &Quarantined) -> QuarantinedRecord {
    QuarantinedRecord { kind: one.kind.name().to_owned(), id: one.id.clone(), why: one.why.clone() }
}
