//! `provost exec-server` with the real binary: what its methods answer, where its commands and file operations happen, what becomes of
//! them at the end, and the real Codex CLI.

#[path = "../support/mod.rs"]
mod support;

#[path = "../clients/libraries.rs"]
#[allow(dead_code, reason = "another suite uses the rest of it")]
mod libraries;

mod codex;
mod ends;
mod files;
mod peer;
mod processes;
