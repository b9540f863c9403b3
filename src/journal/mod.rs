//! The journal: what happened, in order, one JSON object a line, each with the hash of the one before it.
//!
//! Callers wait until their record is written, and so write before the effect; one at a time is at the file. What the
//! journal cannot write it refuses, and the caller refuses its command in turn. `docs/journal.md` says what the
//! chain proves and what it does not. Nothing here decides, masks or deletes anything but its own old files.

mod appender;
mod clock;
mod command_expander;
mod counters;
mod directory;
mod health;
mod line;
mod line_reader;
mod maintenance;
mod progress;
mod query;
mod queue;
mod record;
mod recorded_exits;
mod recovery;
mod report;
mod retention;
mod signing;
mod store;
mod syncer;
mod usage_restore;
mod verify;
mod write_quota;
mod writer;

use std::{io, num::NonZeroU32, num::NonZeroU64, path::PathBuf, sync::Arc, time::Duration};

pub use appender::AppendFuture;
pub use clock::{Clock, Moment, SystemClock, parse_utc, rfc3339};
pub use command_expander::CommandExpander;
pub use counters::Counters;
pub use directory::{HeadError, JournalDirectory, JournalDirectoryError, JournalFile};
pub use health::{Health, HealthChanges};
pub use line::{ChainHead, FORMAT_VERSION, Hash, JournalLine, LineError, MAX_LINE_BYTES, MAX_RECORD_BYTES};
pub use maintenance::{Checkpoint, FileClosed, FileOpened, FilesRemoved, Finding, Unwritten};
pub use progress::ProgressReceiver;
pub use query::{Entries, Follower, JournalEntry, JournalReadError, ReadStep, RecordFilter};
pub use queue::{
    AppendResult, BEST_EFFORT_DELAY, MAX_BEST_EFFORT_BYTES, MAX_BEST_EFFORT_RECORDS, MAX_QUEUE_BYTES,
    MAX_QUEUE_RECORDS,
};
pub use record::*;
pub use recorded_exits::MAX_RECORDED_EXITS;
pub use report::{
    FaultKind, Integrity, JournalFault, JournalNotice, MAX_FAULTS, MAX_NOTICES, TornLine, VerifyReport,
};
pub use signing::{JournalKey, JournalPublicKey, KeyError};
pub use verify::verify;
pub use write_quota::{WriteQuota, WriteQuotaReached};
pub use writer::Journal;

/// When records reach the disk. In every case a record is written to the file, and so survives the end of this
/// process, before its append is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SyncRule {
    /// Before the append is answered: survives the end of the host too. Costs a round trip to the disk.
    Always,
    /// Within this time after it was written. What a crash of the host can take is at most this much.
    Batch {
        /// The longest time that a written record is not yet durable.
        within: Duration,
    },
    /// When the kernel sees fit.
    Off,
}

/// Which files are deleted, oldest first, when a new one is begun. What is not set keeps everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    /// Keep at most this many files, the current one included.
    pub files: Option<NonZeroU32>,
    /// Delete files that were last written longer ago than this, by wall time.
    pub age: Option<Duration>,
    /// But never have fewer files than this because of their age: a clock that steps by years deletes no more.
    pub files_at_least: NonZeroU32,
}

/// Signs the journal.
#[derive(Debug, Clone)]
pub struct Signing {
    /// With this key.
    pub key: JournalKey,
    /// At the latest after so many records; also when a file or the journal is begun or ended.
    pub every_records: NonZeroU64,
}

/// How a journal is kept.
#[derive(Debug, Clone)]
pub struct JournalOptions {
    /// Its directory; made, with mode 0700, where it is missing.
    pub directory: PathBuf,
    /// When records reach the disk.
    pub sync: SyncRule,
    /// A file is ended once it is as long as this.
    pub rotate_bytes: u64,
    /// A file is ended at the first append when it is as old as this; counted by the boot clock.
    pub rotate_after: Option<Duration>,
    /// What is deleted.
    pub retention: Retention,
    /// No record is deleted before it is as old as this, whatever the rule says; and no principal may write more in this
    /// time than its share of what the rule keeps. Zero: neither.
    pub keep_at_least: Duration,
    /// Absent: nothing is signed.
    pub signing: Option<Signing>,
}

impl JournalOptions {
    /// What the retention rule keeps; 0: everything.
    pub fn kept_bytes(&self) -> u64 {
        self.retention.files.map_or(0, |files| self.rotate_bytes.saturating_mul(files.get().into()))
    }

    /// The defaults: synced within 50 ms, files of 64 MiB, the last 64 of them, unsigned.
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        Self {
            directory: directory.into(),
            sync: SyncRule::Batch { within: Duration::from_millis(50) },
            rotate_bytes: 64 * 1024 * 1024,
            rotate_after: None,
            retention: Retention {
                files: NonZeroU32::new(64),
                age: None,
                files_at_least: NonZeroU32::new(2).unwrap_or(NonZeroU32::MIN),
            },
            keep_at_least: Duration::ZERO,
            signing: None,
        }
    }
}

/// Why a journal cannot be opened for writing.
///
/// Damage is no reason: a damaged journal is left as it is, and gone on with in a new file. Nor is a disk that
/// refuses: then the journal opens, and refuses every record until the disk does not.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The directory is not to be had.
    #[error(transparent)]
    Directory(#[from] JournalDirectoryError),
    /// The kernel does not tell the boot or give random numbers.
    #[error("the boot's id cannot be read")]
    BootId(#[source] io::Error),
    /// A thread could not be started.
    #[error("the journal's threads cannot be started")]
    Thread(#[source] io::Error),
}

/// Why a record is not in the journal. What it was to record must not happen.
#[derive(Debug, Clone, thiserror::Error)]
pub enum AppendError {
    /// Longer than any line may be.
    #[error("a record of {bytes} bytes is longer than the {limit} that a journal takes")]
    TooLong {
        /// Its length in JSON.
        bytes: usize,
        /// The bound.
        limit: usize,
    },
    /// A kind that only the journal itself writes, or that this version does not know.
    #[error("a record of this kind is not for callers to write")]
    Reserved,
    /// It has no form in JSON.
    #[error("a record has no form in JSON")]
    Unencodable(#[source] Arc<serde_json::Error>),
    /// The disk refuses. The next append tries again.
    #[error(transparent)]
    Unwritable(#[from] WriteFailure),
    /// The journal has been closed.
    #[error("the journal is closed")]
    Stopped,
}

/// What the disk refused.
#[derive(Debug, Clone, thiserror::Error)]
#[error("the journal cannot be written: {step} failed")]
pub struct WriteFailure {
    /// In doing what.
    pub step: WriteStep,
    /// Why.
    #[source]
    pub source: Arc<io::Error>,
}

/// What the writer does to its directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteStep {
    /// Taking up what an earlier writer left.
    Recover,
    /// Looking at the current file.
    Inspect,
    /// Taking back what was written in part.
    Truncate,
    /// Beginning a file.
    CreateFile,
    /// Appending records.
    Append,
    /// Making records durable.
    Sync,
}

impl std::fmt::Display for WriteStep {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Recover => "taking up what was left",
            Self::Inspect => "looking at the current file",
            Self::Truncate => "taking back a part of a record",
            Self::CreateFile => "beginning a file",
            Self::Append => "appending",
            Self::Sync => "making records durable",
        })
    }
}

impl WriteStep {
    /// For programs.
    pub fn name(self) -> &'static str {
        match self {
            Self::Recover => "recover",
            Self::Inspect => "inspect",
            Self::Truncate => "take_back",
            Self::CreateFile => "begin",
            Self::Append => "append",
            Self::Sync => "sync",
        }
    }

    fn failed(self) -> impl FnOnce(io::Error) -> WriteFailure {
        move |source| WriteFailure { step: self, source: Arc::new(source) }
    }
}
