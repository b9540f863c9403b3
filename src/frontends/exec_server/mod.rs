//! The exec-server protocol of the Codex CLI, on stdio or by websockets: its processes run, and its file operations happen, through a
//! gateway.
//!
//! Each client has a session of the gateway of its own. It decides nothing about commands, runs nothing itself and opens no file: a
//! process is a terminal of the session, and a file operation is a command in it (decision 0335).

#![forbid(unsafe_code)]

mod errors;
mod file_programs;
mod files;
mod follow;
mod message;
mod open_session;
mod process;
mod processes;
mod server;
mod session;
mod sessions;
mod websocket;
mod wish;

use std::{path::PathBuf, time::Duration};

pub use files::BLOCK_MAX_BYTES;
pub use process::RETAINED_BYTES;
pub use server::run;
pub use sessions::SESSIONS_MAX;
pub use websocket::WebSocketEndpoint;

use crate::json_rpc::QueueBounds;

/// The largest file that one request reads or writes as a whole, in bytes.
pub const FILE_MAX_BYTES: usize = 12 << 20;
/// The longest message from a client, in bytes: a file of [`FILE_MAX_BYTES`] in base64, and a little.
pub const LINE_MAX_BYTES: usize = FILE_MAX_BYTES / 3 * 4 + (1 << 20);
/// How many bytes may wait to be written to a client. One message can be longer: it waits alone.
pub const QUEUE_MAX_BYTES: usize = 32 << 20;
/// And how many messages.
const QUEUE_MAX_MESSAGES: usize = 4_096;
/// A client that does not read holds up its own commands and nothing else.
const QUEUE: QueueBounds = QueueBounds { bytes: QUEUE_MAX_BYTES, lines: QUEUE_MAX_MESSAGES };
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
