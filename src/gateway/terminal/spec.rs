//! What was requested and permitted for a terminal. It never changes.

use std::{collections::BTreeMap, time::Duration};

use crate::{
    kept_shell::ShellKind,
    policy::{Digest, ProfileName, StreamMode, profile::Network},
};

/// What a terminal's command is written as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommandForm {
    /// The program's name or path, with arguments.
    Program,
    /// A line for a shell, which may hold anything.
    ShellLine,
}

/// The limits of a command in time, as policy has them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimeLimits {
    /// How long it may run.
    pub limit: Option<Duration>,
    /// How long it may write nothing.
    pub idle: Option<Duration>,
    /// Between TERM and KILL when nobody says another one.
    pub grace: Duration,
}

/// What becomes of a request that a rule asks a person about, and of an exec within its command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnAsk {
    /// It waits for the answer.
    Wait,
    /// It is refused. The question about a request stays.
    Refuse,
}

/// What a terminal is about; never changes.
#[derive(Debug)]
pub struct TerminalSpec {
    /// What `command` is.
    pub form: CommandForm,
    /// As the caller gave it.
    pub command: String,
    /// As the caller gave them.
    pub args: Vec<String>,
    /// Where it starts.
    pub cwd: String,
    /// The profile that confines it.
    pub profile: ProfileName,
    /// The name of the network that it has.
    pub network: &'static str,
    /// The others that its profile offered when it was permitted.
    pub offered: Vec<Network>,
    /// As the caller gave them.
    pub labels: BTreeMap<String, String>,
    /// Bytes of output to retain for each stream.
    pub output_limit_bytes: u64,
    /// How output is kept.
    pub streams: StreamMode,
    /// Set for a shell that is kept to run lines in.
    pub kept_shell: Option<ShellKind>,
    /// Whom the command waits for.
    pub backpressure: Backpressure,
    /// What becomes of it when nobody is attached.
    pub when_left: WhenLeft,
    /// Its limits of time.
    pub time_limits: TimeLimits,
    /// What becomes of execs that a rule asks about.
    pub on_ask: OnAsk,
    /// Of the request that was permitted.
    pub digest: Digest,
    /// Of the policy that permitted it.
    pub generation: u64,
}

/// Whom the command waits for when its ring is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Backpressure {
    /// For nobody: the oldest bytes go.
    Never,
    /// For the first who streams.
    ForStream,
    /// For the run that it was created for.
    ForRun,
    /// For the run that it was created for, which outlives its gateway.
    ForResumableRun,
}

/// What becomes of a command to which nobody is attached.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum WhenLeft {
    /// Nothing.
    #[default]
    RunsOn,
    /// It is stopped after a time.
    IsStopped,
}

/// Who reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReaderKind {
    /// Anybody who asks for the stream.
    Stream,
    /// The run that the terminal is created for.
    Run,
    /// The same, of a caller who comes back to the next gateway.
    ResumableRun,
}
