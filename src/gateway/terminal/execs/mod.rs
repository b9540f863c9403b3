//! What the gate of a sandbox asks about execs, and what it reports.

pub mod questions;
pub mod reports;
