//! Questions that rules ask, and the answers that only a person can give.
//!
//! An answer is for one request in its normal form, one principal and one generation of the policy; it is consumed
//! by the judge, so that it answers once. Keeping questions, showing them and waiting is not done here.

use std::fmt;

use super::{
    command::{
        shell,
        verdict::{DecisionReason, RuleVerdict},
    },
    digest::Digest,
    set::PolicySet,
};

/// The longest part of a command that an error text repeats.
pub(super) const COMMAND_SHOWN_BYTES: usize = 384;

/// What a person is to decide.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApprovalQuestion {
    /// The rule that asks; "opaque" where it is a part that cannot be seen.
    pub rule: String,
    /// The part of the request that it is about, in its normal form.
    pub command: String,
    /// What the rule gives for its reason, word for word; or why the part cannot be seen.
    pub reason: Option<String>,
    /// Of the exact request.
    pub digest: Digest,
    /// Of the policy.
    pub generation: u64,
}

impl ApprovalQuestion {
    pub(super) fn from_verdict(
        policy: &PolicySet,
        verdict: &RuleVerdict,
        digest: Digest,
        generation: u64,
    ) -> Self {
        let Some(unit) = verdict.cause() else {
            return Self { rule: String::new(), command: String::new(), reason: None, digest, generation };
        };
        let (rule, reason) = match &unit.reason {
            DecisionReason::Rule(id) => {
                let rule = policy.rules().iter().find(|rule| rule.id == *id);
                (id.clone(), rule.and_then(|rule| rule.reason.clone()))
            }
            DecisionReason::Opaque(reason) => ("opaque".to_owned(), Some(reason.to_string())),
            DecisionReason::Default
            | DecisionReason::Transparent
            | DecisionReason::Variable(_)
            | DecisionReason::Conflict(..) => ("default".to_owned(), None),
        };
        Self { rule, command: shell::print(&unit.words), reason, digest, generation }
    }
}

impl fmt::Display for ApprovalQuestion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rule, command, reason, .. } = self;
        let command = crate::printable::bounded(command, COMMAND_SHOWN_BYTES);
        match reason {
            Some(reason) => write!(f, "{reason} (rule {rule:?} asks about: {command})"),
            None => write!(f, "rule {rule:?} asks about: {command}"),
        }
    }
}

/// A person's yes to one question. Neither `Clone` nor `Copy`: it answers once.
#[derive(Debug)]
#[must_use = "an approval that no judge sees allows nothing"]
pub struct ApprovalGrant {
    digest: Digest,
    generation: u64,
    principal: String,
    approver: String,
}

impl ApprovalGrant {
    /// Says yes to `question`, which `principal` raised, in the name of `approver`.
    pub fn issue(question: &ApprovalQuestion, principal: String, approver: String) -> Self {
        Self { digest: question.digest, generation: question.generation, principal, approver }
    }

    /// Who said yes.
    pub fn approver(&self) -> &str {
        &self.approver
    }

    pub(super) fn covers(&self, digest: Digest, generation: u64, principal: &str) -> bool {
        self.digest == digest && self.generation == generation && self.principal == principal
    }
}
