//! `provost exec-server` with the real binary: what its methods answer, where its commands and file operations happen, what becomes of
//! them at the end, what a broken websocket leaves, and the real Codex CLI.

mod ends;
mod files;
mod frames;
mod gone;
mod listening;
mod nightly;
mod pages;
pub(crate) mod peer;
mod processes;
mod resumed;
pub(crate) mod socket;
mod wishes;

use crate::clients::libraries;
