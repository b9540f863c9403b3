//! The state of terminals: one terminal, the registry of all, and what is kept of each for the next gateway.

pub mod claim;
pub(in crate::terminal) mod connect_denials;
pub mod deadlines;
pub(in crate::terminal) mod denials;
pub mod end_claims;
pub(in crate::terminal) mod exec_denials;
pub(in crate::terminal) mod kept_shell;
pub mod lease;
pub mod live;
pub mod metadata;
pub mod outcome;
pub(in crate::terminal) mod person_wait;
mod person_waits;
mod primary;
mod protection_hints;
pub mod pty;
pub mod quota_tracker;
pub mod reader_holds;
pub mod receipt;
pub mod registry;
pub mod run_caller;
pub mod stage;
pub mod terminal;
pub mod terminal_log;
pub(in crate::terminal) mod transitions;
pub mod waiters;
pub mod workspace;
