//! What the gate of a sandbox asks about execs, and what it reports.

pub(super) mod questions;
pub(super) mod reports;
