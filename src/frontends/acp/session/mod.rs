//! The protocol's sessions and their subagents, each with its session of the gateway.

#[expect(clippy::module_inception, reason = "the directory is about sessions, the file about one")]
pub mod session;
pub mod sessions;
pub mod subagents;
