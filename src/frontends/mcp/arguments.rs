//! The arguments of the tools, as clients give them. Their documentation is the schema's, which models read.

use std::{collections::BTreeMap, time::Duration};

use rmcp::model::JsonObject;
use schemars::JsonSchema;
use serde::{Deserialize, de::DeserializeOwned};

use super::errors::ToolError;

/// The longest wait of one call.
pub const WAIT_MAX: Duration = Duration::from_secs(600);
/// The most output that one call reads, in bytes.
pub const READ_MAX_BYTES: u32 = 256 << 10;
/// A wait that names no time.
const WAIT_DEFAULT_SECONDS: u32 = 60;
/// A read that names no length.
const READ_DEFAULT_BYTES: u32 = 32 << 10;

/// `run_command`.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RunArguments {
    /// The command: a line for the shell, or, with args, the name or path of a program.
    pub(super) command: String,
    /// Arguments of the program. If they are given, even as an empty list, no shell reads the command.
    #[serde(default)]
    pub(super) args: Option<Vec<String>>,
    /// The working directory, an absolute path. Default: the workspace.
    #[serde(default)]
    pub(super) cwd: Option<String>,
    /// Variables for the command's environment.
    #[serde(default)]
    pub(super) env: BTreeMap<String, String>,
    /// Text for the command's standard input. Default: the input is empty.
    #[serde(default)]
    pub(super) stdin: Option<String>,
    /// Seconds after which the command is stopped with all that it started. Default: the limit that the policy sets.
    #[serde(default)]
    pub(super) timeout_seconds: Option<u32>,
    /// Seconds to wait for the end, at most 600. After that the command goes on, and the result has its id.
    /// Default: 60.
    #[serde(default)]
    pub(super) wait_seconds: Option<u32>,
}

/// `start_command`.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct StartArguments {
    /// The command: a line for the shell, or, with args, the name or path of a program.
    pub(super) command: String,
    /// Arguments of the program. If they are given, even as an empty list, no shell reads the command.
    #[serde(default)]
    pub(super) args: Option<Vec<String>>,
    /// The working directory, an absolute path. Default: the workspace.
    #[serde(default)]
    pub(super) cwd: Option<String>,
    /// Variables for the command's environment.
    #[serde(default)]
    pub(super) env: BTreeMap<String, String>,
    /// Keep standard input open for write_input. Default: the input is empty.
    #[serde(default)]
    pub(super) open_stdin: bool,
    /// Seconds after which the command is stopped with all that it started. Default: the limit that the policy sets.
    #[serde(default)]
    pub(super) timeout_seconds: Option<u32>,
}

/// `read_output`.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ReadArguments {
    /// The command's id.
    pub(super) id: String,
    /// The offset in bytes to read from: 0, or the next_offset of the last result. Default: 0.
    #[serde(default)]
    pub(super) offset: u64,
    /// The most bytes to read, at most 262144. Default: 32768.
    #[serde(default)]
    pub(super) max_bytes: Option<u32>,
}

/// `wait_command`.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct WaitArguments {
    /// The command's id.
    pub(super) id: String,
    /// Seconds to wait for the end, at most 600. Default: 60.
    #[serde(default)]
    pub(super) wait_seconds: Option<u32>,
}

/// `write_input`.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct WriteArguments {
    /// The command's id.
    pub(super) id: String,
    /// The text to write to standard input.
    #[serde(default)]
    pub(super) text: String,
    /// Close standard input after the text.
    #[serde(default)]
    pub(super) eof: bool,
}

/// `kill_command`.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct KillArguments {
    /// The command's id.
    pub(super) id: String,
    /// Send only this signal, such as INT, HUP or 10. Default: stop the command and everything that it started.
    #[serde(default)]
    pub(super) signal: Option<String>,
}

/// `list_commands`.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ListArguments {}

/// Reads a tool's arguments. A mistake is for the model to see, and to do better.
pub(super) fn parse<T: DeserializeOwned>(arguments: Option<JsonObject>) -> Result<T, ToolError> {
    let arguments = serde_json::Value::Object(arguments.unwrap_or_default());
    serde_json::from_value(arguments).map_err(|error| ToolError::bad_argument(&error.to_string()))
}

/// How long to wait.
pub(super) fn wait(seconds: Option<u32>) -> Result<Duration, ToolError> {
    let wait = Duration::from_secs(seconds.unwrap_or(WAIT_DEFAULT_SECONDS).into());
    if wait > WAIT_MAX {
        return Err(ToolError::bad_argument(&format!("wait_seconds must be at most {}", WAIT_MAX.as_secs())));
    }
    Ok(wait)
}

/// How much to read.
pub(super) fn read_length(max_bytes: Option<u32>) -> Result<usize, ToolError> {
    match max_bytes.unwrap_or(READ_DEFAULT_BYTES) {
        // Of less not even every character fits.
        length @ 4..=READ_MAX_BYTES => Ok(length as usize),
        _ => Err(ToolError::bad_argument(&format!("max_bytes must be 4 to {READ_MAX_BYTES}"))),
    }
}
