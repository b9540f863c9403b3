//! Terminals that are there: listed, shown, attached to, recorded, forwarded to, removed.

pub mod attach;
pub mod forward;
pub mod logs;
pub mod record;
pub mod terminals;
