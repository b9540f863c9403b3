//! Connections that a sandbox's programs open, and the secrets and signatures that go with them: judged, asked about, carried.
//!
//! From the lowest to the highest: `bytes`, `ca`, `grants`, `questions`, `attempt`, `tls`, `connections`, and above them what is done for one kind
//! of question.

mod ask;
mod attempt;
pub mod bytes;
mod ca;
#[expect(clippy::module_inception, reason = "the story of all of them")]
pub mod connections;
pub mod grants;
mod masking;
mod open;
pub mod questions;
pub mod signatures;
mod sockets;
mod tls;
