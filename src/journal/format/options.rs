//! How a journal is kept: when it is synced, when a file is rotated, which files are deleted, who signs.

use std::{
    num::{NonZeroU32, NonZeroU64},
    path::PathBuf,
    time::Duration,
};

use super::signing::JournalKey;

/// When records reach the disk. With every rule a record is written to the file before its append returns, and so
/// survives the end of this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SyncRule {
    /// Before the append returns: the record survives a crash of the host too. Costs a round trip to the disk.
    Always,
    /// Within this time after the write. A crash of the host loses the records of at most this time.
    Batch {
        /// The longest time until a written record is durable.
        within: Duration,
    },
    /// When the kernel writes its cache back.
    Off,
}

/// Which files are deleted, oldest first, when a new one is created. A limit that is absent deletes nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    /// Keep at most this many files, the current one included.
    pub files: Option<NonZeroU32>,
    /// Delete files that were last written longer ago than this, by wall time.
    pub age: Option<Duration>,
    /// Keep at least this many files whatever their age, so that a clock that jumps by years deletes no more.
    pub files_at_least: NonZeroU32,
}

/// How the journal is signed.
#[derive(Debug, Clone)]
pub struct Signing {
    /// The private key.
    pub key: JournalKey,
    /// Sign after this many records at the latest. The first and the last record of a file are signed too.
    pub every_records: NonZeroU64,
}

/// How a journal is kept.
#[derive(Debug, Clone)]
pub struct JournalOptions {
    /// The directory of its files. Created with mode 0700 when it is missing.
    pub directory: PathBuf,
    /// When records are synced.
    pub sync: SyncRule,
    /// A file is rotated when it reaches this length.
    pub rotate_bytes: u64,
    /// A file is rotated at the first append after it reached this age on the boot clock.
    pub rotate_after: Option<Duration>,
    /// Which old files are deleted.
    pub retention: Retention,
    /// No record is deleted before it has this age, whatever the retention rule says, and no principal may write more in
    /// this time than its share of what the rule keeps. Zero: no minimum age, no shares.
    pub keep_at_least: Duration,
    /// How the journal is signed; absent: it is not.
    pub signing: Option<Signing>,
}

impl JournalOptions {
    /// The bytes that the retention rule keeps; 0: everything.
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
