//! One approval: what is asked, by whom, and what has become of it.

use std::{fmt, sync::Arc, time::SystemTime};

use super::ApprovalId;
use crate::{
    policy::{Program, Question},
    session::{Principal, SessionId},
    tally::{Word as _, words},
};

/// What is asked, on whose behalf.
#[derive(Debug, Clone)]
pub struct Wanted {
    /// Who wants to run it.
    pub principal: Principal,
    /// In which session.
    pub session: SessionId,
    /// The rule's question, and the exact request that the answer is for.
    pub question: Question,
    /// What is to run, as the caller gave it.
    pub program: Program,
    /// Where.
    pub cwd: String,
    /// Under which profile, as the caller or the session named it.
    pub profile: String,
    /// Names of the variables that the request sets.
    pub env_names: Vec<String>,
    /// The request's own id.
    pub request_id: Option<String>,
}

/// A question that was put.
#[derive(Debug)]
pub struct Asked {
    /// Its id.
    pub id: ApprovalId,
    /// What is asked.
    pub wanted: Wanted,
    /// Whether a call waits.
    pub asking: Asking,
    /// When.
    pub at: SystemTime,
}

impl Asked {
    /// Asks now, by a new id.
    pub fn new(wanted: Wanted, asking: Asking) -> Self {
        Self { id: ApprovalId::generate(), wanted, asking, at: SystemTime::now() }
    }
}

/// Whether a call waits for the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asking {
    /// One does, and takes it.
    Waiting,
    /// None: the same request, sent again, takes it.
    Posted,
}

words! {
    /// What has become of a question.
    pub enum State {
        /// Nobody has answered.
        Pending = "pending",
        /// Yes, and not used yet.
        Approved = "approved",
        /// Yes, and used.
        Used = "used",
        /// No.
        Denied = "denied",
        /// Nobody answered in time, or the yes was not used in time.
        Expired = "expired",
        /// The one who asked has gone.
        Withdrawn = "withdrawn",
        /// Another policy is in force.
        Superseded = "superseded",
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// A person's answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// Yes or no.
    pub said: super::Said,
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
pub struct Approval {
    /// What is asked.
    pub asked: Arc<Asked>,
    /// What has become of it.
    pub state: State,
    /// When it expires, or would have.
    pub expires_at: SystemTime,
    /// The answer, once there is one.
    pub answer: Option<Arc<Answer>>,
}

impl Approval {
    /// Its id.
    pub fn id(&self) -> ApprovalId {
        self.asked.id
    }
}
