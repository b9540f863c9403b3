//! What the API says, as JSON for programs: lower-case names, units in the names, times in RFC 3339.
//!
//! Copies; it never computes a fact that the gateway did not give.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::{
    client::{cause_word, network_word},
    proto::v1::{self, outcome::End},
};

/// A terminal, as `ps` and `stop` print it.
#[derive(Debug, Serialize)]
pub(in crate::cli) struct TerminalJson {
    id: String,
    session_id: String,
    state: &'static str,
    command: String,
    args: Vec<String>,
    cwd: String,
    profile: String,
    labels: BTreeMap<String, String>,
    created_at: Option<String>,
    started_at: Option<String>,
    outcome: Option<OutcomeJson>,
    receipt: Option<ReceiptJson>,
    /// The present size of its pseudo-terminal, when it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pty: Option<PtyJson>,
}

/// The size of a pseudo-terminal, in characters.
#[derive(Debug, Serialize)]
pub(super) struct PtyJson {
    columns: u32,
    rows: u32,
}

/// How a command ended: exactly one of code and signal, or neither when nobody saw it.
#[derive(Debug, Serialize)]
pub(in crate::cli) struct OutcomeJson {
    exit_code: Option<u32>,
    signal: Option<String>,
    cause: &'static str,
    usage: Option<UsageJson>,
    started_at: Option<String>,
    ended_at: Option<String>,
    survivors: u32,
    stragglers_killed: u32,
    ended_processes: u32,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    ended_commands: Vec<String>,
    core_dumped: bool,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    workspace_changes: Vec<WorkspaceChangeJson>,
    #[serde(skip_serializing_if = "is_zero")]
    workspace_changes_omitted: u64,
    #[serde(skip_serializing_if = "String::is_empty")]
    workspace_shortfall: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    exec_denials: Vec<ExecDenialJson>,
    #[serde(skip_serializing_if = "is_zero")]
    exec_denials_omitted: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    unreachable: Option<UnreachableJson>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    protection_hints: Vec<serde_json::Value>,
}

/// What the network did not reach.
#[derive(Debug, Serialize)]
pub(super) struct UnreachableJson {
    names: Vec<String>,
    #[serde(skip_serializing_if = "is_zero")]
    names_omitted: u64,
    no_route: u64,
    network: &'static str,
    offered: Vec<&'static str>,
}

/// An exec within the command that was refused.
#[derive(Debug, Serialize)]
pub(super) struct ExecDenialJson {
    program: String,
    args: Vec<String>,
    args_omitted: u32,
    cwd: String,
    cause: &'static str,
    #[serde(skip_serializing_if = "String::is_empty")]
    rule: String,
    reason: String,
    denied_at: Option<String>,
}

/// A dangerous change in a workspace.
#[derive(Debug, Serialize)]
pub(super) struct WorkspaceChangeJson {
    path: String,
    what: String,
    action: &'static str,
    #[serde(skip_serializing_if = "String::is_empty")]
    failure: String,
}

/// What the whole tree used.
#[derive(Debug, Serialize)]
pub(super) struct UsageJson {
    wall_us: i128,
    cpu_user_us: i128,
    cpu_system_us: i128,
    memory_peak_bytes: u64,
    memory_peak_source: &'static str,
    io_read_bytes: Option<u64>,
    io_write_bytes: Option<u64>,
}

/// What was in force.
#[derive(Debug, Serialize)]
pub(in crate::cli) struct ReceiptJson {
    terminal_id: String,
    sandbox_id: String,
    profile: String,
    namespaces: Vec<String>,
    host_uid: u32,
    host_gid: u32,
    uid: u32,
    gid: u32,
    no_new_privs: bool,
    capabilities: BTreeMap<String, String>,
    seccomp_mode: u32,
    seccomp_filters: u32,
    landlock_abi: u32,
    gate: String,
    network: String,
    network_exposure: Vec<String>,
    limits: BTreeMap<String, String>,
    cgroup: String,
    shortfalls: Vec<String>,
    survivors: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pty: Option<PtyJson>,
    roots: Vec<String>,
    read_only_roots: Vec<String>,
    kept_caches: Vec<String>,
    covered: Vec<String>,
    repository: Option<RepositoryJson>,
}

/// The repository around the workspace's first directory.
#[derive(Debug, Serialize)]
struct RepositoryJson {
    worktree: String,
    git_directory: String,
    not_taken: String,
}

impl From<&v1::Terminal> for TerminalJson {
    fn from(terminal: &v1::Terminal) -> Self {
        Self {
            id: terminal.id.clone(),
            session_id: terminal.session_id.clone(),
            state: state(terminal.state()),
            command: terminal.command.clone(),
            args: terminal.args.clone(),
            cwd: terminal.cwd.clone(),
            profile: terminal.profile.clone(),
            labels: sorted(&terminal.labels),
            created_at: terminal.created_at.as_ref().map(ToString::to_string),
            started_at: terminal.started_at.as_ref().map(ToString::to_string),
            outcome: terminal.outcome.as_ref().map(OutcomeJson::from),
            receipt: terminal.receipt.as_ref().map(ReceiptJson::from),
            pty: terminal.pty.as_ref().map(|pty| PtyJson { columns: pty.columns, rows: pty.rows }),
        }
    }
}

impl From<&v1::Outcome> for OutcomeJson {
    fn from(outcome: &v1::Outcome) -> Self {
        let (exit_code, signal) = match &outcome.end {
            Some(End::ExitCode(code)) => (Some(*code), None),
            Some(End::Signal(name)) => (None, Some(name.clone())),
            None => (None, None),
        };
        Self {
            exit_code,
            signal,
            cause: cause_word(outcome.cause()),
            usage: outcome.usage.as_ref().map(UsageJson::from),
            started_at: outcome.started_at.as_ref().map(ToString::to_string),
            ended_at: outcome.ended_at.as_ref().map(ToString::to_string),
            survivors: outcome.survivors,
            stragglers_killed: outcome.stragglers_killed,
            ended_processes: outcome.ended_processes,
            ended_commands: outcome.ended_commands.clone(),
            core_dumped: outcome.core_dumped,
            workspace_changes: outcome.workspace_changes.iter().map(WorkspaceChangeJson::from).collect(),
            workspace_changes_omitted: outcome.workspace_changes_omitted,
            workspace_shortfall: outcome.workspace_shortfall.clone(),
            exec_denials: outcome.exec_denials.iter().map(ExecDenialJson::from).collect(),
            exec_denials_omitted: outcome.exec_denials_omitted,
            unreachable: outcome.unreachable.as_ref().map(UnreachableJson::from),
            protection_hints: outcome.protection_hints.iter().map(crate::client::hint_json).collect(),
        }
    }
}

impl From<&v1::Unreachable> for UnreachableJson {
    fn from(unreachable: &v1::Unreachable) -> Self {
        Self {
            names: unreachable.names.clone(),
            names_omitted: unreachable.names_omitted,
            no_route: unreachable.no_route,
            network: network_word(unreachable.network()),
            offered: unreachable.offered().map(network_word).collect(),
        }
    }
}

impl From<&v1::ExecDenial> for ExecDenialJson {
    fn from(denial: &v1::ExecDenial) -> Self {
        Self {
            program: denial.program.clone(),
            args: denial.args.clone(),
            args_omitted: denial.args_omitted,
            cwd: denial.cwd.clone(),
            cause: match denial.cause() {
                v1::ExecDenialCause::Unspecified => "unknown",
                v1::ExecDenialCause::Rule => "rule",
                v1::ExecDenialCause::Default => "default",
                v1::ExecDenialCause::Changed => "changed",
                v1::ExecDenialCause::Unreadable => "unreadable",
                v1::ExecDenialCause::Traced => "traced",
                v1::ExecDenialCause::Unavailable => "unavailable",
                v1::ExecDenialCause::AskRefused => "ask_refused",
                v1::ExecDenialCause::AskExpired => "ask_expired",
            },
            rule: denial.rule.clone(),
            reason: denial.reason.clone(),
            denied_at: denial.denied_at.as_ref().map(ToString::to_string),
        }
    }
}

impl From<&v1::WorkspaceChange> for WorkspaceChangeJson {
    fn from(change: &v1::WorkspaceChange) -> Self {
        Self {
            path: change.path.clone(),
            what: change.description.clone(),
            action: match change.action() {
                v1::WorkspaceAction::Unspecified => "unknown",
                v1::WorkspaceAction::Restored => "restored",
                v1::WorkspaceAction::Quarantined => "quarantined",
                v1::WorkspaceAction::Reported => "reported",
                v1::WorkspaceAction::Failed => "failed",
            },
            failure: change.failure.clone(),
        }
    }
}

// As serde calls it.
#[allow(clippy::trivially_copy_pass_by_ref)]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl From<&v1::Usage> for UsageJson {
    fn from(usage: &v1::Usage) -> Self {
        Self {
            wall_us: micros(usage.wall),
            cpu_user_us: micros(usage.cpu_user),
            cpu_system_us: micros(usage.cpu_system),
            memory_peak_bytes: usage.memory_peak_bytes,
            memory_peak_source: match usage.memory_peak_source() {
                v1::MemoryPeakSource::Unspecified => "unknown",
                v1::MemoryPeakSource::Cgroup => "cgroup",
                v1::MemoryPeakSource::LargestProcess => "largest_process",
            },
            io_read_bytes: usage.io_read_bytes,
            io_write_bytes: usage.io_write_bytes,
        }
    }
}

impl From<&v1::Receipt> for ReceiptJson {
    fn from(receipt: &v1::Receipt) -> Self {
        Self {
            terminal_id: receipt.terminal_id.clone(),
            sandbox_id: receipt.sandbox_id.clone(),
            profile: receipt.profile.clone(),
            namespaces: receipt.namespaces.clone(),
            host_uid: receipt.host_uid,
            host_gid: receipt.host_gid,
            uid: receipt.uid,
            gid: receipt.gid,
            no_new_privs: receipt.no_new_privs,
            capabilities: sorted(&receipt.capabilities),
            seccomp_mode: receipt.seccomp_mode,
            seccomp_filters: receipt.seccomp_filters,
            landlock_abi: receipt.landlock_abi,
            gate: receipt.gate.clone(),
            pty: receipt.pty.map(|pty| PtyJson { columns: pty.columns, rows: pty.rows }),
            network: network_word(receipt.network()).to_owned(),
            network_exposure: receipt.network_exposure.clone(),
            limits: sorted(&receipt.limits),
            cgroup: receipt.cgroup.clone(),
            shortfalls: receipt.shortfalls.clone(),
            survivors: receipt.survivors,
            roots: receipt.roots.clone(),
            read_only_roots: receipt.read_only_roots.clone(),
            kept_caches: receipt.kept_caches.clone(),
            covered: receipt.covered.clone(),
            repository: receipt.repository.as_ref().map(|repository| RepositoryJson {
                worktree: repository.worktree.clone(),
                git_directory: repository.git_directory.clone(),
                not_taken: repository.not_taken.clone(),
            }),
        }
    }
}

/// A state, as it is written everywhere.
pub(in crate::cli) fn state(state: v1::TerminalState) -> &'static str {
    match state {
        v1::TerminalState::Unspecified => "unknown",
        v1::TerminalState::Created => "created",
        v1::TerminalState::Running => "running",
        v1::TerminalState::Finished => "finished",
        v1::TerminalState::Released => "released",
    }
}

/// A state of an approval, as it is written everywhere.
pub(in crate::cli) fn approval_state(state: v1::ApprovalState) -> &'static str {
    match state {
        v1::ApprovalState::Unspecified => "unknown",
        v1::ApprovalState::Pending => "pending",
        v1::ApprovalState::Approved => "approved",
        v1::ApprovalState::Used => "used",
        v1::ApprovalState::Denied => "denied",
        v1::ApprovalState::Expired => "expired",
        v1::ApprovalState::Withdrawn => "withdrawn",
        v1::ApprovalState::Superseded => "superseded",
    }
}

fn sorted(map: &std::collections::HashMap<String, String>) -> BTreeMap<String, String> {
    map.iter().map(|(name, value)| (name.clone(), value.clone())).collect()
}

fn micros(duration: Option<prost_types::Duration>) -> i128 {
    duration
        .map_or(0, |duration| i128::from(duration.seconds) * 1_000_000 + i128::from(duration.nanos) / 1_000)
}
