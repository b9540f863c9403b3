//! From questions and answers to the journal's records. Pure: writes nothing, waits for nothing.

use std::time::Duration;

use crate::{
    approval::{Answer, Approval, ApprovalId, Asked, Full, Said, State},
    journal::{ApprovalAsked, ApprovalExpired, ApprovalResolved, QuotaRefused, Record, Verdict},
    session::Session,
};

/// A person is about to be asked.
pub(super) fn asked(asked: &Asked, expiry: Duration) -> Record {
    let question = &asked.wanted.question;
    Record::ApprovalAsked(ApprovalAsked {
        approval: asked.id.to_string(),
        principal: asked.wanted.principal.to_string(),
        session: asked.wanted.session.to_string(),
        request_digest: question.digest.to_string(),
        generation: question.generation,
        rule: question.rule.clone(),
        expires_in_ms: u64::try_from(expiry.as_millis()).unwrap_or(u64::MAX),
    })
}

/// An answer is about to count.
pub(super) fn resolved(asked: &Asked, answer: &Answer) -> Record {
    Record::ApprovalResolved(ApprovalResolved {
        approval: asked.id.to_string(),
        principal: asked.wanted.principal.to_string(),
        session: asked.wanted.session.to_string(),
        verdict: match answer.said {
            Said::Yes => Verdict::Allow,
            Said::No => Verdict::Deny,
        },
        approver: answer.approver.to_string(),
        on_behalf_of: Some(answer.on_behalf_of.clone()).filter(|person| !person.is_empty()),
        comment: answer.comment.clone(),
    })
}

/// A question is over, or a yes is void. `None`: the answer, or its use, says so.
pub(super) fn ended(approval: &Approval) -> Option<Record> {
    let cause = match approval.state {
        State::Expired => "time",
        State::Superseded => "reload",
        State::Withdrawn => "withdrawn",
        State::Pending | State::Approved | State::Used | State::Denied => return None,
    };
    let wanted = &approval.asked.wanted;
    Some(Record::ApprovalExpired(ApprovalExpired {
        approval: approval.id().to_string(),
        principal: wanted.principal.to_string(),
        session: wanted.session.to_string(),
        cause: cause.to_owned(),
    }))
}

/// A question was written and could not be put.
pub(super) fn never_put(session: &Session, id: ApprovalId) -> Record {
    Record::ApprovalExpired(ApprovalExpired {
        approval: id.to_string(),
        principal: session.principal.to_string(),
        session: session.id.to_string(),
        cause: "no_room".to_owned(),
    })
}

/// There is no room for another question.
pub(super) fn no_room(session: &Session, full: &Full) -> Record {
    Record::QuotaRefused(QuotaRefused {
        principal: session.principal.to_string(),
        session: Some(session.id.to_string()),
        limit: full.name().to_owned(),
        bound: full.most().into(),
    })
}
