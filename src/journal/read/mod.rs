//! Reads the journal: its entries, what the last gateway recorded, and whether the chain holds.

pub(crate) mod command_expander;
pub(crate) mod query;
pub(crate) mod recorded;
pub(crate) mod verify;
