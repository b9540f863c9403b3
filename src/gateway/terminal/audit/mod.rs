//! The audit records of terminals, sessions and approvals: their contents, and how they reach the journal.

pub mod approval_records;
pub(in crate::terminal) mod exec_records;
pub mod record_limiter;
pub(in crate::terminal) mod recorded_reports;
pub mod recorder;
pub mod records;
pub mod repeat_counts_file;
pub mod session_records;
pub mod subject;
pub mod workspace_records;
