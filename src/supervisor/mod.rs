//! Inside a sandbox: the supervisor, PID 1.
//!
//! Set-up first (namespaces, root, privileges, filters), then one event loop that spawns, reaps, pumps output
//! and stops. It decides nothing: every plan and every limit comes from the gateway.

mod launch;
mod ready;
pub mod runtime;
mod setup;

pub use launch::main;
pub use ready::{CommandIdentity, Ready};

pub use crate::wire::launch::PROCESS_NAME;
