//! The table of questions: every rule about their states, at a time that the caller says.
//!
//! ```text
//!             ┌── denied
//! pending ────┼── approved ──── used
//!    │        │      │
//!    └────────┴──────┴───────── expired, withdrawn, superseded
//! ```
//!
//! Open are those that are pending or approved, and a deferred one that was denied until its caller has fetched that. Nobody is
//! woken and nothing is published here.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::Instant,
};

use tokio::sync::oneshot;

use super::{
    Answer, Approval, ApprovalConfig, ApprovalId, ApprovalLimitReached, ApprovalRequest, ApprovalStatus,
    ApproverDecision, RequestMode,
};
use crate::{
    policy::{self, Digest},
    session::Principal,
};

/// Questions that are over and still shown.
const CLOSED_MAX: usize = 1_024;

/// What a request finds that was asked about before.
#[derive(Debug)]
pub(super) enum StoredAnswer {
    /// Approved; now used up.
    Approved(policy::ApprovalGrant),
    /// Denied; now fetched.
    Denied(Arc<Answer>),
}

#[derive(Debug, Default)]
pub(super) struct ApprovalTable {
    open: BTreeMap<ApprovalId, Entry>,
    closed: VecDeque<Approval>,
}

#[derive(Debug)]
struct Entry {
    approval: Approval,
    deadline: Instant,
    /// Notifies the call that waits, once, that the state has changed.
    waiter: Option<oneshot::Sender<()>>,
}

impl Entry {
    fn matches(&self, principal: Principal, digest: Digest, generation: u64) -> bool {
        let action = &self.approval.request.action;
        let question = &action.question;
        (action.principal, question.digest, question.generation) == (principal, digest, generation)
    }

    fn notify(&mut self) {
        if let Some(waiter) = self.waiter.take() {
            // Who waited may have gone.
            let _ = waiter.send(());
        }
    }
}

impl ApprovalTable {
    pub(super) fn insert(
        &mut self,
        request: ApprovalRequest,
        waiter: Option<oneshot::Sender<()>>,
        config: &ApprovalConfig,
        now: Instant,
    ) -> Result<Approval, ApprovalLimitReached> {
        self.check_capacity(request.action.principal, config)?;
        let approval = Approval {
            expires_at: request.at + config.expiry,
            request: Arc::new(request),
            state: ApprovalStatus::Pending,
            answer: None,
        };
        let entry = Entry { approval: approval.clone(), deadline: now + config.expiry, waiter };
        self.open.insert(approval.id(), entry);
        Ok(approval)
    }

    /// Whether the principal may ask another question.
    pub(super) fn check_capacity(
        &self,
        principal: Principal,
        config: &ApprovalConfig,
    ) -> Result<(), ApprovalLimitReached> {
        if self.open.len() >= config.open as usize {
            return Err(ApprovalLimitReached::Gateway(config.open));
        }
        let own = self.open.values().filter(|entry| entry.approval.request.action.principal == principal);
        if own.count() >= config.open_per_principal as usize {
            return Err(ApprovalLimitReached::Principal(config.open_per_principal));
        }
        Ok(())
    }

    /// The posted question about the very same request that nobody has answered.
    pub(super) fn find_deferred(
        &self,
        principal: Principal,
        digest: Digest,
        generation: u64,
        now: Instant,
    ) -> Option<Approval> {
        let same = |entry: &&Entry| {
            entry.approval.request.mode == RequestMode::Deferred
                && entry.approval.state == ApprovalStatus::Pending
                && entry.matches(principal, digest, generation)
                && entry.deadline > now
        };
        self.open.values().find(same).map(|entry| entry.approval.clone())
    }

    /// The answer to the posted question about the very same request. It is given once.
    pub(super) fn take_answer(
        &mut self,
        principal: Principal,
        digest: Digest,
        generation: u64,
        now: Instant,
    ) -> Option<(StoredAnswer, Approval)> {
        let (&id, entry) = self.open.iter().find(|(_, entry)| {
            entry.approval.request.mode == RequestMode::Deferred
                && matches!(entry.approval.state, ApprovalStatus::Approved | ApprovalStatus::Denied)
                && entry.matches(principal, digest, generation)
                && entry.deadline > now
        })?;
        let answer = entry.approval.answer.clone()?;
        match entry.approval.state {
            ApprovalStatus::Approved => {
                let granted = grant(&entry.approval);
                Some((StoredAnswer::Approved(granted), self.close(id, ApprovalStatus::Used)?))
            }
            _ => Some((StoredAnswer::Denied(answer), self.close(id, ApprovalStatus::Denied)?)),
        }
    }

    /// The approval of a question that a call waits with. It is given once.
    pub(super) fn take_approved(
        &mut self,
        id: ApprovalId,
        now: Instant,
    ) -> Option<(policy::ApprovalGrant, Approval)> {
        let entry = self.open.get(&id)?;
        if entry.approval.state != ApprovalStatus::Approved || entry.deadline <= now {
            return None;
        }
        let granted = grant(&entry.approval);
        Some((granted, self.close(id, ApprovalStatus::Used)?))
    }

    /// Answers a pending question; a question that is not pending stays as it is, and its state is the answer.
    pub(super) fn answer(
        &mut self,
        id: ApprovalId,
        answer: Answer,
        config: &ApprovalConfig,
        now: Instant,
    ) -> Result<Approval, ApprovalStatus> {
        let state = self.get(id).map_or(ApprovalStatus::Expired, |approval| approval.state);
        let entry = self.open.get_mut(&id).ok_or(state)?;
        if entry.approval.state != ApprovalStatus::Pending {
            return Err(entry.approval.state);
        }
        if entry.deadline <= now {
            return Err(ApprovalStatus::Expired);
        }
        let decision = answer.decision;
        entry.approval.state = match decision {
            ApproverDecision::Approve => ApprovalStatus::Approved,
            ApproverDecision::Deny => ApprovalStatus::Denied,
        };
        entry.deadline = now + config.expiry;
        entry.approval.expires_at = answer.at + config.expiry;
        entry.approval.answer = Some(Arc::new(answer));
        entry.notify();
        let approval = entry.approval.clone();
        if decision == ApproverDecision::Deny && approval.request.mode == RequestMode::Waiting {
            self.close(id, ApprovalStatus::Denied);
        }
        Ok(approval)
    }

    /// Takes a question back. What is over stays as it is.
    pub(super) fn withdraw(&mut self, id: ApprovalId) -> Option<Approval> {
        self.close(id, ApprovalStatus::Withdrawn)
    }

    /// Ends what is due.
    pub(super) fn expire(&mut self, now: Instant) -> Vec<Approval> {
        let due = |entry: &Entry| entry.deadline <= now;
        self.close_all(due, ApprovalStatus::Expired)
    }

    /// Ends what was asked under an older policy.
    pub(super) fn supersede(&mut self, generation: u64) -> Vec<Approval> {
        let older = |entry: &Entry| entry.approval.request.action.question.generation < generation;
        self.close_all(older, ApprovalStatus::Superseded)
    }

    /// When the next one is due.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.open.values().map(|entry| entry.deadline).min()
    }

    /// An approval, open or over.
    pub(super) fn get(&self, id: ApprovalId) -> Option<&Approval> {
        let open = self.open.get(&id).map(|entry| &entry.approval);
        open.or_else(|| self.closed.iter().rev().find(|approval| approval.id() == id))
    }

    /// Those that are open.
    pub(super) fn open(&self) -> impl Iterator<Item = &Approval> {
        self.open.values().map(|entry| &entry.approval)
    }

    /// Those that are over and still shown, in the order in which they ended.
    pub(super) fn closed(&self) -> impl Iterator<Item = &Approval> {
        self.closed.iter()
    }

    fn close_all(&mut self, which: impl Fn(&Entry) -> bool, state: ApprovalStatus) -> Vec<Approval> {
        let ids: Vec<ApprovalId> =
            self.open.iter().filter(|(_, entry)| which(entry)).map(|(&id, _)| id).collect();
        ids.into_iter().filter_map(|id| self.close(id, state)).collect()
    }

    /// Ends a question. One that was denied stays denied, whatever ends it.
    fn close(&mut self, id: ApprovalId, state: ApprovalStatus) -> Option<Approval> {
        let mut entry = self.open.remove(&id)?;
        if entry.approval.state != ApprovalStatus::Denied {
            entry.approval.state = state;
        }
        entry.notify();
        if self.closed.len() >= CLOSED_MAX {
            self.closed.pop_front();
        }
        self.closed.push_back(entry.approval.clone());
        Some(entry.approval)
    }
}

fn grant(approval: &Approval) -> policy::ApprovalGrant {
    let action = &approval.request.action;
    policy::ApprovalGrant::issue(&action.question, action.principal.to_string())
}

#[cfg(test)]
mod tests;
