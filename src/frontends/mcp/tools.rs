//! The tools that a client is offered: names, descriptions and schemas, and the arguments that clients give. The documentation of an argument
//! is the schema's, which models read.

use std::{any::Any, collections::BTreeMap, sync::Arc, time::Duration};

use rmcp::{
    handler::server::tool::schema_for_type,
    model::{JsonObject, Tool, ToolAnnotations},
};
use schemars::JsonSchema;
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::json;

use super::errors::ToolError;

/// The longest wait of one call.
pub(super) const WAIT_MAX: Duration = Duration::from_secs(600);
/// The most output that one call reads, in bytes.
pub(super) const READ_MAX_BYTES: u32 = 256 << 10;
/// A wait that names no time.
const WAIT_DEFAULT_SECONDS: u32 = 60;
/// A read that names no length.
const READ_DEFAULT_BYTES: u32 = 32 << 10;

/// A tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ToolName {
    Run,
    Start,
    Read,
    Wait,
    Write,
    Kill,
    List,
}

impl ToolName {
    const ALL: [Self; 7] =
        [Self::Run, Self::Start, Self::Read, Self::Wait, Self::Write, Self::Kill, Self::List];

    /// The tool of this name.
    pub(super) fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|tool| tool.as_str() == name)
    }

    fn as_str(self) -> &'static str {
        match self {
            Self::Run => "run_command",
            Self::Start => "start_command",
            Self::Read => "read_output",
            Self::Wait => "wait_command",
            Self::Write => "write_input",
            Self::Kill => "kill_command",
            Self::List => "list_commands",
        }
    }

    fn definition(self) -> Tool {
        match self {
            Self::Run => tool::<RunArguments>(
                self,
                "Run a command in a sandbox, wait for its end, and return its exit code and its output (stdout and \
                 stderr together). A command that is still running after wait_seconds goes on; the result has its id \
                 for wait_command, read_output and kill_command. If policy denies the command, the result says which \
                 rule, why, and what to do instead. Cancelling the request stops the command.",
                ToolAnnotations::new(),
            ),
            Self::Start => tool::<StartArguments>(
                self,
                "Start a command in a sandbox and return its id at once, for servers, watchers and what takes long.",
                ToolAnnotations::new(),
            ),
            Self::Read => tool::<ReadArguments>(
                self,
                "Read a command's output from an offset on. The result says where to go on reading.",
                ToolAnnotations::new().read_only(true).open_world(false),
            ),
            Self::Wait => tool::<WaitArguments>(
                self,
                "Wait until a command has ended, and return its exit code and its output.",
                ToolAnnotations::new().read_only(true).open_world(false),
            ),
            Self::Write => tool::<WriteArguments>(
                self,
                "Write text to the standard input of a command that was started with open_stdin.",
                ToolAnnotations::new(),
            ),
            Self::Kill => tool::<KillArguments>(
                self,
                "Stop a command and everything that it started, or send it a signal.",
                ToolAnnotations::new().idempotent(true).open_world(false),
            ),
            Self::List => tool::<ListArguments>(
                self,
                "List the commands that run, and those whose output can still be read.",
                ToolAnnotations::new().read_only(true).open_world(false),
            ),
        }
    }
}

/// All of them.
pub(super) fn all() -> Vec<Tool> {
    ToolName::ALL.into_iter().map(ToolName::definition).collect()
}

fn tool<T: JsonSchema + Any>(name: ToolName, description: &'static str, hints: ToolAnnotations) -> Tool {
    let mut schema = JsonObject::clone(&schema_for_type::<T>());
    // Some clients read it without asking whether it is there, also of a tool without arguments.
    schema.entry("properties").or_insert_with(|| json!({}));
    Tool::new(name.as_str(), description, Arc::new(schema)).with_annotations(hints)
}

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
pub(super) fn parse_arguments<T: DeserializeOwned>(arguments: Option<JsonObject>) -> Result<T, ToolError> {
    let arguments = serde_json::Value::Object(arguments.unwrap_or_default());
    serde_json::from_value(arguments).map_err(|error| ToolError::bad_argument(&error.to_string()))
}

/// How long to wait.
pub(super) fn wait_time(seconds: Option<u32>) -> Result<Duration, ToolError> {
    let wait = Duration::from_secs(seconds.unwrap_or(WAIT_DEFAULT_SECONDS).into());
    if wait > WAIT_MAX {
        return Err(ToolError::bad_argument(&format!("wait_seconds must be at most {}", WAIT_MAX.as_secs())));
    }
    Ok(wait)
}

/// How much to read.
pub(super) fn read_length(max_bytes: Option<u32>) -> Result<usize, ToolError> {
    match max_bytes.unwrap_or(READ_DEFAULT_BYTES) {
        // Less than this has no room for every character.
        length @ 4..=READ_MAX_BYTES => Ok(length as usize),
        _ => Err(ToolError::bad_argument(&format!("max_bytes must be 4 to {READ_MAX_BYTES}"))),
    }
}
