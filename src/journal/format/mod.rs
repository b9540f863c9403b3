//! The form of the journal: records, lines and their chain, files and directories, keys, times.

pub mod chain;
pub mod clock;
pub mod directory;
pub mod line;
pub mod maintenance;
pub mod record;
pub mod signing;
