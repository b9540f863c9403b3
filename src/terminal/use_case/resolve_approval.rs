//! Answering a question: a person approves or denies it, and the journal has the answer.

use std::sync::Arc;

use crate::{
    approval::{Answer, Approval, ApprovalId, ApprovalObserver, ApprovalStore, ApproverDecision},
    terminal::{
        audit::{approval_records, recorder::Recorder},
        errors::ResolveApprovalError,
        run_to_completion::run_to_completion,
    },
};

/// Answers a question. Of many who answer, one succeeds. A yes counts when it is in the journal; a no counts in
/// any case. Once begun, it is done even when the caller goes away.
pub async fn resolve(
    approvals: &Arc<ApprovalStore>,
    recorder: &Recorder,
    id: ApprovalId,
    answer: Answer,
) -> Result<Approval, ResolveApprovalError> {
    let (approvals, recorder) = (approvals.clone(), recorder.clone());
    run_to_completion(
        async move { resolve_exclusively(&approvals, &recorder, id, answer).await },
        |_| async {},
    )
    .await
}

async fn resolve_exclusively(
    approvals: &ApprovalStore,
    recorder: &Recorder,
    id: ApprovalId,
    answer: Answer,
) -> Result<Approval, ResolveApprovalError> {
    let _resolve_lock = approvals.lock_resolving().await;
    let pending = approvals.check_resolvable(answer.approver, id)?;
    let record = approval_records::resolved(&pending.request, &answer);
    match answer.decision {
        ApproverDecision::Approve => recorder.record(&record).await?,
        ApproverDecision::Deny => recorder.record_best_effort(&record),
    }
    Ok(approvals.resolve(id, answer)?)
}

/// Writes down how questions end that nobody's answer ends.
pub fn approval_observer(recorder: Recorder) -> ApprovalObserver {
    ApprovalObserver(Box::new(move |approval| {
        if let Some(record) = approval_records::ended(approval) {
            recorder.record_best_effort(&record);
        }
    }))
}
