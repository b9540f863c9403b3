//! Resolves an approval: a person approves or denies a question, and the answer is recorded.

use std::sync::Arc;

use crate::{
    approval::{Answer, Approval, ApprovalId, ApprovalObserver, ApprovalStore, ApproverDecision},
    terminal::{
        audit::{approval_records, recorder::Recorder},
        errors::ResolveApprovalError,
        run_to_completion::run_to_completion,
    },
};

/// Answers a question. Of many who answer, one succeeds. An approval counts when it is in the journal; a denial counts in
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

/// Records the end of questions that end without an answer.
pub fn approval_observer(recorder: Recorder) -> ApprovalObserver {
    ApprovalObserver(Box::new(move |approval| {
        if let Some(record) = approval_records::ended(approval) {
            recorder.record_best_effort(&record);
        }
    }))
}
