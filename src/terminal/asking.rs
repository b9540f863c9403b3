//! Asking a person: how a request whose rule asks comes by a yes, or ends without one.
//!
//! A request that waits holds no place in the books of terminals and no id; it ends with its answer, its time, its
//! caller or its session, whichever is first. What a yes allows is not decided here: the request is judged again.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{
    CreateError, Recorder, Terminals, Unrecorded, approval_records, driver::Requested, recorder::CountedOnly,
    records, uninterrupted::uninterrupted,
};
use crate::{
    approval::{
        Answer, Approval, ApprovalId, Asked, Asking, End, Full, ResolveError, Said, Waiting, Witness,
    },
    policy::{self, Denial, Permit, Question, command::rule::Decision},
    session::Session,
};

/// What becomes of a request that a rule asks a person about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnAsk {
    /// It waits for the answer.
    Wait,
    /// It is refused, and the question stays.
    Refuse,
}

/// Why there was no yes.
#[derive(Debug, thiserror::Error)]
pub enum Unapproved {
    /// A person must say yes first, and the caller does not wait.
    #[error("{0}: a person must approve it first, by the id {1}")]
    Required(Box<Question>, ApprovalId),
    /// A person said no.
    #[error("{0}: {name} has denied it{comment}", name = approver(.2), comment = comment(.2))]
    Denied(Box<Question>, ApprovalId, Arc<Answer>),
    /// Nobody answered in time.
    #[error("{0}: nobody approved it in time")]
    Expired(Box<Question>, ApprovalId),
    /// The policy that asked is not in force any more.
    #[error("{0}: the policy was replaced while this waited for a person; ask again")]
    Superseded(Box<Question>, ApprovalId),
    /// The request means something else than what was approved.
    #[error("{0}: what it would run has changed since a person approved it; ask again")]
    Changed(Box<Question>),
    /// The caller's deadline came first.
    #[error("{0}: nobody approved it before the deadline")]
    DeadlinePassed(Box<Question>, ApprovalId),
    /// The caller has gone.
    #[error("{0}: the caller has gone")]
    CallerGone(Box<Question>, ApprovalId),
    /// Too many wait already.
    #[error(transparent)]
    Full(#[from] Full),
}

fn approver(answer: &Answer) -> String {
    match answer.on_behalf_of.as_str() {
        "" => answer.approver.to_string(),
        person => format!("{} (for {person})", answer.approver),
    }
}

fn comment(answer: &Answer) -> String {
    match answer.comment.as_str() {
        "" => String::new(),
        comment => format!(": {comment}"),
    }
}

/// The caller of a request, as far as a wait must know: whether it is still there, and until when.
#[derive(Debug, Clone)]
pub(super) struct Presence {
    gone: CancellationToken,
    deadline: Option<Instant>,
}

impl Presence {
    /// The caller is there for as long as the guard is.
    pub(super) fn begin(patience: Option<Duration>) -> (Self, DropGuard) {
        let gone = CancellationToken::new();
        // A time that the clock cannot hold is no deadline.
        let deadline = patience.and_then(|patience| Instant::now().checked_add(patience));
        (Self { gone: gone.clone(), deadline }, gone.drop_guard())
    }

    /// Whether the caller still waits.
    pub(super) fn is_here(&self) -> bool {
        !self.gone.is_cancelled() && self.deadline.is_none_or(|deadline| deadline > Instant::now())
    }

    async fn deadline(&self) {
        match self.deadline {
            Some(deadline) => tokio::time::sleep_until(deadline).await,
            None => std::future::pending().await,
        }
    }
}

/// What judging came to, where it is not a refusal.
enum Judged {
    Permitted(Box<Permit>),
    Asks(Box<Question>),
}

impl Terminals {
    /// Judges a request; where a rule asks, with a person's yes, and then by what is so by then.
    pub(super) async fn permit(
        &self,
        requested: &mut Requested,
        caller: &Presence,
    ) -> Result<Permit, CreateError> {
        let question = match self.judge(requested, None).await? {
            Judged::Permitted(permit) => return Ok(*permit),
            Judged::Asks(question) => question,
        };
        let yes = self.ask(requested, question, caller).await?;
        // Files, links and the policy may be others by now.
        match self.judge(requested, Some(yes)).await? {
            Judged::Permitted(permit) => Ok(*permit),
            Judged::Asks(question) => Err(Unapproved::Changed(question).into()),
        }
    }

    /// Judges, and writes down what does not allow the request: a yes is written with the command's start.
    async fn judge(
        &self,
        requested: &mut Requested,
        yes: Option<policy::Approval>,
    ) -> Result<Judged, CreateError> {
        let policy = self.policy().current();
        let begun = Instant::now();
        let judged = requested.judge(&policy, self.remembered(), self.site(), yes).await?;
        self.counters().steps.judge.took(begun.elapsed());
        self.counters().decisions.one(judged.as_ref().map_or_else(Denial::decision, |_| Decision::Allow));
        let denial = match judged {
            Ok(permit) => return Ok(Judged::Permitted(Box::new(permit))),
            Err(denial) => denial,
        };
        let Requested { session, request, minutes, approval, .. } = requested;
        let mut record = records::denied(session, request, &denial, policy.generation(), minutes);
        records::after_yes(&mut record, *approval, None);
        self.known_secrets().veil(&policy).cover(&mut record);
        let recorded = self.recorder().refused(&record).await;
        match denial {
            // Nobody is asked about what could not be written down.
            Denial::NeedsApproval(question) => match recorded? {
                Ok(asked_in) => {
                    requested.asked_in = asked_in;
                    Ok(Judged::Asks(question))
                }
                Err(CountedOnly) => Err(CreateError::AsksTooOften),
            },
            denial => Err(CreateError::Denied(denial)),
        }
    }

    async fn ask(
        &self,
        requested: &mut Requested,
        question: Box<Question>,
        caller: &Presence,
    ) -> Result<policy::Approval, CreateError> {
        let book = self.approvals();
        let (principal, digest, generation) =
            (requested.session.principal, question.digest, question.generation);
        match book.redeem(principal, digest, generation) {
            Some((id, End::Approved(yes))) => {
                requested.approval = Some(id);
                return Ok(yes);
            }
            Some((id, End::Denied(answer))) => return Err(Unapproved::Denied(question, id, answer).into()),
            Some((_, End::Expired | End::Superseded | End::Withdrawn)) | None => {}
        }
        match requested.on_ask {
            OnAsk::Refuse => {
                let id = match book.posted(principal, digest, generation) {
                    Some(before) => before.id(),
                    None => {
                        let asked = self.draft(requested, &question, Asking::Posted).await?;
                        let (session, id) = (&requested.session, asked.id);
                        book.post(asked).map_err(|full| self.no_room_after_all(session, id, full))?.id()
                    }
                };
                self.forget_older_policies();
                Err(Unapproved::Required(question, id).into())
            }
            OnAsk::Wait => {
                let asked = self.draft(requested, &question, Asking::Waiting).await?;
                let (session, id) = (&requested.session, asked.id);
                let waiting = book.ask(asked).map_err(|full| self.no_room_after_all(session, id, full))?;
                self.forget_older_policies();
                self.wait(requested, question, waiting, caller).await
            }
        }
    }

    /// A question that is in the journal and may be put. Where there is no room for it by then, nobody sees it.
    async fn draft(
        &self,
        requested: &Requested,
        question: &Question,
        asking: Asking,
    ) -> Result<Asked, CreateError> {
        if let Err(full) = self.approvals().has_room(requested.session.principal) {
            // What cannot be written is refused all the same.
            let _ = self.recorder().refused(&approval_records::no_room(&requested.session, &full)).await;
            return Err(Unapproved::Full(full).into());
        }
        let veil = self.known_secrets().veil(&self.policy().current());
        let asked = Asked::new(requested.wanted(question.clone(), &veil), asking);
        let record = approval_records::asked(&asked, self.approvals().expiry());
        self.recorder().record(&record).await?;
        Ok(asked)
    }

    /// Another one was put while the question was written: it was never put, and that is written, too.
    fn no_room_after_all(&self, session: &Session, id: ApprovalId, full: Full) -> Unapproved {
        self.recorder().note(&approval_records::no_room(session, &full));
        self.recorder().note(&approval_records::never_put(session, id));
        Unapproved::Full(full)
    }

    async fn wait(
        &self,
        requested: &mut Requested,
        question: Box<Question>,
        waiting: Waiting,
        caller: &Presence,
    ) -> Result<policy::Approval, CreateError> {
        let id = waiting.approval().id();
        tokio::select! {
            // An answer counts before the end of what waited for it; and the gateway's end explains its sessions'.
            biased;
            end = waiting.end() => match end {
                End::Approved(yes) => {
                    requested.approval = Some(id);
                    Ok(yes)
                }
                End::Denied(answer) => Err(Unapproved::Denied(question, id, answer).into()),
                End::Expired => Err(Unapproved::Expired(question, id).into()),
                End::Superseded => Err(Unapproved::Superseded(question, id).into()),
                End::Withdrawn => Err(Unapproved::CallerGone(question, id).into()),
            },
            () = self.draining() => Err(CreateError::Draining),
            () = requested.session.closing() => Err(CreateError::SessionClosing),
            () = caller.deadline() => Err(Unapproved::DeadlinePassed(question, id).into()),
            () = caller.gone.cancelled() => Err(Unapproved::CallerGone(question, id).into()),
        }
    }

    /// A policy may have come into force between the judging and the question.
    fn forget_older_policies(&self) {
        self.approvals().supersede(self.policy().current().generation());
    }

    /// Answers a question. Of many who answer, one succeeds. A yes counts when it is in the journal; a no counts in
    /// any case. Once begun, it is done even when the caller goes away.
    pub async fn resolve(self: &Arc<Self>, id: ApprovalId, answer: Answer) -> Result<Approval, AnswerError> {
        let this = self.clone();
        uninterrupted(async move { this.resolve_in_turn(id, answer).await }, |_| async {}).await
    }

    async fn resolve_in_turn(&self, id: ApprovalId, answer: Answer) -> Result<Approval, AnswerError> {
        let book = self.approvals();
        let _turn = book.answering().await;
        let pending = book.may_resolve(answer.approver, id)?;
        let record = approval_records::resolved(&pending.asked, &answer);
        match answer.said {
            Said::Yes => self.recorder().record(&record).await?,
            Said::No => self.recorder().note(&record),
        }
        Ok(book.resolve(id, answer)?)
    }
}

/// Writes down how questions end that nobody's answer ends.
pub fn witness(recorder: Recorder) -> Witness {
    Witness(Box::new(move |approval| {
        if let Some(record) = approval_records::ended(approval) {
            recorder.note(&record);
        }
    }))
}

/// Why an answer was not taken.
#[derive(Debug, thiserror::Error)]
pub enum AnswerError {
    /// There is nothing to answer, or not for this caller.
    #[error(transparent)]
    Resolve(#[from] ResolveError),
    /// The journal did not take it.
    #[error(transparent)]
    Unrecorded(#[from] Unrecorded),
}
