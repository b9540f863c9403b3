//! Asking a person: how a request whose rule asks comes by a yes, or ends without one.
//!
//! A request that waits holds no place in the books of terminals and no id; it ends with its answer, its time, its
//! caller or its session, whichever is first. What a yes allows is not decided here: the request is judged again.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{CreateError, Terminals, driver::Requested, records};
use crate::{
    approval::{Answer, Approval, ApprovalId, End, Full, ResolveError},
    policy::{self, Denial, Permit, Question},
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
    Denied(Box<Question>, Option<ApprovalId>, Arc<Answer>),
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
        let denial = match requested.judge(&policy, self.remembered(), yes) {
            Ok(permit) => return Ok(Judged::Permitted(Box::new(permit))),
            Err(denial) => denial,
        };
        let Requested { session, request, minutes, .. } = requested;
        let record = records::denied(session, request, &denial, policy.generation(), minutes);
        let recorded = self.recorder().record(&record).await;
        match denial {
            // Nobody is asked about what could not be written down.
            Denial::NeedsApproval(question) => Ok(recorded.map(|()| Judged::Asks(question))?),
            denial => Err(CreateError::Denied(denial)),
        }
    }

    async fn ask(
        &self,
        requested: &Requested,
        question: Box<Question>,
        caller: &Presence,
    ) -> Result<policy::Approval, CreateError> {
        let book = self.approvals();
        let principal = requested.session.principal;
        match book.redeem(principal, question.digest, question.generation) {
            Some(End::Approved(yes)) => return Ok(yes),
            Some(End::Denied(answer)) => return Err(Unapproved::Denied(question, None, answer).into()),
            Some(End::Expired | End::Superseded | End::Withdrawn) | None => {}
        }
        let wanted = requested.wanted((*question).clone());
        match requested.on_ask {
            OnAsk::Refuse => {
                let posted = book.post(wanted).map_err(Unapproved::Full)?;
                self.forget_older_policies();
                Err(Unapproved::Required(question, posted.id()).into())
            }
            OnAsk::Wait => {
                let waiting = book.ask(wanted).map_err(Unapproved::Full)?;
                self.forget_older_policies();
                let id = waiting.approval().id();
                tokio::select! {
                    end = waiting.end() => match end {
                        End::Approved(yes) => Ok(yes),
                        End::Denied(answer) => Err(Unapproved::Denied(question, Some(id), answer).into()),
                        End::Expired => Err(Unapproved::Expired(question, id).into()),
                        End::Superseded => Err(Unapproved::Superseded(question, id).into()),
                        End::Withdrawn => Err(Unapproved::CallerGone(question, id).into()),
                    },
                    () = requested.session.closing() => Err(if self.is_draining() {
                        CreateError::Draining
                    } else {
                        CreateError::SessionClosing
                    }),
                    () = caller.deadline() => Err(Unapproved::DeadlinePassed(question, id).into()),
                    () = caller.gone.cancelled() => Err(Unapproved::CallerGone(question, id).into()),
                }
            }
        }
    }

    /// A policy may have come into force between the judging and the question.
    fn forget_older_policies(&self) {
        self.approvals().supersede(self.policy().current().generation());
    }

    /// Answers a question. Of many who answer, one succeeds.
    pub async fn resolve(&self, id: ApprovalId, answer: Answer) -> Result<Approval, ResolveError> {
        self.approvals().resolve(id, answer)
    }
}
