//! Connections that a sandbox's programs open, and the secrets and signatures that go with them: judged, asked about, carried.
//!
//! From the lowest to the highest: `questions`, `attempt`, `tls`, `connections`, and above them what is done for one kind of question.

pub(super) mod attempt;
#[expect(clippy::module_inception, reason = "the story of all of them")]
pub(super) mod connections;
pub(super) mod questions;
pub(super) mod signatures;
mod sockets;
mod tls;
