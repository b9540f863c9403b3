//! The Agent Client Protocol: an agent's terminals, answered by a gateway.
//!
//! Two ways in. [`run`] is `provost acp`: it stands between an editor and its agent on their stdio, answers what the
//! agent asks of terminals and passes everything else on. [`Terminals`] is for an ACP client of one's own: the five
//! terminal methods as calls, all five in one with [`Terminals::answer`]; `examples/embed.rs` shows how. Neither decides what may run, and neither runs anything: both ask a gateway.

#![forbid(unsafe_code)]

mod agent;
mod asked;
mod asking;
mod calls;
mod confinement;
mod connection;
mod content;
mod create;
mod delegation;
mod exit;
mod fields;
mod following;
mod framing;
mod handshake;
mod lines;
mod link;
mod message;
mod permission;
mod recent;
mod refusal;
mod sessions;
mod shim;
mod shown;
mod starting;
mod stdio;
mod subagents;
mod terminal;
mod terminals;
mod text;
mod tool_calls;

pub use asking::{Asker, Question, Reply};
pub use calls::CALLS_MAX;
pub use confinement::{ConfineError, Confinement};
pub use connection::{Ended, Options, RunError, run};
pub use exit::status_of;
pub use framing::LINE_MAX_BYTES;
pub use permission::QUESTIONS_MAX;
pub use refusal::DENIED_CODE;
pub use sessions::{SESSIONS_MAX, SUBAGENTS_MAX, Workspace};
pub use shim::Note;
pub use terminals::{Answer, TERMINALS_MAX, Terminals};
