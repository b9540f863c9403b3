//! The tools that a client is offered: names, descriptions and schemas.

use std::{any::Any, sync::Arc};

use rmcp::{
    handler::server::tool::schema_for_type,
    model::{JsonObject, Tool, ToolAnnotations},
};
use schemars::JsonSchema;
use serde_json::json;

use super::arguments::{
    KillArguments, ListArguments, ReadArguments, RunArguments, StartArguments, WaitArguments, WriteArguments,
};

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
