//! The audit journal: one JSON object a line, each with the hash of the line before it.
//!
//! A caller waits until its record is written and acts afterwards, so the record comes before the effect. When the
//! journal cannot write a record, the caller refuses its command. `docs/journal.md` says what the chain proves and what
//! it does not. The journal makes no decisions, redacts nothing and deletes only its own old files.
//!
//! Writing goes `handle` → `appender` → `queue` → `writer` → `store`, and `syncer` makes it durable. Reading is in
//! `query` and `verify`.

mod appender;
mod chain;
mod clock;
mod command_expander;
mod counters;
mod directory;
mod errors;
mod handle;
mod health;
mod line;
mod line_reader;
mod maintenance;
mod mutex;
mod options;
mod query;
mod queue;
mod record;
mod recorded_exits;
mod recorded_reports;
mod recovery;
mod report;
mod retention;
mod selection;
mod signing;
mod store;
mod syncer;
mod usage_restore;
mod verify;
mod write_quota;
mod writer;

pub use chain::{ChainHead, FORMAT_VERSION, Hash};
pub use clock::{Clock, Moment, SystemClock, parse_utc, rfc3339};
pub use command_expander::CommandExpander;
pub use counters::Counters;
pub use directory::{HeadError, JournalDirectory, JournalDirectoryError, JournalFile};
pub use errors::{AppendError, OpenError, WriteFailure, WriteStep};
pub use handle::Journal;
pub use health::Health;
pub use line::{JournalLine, LineError, MAX_LINE_BYTES, MAX_RECORD_BYTES};
pub use maintenance::{Checkpoint, FileClosed, FileOpened, FilesRemoved, Finding, Unwritten};
pub use options::{JournalOptions, Retention, Signing, SyncRule};
pub use query::{Entries, Follower, JournalEntry, JournalReadError, ReadStep};
pub use queue::{
    AppendResult, BEST_EFFORT_DELAY, MAX_BEST_EFFORT_BYTES, MAX_BEST_EFFORT_RECORDS, MAX_QUEUE_BYTES,
    MAX_QUEUE_RECORDS,
};
pub use record::*;
pub use recorded_exits::MAX_RECORDED_EXITS;
pub use recorded_reports::MAX_REPORTING_SANDBOXES;
pub use report::{
    FaultKind, Integrity, JournalFault, JournalNotice, MAX_FAULTS, MAX_NOTICES, TornLine, VerifyReport,
};
pub use selection::RecordFilter;
pub use signing::{JournalKey, JournalPublicKey, KeyError};
pub use verify::verify;
pub use write_quota::{WriteQuota, WriteQuotaReached};
