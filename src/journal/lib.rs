//! The audit journal: one JSON object a line, each with the hash of the line before it.
//!
//! A caller waits until its record is written and acts afterwards, so the record comes before the effect. When the
//! journal cannot write a record, the caller refuses its command. `docs/journal.md` says what the chain proves and what
//! it does not. The journal makes no decisions, redacts nothing and deletes only its own old files.
//!
//! `format` is what writing and reading share. In `write` a record goes `handle` → `queue` → `writer` → `store`, where a
//! thread makes it durable. `read` has queries and the check of the chain.

#![forbid(unsafe_code)]

use provost_base::{byte_text, counters, printable, sys};

mod format;
mod read;
mod write;

pub use format::{
    chain::{ChainHead, FORMAT_VERSION, Hash},
    clock::{Clock, Moment, SystemClock, parse_utc, rfc3339},
    directory::{
        HeadError, JournalDirectory, JournalDirectoryError, JournalFile, JournalOptions, Retention, Signing,
        SyncRule,
    },
    line::{JournalLine, LineError, MAX_LINE_BYTES, MAX_RECORD_BYTES},
    maintenance::{Checkpoint, FileClosed, FileOpened, FilesRemoved, Finding, Unwritten},
    record::*,
    signing::{JournalKey, JournalPublicKey, KeyError},
};
pub use read::command_expander::CommandExpander;
pub use read::query::{Entries, Follower, JournalEntry, JournalReadError, ReadStep, RecordFilter};
pub use read::verify::{FaultKind, Integrity, JournalFault, VerifyReport, verify};
pub use write::handle::Journal;
pub use write::queue::AppendResult;
pub use write::{AppendError, Counters, Health, OpenError, WriteFailure, WriteStep};
