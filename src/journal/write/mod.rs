//! Writes the journal: from a caller's record to a durable line, within the shares of its callers.
//!
//! Here is what all parts of it have in common: why a journal cannot be opened and why a record is not in it, whether the journal can be
//! written, and what it has done since it was opened.

pub(crate) mod handle;
pub(crate) mod queue;
mod recovery;
pub(crate) mod store;
pub(crate) mod write_quota;
pub(crate) mod writer;

use std::{
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use crate::{counters::Counter, format::directory::JournalDirectoryError};

/// A journal cannot be opened for writing.
///
/// Damage is no error: a damaged file is left as it is, and the journal continues in a new file. A failing disk is no
/// error either: the journal opens, and refuses every record until the disk works.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The directory cannot be used.
    #[error(transparent)]
    Directory(#[from] JournalDirectoryError),
    /// The kernel's id of this boot cannot be read.
    #[error("the boot's id cannot be read")]
    BootId(#[source] io::Error),
    /// A thread could not be started.
    #[error("the journal's threads cannot be started")]
    Thread(#[source] io::Error),
}

/// A record is not in the journal. The caller must not do what it was to record.
#[derive(Debug, Clone, thiserror::Error)]
pub enum AppendError {
    /// The record does not fit into a line.
    #[error("a record of {bytes} bytes is longer than the {limit} that a journal takes")]
    TooLong {
        /// Its length as JSON.
        bytes: usize,
        /// The maximum.
        limit: usize,
    },
    /// Only the journal itself writes records of this kind.
    #[error("a record of this kind is not for callers to write")]
    Reserved,
    /// The record cannot be encoded.
    #[error("the record cannot be encoded as JSON")]
    Unencodable(#[source] Arc<serde_json::Error>),
    /// The disk failed. The next append tries again.
    #[error(transparent)]
    Unwritable(#[from] WriteFailure),
    /// The journal has been closed.
    #[error("the journal is closed")]
    Stopped,
}

/// The disk failed.
#[derive(Debug, Clone, thiserror::Error)]
#[error("the journal cannot be written: {step} failed")]
pub struct WriteFailure {
    /// What the writer was doing.
    pub step: WriteStep,
    /// The system's error.
    #[source]
    pub source: Arc<io::Error>,
}

/// A step of writing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteStep {
    /// Recovering what an earlier writer left.
    Recover,
    /// Reading the status of the current file.
    Inspect,
    /// Truncating a partial write.
    Truncate,
    /// Creating a file.
    CreateFile,
    /// Appending records.
    Append,
    /// Making records durable.
    Sync,
}

impl std::fmt::Display for WriteStep {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Recover => "recovering the directory",
            Self::Inspect => "checking the current file",
            Self::Truncate => "truncating a partial record",
            Self::CreateFile => "creating a file",
            Self::Append => "appending records",
            Self::Sync => "syncing records",
        })
    }
}

impl WriteStep {
    /// The step's name in metrics and logs.
    pub fn name(self) -> &'static str {
        match self {
            Self::Recover => "recover",
            Self::Inspect => "inspect",
            Self::Truncate => "truncate",
            Self::CreateFile => "create_file",
            Self::Append => "append",
            Self::Sync => "sync",
        }
    }

    pub(crate) fn failed(self) -> impl FnOnce(io::Error) -> WriteFailure {
        move |source| WriteFailure { step: self, source: Arc::new(source) }
    }
}

/// Whether the journal takes records. [`Journal::health`](crate::Journal::health) says what it is now, and
/// [`Journal::health_changes`](crate::Journal::health_changes) when it changes.
#[derive(Debug, Clone)]
pub enum Health {
    /// The last append succeeded.
    Writable,
    /// The last append failed: no command may be started.
    Unwritable(WriteFailure),
}

impl Health {
    /// Replaces the health, and returns whether it went from writable to unwritable or back.
    pub(crate) fn replace(&mut self, new: Self) -> bool {
        let has_changed = matches!(self, Self::Writable) != matches!(new, Self::Writable);
        *self = new;
        has_changed
    }
}

/// Counts that only go up.
#[derive(Debug, Default)]
pub struct Counters {
    /// Records that were written, those about the journal itself included.
    pub records: Counter,
    /// Their bytes.
    pub bytes: Counter,
    /// Records that were not written: failed appends and dropped best-effort records.
    pub unwritten: Counter,
    /// Batches that could not be written.
    pub write_failures: Counter,
    /// Failed syncs.
    pub sync_failures: Counter,
    /// Files that were created after the first one.
    pub rotations: Counter,
}

/// Locks; a poisoned mutex is locked all the same. Only for state that every critical section leaves consistent: each
/// change of it is a single assignment or push.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
