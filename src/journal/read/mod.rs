//! Reads the journal: its entries, what the last gateway recorded, and whether the chain holds.

pub mod command_expander;
pub mod query;
pub mod recorded;
pub mod verify;
