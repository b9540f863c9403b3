//! The book of questions: asking, waiting, answering, and telling who watches.
//!
//! A question that a call waits with is withdrawn when the call is dropped, wherever it stands. Times are of the
//! monotonic clock: setting the host's clock makes no yes last longer.

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use tokio::sync::{Notify, broadcast, oneshot};

use super::{
    Answer, Approval, ApprovalId, Asked, Full, State, Terms,
    approvers::is_administrator,
    table::{Found, Table},
};
use crate::{
    policy::{self, Digest},
    session::{Principal, SessionId},
    tally::Tally,
};

/// Changes that a slow watcher may be behind before it is told everything anew.
const CHANGES_HELD: usize = 1_024;

/// What an approver says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Said {
    /// It may run, once.
    Yes,
    /// It may not.
    No,
}

/// How a question has ended for the one who asked.
#[derive(Debug)]
pub enum End {
    /// With a yes, used up by this.
    Approved(policy::Approval),
    /// With a no.
    Denied(Arc<Answer>),
    /// Without an answer in time.
    Expired,
    /// With another policy.
    Superseded,
    /// By the gateway, for the one who asked.
    Withdrawn,
}

/// Why an answer was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ResolveError {
    /// There is none, or it is not for this caller to see.
    #[error("no such approval")]
    NotFound,
    /// The caller sees it and may not answer.
    #[error("this caller may not answer: the configuration names the approvers")]
    NotAnApprover,
    /// Somebody was faster, or time was.
    #[error("the approval is not pending any more: it is {0}")]
    Over(State),
}

/// All questions of a gateway.
#[derive(Debug)]
pub struct Book {
    terms: Terms,
    gateway_uid: u32,
    table: Mutex<Table>,
    changes: broadcast::Sender<Approval>,
    rescheduled: Notify,
    answering: tokio::sync::Mutex<()>,
    witness: Witness,
    tally: Tally<State>,
}

/// Is told of every change of every question, as soon as it has happened.
pub struct Witness(pub Box<dyn Fn(&Approval) + Send + Sync>);

impl fmt::Debug for Witness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Witness")
    }
}

impl Book {
    /// An empty book of a gateway that runs as `gateway_uid`.
    pub fn new(terms: Terms, gateway_uid: u32, witness: Witness) -> Arc<Self> {
        Arc::new(Self {
            terms,
            gateway_uid,
            table: Mutex::default(),
            changes: broadcast::Sender::new(CHANGES_HELD),
            rescheduled: Notify::new(),
            answering: tokio::sync::Mutex::default(),
            witness,
            tally: Tally::default(),
        })
    }

    /// How long a question waits.
    pub fn expiry(&self) -> Duration {
        self.terms.expiry
    }

    /// Whether the principal may ask another question.
    pub fn has_room(&self, principal: Principal) -> Result<(), Full> {
        self.lock().has_room(principal, &self.terms)
    }

    /// Puts a question that a call waits with.
    pub fn ask(self: &Arc<Self>, asked: Asked) -> Result<Waiting, Full> {
        let (tell, told) = oneshot::channel();
        let approval = self.put(asked, Some(tell))?;
        Ok(Waiting { book: self.clone(), approval, told: Some(told) })
    }

    /// Puts a question that no call waits with.
    pub fn post(&self, asked: Asked) -> Result<Approval, Full> {
        self.put(asked, None)
    }

    fn put(&self, asked: Asked, waiter: Option<oneshot::Sender<()>>) -> Result<Approval, Full> {
        let approval = self.lock().insert(asked, waiter, &self.terms, Instant::now())?;
        self.publish(&approval);
        Ok(approval)
    }

    /// The question that no call waits with, was put about the very same request, and has no answer yet.
    pub fn posted(&self, principal: Principal, digest: Digest, generation: u64) -> Option<Approval> {
        self.lock().posted(principal, digest, generation, Instant::now())
    }

    /// The answer that was given to the posted question about the very same request, if there is one. Used up by this.
    pub fn redeem(&self, principal: Principal, digest: Digest, generation: u64) -> Option<(ApprovalId, End)> {
        let (found, approval) = self.lock().redeem(principal, digest, generation, Instant::now())?;
        let end = match found {
            Found::Approved(granted) => {
                self.publish(&approval);
                End::Approved(granted)
            }
            Found::Denied(answer) => End::Denied(answer),
        };
        Some((approval.id(), end))
    }

    /// Held by who is about to answer: what is pending then stays so, but for its time, its asker and the policy.
    pub async fn answering(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.answering.lock().await
    }

    /// Whether the caller may answer this one now.
    pub fn may_resolve(&self, caller: Principal, id: ApprovalId) -> Result<Approval, ResolveError> {
        let approval = self.find(caller, id).ok_or(ResolveError::NotFound)?;
        if !self.terms.approvers.include(caller, approval.asked.wanted.principal, self.gateway_uid) {
            return Err(ResolveError::NotAnApprover);
        }
        match approval.state {
            State::Pending => Ok(approval),
            over => Err(ResolveError::Over(over)),
        }
    }

    /// Answers. Of many, one succeeds.
    pub fn resolve(&self, id: ApprovalId, answer: Answer) -> Result<Approval, ResolveError> {
        self.may_resolve(answer.approver, id)?;
        let answered = self.lock().answer(id, answer, &self.terms, Instant::now());
        let approval = answered.map_err(ResolveError::Over)?;
        self.publish(&approval);
        Ok(approval)
    }

    /// Ends questions when they are due. Never ends.
    pub async fn expire(&self) {
        loop {
            let rescheduled = self.rescheduled.notified();
            let next = self.lock().next_deadline();
            match next {
                Some(at) => tokio::select! {
                    () = tokio::time::sleep_until(at.into()) => {
                        let due = self.lock().expire(Instant::now());
                        // A no that nobody came to hear is over, and was told when it was said.
                        let expired = due.iter().filter(|approval| approval.state == State::Expired);
                        expired.for_each(|approval| self.publish(approval));
                    }
                    () = rescheduled => {}
                },
                None => rescheduled.await,
            }
        }
    }

    /// Ends every question that was put under an older policy than this.
    pub fn supersede(&self, generation: u64) {
        let ended = self.lock().supersede(generation);
        let superseded = ended.iter().filter(|approval| approval.state == State::Superseded);
        superseded.for_each(|approval| self.publish(approval));
    }

    /// An approval that the caller may see. `None` for an unknown and for a foreign one, without a difference.
    pub fn find(&self, caller: Principal, id: ApprovalId) -> Option<Approval> {
        self.lock().get(id).filter(|approval| self.shows(approval, caller)).cloned()
    }

    /// What the caller may see, oldest question first: all that is open, and the latest of what is over.
    pub fn list(&self, caller: Principal, session: Option<SessionId>) -> Vec<Approval> {
        let table = self.lock();
        let shown = |approval: &&Approval| self.concerns(approval, caller, session);
        let mut list: Vec<Approval> = table.over().chain(table.open()).filter(shown).cloned().collect();
        list.sort_by_key(Approval::id);
        list
    }

    /// How many questions have come to each state; pending are those that were put.
    pub fn tally(&self) -> &Tally<State> {
        &self.tally
    }

    /// How many nobody has answered.
    pub fn pending(&self) -> usize {
        self.lock().open().filter(|approval| approval.state == State::Pending).count()
    }

    /// Every change from now on, of all principals: [`Book::concerns`] says whose.
    pub fn changes(&self) -> broadcast::Receiver<Approval> {
        self.changes.subscribe()
    }

    /// Whether the caller may see it, and it is of the session when one is named.
    pub fn concerns(&self, approval: &Approval, caller: Principal, session: Option<SessionId>) -> bool {
        self.shows(approval, caller) && session.is_none_or(|id| id == approval.asked.wanted.session)
    }

    /// Whether the caller may see everybody's questions.
    pub fn shows_all(&self, caller: Principal) -> bool {
        self.terms.approvers.answer_for_all(caller, self.gateway_uid)
    }

    /// Whether the caller is root or the gateway's own user.
    pub fn is_administrator(&self, caller: Principal) -> bool {
        is_administrator(caller, self.gateway_uid)
    }

    fn shows(&self, approval: &Approval, caller: Principal) -> bool {
        approval.asked.wanted.principal == caller || self.shows_all(caller)
    }

    fn withdraw(&self, id: ApprovalId) {
        let withdrawn = self.lock().withdraw(id);
        if let Some(approval) = withdrawn {
            self.publish(&approval);
        }
    }

    fn take(&self, id: ApprovalId) -> End {
        let mut table = self.lock();
        if let Some((granted, used)) = table.take(id, Instant::now()) {
            drop(table);
            self.publish(&used);
            return End::Approved(granted);
        }
        let (state, answer) =
            table.get(id).map_or((State::Expired, None), |it| (it.state, it.answer.clone()));
        match (state, answer) {
            (State::Denied, Some(answer)) => End::Denied(answer),
            (State::Superseded, _) => End::Superseded,
            (State::Withdrawn, _) => End::Withdrawn,
            // A yes that is due is void, whether or not that was published yet.
            (State::Pending | State::Approved | State::Used | State::Expired | State::Denied, _) => {
                End::Expired
            }
        }
    }

    fn publish(&self, approval: &Approval) {
        let wanted = &approval.asked.wanted;
        tracing::info!(
            approval.id = %approval.id(),
            approval.state = %approval.state,
            session.id = %wanted.session,
            principal = %wanted.principal,
            rule = wanted.question.rule,
            approver = approval.answer.as_ref().map(|answer| answer.approver.to_string()),
            "approval"
        );
        self.tally.one(approval.state);
        (self.witness.0)(approval);
        // Nobody may be watching.
        let _ = self.changes.send(approval.clone());
        self.rescheduled.notify_waiters();
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A question that a call waits with. Dropped, it is withdrawn, and a yes that came meanwhile is void.
#[derive(Debug)]
pub struct Waiting {
    book: Arc<Book>,
    approval: Approval,
    told: Option<oneshot::Receiver<()>>,
}

impl Waiting {
    /// The question, as it was put.
    pub fn approval(&self) -> &Approval {
        &self.approval
    }

    /// Waits for the end of the question.
    pub async fn end(mut self) -> End {
        let Some(told) = self.told.take() else { return End::Withdrawn };
        // Whoever removes the question tells first: an error means that it is gone, and the book knows why.
        let _ = told.await;
        self.book.take(self.approval.id())
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.book.withdraw(self.approval.id());
    }
}
