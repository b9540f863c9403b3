//! Records of the gateway itself, of its policy, of sessions and of what bounds them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::RecordedVerdict;

/// [`Record::GatewayStarted`](super::Record::GatewayStarted).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GatewayStarted {
    /// Provost's version.
    pub version: String,
    /// The gateway's process id.
    pub pid: u32,
    /// The user it runs as.
    pub uid: u32,
}

/// [`Record::GatewayStopped`](super::Record::GatewayStopped).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GatewayStopped {
    /// Why: `drained`, `drain_timeout`, `second_signal`, ...
    pub cause: String,
    /// Terminals that were still live.
    pub live_terminals: u64,
}

/// [`Record::PolicyLoaded`](super::Record::PolicyLoaded).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyLoaded {
    /// Counts the policies of this gateway.
    pub generation: u64,
    /// SHA-256 of all of its files.
    pub digest: String,
    /// The files, in the order in which they were read.
    pub files: Vec<String>,
}

/// [`Record::PolicyRefused`](super::Record::PolicyRefused).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyRefused {
    /// The generation that stays in force.
    pub generation: u64,
    /// Where and why, first mistake first.
    pub problem: String,
}

/// [`Record::SessionOpened`](super::Record::SessionOpened).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionOpened {
    /// The session.
    pub session: String,
    /// Its owner.
    pub principal: String,
    /// Its directories.
    pub roots: Vec<String>,
    /// Its directories that commands can only read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub read_only_roots: Vec<String>,
    /// Its profile.
    pub profile: String,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// By which front end it was opened, as the caller claims; empty in records of older gateways.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub front_end: String,
}

/// [`Record::SessionClosed`](super::Record::SessionClosed).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionClosed {
    /// The session.
    pub session: String,
    /// Whose it was.
    pub principal: String,
    /// Why: `requested`, `owner_exited`, `unused`, `shutdown`.
    pub cause: String,
}

/// [`Record::CacheKept`](super::Record::CacheKept).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheKept {
    /// The session that wrote to it.
    pub session: String,
    /// Whose it is.
    pub principal: String,
    /// Its directory, relative to a home.
    pub cache: String,
    /// The files that it has now. Absent: what was written is not kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub files: Option<u64>,
    /// The bytes that it takes now, in whole pages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// What of it was left out: devices, sockets, pipes, and what cannot be read.
    #[serde(default)]
    pub left_out: u64,
    /// Why it is not kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// [`Record::BypassReported`](super::Record::BypassReported).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BypassReported {
    /// The session.
    pub session: String,
    /// Who reported it. The report is not verified.
    pub principal: String,
    /// What happened.
    pub report: BypassReport,
}

/// What can happen outside the gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BypassReport {
    /// An agent has run a command itself, without a decision of the policy.
    Bypassed,
    /// An agent that runs commands itself was started.
    AgentNotCovered,
}

/// [`Record::QuotaRefused`](super::Record::QuotaRefused).
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

/// [`Record::RefusalsRepeated`](super::Record::RefusalsRepeated): refusals that were too many to be written one by one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefusalsRepeated {
    /// Who asked.
    pub principal: String,
    /// In which session; absent: in several, or in none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// The rule that decided; absent: several, or a bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// The bound that was reached; absent: several, or a rule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<String>,
    /// What was decided. A question was not put.
    #[serde(rename = "decision")]
    pub verdict: RecordedVerdict,
    /// How many there were.
    pub times: u64,
    /// When the first was refused, in milliseconds since 1970.
    pub first_unix_ms: u64,
    /// When the last was.
    pub last_unix_ms: u64,
}

/// [`Record::RecordsRepeated`](super::Record::RecordsRepeated): records that were too many to be written one by one, and are no refusals.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordsRepeated {
    /// Whose they are.
    pub principal: String,
    /// In which session; absent: in several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// Their kind: `signal`, `kill_requested` or `workspace_change`.
    pub of: String,
    /// How many there were. What they say has happened.
    pub times: u64,
    /// When the first was, in milliseconds since 1970.
    pub first_unix_ms: u64,
    /// When the last was.
    pub last_unix_ms: u64,
}

/// [`Record::Shortfall`](super::Record::Shortfall).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShortfallRecord {
    /// In which session, where it is one's.
    pub session: Option<String>,
    /// Whose, where it is a session's.
    pub principal: Option<String>,
    /// In which sandbox, where it is one's.
    pub sandbox: Option<String>,
    /// The profile that preferred it.
    pub profile: Option<String>,
    /// The protection.
    pub protection: String,
    /// Why it is not to be had.
    pub reason: String,
}

/// [`Record::Connection`](super::Record::Connection).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConnectionRecord {
    /// The session.
    pub session: String,
    /// Whose it is.
    pub principal: String,
    /// The terminal, where it is known.
    pub terminal: Option<String>,
    /// The name that was asked for, or an address.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// What was decided.
    #[serde(rename = "decision")]
    pub verdict: RecordedVerdict,
    /// The rule that decided.
    pub rule: Option<String>,
    /// The sandbox.
    #[serde(default)]
    pub sandbox: String,
    /// The rule's own reason, or what is wrong; of a refusal.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// The address that was decided on; absent: the name was, and it was not resolved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// `connect`, `http` or `socks`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub protocol: String,
    /// The connection, of one that was allowed: [`ConnectionEndedRecord`] names it, too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connection: Option<String>,
    /// Rules that only watch, and that are about it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub observed: Vec<String>,
    /// The method of one HTTP request that was seen.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub method: String,
    /// Its path, without the query.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub path: String,
    /// `terminate`: TLS of the connection is opened, or the request was in such TLS.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub tls: String,
    /// The secrets that the request was given, by their names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<String>,
    /// The programs that had the connection; none: they are not known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub programs: Vec<String>,
}

/// [`Record::ConnectionEnded`](super::Record::ConnectionEnded).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConnectionEndedRecord {
    /// The session.
    pub session: String,
    /// Whose it is.
    pub principal: String,
    /// The sandbox.
    pub sandbox: String,
    /// The terminal, where it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub terminal: Option<String>,
    /// As [`ConnectionRecord::connection`]; absent: its name had no address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connection: Option<String>,
    /// The name that was asked for, or an address.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// The address that answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// Bytes from the command.
    pub sent_bytes: u64,
    /// Bytes to the command.
    pub received_bytes: u64,
    /// How long it lasted.
    pub duration_ms: u64,
    /// Why there was no connection; empty: there was one.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub failure: String,
}

/// [`Record::Signature`](super::Record::Signature).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SignatureRecord {
    /// The session.
    pub session: String,
    /// Whose it is.
    pub principal: String,
    /// The sandbox.
    pub sandbox: String,
    /// What was decided.
    #[serde(rename = "decision")]
    pub verdict: RecordedVerdict,
    /// The line of the profile that decided.
    pub rule: String,
    /// What is wrong; of a refusal.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// The namespace of the text; absent: it is no text of one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// The fingerprint of the key, as `SHA256:...`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The host of a login, by its name in the profile; of a bound connection, which signs nothing yet, without a key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// The user of a login.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
}

/// [`Record::Forward`](super::Record::Forward).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForwardRecord {
    /// The session.
    pub session: String,
    /// Whose it is, who is the caller, too.
    pub principal: String,
    /// The terminal.
    pub terminal: String,
    /// The port on the loopback of its sandbox.
    pub port: u16,
    /// Names the connection: [`ForwardEndedRecord`] has it, too.
    pub connection: String,
}

/// [`Record::ForwardEnded`](super::Record::ForwardEnded).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForwardEndedRecord {
    /// The session.
    pub session: String,
    /// Whose it is.
    pub principal: String,
    /// The terminal.
    pub terminal: String,
    /// The port.
    pub port: u16,
    /// As [`ForwardRecord::connection`].
    pub connection: String,
    /// Bytes from the caller.
    pub sent_bytes: u64,
    /// Bytes to the caller.
    pub received_bytes: u64,
    /// How long it lasted.
    pub duration_ms: u64,
    /// Why it could not be made; empty: it was.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub failure: String,
}
