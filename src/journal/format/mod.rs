//! The form of the journal: records, lines and their chain, files and directories, keys, times.

pub(crate) mod chain;
pub(crate) mod clock;
pub(crate) mod directory;
pub(crate) mod line;
pub(crate) mod maintenance;
pub(crate) mod record;
pub(crate) mod signing;
