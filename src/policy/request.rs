//! A complete request for a command, parsed: what policy evaluates.
//!
//! Every field is well-formed. Nothing in it has been allowed yet.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use super::{AbsPath, environment::EnvEntry, profile::Network};

/// The command that is to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CommandSpec {
    /// A program and its arguments.
    Argv {
        /// A bare name, or a path; not empty, no NUL.
        command: String,
        /// The arguments after it; no NUL.
        args: Vec<String>,
    },
    /// A line for the profile's shell; no NUL.
    ShellLine(String),
}

/// How stdout and stderr are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamMode {
    /// One stream, in the order of writing.
    Merged,
    /// Two streams.
    Split,
}

/// What happens when the ring is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OverflowMode {
    /// The oldest bytes go.
    DropOldest,
    /// The command waits for its reader.
    Block,
}

/// Where stdin comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StdinSource {
    /// `/dev/null`.
    Closed,
    /// A pipe that the caller writes to.
    Open,
}

/// A request, complete: the caller's own words and what its session adds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// The principal, as the kernel has identified it.
    pub principal: String,
    /// The session's labels.
    pub labels: Arc<BTreeMap<String, String>>,
    /// The session's directories; at least one.
    pub roots: Arc<[AbsPath]>,
    /// The session's environment.
    pub session_env: Arc<[EnvEntry]>,
    /// What to run.
    pub command: CommandSpec,
    /// The caller's environment.
    pub env: Vec<EnvEntry>,
    /// The working directory: the caller's, or the session's.
    pub cwd: AbsPath,
    /// The profile's name: the caller's, or the session's; absent: the policy's default.
    pub profile: Option<String>,
    /// The network asked for; absent: the profile's default.
    pub network: Option<Network>,
    /// Bytes of output to retain; absent: the profile's default.
    pub output_limit_bytes: Option<u64>,
    /// How the output is kept.
    pub streams: StreamMode,
    /// Where stdin comes from.
    pub stdin: StdinSource,
    /// What happens when the ring is full.
    pub overflow: OverflowMode,
    /// Absent: the profile's.
    pub time_limit: Option<Duration>,
    /// Absent: the profile's.
    pub idle_limit: Option<Duration>,
    /// Absent: the profile's.
    pub kill_grace: Option<Duration>,
}
