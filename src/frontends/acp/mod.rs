//! The Agent Client Protocol: an agent's terminals, answered by a gateway.
//!
//! Two ways in. [`run`] is `provost acp`: it stands between an editor and its agent on their stdio, answers what the
//! agent asks of terminals and passes everything else on. [`AcpTerminals`] is for an ACP client of one's own: the five
//! terminal methods as calls, all five in one with [`AcpTerminals::answer`]; `examples/embed.rs` shows how. Neither decides what may run, and neither runs anything: both ask a gateway.
//!
//! The directories import one another in one direction. From the lowest to the highest: `wire`, `approval`, `session`, `terminal`,
//! `tool_call`, `agent_process`; then the files here.

#![forbid(unsafe_code)]

mod agent_process;
mod agent_requests;
mod approval;
mod connection;
mod coverage;
mod in_flight;
mod session;
mod shim;
mod terminal;
mod tool_call;
mod wire;

pub use agent_process::confined_agent::{ConfineError, Confinement};
pub use approval::{
    approval_prompt::{ApprovalPrompt, ApprovalQuestion, ApprovalReply},
    permission_requests::QUESTIONS_MAX,
};
pub use connection::{ShimError, ShimExit, ShimOptions, run};
pub use coverage::{ExpectedTerminals, HTTP_SERVERS_MAX, HttpServer, HttpTools, NoticeSink, ToolServer};
pub use in_flight::IN_FLIGHT_MAX;
pub use session::{
    session::{KeptShells, SessionShell, Workspace},
    sessions::{SESSIONS_MAX, SUBAGENTS_MAX, SharedDirectories},
};
pub use terminal::{
    exit::status_of,
    terminals::{AcpTerminals, AnswerFuture, TERMINALS_MAX},
};
pub use wire::{errors::DENIED_CODE, framing::LINE_MAX_BYTES};
