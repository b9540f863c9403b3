//! The store of approval requests: submitting, waiting, answering, and publishing changes.
//!
//! A question that a call waits for is withdrawn when the call is dropped. Deadlines use the monotonic clock, so setting the
//! host's clock does not extend an approval.

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use tokio::sync::{Notify, broadcast, oneshot};

use super::{
    Answer, Approval, ApprovalConfig, ApprovalId, ApprovalLimitReached, ApprovalRequest, ApprovalStatus,
    config::is_administrator,
    table::{ApprovalTable, StoredAnswer},
};
use crate::{
    counters::CounterVec,
    policy::{self, Digest},
    session::{Principal, SessionId},
};

/// Changes that a slow watcher may be behind before it is sent everything again.
const CHANGES_BUFFERED: usize = 1_024;

/// How a question has ended for the one who asked.
#[derive(Debug)]
pub(crate) enum Resolution {
    /// Approved; the approval is used up by this.
    Approved(policy::ApprovalGrant),
    /// With a no.
    Denied(Arc<Answer>),
    /// Without an answer in time.
    Expired,
    /// With another policy.
    Superseded,
    /// By the gateway, for the one who asked.
    Withdrawn,
}

/// An answer was not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ApprovalResolveError {
    /// There is none, or it is not for this caller to see.
    #[error("no such approval")]
    Unknown,
    /// The caller sees it and may not answer.
    #[error("this caller may not answer: the configuration names the approvers")]
    NotAnApprover,
    /// It has been answered, or has ended without an answer.
    #[error("the approval is not pending any more: it is {0}")]
    Over(ApprovalStatus),
}

/// All questions of a gateway.
#[derive(Debug)]
pub(crate) struct ApprovalStore {
    config: ApprovalConfig,
    gateway_uid: u32,
    table: Mutex<ApprovalTable>,
    changes: broadcast::Sender<Approval>,
    rescheduled: Notify,
    resolve_lock: tokio::sync::Mutex<()>,
    observer: ApprovalObserver,
    counters: CounterVec<ApprovalStatus>,
}

/// Called with every change of every question, as soon as it has happened.
pub(crate) struct ApprovalObserver(pub Box<dyn Fn(&Approval) + Send + Sync>);

impl fmt::Debug for ApprovalObserver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ApprovalObserver")
    }
}

impl ApprovalStore {
    /// An empty store of a gateway that runs as `gateway_uid`.
    pub(crate) fn new(config: ApprovalConfig, gateway_uid: u32, observer: ApprovalObserver) -> Arc<Self> {
        Arc::new(Self {
            config,
            gateway_uid,
            table: Mutex::default(),
            changes: broadcast::Sender::new(CHANGES_BUFFERED),
            rescheduled: Notify::new(),
            resolve_lock: tokio::sync::Mutex::default(),
            observer,
            counters: CounterVec::default(),
        })
    }

    /// How long a question waits.
    pub(crate) fn expiry(&self) -> Duration {
        self.config.expiry
    }

    /// Whether the principal may ask another question.
    pub(crate) fn check_capacity(&self, principal: Principal) -> Result<(), ApprovalLimitReached> {
        self.lock().check_capacity(principal, &self.config)
    }

    /// Puts a question that a call waits with.
    pub(crate) fn submit(
        self: &Arc<Self>,
        request: ApprovalRequest,
    ) -> Result<ApprovalWait, ApprovalLimitReached> {
        let (sender, resolved) = oneshot::channel();
        let approval = self.insert(request, Some(sender))?;
        Ok(ApprovalWait { store: self.clone(), approval, resolved: Some(resolved) })
    }

    /// Puts a question that no call waits with.
    pub(crate) fn submit_deferred(&self, request: ApprovalRequest) -> Result<Approval, ApprovalLimitReached> {
        self.insert(request, None)
    }

    fn insert(
        &self,
        request: ApprovalRequest,
        waiter: Option<oneshot::Sender<()>>,
    ) -> Result<Approval, ApprovalLimitReached> {
        let approval = self.lock().insert(request, waiter, &self.config, Instant::now())?;
        self.publish(&approval);
        Ok(approval)
    }

    /// The question that no call waits with, was put about the very same request, and has no answer yet.
    pub(crate) fn find_deferred(
        &self,
        principal: Principal,
        digest: Digest,
        generation: u64,
    ) -> Option<Approval> {
        self.lock().find_deferred(principal, digest, generation, Instant::now())
    }

    /// The answer that was given to the posted question about the very same request, if there is one. Used up by this.
    pub(crate) fn take_answer(
        &self,
        principal: Principal,
        digest: Digest,
        generation: u64,
    ) -> Option<(ApprovalId, Resolution)> {
        let (stored, approval) = self.lock().take_answer(principal, digest, generation, Instant::now())?;
        let end = match stored {
            StoredAnswer::Approved(granted) => {
                self.publish(&approval);
                Resolution::Approved(granted)
            }
            StoredAnswer::Denied(answer) => Resolution::Denied(answer),
        };
        Some((approval.id(), end))
    }

    /// Held by who is about to answer: what is pending then stays so, but for its time, its asker and the policy.
    pub(crate) async fn lock_resolving(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.resolve_lock.lock().await
    }

    /// Whether the caller may answer this one now.
    pub(crate) fn check_resolvable(
        &self,
        caller: Principal,
        id: ApprovalId,
    ) -> Result<Approval, ApprovalResolveError> {
        let approval = self.find(caller, id).ok_or(ApprovalResolveError::Unknown)?;
        if !self.config.approvers.may_answer(caller, approval.request.action.principal, self.gateway_uid) {
            return Err(ApprovalResolveError::NotAnApprover);
        }
        match approval.state {
            ApprovalStatus::Pending => Ok(approval),
            over => Err(ApprovalResolveError::Over(over)),
        }
    }

    /// Answers. Of many, one succeeds.
    pub(crate) fn resolve(&self, id: ApprovalId, answer: Answer) -> Result<Approval, ApprovalResolveError> {
        self.check_resolvable(answer.approver, id)?;
        let answered = self.lock().answer(id, answer, &self.config, Instant::now());
        let approval = answered.map_err(ApprovalResolveError::Over)?;
        self.publish(&approval);
        Ok(approval)
    }

    /// Ends questions when they are due. Never ends.
    pub(crate) async fn expire_due(&self) {
        loop {
            let rescheduled = self.rescheduled.notified();
            let next = self.lock().next_deadline();
            match next {
                Some(at) => tokio::select! {
                    () = tokio::time::sleep_until(at.into()) => {
                        let due = self.lock().expire(Instant::now());
                        // A denial that nobody fetched is over, and was published when it was made.
                        let expired = due.iter().filter(|approval| approval.state == ApprovalStatus::Expired);
                        expired.for_each(|approval| self.publish(approval));
                    }
                    () = rescheduled => {}
                },
                None => rescheduled.await,
            }
        }
    }

    /// Ends every question that was put under an older policy than this.
    pub(crate) fn supersede(&self, generation: u64) {
        let ended = self.lock().supersede(generation);
        let superseded = ended.iter().filter(|approval| approval.state == ApprovalStatus::Superseded);
        superseded.for_each(|approval| self.publish(approval));
    }

    /// An approval that the caller may see. `None` for an unknown and for a foreign one, without a difference.
    pub(crate) fn find(&self, caller: Principal, id: ApprovalId) -> Option<Approval> {
        self.lock().get(id).filter(|approval| self.is_visible(approval, caller)).cloned()
    }

    /// What the caller may see, oldest question first: all that is open, and the latest of what is over.
    pub(crate) fn list(&self, caller: Principal, session: Option<SessionId>) -> Vec<Approval> {
        let table = self.lock();
        let shown = |approval: &&Approval| self.is_visible_in(approval, caller, session);
        let mut list: Vec<Approval> = table.closed().chain(table.open()).filter(shown).cloned().collect();
        list.sort_by_key(Approval::id);
        list
    }

    /// How many questions have come to each state; pending are those that were put.
    pub(crate) fn counters(&self) -> &CounterVec<ApprovalStatus> {
        &self.counters
    }

    /// How many nobody has answered.
    pub(crate) fn pending_count(&self) -> usize {
        self.lock().open().filter(|approval| approval.state == ApprovalStatus::Pending).count()
    }

    /// Every change from now on, of all principals: [`ApprovalStore::is_visible_in`] says whose.
    pub(crate) fn changes(&self) -> broadcast::Receiver<Approval> {
        self.changes.subscribe()
    }

    /// Whether the caller may see it, and it is of the session when one is named.
    pub(crate) fn is_visible_in(
        &self,
        approval: &Approval,
        caller: Principal,
        session: Option<SessionId>,
    ) -> bool {
        self.is_visible(approval, caller) && session.is_none_or(|id| id == approval.request.action.session)
    }

    /// Whether the caller may see everybody's questions.
    pub(crate) fn sees_all(&self, caller: Principal) -> bool {
        self.config.approvers.may_answer_all(caller, self.gateway_uid)
    }

    /// Whether the caller is root or the gateway's own user.
    pub(crate) fn is_administrator(&self, caller: Principal) -> bool {
        is_administrator(caller, self.gateway_uid)
    }

    fn is_visible(&self, approval: &Approval, caller: Principal) -> bool {
        approval.request.action.principal == caller || self.sees_all(caller)
    }

    fn withdraw(&self, id: ApprovalId) {
        let withdrawn = self.lock().withdraw(id);
        if let Some(approval) = withdrawn {
            self.publish(&approval);
        }
    }

    fn take_resolution(&self, id: ApprovalId) -> Resolution {
        let mut table = self.lock();
        if let Some((granted, used)) = table.take_approved(id, Instant::now()) {
            drop(table);
            self.publish(&used);
            return Resolution::Approved(granted);
        }
        let (state, answer) =
            table.get(id).map_or((ApprovalStatus::Expired, None), |it| (it.state, it.answer.clone()));
        match (state, answer) {
            (ApprovalStatus::Denied, Some(answer)) => Resolution::Denied(answer),
            (ApprovalStatus::Superseded, _) => Resolution::Superseded,
            (ApprovalStatus::Withdrawn, _) => Resolution::Withdrawn,
            // An approval that is due is void, whether or not that was published yet.
            (
                ApprovalStatus::Pending
                | ApprovalStatus::Approved
                | ApprovalStatus::Used
                | ApprovalStatus::Expired
                | ApprovalStatus::Denied,
                _,
            ) => Resolution::Expired,
        }
    }

    fn publish(&self, approval: &Approval) {
        let action = &approval.request.action;
        tracing::info!(
            approval.id = %approval.id(),
            approval.state = %approval.state,
            session.id = %action.session,
            principal = %action.principal,
            rule = action.question.rule,
            approver = approval.answer.as_ref().map(|answer| answer.approver.to_string()),
            "approval"
        );
        self.counters.inc(approval.state);
        (self.observer.0)(approval);
        // Nobody may be watching.
        let _ = self.changes.send(approval.clone());
        self.rescheduled.notify_waiters();
    }

    fn lock(&self) -> MutexGuard<'_, ApprovalTable> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A question that a call waits with. Dropped, it is withdrawn, and an approval that came meanwhile is void.
#[derive(Debug)]
pub(crate) struct ApprovalWait {
    store: Arc<ApprovalStore>,
    approval: Approval,
    resolved: Option<oneshot::Receiver<()>>,
}

impl ApprovalWait {
    /// The question, as it was put.
    pub(crate) fn approval(&self) -> &Approval {
        &self.approval
    }

    /// Waits for the end of the question.
    pub(crate) async fn end(mut self) -> Resolution {
        let Some(resolved) = self.resolved.take() else { return Resolution::Withdrawn };
        // The question's removal notifies first: an error means that it is gone, and the store knows the reason.
        let _ = resolved.await;
        self.store.take_resolution(self.approval.id())
    }
}

impl Drop for ApprovalWait {
    fn drop(&mut self) {
        self.store.withdraw(self.approval.id());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whether_there_is_room_is_known_before_a_question_is_made() {
        let store = |open, open_per_principal| {
            let config = ApprovalConfig { open, open_per_principal, ..ApprovalConfig::default() };
            ApprovalStore::new(config, 0, ApprovalObserver(Box::new(|_| {})))
        };
        let principal = Principal { uid: 1_000 };
        assert_eq!(store(1, 1).check_capacity(principal), Ok(()));
        assert_eq!(store(0, 1).check_capacity(principal), Err(ApprovalLimitReached::Gateway(0)));
        assert_eq!(store(1, 0).check_capacity(principal), Err(ApprovalLimitReached::Principal(0)));
    }
}
