//! The Agent Client Protocol: an agent's terminals, answered by a gateway.
//!
//! Two ways in. [`run`] is `provost acp`: it stands between an editor and its agent on their stdio, answers what the
//! agent asks of terminals and passes everything else on. [`Terminals`] is for an ACP client of one's own: the five
//! terminal methods as calls, all five in one with [`Terminals::answer`]; `examples/embed.rs` shows how. Neither decides what may run, and neither runs anything: both ask a gateway.

#![forbid(unsafe_code)]

mod agent;
mod agent_requests;
mod approval_prompt;
mod bounded_map;
mod bypass_detector;
mod confined_agent;
mod connection;
mod content;
mod create;
mod encode;
mod errors;
mod exec_questions;
mod exit;
mod framing;
mod handshake;
mod in_flight;
mod kept_shells;
mod line_follower;
mod message;
mod output_follower;
mod output_snapshot;
mod parsed_update;
mod permission_requests;
mod raw_object;
mod session;
mod sessions;
mod shell_line;
mod shim;
mod start;
mod stdio;
mod subagents;
mod terminal;
mod terminals;
mod text;
mod tool_call_state;
mod tool_calls;

pub use approval_prompt::{ApprovalPrompt, ApprovalQuestion, ApprovalReply};
pub use confined_agent::{ConfineError, Confinement};
pub use connection::{ShimError, ShimExit, ShimOptions, run};
pub use errors::DENIED_CODE;
pub use exit::status_of;
pub use framing::LINE_MAX_BYTES;
pub use in_flight::IN_FLIGHT_MAX;
pub use permission_requests::QUESTIONS_MAX;
pub use session::{KeptShells, SessionShell, Workspace};
pub use sessions::{SESSIONS_MAX, SUBAGENTS_MAX, SharedDirectories};
pub use shim::NoticeSink;
pub use terminals::{AcpTerminals, AnswerFuture, TERMINALS_MAX};
