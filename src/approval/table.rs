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

use super::{Answer, Approval, ApprovalId, Asked, Asking, Said, State, Terms};
use crate::{
    policy::{self, Digest},
    session::Principal,
};

/// Questions that are over and still shown.
const HISTORY: usize = 1_024;

/// As many questions are open as may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Full {
    /// Of one principal.
    #[error("{0} questions of this principal wait for a person, the most that may")]
    Principal(u32),
    /// Of all.
    #[error("{0} questions wait for a person, the most that may")]
    Gateway(u32),
}

impl Full {
    /// The bound, as the configuration names it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Principal(_) => "approvals_open_per_principal",
            Self::Gateway(_) => "approvals_open",
        }
    }

    /// Its value.
    pub fn most(self) -> u32 {
        match self {
            Self::Principal(most) | Self::Gateway(most) => most,
        }
    }
}

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
mod tests {
    use std::time::{Duration, SystemTime};

    use super::*;
    use crate::{
        approval::Wanted,
        policy::{AbsPath, Denial, PolicySet, Program, Request, Streams},
        session::SessionId,
    };

    const SOON: Duration = Duration::from_secs(60);

    /// A question about `command`, of the policy's first generation.
    fn wanted(uid: u32, command: &str) -> Wanted {
        let policy = PolicySet::parse(
            "p",
            "default_profile='a'\n[profile.a]\n[[rule]]\nid='all'\ndecision='ask'\nargv=['**']\n",
        )
        .unwrap();
        let principal = Principal { uid };
        let program = Program::Command { command: command.into(), args: vec![] };
        let root = AbsPath::parse("/work").unwrap();
        let request = Request {
            principal: principal.to_string(),
            labels: Arc::default(),
            roots: Arc::from([root.clone()]),
            session_env: Arc::from([]),
            program: program.clone(),
            env: vec![],
            cwd: root,
            profile: None,
            network: None,
            output_limit_bytes: None,
            streams: Streams::Merged,
            stdin: crate::policy::Stdin::Closed,
            overflow: crate::policy::Overflow::DropOldest,
            time_limit: None,
            idle_limit: None,
            kill_grace: None,
        };
        struct Nothing;
        impl policy::Views for Nothing {
            fn under<'a>(
                &'a self,
                _: &'a policy::profile::Profile,
            ) -> Box<dyn policy::command::program::Programs + 'a> {
                Box::new(policy::command::program::Nominal)
            }
        }
        let Err(Denial::NeedsApproval(question)) = policy::judge(&policy, &request, &Nothing, None) else {
            panic!("the rule asks")
        };
        Wanted {
            principal,
            session: SessionId::generate(),
            question: *question,
            program,
            cwd: "/work".into(),
            profile: "a".into(),
            env_names: vec![],
            request_id: None,
        }
    }

    fn answer(said: Said) -> Answer {
        let (approver, at) = (Principal { uid: 0 }, SystemTime::now());
        Answer { said, approver, on_behalf_of: String::new(), comment: String::new(), at }
    }

    fn terms() -> Terms {
        Terms { expiry: SOON, open_per_principal: 2, open: 3, ..Terms::default() }
    }

    fn post(table: &mut Table, wanted: Wanted, now: Instant) -> Result<ApprovalId, Full> {
        let asked = Asked::new(wanted, Asking::Posted);
        table.insert(asked, None, &terms(), now).map(|approval| approval.id())
    }

    #[test]
    fn a_yes_is_found_by_its_request_only_and_once() {
        let (mut table, now, mine) = (Table::default(), Instant::now(), wanted(1, "ls"));
        let (digest, generation) = (mine.question.digest, mine.question.generation);
        let id = post(&mut table, mine, now).unwrap();
        assert!(table.redeem(Principal { uid: 1 }, digest, generation, now).is_none(), "nobody has answered");
        table.answer(id, answer(Said::Yes), &terms(), now).unwrap();
        assert_eq!(table.answer(id, answer(Said::No), &terms(), now).unwrap_err(), State::Approved);
        let other = wanted(1, "make").question.digest;
        for (uid, digest, generation) in [(2, digest, generation), (1, other, generation), (1, digest, 2)] {
            assert!(table.redeem(Principal { uid }, digest, generation, now).is_none());
        }
        let found = table.redeem(Principal { uid: 1 }, digest, generation, now);
        assert!(matches!(found, Some((Found::Approved(_), approval)) if approval.state == State::Used));
        assert!(table.redeem(Principal { uid: 1 }, digest, generation, now).is_none());
        assert_eq!(table.get(id).unwrap().state, State::Used);
    }

    #[test]
    fn nothing_is_open_after_its_time_even_before_it_is_swept() {
        let (mut table, now) = (Table::default(), Instant::now());
        let late = now + SOON;
        let id = post(&mut table, wanted(1, "ls"), now).unwrap();
        assert_eq!(table.next_deadline(), Some(late));
        assert_eq!(table.answer(id, answer(Said::Yes), &terms(), late).unwrap_err(), State::Expired);
        let mine = wanted(1, "make");
        let (digest, generation) = (mine.question.digest, mine.question.generation);
        let granted = post(&mut table, mine, now).unwrap();
        table.answer(granted, answer(Said::Yes), &terms(), now).unwrap();
        assert!(table.redeem(Principal { uid: 1 }, digest, generation, late).is_none());
        assert!(table.take(granted, late).is_none());
        let states: Vec<State> = table.expire(late).iter().map(|approval| approval.state).collect();
        assert_eq!(states, [State::Expired, State::Expired]);
        assert_eq!((table.open().count(), table.over().count(), table.next_deadline()), (0, 2, None));
    }

    #[test]
    fn a_question_that_a_call_waits_with_is_for_that_call_alone() {
        let (mut table, now, mine) = (Table::default(), Instant::now(), wanted(1, "ls"));
        let (digest, generation) = (mine.question.digest, mine.question.generation);
        let (tell, mut told) = oneshot::channel();
        let asked = Asked::new(mine, Asking::Waiting);
        let id = table.insert(asked, Some(tell), &terms(), now).unwrap().id();
        assert!(table.take(id, now).is_none());
        assert!(told.try_recv().is_err());
        table.answer(id, answer(Said::Yes), &terms(), now).unwrap();
        assert!(told.try_recv().is_ok());
        assert!(table.posted(Principal { uid: 1 }, digest, generation, now).is_none());
        assert!(table.redeem(Principal { uid: 1 }, digest, generation, now).is_none());
        assert!(table.take(id, now).is_some());
        assert!(table.take(id, now).is_none());
        assert!(table.withdraw(id).is_none(), "what is used is not taken back");
    }

    #[test]
    fn one_principal_cannot_fill_the_table_and_all_together_can() {
        let (mut table, now) = (Table::default(), Instant::now());
        for command in ["a", "b"] {
            post(&mut table, wanted(1, command), now).unwrap();
        }
        assert_eq!(post(&mut table, wanted(1, "c"), now).unwrap_err(), Full::Principal(2));
        let last = post(&mut table, wanted(2, "a"), now).unwrap();
        assert_eq!(post(&mut table, wanted(2, "b"), now).unwrap_err(), Full::Gateway(3));
        table.withdraw(last);
        post(&mut table, wanted(2, "b"), now).unwrap();
    }

    #[test]
    fn a_newer_policy_ends_all_that_was_asked_under_an_older_one() {
        let (mut table, now) = (Table::default(), Instant::now());
        post(&mut table, wanted(1, "a"), now).unwrap();
        assert!(table.supersede(1).is_empty(), "it is of this one");
        assert_eq!(table.supersede(2)[0].state, State::Superseded);
        for _ in 0..2 * HISTORY {
            let id = post(&mut table, wanted_again(), now).unwrap();
            table.withdraw(id);
        }
        assert_eq!(table.over().count(), HISTORY);
    }

    fn wanted_again() -> Wanted {
        use std::sync::OnceLock;
        static WANTED: OnceLock<Wanted> = OnceLock::new();
        WANTED.get_or_init(|| wanted(1, "again")).clone()
    }
}
