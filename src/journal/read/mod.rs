//! Reads the journal: its entries, what the last gateway recorded, and whether the chain holds.

pub mod command_expander;
pub mod query;
pub mod recorded_exits;
pub mod recorded_reports;
pub mod selection;
pub mod verify;
