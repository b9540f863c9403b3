//! Finding the files that a command's names mean, for policy: program names, paths, and interpreters of scripts.
//!
//! Works from the gateway's side, with the caller's rights. Judges nothing and executes nothing.

pub mod found_file;
mod program_resolver;

pub use program_resolver::{ProgramCache, SessionResolver};
