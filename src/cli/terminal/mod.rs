//! Terminals that are there: listed, shown, attached to, recorded, forwarded to, removed.

pub(super) mod attach;
pub(super) mod forward;
pub(super) mod logs;
pub(super) mod record;
pub(super) mod terminals;
