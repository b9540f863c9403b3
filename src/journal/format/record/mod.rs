//! What the journal can say: one type for each kind of record.
//!
//! Kinds and fields are only ever added; the order of the fields is the order on disk. Text that came from a caller
//! is bounded here ([`RecordedCommand`]); the code that makes a record redacts secrets. Nothing here is judged or acted on.

mod command;
mod decision;
mod exec;
mod gateway;
mod terminal;

use serde::{Deserialize, Serialize};

use super::maintenance::{Checkpoint, FileClosed, FileOpened, FilesRemoved, Finding, Unwritten};

pub use command::{CommandLocation, JudgedCommands, RecordedCommand};
pub use decision::*;
pub use exec::*;
pub use gateway::*;
pub use terminal::*;

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
    Decision(DecisionRecord),
    /// A command is about to be started.
    Spawn(SpawnRecord),
    /// It runs; with the receipt of what confines it.
    Started(StartedRecord),
    /// It could not be started.
    SpawnFailed(SpawnFailed),
    /// A command that another gateway has started was found, running or ended.
    Adopted(Adopted),
    /// A caller or the gateway asked for the end of a command.
    KillRequested(KillRequested),
    /// A caller sent a signal.
    Signal(SignalRecord),
    /// A command has ended.
    Exit(ExitRecord),
    /// A person is asked.
    ApprovalRequested(ApprovalRequested),
    /// A person has answered.
    ApprovalResolved(ApprovalResolved),
    /// Nobody answered in time: denied.
    ApprovalExpired(ApprovalExpired),
    /// A command has changed its workspace so that people's tools would have run code.
    WorkspaceChange(WorkspaceChange),
    /// An exec within a command was refused, and did not happen.
    ExecDenied(ExecDeniedRecord),
    /// Such an exec was tried in further directories of a search path, and refused for the same reason.
    ExecDeniedAgain(ExecDeniedAgainRecord),
    /// A person is to be asked about an exec within a command, which waits.
    ExecAsked(ExecAskedRecord),
    /// How such an exec went on.
    ExecAskEnded(ExecAskEndedRecord),
    /// Execs within a command were allowed, and happened.
    ExecsAllowed(ExecsAllowedRecord),
    /// The gate of a sandbox is gone: nothing more is executed in it.
    GateLost(GateLostRecord),
    /// A session was opened.
    SessionOpened(SessionOpened),
    /// A session was closed.
    SessionClosed(SessionClosed),
    /// What a session wrote to a cache is kept for later ones, or is not.
    CacheKept(CacheKept),
    /// A caller has reported what happened outside the gateway.
    BypassReported(BypassReported),
    /// A request was refused because a bound was reached.
    QuotaRefused(QuotaRefused),
    /// Refusals of one principal were too many to be written one by one.
    RefusalsRepeated(RefusalsRepeated),
    /// Records of one principal were too many to be written one by one.
    RecordsRepeated(RecordsRepeated),
    /// A protection that was preferred is not to be had here.
    Shortfall(ShortfallRecord),
    /// A connection through the proxy was judged.
    Connection(ConnectionRecord),
    /// A connection that was allowed has ended, or could not be made.
    ConnectionEnded(ConnectionEndedRecord),
    /// A command asked for something of its caller's SSH agent.
    Signature(SignatureRecord),
    /// A caller is about to be connected to a port of a terminal's sandbox.
    Forward(ForwardRecord),
    /// Such a connection has ended.
    ForwardEnded(ForwardEndedRecord),
    /// The journal itself: first record of a file.
    FileOpened(FileOpened),
    /// The journal itself: last record of a file that was rotated.
    FileClosed(FileClosed),
    /// The journal itself: old files are about to be deleted.
    FilesRemoved(FilesRemoved),
    /// The journal itself: all before this is signed.
    Checkpoint(Checkpoint),
    /// The journal itself: what was wrong when it was opened.
    Recovery(Finding),
    /// The journal itself: appends that were refused while it could not be written.
    Unwritten(Unwritten),
    /// A kind of a later version; its hash is checked all the same. Never written.
    #[serde(other)]
    Unrecognised,
}

/// Whom and what a record is about.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RecordSubject<'a> {
    /// Whose session, terminal or request.
    pub principal: Option<&'a str>,
    /// The session.
    pub session: Option<&'a str>,
    /// The terminal.
    pub terminal: Option<&'a str>,
}

impl<'a> RecordSubject<'a> {
    /// A principal's session.
    fn session(principal: &'a str, session: &'a str) -> Self {
        Self { principal: Some(principal), session: Some(session), terminal: None }
    }

    /// A principal's terminal.
    fn terminal(principal: &'a str, session: &'a str, terminal: &'a str) -> Self {
        Self { terminal: Some(terminal), ..Self::session(principal, session) }
    }
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

    /// Whom and what it is about.
    pub fn subject(&self) -> RecordSubject<'_> {
        match self {
            Self::Decision(it) => RecordSubject {
                terminal: it.terminal.as_deref(),
                ..RecordSubject::session(&it.principal, &it.session)
            },
            Self::Spawn(it) => RecordSubject::terminal(&it.principal, &it.session, &it.terminal),
            Self::Started(it) => RecordSubject::terminal(&it.principal, &it.session, &it.terminal),
            Self::SpawnFailed(it) => RecordSubject::terminal(&it.principal, &it.session, &it.terminal),
            Self::Adopted(it) => RecordSubject::terminal(&it.principal, &it.session, &it.terminal),
            Self::KillRequested(it) => RecordSubject::terminal(&it.principal, &it.session, &it.terminal),
            Self::WorkspaceChange(it) => RecordSubject::terminal(&it.principal, &it.session, &it.terminal),
            Self::Signal(it) => RecordSubject::terminal(&it.principal, &it.session, &it.terminal),
            Self::Exit(it) => RecordSubject::terminal(&it.principal, &it.session, &it.terminal),
            Self::ExecDenied(it) => RecordSubject::terminal(&it.principal, &it.session, &it.terminal),
            Self::ExecDeniedAgain(it) => RecordSubject::terminal(&it.principal, &it.session, &it.terminal),
            Self::ExecAsked(it) => RecordSubject::terminal(&it.principal, &it.session, &it.terminal),
            Self::ExecAskEnded(it) => RecordSubject::terminal(&it.principal, &it.session, &it.terminal),
            Self::ExecsAllowed(it) => RecordSubject::terminal(&it.principal, &it.session, &it.terminal),
            Self::GateLost(it) => RecordSubject::session(&it.principal, &it.session),
            Self::ApprovalRequested(it) => RecordSubject::session(&it.principal, &it.session),
            Self::ApprovalResolved(it) => RecordSubject::session(&it.principal, &it.session),
            Self::ApprovalExpired(it) => RecordSubject::session(&it.principal, &it.session),
            Self::SessionOpened(it) => RecordSubject::session(&it.principal, &it.session),
            Self::SessionClosed(it) => RecordSubject::session(&it.principal, &it.session),
            Self::CacheKept(it) => RecordSubject::session(&it.principal, &it.session),
            Self::BypassReported(it) => RecordSubject::session(&it.principal, &it.session),
            Self::QuotaRefused(it) => RecordSubject {
                principal: Some(&it.principal),
                session: it.session.as_deref(),
                terminal: None,
            },
            Self::RefusalsRepeated(it) => RecordSubject {
                principal: Some(&it.principal),
                session: it.session.as_deref(),
                terminal: None,
            },
            Self::RecordsRepeated(it) => RecordSubject {
                principal: Some(&it.principal),
                session: it.session.as_deref(),
                terminal: None,
            },
            Self::Shortfall(it) => RecordSubject {
                principal: it.principal.as_deref(),
                session: it.session.as_deref(),
                terminal: None,
            },
            Self::Connection(it) => RecordSubject {
                terminal: it.terminal.as_deref(),
                ..RecordSubject::session(&it.principal, &it.session)
            },
            Self::ConnectionEnded(it) => RecordSubject {
                terminal: it.terminal.as_deref(),
                ..RecordSubject::session(&it.principal, &it.session)
            },
            Self::Signature(it) => RecordSubject::session(&it.principal, &it.session),
            Self::Forward(it) => RecordSubject {
                terminal: Some(&it.terminal),
                ..RecordSubject::session(&it.principal, &it.session)
            },
            Self::ForwardEnded(it) => RecordSubject {
                terminal: Some(&it.terminal),
                ..RecordSubject::session(&it.principal, &it.session)
            },
            Self::GatewayStarted(_)
            | Self::GatewayStopped(_)
            | Self::PolicyLoaded(_)
            | Self::PolicyRefused(_)
            | Self::FileOpened(_)
            | Self::FileClosed(_)
            | Self::FilesRemoved(_)
            | Self::Checkpoint(_)
            | Self::Recovery(_)
            | Self::Unwritten(_)
            | Self::Unrecognised => RecordSubject::default(),
        }
    }

    /// By which front end the session that it is about was opened, where the record says so.
    pub fn front_end(&self) -> Option<&str> {
        let named = match self {
            Self::SessionOpened(it) => &it.front_end,
            Self::Decision(it) => &it.front_end,
            _ => return None,
        };
        Some(named.as_str()).filter(|named| !named.is_empty())
    }

    /// Whether this rule decided it, or would have: see the field `observed` of a decision.
    pub fn names_rule(&self, rule: &str) -> bool {
        match self {
            Self::Decision(it) => {
                it.rule.as_deref() == Some(rule) || it.observed.iter().any(|observed| observed.rule == rule)
            }
            Self::ApprovalRequested(it) => it.rule == rule,
            Self::ExecDenied(it) => it.rule.as_deref() == Some(rule),
            Self::ExecAsked(it) => it.rule == rule,
            Self::ExecsAllowed(it) => it.execs.iter().any(|exec| exec.rule.as_deref() == Some(rule)),
            Self::RefusalsRepeated(it) => it.rule.as_deref() == Some(rule),
            Self::Connection(it) => it.rule.as_deref() == Some(rule),
            _ => false,
        }
    }

    /// What was decided.
    pub fn verdict(&self) -> Option<RecordedVerdict> {
        match self {
            Self::Decision(it) => Some(it.verdict),
            Self::ApprovalResolved(it) => Some(it.verdict),
            Self::ExecDenied(_) => Some(RecordedVerdict::Deny),
            Self::ExecAsked(_) => Some(RecordedVerdict::Ask),
            Self::ExecsAllowed(_) => Some(RecordedVerdict::Allow),
            Self::RefusalsRepeated(it) => Some(it.verdict),
            Self::Connection(it) => Some(it.verdict),
            _ => None,
        }
    }
}

/// What a policy said, or a person.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RecordedVerdict {
    /// It may run.
    Allow,
    /// It may not.
    Deny,
    /// A person decides.
    Ask,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_of_a_later_version_can_be_read() {
        let record: Record = serde_json::from_str(r#"{"kind":"teleport","where":"home"}"#).unwrap();
        assert_eq!(record, Record::Unrecognised);
    }
}
