//! Terminals that are there: listed, shown, attached to, recorded, forwarded to, removed.

pub mod attach;
pub mod cast;
pub mod forward;
pub mod logs;
pub mod record;
pub mod sessions;
pub mod terminals;
pub mod top;
