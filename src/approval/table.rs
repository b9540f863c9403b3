//! The table of questions: every rule about their states, at a time that the caller says.
//!
//! ```text
//!             ┌── denied
//! pending ────┼── approved ──── used
//!    │        │      │
//!    └────────┴──────┴───────── expired, withdrawn, superseded
//! ```
//!
//! Open are those that are pending or approved, and a posted one that was denied until that is told. Nobody is
//! woken and nothing is published here.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::Instant,
};

use tokio::sync::oneshot;

use super::{Answer, Approval, ApprovalId, Asked, Asking, Full, Said, State, Terms};
use crate::{
    policy::{self, Digest},
    session::Principal,
};

/// Questions that are over and still shown.
const HISTORY: usize = 1_024;

/// What a request finds that was asked about before.
#[derive(Debug)]
pub(super) enum Found {
    /// A yes; now used up.
    Approved(policy::Approval),
    /// A no; now told.
    Denied(Arc<Answer>),
}

#[derive(Debug, Default)]
pub(super) struct Table {
    open: BTreeMap<ApprovalId, Entry>,
    over: VecDeque<Approval>,
}

#[derive(Debug)]
struct Entry {
    approval: Approval,
    deadline: Instant,
    /// Tells the call that waits, once, that the state has changed.
    waiter: Option<oneshot::Sender<()>>,
}

impl Entry {
    fn is_for(&self, principal: Principal, digest: Digest, generation: u64) -> bool {
        let wanted = &self.approval.asked.wanted;
        let question = &wanted.question;
        (wanted.principal, question.digest, question.generation) == (principal, digest, generation)
    }

    fn tell(&mut self) {
        if let Some(waiter) = self.waiter.take() {
            // Who waited may have gone.
            let _ = waiter.send(());
        }
    }
}

impl Table {
    pub(super) fn insert(
        &mut self,
        asked: Asked,
        waiter: Option<oneshot::Sender<()>>,
        terms: &Terms,
        now: Instant,
    ) -> Result<Approval, Full> {
        self.has_room(asked.wanted.principal, terms)?;
        let approval = Approval {
            expires_at: asked.at + terms.expiry,
            asked: Arc::new(asked),
            state: State::Pending,
            answer: None,
        };
        let entry = Entry { approval: approval.clone(), deadline: now + terms.expiry, waiter };
        self.open.insert(approval.id(), entry);
        Ok(approval)
    }

    /// Whether the principal may ask another question.
    pub(super) fn has_room(&self, principal: Principal, terms: &Terms) -> Result<(), Full> {
        if self.open.len() >= terms.open as usize {
            return Err(Full::Gateway(terms.open));
        }
        let own = self.open.values().filter(|entry| entry.approval.asked.wanted.principal == principal);
        if own.count() >= terms.open_per_principal as usize {
            return Err(Full::Principal(terms.open_per_principal));
        }
        Ok(())
    }

    /// The posted question about the very same request that nobody has answered.
    pub(super) fn posted(
        &self,
        principal: Principal,
        digest: Digest,
        generation: u64,
        now: Instant,
    ) -> Option<Approval> {
        let same = |entry: &&Entry| {
            entry.approval.asked.asking == Asking::Posted
                && entry.approval.state == State::Pending
                && entry.is_for(principal, digest, generation)
                && entry.deadline > now
        };
        self.open.values().find(same).map(|entry| entry.approval.clone())
    }

    /// The answer to the posted question about the very same request. It is given once.
    pub(super) fn redeem(
        &mut self,
        principal: Principal,
        digest: Digest,
        generation: u64,
        now: Instant,
    ) -> Option<(Found, Approval)> {
        let (&id, entry) = self.open.iter().find(|(_, entry)| {
            entry.approval.asked.asking == Asking::Posted
                && matches!(entry.approval.state, State::Approved | State::Denied)
                && entry.is_for(principal, digest, generation)
                && entry.deadline > now
        })?;
        let answer = entry.approval.answer.clone()?;
        match entry.approval.state {
            State::Approved => {
                let granted = grant(&entry.approval, &answer);
                Some((Found::Approved(granted), self.close(id, State::Used)?))
            }
            _ => Some((Found::Denied(answer), self.close(id, State::Denied)?)),
        }
    }

    /// The yes to a question that a call waits with. It is given once.
    pub(super) fn take(&mut self, id: ApprovalId, now: Instant) -> Option<(policy::Approval, Approval)> {
        let entry = self.open.get(&id)?;
        if entry.approval.state != State::Approved || entry.deadline <= now {
            return None;
        }
        let granted = grant(&entry.approval, entry.approval.answer.as_ref()?);
        Some((granted, self.close(id, State::Used)?))
    }

    /// Answers a pending question; a question that is not pending stays as it is, and its state is the answer.
    pub(super) fn answer(
        &mut self,
        id: ApprovalId,
        answer: Answer,
        terms: &Terms,
        now: Instant,
    ) -> Result<Approval, State> {
        let state = self.get(id).map_or(State::Expired, |approval| approval.state);
        let entry = self.open.get_mut(&id).ok_or(state)?;
        if entry.approval.state != State::Pending {
            return Err(entry.approval.state);
        }
        if entry.deadline <= now {
            return Err(State::Expired);
        }
        let said = answer.said;
        entry.approval.state = match said {
            Said::Yes => State::Approved,
            Said::No => State::Denied,
        };
        entry.deadline = now + terms.expiry;
        entry.approval.expires_at = answer.at + terms.expiry;
        entry.approval.answer = Some(Arc::new(answer));
        entry.tell();
        let approval = entry.approval.clone();
        if said == Said::No && approval.asked.asking == Asking::Waiting {
            self.close(id, State::Denied);
        }
        Ok(approval)
    }

    /// Takes a question back. What is over stays as it is.
    pub(super) fn withdraw(&mut self, id: ApprovalId) -> Option<Approval> {
        self.close(id, State::Withdrawn)
    }

    /// Ends what is due.
    pub(super) fn expire(&mut self, now: Instant) -> Vec<Approval> {
        let due = |entry: &Entry| entry.deadline <= now;
        self.close_all(due, State::Expired)
    }

    /// Ends what was asked under an older policy.
    pub(super) fn supersede(&mut self, generation: u64) -> Vec<Approval> {
        let older = |entry: &Entry| entry.approval.asked.wanted.question.generation < generation;
        self.close_all(older, State::Superseded)
    }

    /// When the next one is due.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.open.values().map(|entry| entry.deadline).min()
    }

    /// An approval, open or over.
    pub(super) fn get(&self, id: ApprovalId) -> Option<&Approval> {
        let open = self.open.get(&id).map(|entry| &entry.approval);
        open.or_else(|| self.over.iter().rev().find(|approval| approval.id() == id))
    }

    /// Those that are open.
    pub(super) fn open(&self) -> impl Iterator<Item = &Approval> {
        self.open.values().map(|entry| &entry.approval)
    }

    /// Those that are over and still shown, in the order in which they ended.
    pub(super) fn over(&self) -> impl Iterator<Item = &Approval> {
        self.over.iter()
    }

    fn close_all(&mut self, which: impl Fn(&Entry) -> bool, state: State) -> Vec<Approval> {
        let ids: Vec<ApprovalId> =
            self.open.iter().filter(|(_, entry)| which(entry)).map(|(&id, _)| id).collect();
        ids.into_iter().filter_map(|id| self.close(id, state)).collect()
    }

    /// Ends a question. One that was denied stays denied, whatever ends it.
    fn close(&mut self, id: ApprovalId, state: State) -> Option<Approval> {
        let mut entry = self.open.remove(&id)?;
        if entry.approval.state != State::Denied {
            entry.approval.state = state;
        }
        entry.tell();
        if self.over.len() >= HISTORY {
            self.over.pop_front();
        }
        self.over.push_back(entry.approval.clone());
        Some(entry.approval)
    }
}

fn grant(approval: &Approval, answer: &Answer) -> policy::Approval {
    let wanted = &approval.asked.wanted;
    policy::Approval::grant(&wanted.question, wanted.principal.to_string(), answer.approver.to_string())
}

#[cfg(test)]
mod tests;
