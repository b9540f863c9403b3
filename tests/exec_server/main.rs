//! `provost exec-server` with the real binary: what its methods answer, where its commands and file operations happen, and what becomes
//! of them at the end.

#[path = "../support/mod.rs"]
mod support;

mod ends;
mod files;
mod peer;
mod processes;
