//! Records of what people are asked, and of what they answer.

use serde::{Deserialize, Serialize};

use super::RecordedVerdict;

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
    /// Of the policy that an answer is bound to.
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
