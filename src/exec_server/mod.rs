//! The exec-server protocol of the Codex CLI on stdio: its processes run, and its file operations happen, through a gateway.
//!
//! One client, and one session of the gateway for it, which ends with the client. It decides nothing about commands, runs nothing
//! itself and opens no file: a process is a terminal of the session, and a file operation is a command in it (decision 0335).

#![forbid(unsafe_code)]

mod environment;
mod file_program;
mod file_status;
mod file_walk;
mod files;
mod follow;
mod handles;
mod lines;
mod message;
mod process;
mod processes;
mod refusal;
mod run;
mod server;
mod session;
mod uri;
mod wish;

use std::{future::Future, io, path::PathBuf, time::Duration};

use tokio::time::timeout;

pub use file_program::TIME_LIMIT as FILE_TIME_LIMIT;
pub use file_walk::{LISTED_MAX_BYTES, WALKED_MAX_ENTRIES};
pub use handles::{BLOCK_MAX_BYTES, HANDLES_MAX};
pub use lines::{LINE_MAX_BYTES, QUEUE_MAX_BYTES};
pub use process::{RETAINED_BYTES, WAIT_MAX};
pub use processes::{PROCESSES_MAX, WRITE_MAX_BYTES, WRITES_MAX};
pub use server::{CALL_BYTES_MAX, CALLS_MAX, FILE_CALLS_MAX};

use crate::client::{Client, RetryingClient};
use lines::{InputLine, LineReader};
use server::Server;

/// The largest file that one request reads or writes as a whole, in bytes.
pub const FILE_MAX_BYTES: usize = 12 << 20;
/// How long the session's commands may take to end, at the end. They end with this process in any case.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(30);

/// What a client may do.
#[derive(Debug, Clone)]
pub struct ExecServerOptions {
    /// The directories in which commands may write; absolute and without links; at least one.
    pub roots: Vec<PathBuf>,
    /// The profile of the commands; none for the policy's default.
    pub profile: Option<String>,
    /// Names of variables that are passed on to commands, in addition to those that describe the language and the terminal.
    pub env_names: Vec<String>,
}

/// Serves the client on this process's stdio until it goes away or `stopped` resolves. Returns when its session is closed.
///
/// # Errors
/// If stdin cannot be read.
pub async fn run(
    client: Client,
    options: ExecServerOptions,
    stopped: impl Future<Output = ()>,
) -> io::Result<()> {
    let (sender, queue) = lines::line_channel();
    let writing = tokio::spawn(queue.write_to(tokio::io::stdout()));
    let mut server = Server::new(RetryingClient::new(client), options, sender);
    let mut lines = LineReader::new(tokio::io::stdin());
    tokio::pin!(stopped);
    let read = loop {
        let line = tokio::select! {
            line = lines.next() => line,
            () = &mut stopped => break Ok(()),
        };
        let line = match line {
            Ok(Some(line)) => line,
            Ok(None) => break Ok(()),
            Err(error) => break Err(error),
        };
        let taking = async {
            match &line {
                InputLine::Complete(line) => server.take(line).await,
                InputLine::TooLong => server.refuse_line().await,
            }
        };
        // An answer waits for a client that does not read.
        let taken = tokio::select! {
            taken = taking => taken,
            () = &mut stopped => break Ok(()),
        };
        if taken.is_err() {
            break Ok(());
        }
    };
    if timeout(CLOSE_TIMEOUT, server.close()).await.is_err() {
        tracing::warn!("the gateway does not say that the session is closed: it ends with this process");
    }
    writing.abort();
    read
}
