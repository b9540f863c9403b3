//! The agent's process: under a subreaper, or the whole of it in a sandbox.

pub mod agent;
pub mod confined_agent;
