//! The supervisor: PID 1 of a sandbox.
//!
//! First it sets the sandbox up (namespaces, root, privileges, filters), then it runs one event loop that spawns,
//! reaps, copies output and stops. It decides nothing: every plan and every limit comes from the gateway.

mod launch;
mod ready;
pub mod runtime;
mod setup;

pub(crate) use launch::main;
pub use ready::{CommandIdentity, Ready};

pub(crate) use crate::wire::launch::PROCESS_NAME;
