//! The screen process: one for each sandbox with PTY terminals.
//!
//! It reads the output of the terminals from their rings, emulates each, and publishes pictures of them in shared memory.
//! Hostile escape sequences are interpreted here and nowhere else, without privileges, files or a network, at the expense of
//! the session. It outlives the gateway and ends with the supervisor. It decides nothing, and the command never waits for it.

#![forbid(unsafe_code)]

mod confinement;
mod continuation;
mod corrected;
pub mod emulator;
mod event_loop;
mod filter;
mod process;
mod requests;
#[cfg(test)]
mod restored;
mod sieve;
mod state;
mod terminal;

pub(crate) use process::main;

pub(crate) use crate::wire::screen::PROCESS_NAME;
