//! The Model Context Protocol on stdio or HTTP: tools by which an agent runs commands through a gateway.
//!
//! On stdio one client, and one session of the gateway for it, which is closed when the client goes away; over HTTP one session for
//! all clients of one process. It decides nothing about
//! commands and runs nothing itself: each tool becomes calls to the gateway.

#![forbid(unsafe_code)]

mod errors;
mod http;
mod input;
mod output;
mod report;
mod server;
mod session;
mod start;
mod stdio;
mod task_calls;
mod tasks;
mod tools;
mod waiting;

use std::{path::PathBuf, time::Duration};

pub use http::HttpEndpoint;
pub use start::Approvals;
pub use stdio::{McpError, run};

use crate::proto::v1::WorkspaceExtent;

/// The longest message from a client, in bytes. A longer one is dropped, and the client told.
pub const LINE_MAX_BYTES: usize = 4 << 20;
/// How long answers may take to be written when the server is told to end.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(3);
/// How long the session's commands may take to end, at the end. They end with this process in any case.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(30);

/// What a client may do.
#[derive(Debug, Clone)]
pub struct McpOptions {
    /// The directories in which commands may write, as the user names them; absolute; at least one.
    pub roots: Vec<PathBuf>,
    /// The directories that commands may read; absolute.
    pub read_only: Vec<PathBuf>,
    /// Whether the repository around the first root is taken in its place.
    pub extent: WorkspaceExtent,
    /// The profile of the commands; none for the policy's default.
    pub profile: Option<String>,
    /// Who answers when a rule asks.
    pub approvals: Approvals,
    /// Whether a client's own roots narrow these directories.
    pub client_roots: ClientRoots,
}

/// What the roots that a client names mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientRoots {
    /// They narrow the directories that are allowed.
    Narrow,
    /// Nothing: several clients share the session.
    Ignored,
}
