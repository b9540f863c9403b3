//! `provost mcp` with the real binary: what its tools answer, what becomes of commands, and the official clients.

#[path = "../support/mod.rs"]
mod support;

#[path = "../clients/libraries.rs"]
#[allow(dead_code, reason = "another suite uses the rest of it")]
mod libraries;

mod agents;
mod commands;
mod conformance;
mod ends;
mod http;
mod input;
mod malformed;
mod more_agents;
mod official;
mod page;
mod peer;
mod permission;
mod shell_prefix;
mod tasks;
