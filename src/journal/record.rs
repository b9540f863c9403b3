//! What the journal can say: one type for each kind of record.
//!
//! Kinds and fields are only ever added; the order of the fields is the order on disk. Text that came from a caller
//! is bounded here ([`Command`]); secrets are masked by whoever makes the record. Nothing here is judged or acted on.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::maintenance::{Checkpoint, FileClosed, FileOpened, FilesRemoved, Finding, Unwritten};

/// One event, as it is written: `{"kind":"decision",...}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Record {
    /// A gateway has taken the journal and is about to serve.
    GatewayStarted(GatewayStarted),
    /// A gateway has stopped in order.
    GatewayStopped(GatewayStopped),
    /// A policy is in force from here on.
    PolicyLoaded(PolicyLoaded),
    /// A policy could not be loaded; the one before stays in force.
    PolicyRefused(PolicyRefused),
    /// A request was judged.
    Decision(Decision),
    /// A command is about to be started.
    Spawn(Spawn),
    /// It runs; with the receipt of what confines it.
    Started(Started),
    /// It could not be started.
    SpawnFailed(SpawnFailed),
    /// Somebody asked for the end of a command.
    KillAsked(KillAsked),
    /// Somebody sent a signal.
    Signal(Signal),
    /// A command has ended.
    Exit(Exit),
    /// A person is asked.
    ApprovalAsked(ApprovalAsked),
    /// A person has answered.
    ApprovalResolved(ApprovalResolved),
    /// Nobody answered in time: denied.
    ApprovalExpired(ApprovalExpired),
    /// A session was opened.
    SessionOpened(SessionOpened),
    /// A session was closed.
    SessionClosed(SessionClosed),
    /// A request was refused because a bound was reached.
    QuotaRefused(QuotaRefused),
    /// A protection that was preferred is not to be had here.
    Shortfall(Shortfall),
    /// A connection through the proxy was judged.
    Connection(Connection),
    /// The journal itself: first record of a file.
    FileOpened(FileOpened),
    /// The journal itself: last record of a file that was rotated.
    FileClosed(FileClosed),
    /// The journal itself: old files are about to be deleted.
    FilesRemoved(FilesRemoved),
    /// The journal itself: all before this is signed.
    Checkpoint(Checkpoint),
    /// The journal itself: what was wrong when it was taken up again.
    Recovery(Finding),
    /// The journal itself: appends that were refused while it could not be written.
    Unwritten(Unwritten),
    /// A kind of a later version; its hash is checked all the same. Never written.
    #[serde(other)]
    Unrecognised,
}

impl Record {
    /// Whether only the journal itself writes records of this kind.
    pub fn is_reserved(&self) -> bool {
        matches!(
            self,
            Self::FileOpened(_)
                | Self::FileClosed(_)
                | Self::FilesRemoved(_)
                | Self::Checkpoint(_)
                | Self::Recovery(_)
                | Self::Unwritten(_)
                | Self::Unrecognised
        )
    }

    /// The session that it is about.
    pub fn session(&self) -> Option<&str> {
        match self {
            Self::Decision(it) => it.session.as_deref(),
            Self::Spawn(it) => Some(&it.session),
            Self::Started(it) => Some(&it.session),
            Self::SpawnFailed(it) => Some(&it.session),
            Self::KillAsked(it) => Some(&it.session),
            Self::Signal(it) => Some(&it.session),
            Self::Exit(it) => Some(&it.session),
            Self::ApprovalAsked(it) => Some(&it.session),
            Self::SessionOpened(it) => Some(&it.session),
            Self::SessionClosed(it) => Some(&it.session),
            Self::QuotaRefused(it) => it.session.as_deref(),
            Self::Shortfall(it) => it.session.as_deref(),
            Self::Connection(it) => Some(&it.session),
            Self::GatewayStarted(_)
            | Self::GatewayStopped(_)
            | Self::PolicyLoaded(_)
            | Self::PolicyRefused(_)
            | Self::ApprovalResolved(_)
            | Self::ApprovalExpired(_)
            | Self::FileOpened(_)
            | Self::FileClosed(_)
            | Self::FilesRemoved(_)
            | Self::Checkpoint(_)
            | Self::Recovery(_)
            | Self::Unwritten(_)
            | Self::Unrecognised => None,
        }
    }

    /// The terminal that it is about.
    pub fn terminal(&self) -> Option<&str> {
        match self {
            Self::Decision(it) => it.terminal.as_deref(),
            Self::Spawn(it) => Some(&it.terminal),
            Self::Started(it) => Some(&it.terminal),
            Self::SpawnFailed(it) => Some(&it.terminal),
            Self::KillAsked(it) => Some(&it.terminal),
            Self::Signal(it) => Some(&it.terminal),
            Self::Exit(it) => Some(&it.terminal),
            Self::Connection(it) => it.terminal.as_deref(),
            Self::GatewayStarted(_)
            | Self::GatewayStopped(_)
            | Self::PolicyLoaded(_)
            | Self::PolicyRefused(_)
            | Self::ApprovalAsked(_)
            | Self::ApprovalResolved(_)
            | Self::ApprovalExpired(_)
            | Self::SessionOpened(_)
            | Self::SessionClosed(_)
            | Self::QuotaRefused(_)
            | Self::Shortfall(_)
            | Self::FileOpened(_)
            | Self::FileClosed(_)
            | Self::FilesRemoved(_)
            | Self::Checkpoint(_)
            | Self::Recovery(_)
            | Self::Unwritten(_)
            | Self::Unrecognised => None,
        }
    }

    /// The rule that decided.
    pub fn rule(&self) -> Option<&str> {
        match self {
            Self::Decision(it) => it.rule.as_deref(),
            Self::ApprovalAsked(it) => Some(&it.rule),
            Self::Connection(it) => it.rule.as_deref(),
            _ => None,
        }
    }

    /// What was decided.
    pub fn verdict(&self) -> Option<Verdict> {
        match self {
            Self::Decision(it) => Some(it.verdict),
            Self::Connection(it) => Some(it.verdict),
            _ => None,
        }
    }
}

/// What a policy said.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// It may run.
    Allow,
    /// It may not.
    Deny,
    /// A person decides.
    Ask,
}

/// Whether a decision had effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// It had.
    Enforce,
    /// It is what would have been decided.
    Observe,
}

/// [`Record::GatewayStarted`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GatewayStarted {
    /// Provost's version.
    pub version: String,
    /// The gateway's process id.
    pub pid: u32,
    /// The user it runs as.
    pub uid: u32,
}

/// [`Record::GatewayStopped`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GatewayStopped {
    /// Why: `drained`, `drain_timeout`, ...
    pub cause: String,
    /// Terminals that were still live.
    pub live_terminals: u64,
}

/// [`Record::PolicyLoaded`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyLoaded {
    /// Counts the policies of this gateway.
    pub generation: u64,
    /// SHA-256 of all of its files.
    pub digest: String,
    /// The files, in the order in which they were read.
    pub files: Vec<String>,
}

/// [`Record::PolicyRefused`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyRefused {
    /// The generation that stays in force.
    pub generation: u64,
    /// SHA-256 of what was refused.
    pub digest: String,
    /// Where and why, first mistake first.
    pub problem: String,
}

/// The most bytes of a command that a record holds; the request's digest covers all of it.
pub const COMMAND_BYTES: usize = 32 * 1024;

/// A command in its normal form, as far as it fits.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Command {
    /// Program and arguments. Bytes that are no UTF-8 are U+FFFD; the last one may be cut.
    pub argv: Vec<String>,
    /// Bytes that were left out, and one for each argument of which nothing is left.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cut_bytes: u64,
}

impl Command {
    /// Keeps the first [`COMMAND_BYTES`] of the arguments.
    pub fn new(argv: impl IntoIterator<Item = impl AsRef<[u8]>>) -> Self {
        let mut command = Self::default();
        let mut room = COMMAND_BYTES;
        for argument in argv {
            let argument = argument.as_ref();
            let mut kept = argument.len().min(room);
            // Not in the middle of a character: continuation bytes begin with 0b10.
            while kept > 0 && kept < argument.len() && argument[kept] & 0xC0 == 0x80 {
                kept -= 1;
            }
            command.cut_bytes += (argument.len() - kept) as u64;
            if kept > 0 || argument.is_empty() && room > 0 {
                command.argv.push(String::from_utf8_lossy(&argument[..kept]).into_owned());
            } else {
                command.cut_bytes += 1;
            }
            // An argument costs something even when it is empty.
            room = if kept < argument.len() { 0 } else { room.saturating_sub(kept + 1) };
        }
        command
    }
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// [`Record::Decision`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decision {
    /// Who asked, e.g. `uid:1000`.
    pub principal: String,
    /// In which session.
    pub session: Option<String>,
    /// The terminal that it is for, where there is one already.
    pub terminal: Option<String>,
    /// SHA-256 of the request in its normal form.
    pub request_digest: String,
    /// What was decided.
    #[serde(rename = "decision")]
    pub verdict: Verdict,
    /// Whether it had effect.
    pub mode: Mode,
    /// The rule that decided; absent: the default.
    pub rule: Option<String>,
    /// Of the policy.
    pub generation: u64,
    /// What the caller was told.
    pub reason: String,
    /// The command in its normal form.
    pub command: Command,
    /// Its working folder.
    pub cwd: String,
}

/// [`Record::Spawn`]: written before the command is started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spawn {
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
    /// Of the decision that allowed it.
    pub request_digest: String,
    /// Of the policy that allowed it.
    pub generation: u64,
    /// The command, as it is given to exec.
    pub command: Command,
}

/// [`Record::Started`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Started {
    /// The terminal.
    pub terminal: String,
    /// Its session.
    pub session: String,
    /// What is really in force.
    pub receipt: Receipt,
}

/// What was really in force for a terminal, read back from the kernel.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Receipt {
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
    /// Of `/proc/PID/status`: 0 none, 2 filter.
    pub seccomp_mode: u32,
    /// How many filters.
    pub seccomp_filters: u32,
    /// 0: none.
    pub landlock_abi: u32,
    /// `none` or `host`.
    pub network: String,
    /// Limits in force.
    pub limits: BTreeMap<String, String>,
    /// How membership and tree kill are had.
    pub cgroup: String,
    /// What the profile preferred and this host did not give.
    pub shortfalls: Vec<String>,
}

/// [`Record::SpawnFailed`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpawnFailed {
    /// The terminal.
    pub terminal: String,
    /// Its session.
    pub session: String,
    /// Why, e.g. `COMMAND_NOT_FOUND`.
    pub reason: String,
    /// The step that failed.
    pub stage: String,
    /// errno(3), where there is one.
    pub errno: Option<i32>,
}

/// [`Record::KillAsked`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KillAsked {
    /// The terminal.
    pub terminal: String,
    /// Its session.
    pub session: String,
    /// Who asked; absent: the gateway itself.
    pub principal: Option<String>,
    /// Why: `kill`, `release`, `time_limit`, `shutdown`, ...
    pub cause: String,
    /// Between TERM and KILL.
    pub grace_ms: u64,
}

/// [`Record::Signal`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Signal {
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
pub enum End {
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

/// [`Record::Exit`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exit {
    /// The terminal.
    pub terminal: String,
    /// Its session.
    pub session: String,
    /// How it ended.
    pub outcome: End,
    /// Why it ended, e.g. `exited`, `killed`, `time_limit`, `sandbox_lost`.
    pub cause: String,
    /// What it used.
    pub usage: Usage,
    /// Processes that were left in its tree. Always 0.
    pub survivors: u32,
    /// Processes that outlived the main process and were ended with the terminal.
    pub stragglers_killed: u32,
}

/// What a whole tree used.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// From start to end.
    pub wall_us: u64,
    /// In user mode.
    pub cpu_user_us: u64,
    /// In the kernel.
    pub cpu_system_us: u64,
    /// At its peak.
    pub memory_peak_bytes: u64,
    /// From block devices, where that is counted.
    pub io_read_bytes: Option<u64>,
    /// To block devices, where that is counted.
    pub io_write_bytes: Option<u64>,
}

/// [`Record::ApprovalAsked`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApprovalAsked {
    /// The approval.
    pub approval: String,
    /// Who wants to run it.
    pub principal: String,
    /// In which session.
    pub session: String,
    /// What an answer is bound to.
    pub request_digest: String,
    /// Of the policy that an answer is bound to.
    pub generation: u64,
    /// The rule that asks.
    pub rule: String,
    /// After which it is denied.
    pub expires_in_ms: u64,
}

/// [`Record::ApprovalResolved`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApprovalResolved {
    /// The approval.
    pub approval: String,
    /// `allow` or `deny`.
    #[serde(rename = "decision")]
    pub verdict: Verdict,
    /// Who answered.
    pub approver: String,
    /// In their own words.
    pub comment: String,
}

/// [`Record::ApprovalExpired`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApprovalExpired {
    /// The approval.
    pub approval: String,
}

/// [`Record::SessionOpened`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionOpened {
    /// The session.
    pub session: String,
    /// Its owner.
    pub principal: String,
    /// Its folders.
    pub roots: Vec<String>,
    /// Its profile.
    pub profile: String,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
}

/// [`Record::SessionClosed`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionClosed {
    /// The session.
    pub session: String,
    /// Why: `asked`, `owner_gone`, `shutdown`.
    pub cause: String,
}

/// [`Record::QuotaRefused`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuotaRefused {
    /// Who asked.
    pub principal: String,
    /// In which session.
    pub session: Option<String>,
    /// The bound, e.g. `live_terminals_per_session`.
    pub limit: String,
    /// Its value.
    pub bound: u64,
}

/// [`Record::Shortfall`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shortfall {
    /// In which session, where it is one's.
    pub session: Option<String>,
    /// In which sandbox, where it is one's.
    pub sandbox: Option<String>,
    /// The profile that preferred it.
    pub profile: Option<String>,
    /// The protection.
    pub protection: String,
    /// Why it is not to be had.
    pub reason: String,
}

/// [`Record::Connection`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Connection {
    /// The session.
    pub session: String,
    /// The terminal, where it is known.
    pub terminal: Option<String>,
    /// The name that was asked for, or an address.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// What was decided.
    #[serde(rename = "decision")]
    pub verdict: Verdict,
    /// The rule that decided.
    pub rule: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_bounded_and_says_what_it_left_out() {
        let whole = Command::new(["git", "", "status"]);
        assert_eq!((whole.argv.join("|").as_str(), whole.cut_bytes), ("git||status", 0));
        let long = "é".repeat(COMMAND_BYTES);
        let cut = Command::new(["echo", &long, "more"]);
        assert_eq!(cut.argv.len(), 2);
        assert!(cut.argv[1].split("é").all(str::is_empty));
        let kept: usize = cut.argv.iter().map(String::len).sum();
        assert_eq!(kept as u64 + cut.cut_bytes, (4 + long.len() + 5) as u64);
        assert!(Command::new(vec![""; 1_000_000]).argv.len() <= COMMAND_BYTES);
    }

    #[test]
    fn a_kind_of_a_later_version_can_be_read() {
        let record: Record = serde_json::from_str(r#"{"kind":"teleport","where":"home"}"#).unwrap();
        assert_eq!(record, Record::Unrecognised);
    }
}
