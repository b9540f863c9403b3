//! The Agent Client Protocol: an agent's terminals, answered by a gateway.
//!
//! Two ways in. [`run`] is `provost acp`: it stands between an editor and its agent on their stdio, answers what the
//! agent asks of terminals and passes everything else on. [`AcpTerminals`] is for an ACP client of one's own: the five
//! terminal methods as calls, all five in one with [`AcpTerminals::answer`]; `examples/embed.rs` shows how. Neither decides what may run, and neither runs anything: both ask a gateway.

#![forbid(unsafe_code)]

mod agent_process;
mod agent_requests;
mod approval;
mod bypass_detector;
mod connection;
mod coverage;
mod errors;
mod handshake;
mod in_flight;
mod lines;
mod sessions;
mod shim;
mod terminal;
mod tool_call_state;
mod tool_calls;

pub use agent_process::Confinement;
pub use approval::{ApprovalPrompt, ApprovalQuestion, ApprovalReply};
pub use connection::{ShimOptions, run};
pub use coverage::{ExpectedTerminals, HttpServer, HttpTools, ToolServer};
pub use errors::DENIED_CODE;
pub use sessions::{KeptShells, SESSIONS_MAX, SharedDirectories, Workspace};
pub use shim::LINE_MAX_BYTES;
pub use terminal::exit::status_of;
pub use terminal::terminals::AcpTerminals;
