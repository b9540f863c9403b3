//! One approval request: its id, what is asked, by whom, its status and its answer.
//!
//! An id is `appr_` and a ULID, in one canonical spelling.

use std::{fmt, net::IpAddr, sync::Arc, time::SystemTime};

use ulid::Ulid;

use crate::{
    counters::{Label as _, labels},
    policy::{ApprovalQuestion, CommandSpec},
    session::{Principal, SessionId, parse_ulid},
};

/// What is asked, on whose behalf.
#[derive(Debug, Clone)]
pub(crate) struct RequestedAction {
    /// Who wants to run it.
    pub principal: Principal,
    /// In which session.
    pub session: SessionId,
    /// The rule's question, and the exact request that the answer is for.
    pub question: ApprovalQuestion,
    /// What is to run, as the caller gave it.
    pub program: CommandSpec,
    /// Where.
    pub cwd: String,
    /// Under which profile, as the caller or the session named it.
    pub profile: String,
    /// Names of the variables that the request sets.
    pub env_names: Vec<String>,
    /// The request's own id.
    pub request_id: Option<String>,
    /// What waits within a command that runs, where the question is about that.
    pub within: Option<AskedWithin>,
}

/// What of a running command waits for the answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum AskedWithin {
    /// An exec.
    Exec(AskedExec),
    /// A connection.
    Connection(AskedConnection),
}

/// A connection that waits for the answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AskedConnection {
    /// The terminal, where it is known.
    pub terminal: Option<String>,
    /// The name or address that was asked for.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// What the name leads to, where the question is about that.
    pub addresses: Vec<IpAddr>,
}

/// An exec that waits for the answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AskedExec {
    /// The terminal.
    pub terminal: String,
    /// The file, after all links.
    pub file: String,
    /// The interpreters of a script.
    pub interpreters: Vec<String>,
    /// Arguments that are not in the program's.
    pub args_omitted: u32,
}

/// A question that was put.
#[derive(Debug)]
pub(crate) struct ApprovalRequest {
    /// Its id.
    pub id: ApprovalId,
    /// What is asked.
    pub action: RequestedAction,
    /// Whether a call waits.
    pub mode: RequestMode,
    /// When.
    pub at: SystemTime,
}

impl ApprovalRequest {
    /// Asks now, by a new id.
    pub(crate) fn new(action: RequestedAction, mode: RequestMode) -> Self {
        Self { id: ApprovalId::generate(), action, mode, at: SystemTime::now() }
    }
}

/// Whether a call waits for the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RequestMode {
    /// One does, and takes it.
    Waiting,
    /// None: the same request, sent again, takes it.
    Deferred,
}

labels! {
    /// What has become of a question.
    pub enum ApprovalStatus {
        /// Nobody has answered.
        Pending = "pending",
        /// Approved, and not used yet.
        Approved = "approved",
        /// Approved, and used.
        Used = "used",
        /// No.
        Denied = "denied",
        /// Nobody answered in time, or the approval was not used in time.
        Expired = "expired",
        /// The one who asked has gone.
        Withdrawn = "withdrawn",
        /// Another policy is in force.
        Superseded = "superseded",
    }
}

impl fmt::Display for ApprovalStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.label())
    }
}

/// What an approver says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ApproverDecision {
    /// It may run, once.
    Approve,
    /// It may not.
    Deny,
}

/// A person's answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Answer {
    /// Approved or denied.
    pub decision: ApproverDecision,
    /// Who, as proven.
    pub approver: Principal,
    /// For whom, as the approver says; may be empty.
    pub on_behalf_of: String,
    /// In the approver's words; may be empty.
    pub comment: String,
    /// When.
    pub at: SystemTime,
}

/// An approval at one moment.
#[derive(Debug, Clone)]
pub(crate) struct Approval {
    /// What is asked.
    pub request: Arc<ApprovalRequest>,
    /// What has become of it.
    pub state: ApprovalStatus,
    /// When it expires, or would have.
    pub expires_at: SystemTime,
    /// The answer, once there is one.
    pub answer: Option<Arc<Answer>>,
}

impl Approval {
    /// Its id.
    pub(crate) fn id(&self) -> ApprovalId {
        self.request.id
    }
}

/// An approval's id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct ApprovalId(Ulid);

impl ApprovalId {
    /// A new one; 80 of its bits are random.
    pub(crate) fn generate() -> Self {
        Self(Ulid::generate())
    }

    /// Reads an id; any other spelling names nothing.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        parse_ulid("appr_", text).map(Self)
    }
}

impl fmt::Display for ApprovalId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "appr_{}", self.0)
    }
}
