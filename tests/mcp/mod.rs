//! `provost mcp` with the real binary: what its tools answer, what becomes of commands, and the official clients.

mod agents;
mod commands;
mod conformance;
mod ends;
mod http;
mod input;
mod malformed;
mod nightly;
mod official;
mod page;
pub(crate) mod peer;
mod permission;
mod shell_prefix;
mod tasks;

use crate::clients::libraries;
