//! Records of a command's life: spawned, started, asked to end, ended.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{CommandLocation, RecordedCommand};

/// [`Record::Spawn`](super::Record::Spawn): written before the command is started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpawnRecord {
    /// The terminal.
    pub terminal: String,
    /// Its session.
    pub session: String,
    /// Who asked.
    pub principal: String,
    /// The sandbox that it runs in.
    pub sandbox: String,
    /// The profile.
    pub profile: String,
    /// The digest of the request, as in the decision that allowed it.
    pub request_digest: String,
    /// The generation of the policy that allowed it.
    pub generation: u64,
    /// What is given to exec before the command of the decision, as `sh -c`; all of it where there is no other record.
    #[serde(default, skip_serializing_if = "RecordedCommand::is_empty")]
    pub command: RecordedCommand,
    /// The record that has the command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command_in: Option<CommandLocation>,
}

/// [`Record::Started`](super::Record::Started).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartedRecord {
    /// The terminal.
    pub terminal: String,
    /// Its session.
    pub session: String,
    /// Whose it is.
    pub principal: String,
    /// Its process id, as the host sees it.
    pub pid: u32,
    /// What is really in force.
    pub receipt: ReceiptRecord,
}

/// A pseudo-terminal at its command's start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PtyRecord {
    /// Characters of a line.
    pub columns: u32,
    /// Lines.
    pub rows: u32,
}

/// What was really in force for a terminal, read back from the kernel.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReceiptRecord {
    /// The sandbox.
    pub sandbox: String,
    /// The profile.
    pub profile: String,
    /// Namespaces that are not the gateway's.
    pub namespaces: Vec<String>,
    /// The command's user, as the host sees it.
    pub host_uid: u32,
    /// The command's group, as the host sees it.
    pub host_gid: u32,
    /// `no_new_privs` is set.
    pub no_new_privs: bool,
    /// Capability sets, as masks in hexadecimal.
    pub capabilities: BTreeMap<String, String>,
    /// The mode in `/proc/PID/status`: 0 none, 2 filter.
    pub seccomp_mode: u32,
    /// How many filters.
    pub seccomp_filters: u32,
    /// 0: none.
    pub landlock_abi: u32,
    /// Whether execs within the command are evaluated: `verified` or `none`.
    #[serde(default)]
    pub gate: String,
    /// The command's pseudo-terminal, when it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pty: Option<PtyRecord>,
    /// `none` or `host`.
    pub network: String,
    /// What of the host that network reaches, which one of its own would not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub network_exposure: Vec<String>,
    /// Limits in force.
    pub limits: BTreeMap<String, String>,
    /// The sandbox's cgroup in the v2 hierarchy; empty: it has none.
    pub cgroup: String,
    /// What the profile preferred and this host did not give.
    pub shortfalls: Vec<String>,
}

/// [`Record::Adopted`](super::Record::Adopted).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Adopted {
    /// The terminal.
    pub terminal: String,
    /// Its session.
    pub session: String,
    /// Whose it is.
    pub principal: String,
    /// The sandbox that it runs in.
    pub sandbox: String,
    /// The process's id in the sandbox.
    pub pid: u32,
}

/// [`Record::SpawnFailed`](super::Record::SpawnFailed).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpawnFailed {
    /// The terminal.
    pub terminal: String,
    /// Its session.
    pub session: String,
    /// Whose it was.
    pub principal: String,
    /// Why, e.g. `COMMAND_NOT_FOUND`.
    pub reason: String,
    /// The step that failed; empty where that is not known.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub stage: String,
    /// errno(3), where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub errno: Option<i32>,
    /// In a sentence.
    pub problem: String,
}

/// [`Record::WorkspaceChange`](super::Record::WorkspaceChange).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkspaceChange {
    /// A terminal that ran meanwhile. Each that did has a record.
    pub terminal: String,
    /// Its session.
    pub session: String,
    /// Whose it is.
    pub principal: String,
    /// What changed; absolute.
    pub path: String,
    /// What it would have made people's tools run.
    pub what: String,
    /// `restored`, `quarantined`, `reported` or `failed`.
    pub action: String,
    /// Why it could not be undone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    /// The digest of what was there, where it was a file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
}

/// [`Record::KillRequested`](super::Record::KillRequested).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KillRequested {
    /// The terminal.
    pub terminal: String,
    /// Its session.
    pub session: String,
    /// Whose it is.
    pub principal: String,
    /// Who asked; absent: the gateway itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// Why: `kill`, `release`, `session_closed`, ...
    pub cause: String,
    /// Between TERM and KILL; absent: as the terminal's profile says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grace_ms: Option<u64>,
}

/// [`Record::Signal`](super::Record::Signal).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SignalRecord {
    /// The terminal.
    pub terminal: String,
    /// Its session.
    pub session: String,
    /// Who asked.
    pub principal: String,
    /// As `SIGINT`.
    pub signal: String,
}

/// How a command ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "end", rename_all = "snake_case")]
pub enum ExitOutcome {
    /// It called exit(2).
    Exited {
        /// 0..=255.
        code: u32,
    },
    /// A signal ended it.
    Signalled {
        /// As `SIGKILL`.
        signal: String,
    },
    /// Nobody saw the end.
    Lost,
}

/// [`Record::Exit`](super::Record::Exit).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExitRecord {
    /// The terminal.
    pub terminal: String,
    /// Its session.
    pub session: String,
    /// Whose it is.
    pub principal: String,
    /// How it ended.
    pub outcome: ExitOutcome,
    /// Why it ended, e.g. `exited`, `killed`, `time_limit`, `sandbox_lost`.
    pub cause: String,
    /// What it used.
    pub usage: UsageRecord,
    /// Processes that were left in its tree. Always 0.
    pub survivors: u32,
    /// Processes that outlived the main process and were ended with the terminal.
    pub stragglers_killed: u32,
    /// Processes that the main process had left running when it ended by itself.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub ended_processes: u32,
    /// The names of their programs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ended_commands: Vec<String>,
}

// As serde calls it.
#[allow(clippy::trivially_copy_pass_by_ref)]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// What a whole tree used.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsageRecord {
    /// From start to end.
    pub wall_us: u64,
    /// In user mode.
    pub cpu_user_us: u64,
    /// In the kernel.
    pub cpu_system_us: u64,
    /// At its peak.
    pub memory_peak_bytes: u64,
    /// From block devices, where that is counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub io_read_bytes: Option<u64>,
    /// To block devices, where that is counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub io_write_bytes: Option<u64>,
}
