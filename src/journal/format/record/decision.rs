//! The record of a judged request, in which text of the caller is stored once; and the records of what people are asked and of what they
//! answer.

use serde::{Deserialize, Serialize, Serializer};

use super::{
    CommandLocation, JudgedCommands, RecordedCommand, RecordedVerdict,
    command::{DeltaEncoder, DeltaText},
};

/// [`Record::Decision`](super::Record::Decision).
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(from = "DeserializedDecision")]
pub struct DecisionRecord {
    /// Who asked, e.g. `uid:1000`.
    pub principal: String,
    /// In which session.
    pub session: String,
    /// By which front end the session was opened, as its caller claims; empty in records of older gateways.
    pub front_end: String,
    /// The terminal that it is for; absent: there is none, because it was not allowed.
    pub terminal: Option<String>,
    /// SHA-256 of the request in its normal form; absent: it was refused before it had one.
    pub request_digest: Option<String>,
    /// What was decided.
    pub verdict: RecordedVerdict,
    /// The rule that decided; absent: nothing in it needed one.
    pub rule: Option<String>,
    /// The generation of the policy.
    pub generation: u64,
    /// The reason in the answer to the caller; empty when it was allowed.
    pub reason: String,
    /// The command as the caller gave it; a line for a shell is one text.
    pub command: RecordedCommand,
    /// The record that has the command, of the same request; absent: this one.
    pub command_in: Option<CommandLocation>,
    /// What was seen in it.
    pub judged: JudgedCommands,
    /// What rules in the mode `observe` would have decided. It had no effect.
    pub observed: Vec<ObservedDecision>,
    /// The approval that answered a rule that asks.
    pub approval: Option<String>,
    /// Its working directory.
    pub cwd: String,
}

/// What a rule that only watches would have decided.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObservedDecision {
    /// The rule.
    pub rule: String,
    /// What it would have decided.
    #[serde(rename = "decision")]
    pub verdict: RecordedVerdict,
}

/// As it is written, in this order.
#[derive(Serialize)]
struct SerializedDecision<'a> {
    principal: &'a str,
    session: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    front_end: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    terminal: &'a Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    request_digest: &'a Option<String>,
    decision: RecordedVerdict,
    #[serde(skip_serializing_if = "Option::is_none")]
    rule: &'a Option<String>,
    generation: u64,
    #[serde(skip_serializing_if = "DeltaText::is_empty")]
    reason: DeltaText,
    #[serde(skip_serializing_if = "RecordedCommand::is_empty")]
    command: &'a RecordedCommand,
    #[serde(skip_serializing_if = "Option::is_none")]
    command_in: Option<CommandLocation>,
    #[serde(skip_serializing_if = "Option::is_none")]
    judged: Option<EncodedCommands>,
    #[serde(skip_serializing_if = "<[ObservedDecision]>::is_empty")]
    observed: &'a [ObservedDecision],
    #[serde(skip_serializing_if = "Option::is_none")]
    approval: &'a Option<String>,
    cwd: &'a str,
}

/// As it is read, of every version.
#[derive(Deserialize)]
struct DeserializedDecision {
    principal: String,
    session: String,
    #[serde(default)]
    front_end: String,
    #[serde(default)]
    terminal: Option<String>,
    #[serde(default)]
    request_digest: Option<String>,
    decision: RecordedVerdict,
    #[serde(default)]
    rule: Option<String>,
    generation: u64,
    #[serde(default)]
    reason: Option<DeltaText>,
    #[serde(default)]
    command: RecordedCommand,
    #[serde(default)]
    command_in: Option<CommandLocation>,
    #[serde(default)]
    judged: Option<EncodedCommands>,
    #[serde(default)]
    observed: Vec<ObservedDecision>,
    #[serde(default)]
    approval: Option<String>,
    cwd: String,
}

#[derive(Serialize, Deserialize)]
struct EncodedCommands {
    commands: Vec<DeltaText>,
    #[serde(default, skip_serializing_if = "is_zero")]
    cut_bytes: u64,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl Serialize for DecisionRecord {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let text = self.command.argv.join(" ");
        let mut encoder = DeltaEncoder::into(&text);
        let reason = encoder.encode(&self.reason);
        let judged = (!self.judged.is_empty()).then(|| EncodedCommands {
            commands: self.judged.commands.iter().map(|command| encoder.encode(command)).collect(),
            cut_bytes: self.judged.cut_bytes,
        });
        let Self {
            principal, session, front_end, terminal, request_digest, verdict, rule, generation, ..
        } = self;
        let Self { command, command_in, observed, approval, cwd, .. } = self;
        SerializedDecision {
            principal,
            session,
            front_end,
            terminal,
            request_digest,
            decision: *verdict,
            rule,
            generation: *generation,
            reason,
            command,
            command_in: *command_in,
            judged,
            observed,
            approval,
            cwd,
        }
        .serialize(serializer)
    }
}

impl From<DeserializedDecision> for DecisionRecord {
    fn from(read: DeserializedDecision) -> Self {
        let text = read.command.argv.join(" ");
        let judged = read.judged.map_or_else(JudgedCommands::default, |judged| JudgedCommands {
            commands: judged.commands.into_iter().map(|command| command.decode(&text)).collect(),
            cut_bytes: judged.cut_bytes,
        });
        Self {
            principal: read.principal,
            session: read.session,
            front_end: read.front_end,
            terminal: read.terminal,
            request_digest: read.request_digest,
            verdict: read.decision,
            rule: read.rule,
            generation: read.generation,
            reason: read.reason.map_or_else(String::new, |reason| reason.decode(&text)),
            command: read.command,
            command_in: read.command_in,
            judged,
            observed: read.observed,
            approval: read.approval,
            cwd: read.cwd,
        }
    }
}

/// [`Record::ApprovalRequested`](super::Record::ApprovalRequested).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApprovalRequested {
    /// The approval.
    pub approval: String,
    /// Who wants to run it.
    pub principal: String,
    /// In which session.
    pub session: String,
    /// What an answer is bound to.
    pub request_digest: String,
    /// The generation of the policy that an answer is bound to.
    pub generation: u64,
    /// The rule that asks.
    pub rule: String,
    /// After which it is denied.
    pub expires_in_ms: u64,
}

/// [`Record::ApprovalResolved`](super::Record::ApprovalResolved).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApprovalResolved {
    /// The approval.
    pub approval: String,
    /// Who wanted to run it.
    pub principal: String,
    /// In which session.
    pub session: String,
    /// `allow` or `deny`.
    #[serde(rename = "decision")]
    pub verdict: RecordedVerdict,
    /// Who answered, as proven.
    pub approver: String,
    /// In whose name, as the approver said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_behalf_of: Option<String>,
    /// In their own words.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub comment: String,
}

/// [`Record::ApprovalExpired`](super::Record::ApprovalExpired).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApprovalExpired {
    /// The approval.
    pub approval: String,
    /// Who wanted to run it.
    pub principal: String,
    /// In which session.
    pub session: String,
    /// Why: `time`, `reload`, `session_closed`, ...
    pub cause: String,
}
