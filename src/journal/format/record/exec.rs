//! Records of the execs within commands, as the gates of sandboxes report them.
//!
//! `sandbox` and `report` come first in each: `recorded` finds by them which reports are written. A gate's reports
//! are numbered from 1 without gaps; one report can be several records.

use serde::{Deserialize, Serialize};

/// An exec, in the sandbox's view.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedExec {
    /// The file's real path.
    pub file: String,
    /// As given to execve(2); absent: the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// The first arguments, with `argv[0]`. Bytes that are no UTF-8 are U+FFFD; the last one may be cut.
    pub argv: Vec<String>,
    /// Arguments that were left out.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub argv_omitted: u32,
    /// SHA-256 of all arguments, each followed by a NUL.
    pub argv_sha256: String,
    /// The working directory.
    pub cwd: String,
    /// The interpreters of a script.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub interpreters: Vec<String>,
}

/// [`Record::ExecDenied`](super::Record::ExecDenied).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecDeniedRecord {
    /// The sandbox.
    pub sandbox: String,
    /// The number of its gate's report.
    pub report: u64,
    /// The terminal.
    pub terminal: String,
    /// Its session.
    pub session: String,
    /// Whose it is.
    pub principal: String,
    /// The generation of the policy at the gate, as the gateway numbered it that had sent it.
    pub generation: u64,
    /// When, by the gate's clock: nanoseconds since 1970.
    pub at_unix_ns: u64,
    /// `rule`, `default`, `changed`, `unreadable`, `traced`, `unavailable`, `ask_refused` or `ask_expired`.
    pub cause: String,
    /// The rule that decided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// The rule's own reason, or what went wrong.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// What was to be executed.
    pub exec: RecordedExec,
}

/// [`Record::ExecDeniedAgain`](super::Record::ExecDeniedAgain).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecDeniedAgainRecord {
    /// The sandbox.
    pub sandbox: String,
    /// The number of its gate's report.
    pub report: u64,
    /// The terminal.
    pub terminal: String,
    /// Its session.
    pub session: String,
    /// Whose it is.
    pub principal: String,
    /// The number of the report of the refusal.
    pub denied_in: u64,
    /// How often it was tried in further directories.
    pub count: u64,
}

/// [`Record::ExecAsked`](super::Record::ExecAsked).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecAskedRecord {
    /// The sandbox.
    pub sandbox: String,
    /// The number of its gate's report.
    pub report: u64,
    /// The terminal.
    pub terminal: String,
    /// Its session.
    pub session: String,
    /// Whose it is.
    pub principal: String,
    /// The generation of the policy at the gate.
    pub generation: u64,
    /// When, by the gate's clock: nanoseconds since 1970.
    pub at_unix_ns: u64,
    /// The rule that asks.
    pub rule: String,
    /// The rule's own reason.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// What is to be executed.
    pub exec: RecordedExec,
}

/// [`Record::ExecAskEnded`](super::Record::ExecAskEnded).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecAskEndedRecord {
    /// The sandbox.
    pub sandbox: String,
    /// The number of its gate's report.
    pub report: u64,
    /// The terminal.
    pub terminal: String,
    /// Its session.
    pub session: String,
    /// Whose it is.
    pub principal: String,
    /// The number of the report that asked.
    pub asked_in: u64,
    /// `ran`, `denied`, or `gone`: the process was gone before the answer.
    pub end: String,
}

/// [`Record::ExecsAllowed`](super::Record::ExecsAllowed): since the last such report about the terminal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecsAllowedRecord {
    /// The sandbox.
    pub sandbox: String,
    /// The number of its gate's report.
    pub report: u64,
    /// The terminal.
    pub terminal: String,
    /// Its session.
    pub session: String,
    /// Whose it is.
    pub principal: String,
    /// The generation of the policy at the gate.
    pub generation: u64,
    /// Each file, arguments and rule once.
    pub execs: Vec<AllowedExecRecord>,
    /// Execs that were only counted.
    #[serde(default, skip_serializing_if = "is_zero_u64")]
    pub others: u64,
}

/// One exec that was allowed, as often as it was.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AllowedExecRecord {
    /// How often.
    pub count: u64,
    /// The rule that allowed it; absent: none was needed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// What was executed.
    #[serde(flatten)]
    pub exec: RecordedExec,
}

/// [`Record::GateLost`](super::Record::GateLost).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GateLostRecord {
    /// The sandbox.
    pub sandbox: String,
    /// Its session.
    pub session: String,
    /// Whose it is.
    pub principal: String,
}

// As serde calls them.
#[allow(clippy::trivially_copy_pass_by_ref)]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

#[allow(clippy::trivially_copy_pass_by_ref)]
fn is_zero_u64(number: &u64) -> bool {
    *number == 0
}
