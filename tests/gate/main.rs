//! The gate: every exec within a command is evaluated, recorded and told.

#[path = "../support/mod.rs"]
mod support;

mod again;
mod approved;
mod bypasses;
mod called;
mod counts;
#[path = "../journaled/disk.rs"]
#[allow(dead_code, reason = "another suite uses the rest of it")]
mod disk;
mod questions;
mod renamed;
mod reports;
mod scripts;
mod told;
mod v1;
mod work;
