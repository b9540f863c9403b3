//! The exec-server protocol of the Codex CLI, on stdio or by websockets: its processes run, and its file operations happen, through a
//! gateway.
//!
//! Each client has a session of the gateway of its own. It decides nothing about commands, runs nothing itself and opens no file: a
//! process is a terminal of the session, and a file operation is a command in it (decision 0335).

#![forbid(unsafe_code)]

mod environment;
mod file_program;
mod file_status;
mod file_walk;
mod files;
mod follow;
mod handles;
mod handshake;
mod lines;
mod message;
mod open_session;
mod outlet;
mod process;
mod processes;
mod refusal;
mod resolved_wish;
mod run;
mod server;
mod session;
mod sessions;
mod stdio;
mod uri;
mod websocket;
mod websocket_server;
mod wish;

use std::{path::PathBuf, time::Duration};

pub use file_program::TIME_LIMIT as FILE_TIME_LIMIT;
pub use file_walk::{LISTED_MAX_BYTES, WALKED_MAX_ENTRIES};
pub use handles::{BLOCK_MAX_BYTES, HANDLES_MAX};
pub use lines::{LINE_MAX_BYTES, QUEUE_MAX_BYTES};
pub use open_session::{CALL_BYTES_MAX, CALLS_MAX, FILE_CALLS_MAX};
pub use process::{RETAINED_BYTES, WAIT_MAX, WRITE_NAMES_MAX};
pub use processes::{PROCESSES_MAX, WRITE_MAX_BYTES, WRITES_MAX};
pub use sessions::SESSIONS_MAX;
pub use stdio::run;
pub use websocket_server::{CLIENTS_MAX, WebSocketEndpoint};

/// The largest file that one request reads or writes as a whole, in bytes.
pub const FILE_MAX_BYTES: usize = 12 << 20;
/// How long the session's commands may take to end, at the end. They end with this process in any case.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(30);

/// What a client may do.
#[derive(Debug, Clone)]
pub struct ExecServerOptions {
    /// The directories in which commands may write, as the user names them; absolute; at least one.
    pub roots: Vec<PathBuf>,
    /// The profile of the commands; none for the policy's default.
    pub profile: Option<String>,
    /// Names of variables that are passed on to commands, in addition to those that describe the language and the terminal.
    pub env_names: Vec<String>,
}
