//! Records that the journal writes about itself: its files, its signatures, and what it found when it was opened.
//!
//! `verify` reads these; nothing else may depend on them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::chain::Hash;

/// First record of every file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileOpened {
    /// Names the journal, the same in all of its files: a random UUID.
    pub journal: String,
    /// The file before, where there is one.
    pub previous: Option<String>,
}

/// Last record of a file that was rotated.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileClosed {
    /// Records in the file, this one included.
    pub records: u64,
    /// The name of the file after it.
    pub next: String,
    /// How many bytes of it are about which principal, for those with the most. Only for the next gateway's shares.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub written: BTreeMap<String, u64>,
}

/// Old files that the retention rule deletes; written before they are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilesRemoved {
    /// Oldest first.
    pub files: Vec<String>,
    /// The last record in them.
    pub last_sequence: u64,
    /// Its hash: what the oldest file that is left begins with.
    pub last_hash: Hash,
}

/// A signature over everything before it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checkpoint {
    /// The public key, in hexadecimal. Only a hint: verifying uses a key of its own.
    pub public_key: String,
    /// Ed25519 over the signed text of `docs/journal.md`, in hexadecimal.
    pub signature: String,
}

/// Appends that were refused while the journal could not be written. No command was started for them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unwritten {
    /// How many.
    pub records: u64,
    /// What the first one failed with.
    pub error: String,
}

/// What was wrong with the journal when it was opened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "finding", rename_all = "snake_case")]
pub enum Finding {
    /// A last line that was not written to its end, or cannot be read, was moved out of the file.
    TornTail {
        /// The file.
        file: String,
        /// Where the line began.
        offset: u64,
        /// How long it was.
        bytes: u64,
        /// What it is called in the directory `quarantine`.
        quarantined_as: String,
    },
    /// A file is damaged before its end. It was left as it is, and this file begun.
    Damaged {
        /// The file.
        file: String,
        /// The first bad line, 1-based.
        line: u64,
        /// What is wrong with it.
        problem: String,
    },
    /// Records that were once written to disk are gone.
    Lost {
        /// The last one that is left.
        last_sequence: u64,
        /// The last one that there was, by the file `head`.
        head_sequence: u64,
    },
    /// The file `head` is missing or cannot be read.
    HeadUnreadable {
        /// Why.
        problem: String,
    },
    /// Another process changed the current file while the gateway was writing to it. It was left, and this file begun.
    Disturbed {
        /// The file.
        file: String,
        /// How.
        problem: String,
    },
    /// The disk refused to make records durable. Records after `durable_sequence` may be missing in the file.
    SyncFailed {
        /// The file that they are in.
        file: String,
        /// The last record known to be durable.
        durable_sequence: u64,
        /// What the disk said.
        error: String,
    },
}
