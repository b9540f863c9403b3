//! Writes the journal: from a caller's record to a durable line, within the shares of its callers.

mod appender;
pub mod counters;
pub mod errors;
pub mod handle;
pub mod health;
mod mutex;
pub mod queue;
mod recovery;
pub mod retention;
mod store;
mod syncer;
mod usage_restore;
pub mod write_quota;
pub mod writer;
