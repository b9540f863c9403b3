//! The gate: every exec within a command is evaluated, recorded and told.

mod again;
mod approved;
mod bypasses;
mod called;
mod counts;
mod questions;
mod renamed;
mod reports;
mod scripts;
mod told;
mod v1;
mod work;

use crate::journaled::disk;
