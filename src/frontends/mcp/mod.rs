//! The Model Context Protocol on stdio or HTTP: tools by which an agent runs commands through a gateway.
//!
//! On stdio one client, and one session of the gateway for it, which is closed when the client goes away; over HTTP one session for
//! all clients of one process. It decides nothing about
//! commands and runs nothing itself: each tool becomes calls to the gateway.

#![forbid(unsafe_code)]

mod arguments;
mod elicitation;
mod errors;
mod http;
mod input;
mod output;
mod params;
mod progress;
mod report;
mod retried_call;
mod roots;
mod server;
mod session;
mod start;
mod stdio;
mod task_calls;
mod tasks;
mod tools;
mod waiting;

use std::{future::Future, path::PathBuf, time::Duration};

use rmcp::service::ServerInitializeError;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

pub use arguments::{READ_MAX_BYTES, WAIT_MAX};
pub use elicitation::Approvals;
pub use http::HttpEndpoint;
pub use output::RESULT_MAX_BYTES;
pub use server::CALLS_MAX;
pub use start::COMMANDS_MAX;

use crate::{client::Client, proto::v1::WorkspaceExtent};
use server::McpServer;
use stdio::StdioTransport;

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

/// Why a client was not served.
#[derive(Debug, thiserror::Error)]
pub enum McpError {
    /// The client did not begin as the protocol says.
    #[error("the client did not open the protocol: {0}")]
    Handshake(String),
    /// The connection's task has failed.
    #[error("the connection to the client has failed")]
    Connection(#[source] tokio::task::JoinError),
}

/// Serves the client on this process's stdio until it goes away or `stopped` resolves. Returns when its session is
/// closed.
pub async fn run(
    client: Client,
    options: McpOptions,
    stopped: impl Future<Output = ()>,
) -> Result<(), McpError> {
    let server = McpServer::new(client, options);
    let cancelled = CancellationToken::new();
    let transport = StdioTransport::new(crate::stdio::stdin(), crate::stdio::stdout());
    let serving = serve(server.clone(), transport, cancelled.clone());
    tokio::pin!(serving);
    let served = tokio::select! {
        served = &mut serving => served,
        () = stopped => {
            cancelled.cancel();
            timeout(FLUSH_TIMEOUT, serving).await.unwrap_or(Ok(()))
        }
    };
    if timeout(CLOSE_TIMEOUT, server.close()).await.is_err() {
        tracing::warn!("the gateway does not say that the session is closed: it ends with this process");
    }
    served
}

async fn serve<R, W>(
    server: McpServer,
    transport: StdioTransport<R, W>,
    cancelled: CancellationToken,
) -> Result<(), McpError>
where
    R: tokio::io::AsyncRead + Send + Unpin + 'static,
    W: tokio::io::AsyncWrite + Send + Unpin + 'static,
{
    match rmcp::service::serve_server_with_ct(server, transport, cancelled).await {
        Ok(running) => running.waiting().await.map(drop).map_err(McpError::Connection),
        // It came, said nothing and went away, or was told to: nothing was asked.
        Err(ServerInitializeError::ConnectionClosed(_) | ServerInitializeError::Cancelled) => Ok(()),
        Err(error) => {
            Err(McpError::Handshake(crate::printable::bounded_line(&error.to_string(), 512).into_owned()))
        }
    }
}
