//! `provost exec-server` with the real binary: what its methods answer, where its commands and file operations happen, what becomes of
//! them at the end, what a broken websocket leaves, and the real Codex CLI.

#[path = "../support/mod.rs"]
mod support;

#[path = "../clients/libraries.rs"]
#[allow(dead_code, reason = "another suite uses the rest of it")]
mod libraries;

mod codex;
mod codex_by_url;
mod ends;
mod files;
mod frames;
mod gone;
mod listening;
mod pages;
mod peer;
mod processes;
mod resumed;
mod socket;
mod wishes;
