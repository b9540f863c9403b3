//! Makes the audit records of approvals. Pure: writes nothing, waits for nothing.

use std::time::Duration;

use crate::{
    approval::{
        Answer, Approval, ApprovalId, ApprovalLimitReached, ApprovalRequest, ApprovalStatus, ApproverDecision,
    },
    journal::{ApprovalExpired, ApprovalRequested, ApprovalResolved, QuotaRefused, Record, RecordedVerdict},
    session::Session,
};

/// A person is about to be asked.
pub(in crate::terminal) fn requested(request: &ApprovalRequest, expiry: Duration) -> Record {
    let question = &request.action.question;
    Record::ApprovalRequested(ApprovalRequested {
        approval: request.id.to_string(),
        principal: request.action.principal.to_string(),
        session: request.action.session.to_string(),
        request_digest: question.digest.to_string(),
        generation: question.generation,
        rule: question.rule.clone(),
        expires_in_ms: u64::try_from(expiry.as_millis()).unwrap_or(u64::MAX),
    })
}

/// An answer is about to count.
pub(in crate::terminal) fn resolved(request: &ApprovalRequest, answer: &Answer) -> Record {
    Record::ApprovalResolved(ApprovalResolved {
        approval: request.id.to_string(),
        principal: request.action.principal.to_string(),
        session: request.action.session.to_string(),
        verdict: match answer.decision {
            ApproverDecision::Approve => RecordedVerdict::Allow,
            ApproverDecision::Deny => RecordedVerdict::Deny,
        },
        approver: answer.approver.to_string(),
        on_behalf_of: Some(answer.on_behalf_of.clone()).filter(|person| !person.is_empty()),
        comment: answer.comment.clone(),
    })
}

/// A question is over, or an approval is void. `None`: the answer, or its use, has its own record.
pub(in crate::terminal) fn ended(approval: &Approval) -> Option<Record> {
    let cause = match approval.state {
        ApprovalStatus::Expired => "time",
        ApprovalStatus::Superseded => "reload",
        ApprovalStatus::Withdrawn => "withdrawn",
        ApprovalStatus::Pending
        | ApprovalStatus::Approved
        | ApprovalStatus::Used
        | ApprovalStatus::Denied => return None,
    };
    let action = &approval.request.action;
    Some(Record::ApprovalExpired(ApprovalExpired {
        approval: approval.id().to_string(),
        principal: action.principal.to_string(),
        session: action.session.to_string(),
        cause: cause.to_owned(),
    }))
}

/// A question was written and could not be put.
pub(in crate::terminal) fn not_submitted(session: &Session, id: ApprovalId) -> Record {
    Record::ApprovalExpired(ApprovalExpired {
        approval: id.to_string(),
        principal: session.principal.to_string(),
        session: session.id.to_string(),
        cause: "no_room".to_owned(),
    })
}

/// There is no room for another question.
pub(in crate::terminal) fn limit_reached(session: &Session, reached: &ApprovalLimitReached) -> Record {
    Record::QuotaRefused(QuotaRefused {
        principal: session.principal.to_string(),
        session: Some(session.id.to_string()),
        limit: reached.name().to_owned(),
        bound: reached.max().into(),
    })
}
