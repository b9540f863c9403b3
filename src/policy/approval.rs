//! What a rule with the decision `ask` asks a person, and the grant that a person gives.
//!
//! A grant is for one request in its normal form, one principal and one generation of the policy, and is used up by the
//! decision. Storing questions, showing them and waiting for answers is done by the module `approval`.

use std::fmt;

use super::{
    command::{
        rule::Decision,
        shell,
        verdict::{DecisionReason, RuleVerdict, Unit},
    },
    digest::Digest,
    set::PolicySet,
};

/// The longest part of a command that an error text repeats.
pub(super) const COMMAND_SHOWN_BYTES: usize = 384;

/// A command of a request that a rule asks about.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AskedCommand {
    /// In its normal form.
    pub command: String,
    /// The rule that asks; "opaque" where it is a part that cannot be seen.
    pub rule: String,
    /// The rule's own reason, verbatim; or why the command cannot be seen.
    pub reason: Option<String>,
}

/// What a person has to decide.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApprovalQuestion {
    /// The rule that asks; "opaque" where it is a part that cannot be seen.
    pub rule: String,
    /// The command of the request that the rule is about, in its normal form.
    pub command: String,
    /// The rule's own reason, verbatim; or why the command cannot be seen.
    pub reason: Option<String>,
    /// What else of the request rules ask about: the answer is for all of it.
    pub others: Vec<AskedCommand>,
    /// The digest of the request.
    pub digest: Digest,
    /// The generation of the policy.
    pub generation: u64,
}

impl ApprovalQuestion {
    pub(super) fn from_verdict(
        policy: &PolicySet,
        verdict: &RuleVerdict,
        digest: Digest,
        generation: u64,
    ) -> Self {
        let asked = |unit: &Unit| AskedCommand::of(policy, unit);
        let mut others: Vec<AskedCommand> = Vec::new();
        for other in verdict.units.iter().filter(|unit| unit.decision == Decision::Ask).map(asked) {
            if !others.contains(&other) {
                others.push(other);
            }
        }
        let first = verdict.cause().map(asked).unwrap_or_default();
        others.retain(|other| *other != first);
        let AskedCommand { command, rule, reason } = first;
        Self { rule, command, reason, others, digest, generation }
    }
}

impl AskedCommand {
    fn of(policy: &PolicySet, unit: &Unit) -> Self {
        let (rule, reason) = match &unit.reason {
            DecisionReason::Rule(id) => {
                let rule = policy.rules().iter().find(|rule| rule.id == *id);
                (id.clone(), rule.and_then(|rule| rule.reason.clone()))
            }
            DecisionReason::Opaque(reason) => ("opaque".to_owned(), Some(reason.to_string())),
            DecisionReason::Default
            | DecisionReason::Transparent
            | DecisionReason::Interprets
            | DecisionReason::AtExec(_)
            | DecisionReason::Started(_)
            | DecisionReason::Variable(_)
            | DecisionReason::Conflict(..) => ("default".to_owned(), None),
        };
        Self { command: shell::print(&unit.words), rule, reason }
    }
}

impl fmt::Display for ApprovalQuestion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rule, command, reason, others, .. } = self;
        let command = crate::printable::bounded(command, COMMAND_SHOWN_BYTES);
        match reason {
            Some(reason) => write!(f, "{reason} (rule {rule:?} asks about: {command})")?,
            None => write!(f, "rule {rule:?} asks about: {command}")?,
        }
        match others.len() {
            0 => Ok(()),
            count => write!(f, ", and about {count} more of this request"),
        }
    }
}

/// A person's approval of one request. It is not `Clone`, because it counts once.
#[derive(Debug)]
#[must_use = "a grant that no decision sees allows nothing"]
pub struct ApprovalGrant {
    digest: Digest,
    generation: u64,
    principal: String,
}

impl ApprovalGrant {
    /// Approves the request of `principal` that `question` is about.
    pub fn issue(question: &ApprovalQuestion, principal: String) -> Self {
        Self { digest: question.digest, generation: question.generation, principal }
    }

    pub(super) fn covers(&self, digest: Digest, generation: u64, principal: &str) -> bool {
        self.digest == digest && self.generation == generation && self.principal == principal
    }
}
