//! Asks a person to approve a request, where a rule asks.
//!
//! A request that waits uses no quota and has no terminal id. The wait ends with an answer, the expiry, the caller or the
//! session, whichever is first. After an approval the request is judged again.

use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::{
    approval::{ApprovalId, ApprovalLimitReached, ApprovalRequest, ApprovalWait, RequestMode, Resolution},
    policy::{self, ApprovalQuestion, Denial, Permit, PolicySet, command::rule::Decision},
    session::Session,
    terminal::{
        audit::{
            approval_records,
            recorder::{CountedOnly, Unrecorded},
            records,
        },
        context::TerminalContext,
        errors::{ApprovalError, CreateError},
        evaluation,
        spec::OnAsk,
        steps::Requested,
    },
};

/// The caller of a request, as far as a wait must know: whether it is still there, and until when.
#[derive(Debug, Clone)]
pub(in crate::terminal) struct CallerGuard {
    disconnected: CancellationToken,
    deadline: Option<Instant>,
}

impl CallerGuard {
    /// The caller is there for as long as the guard is.
    pub(in crate::terminal) fn begin(time_limit: Option<Duration>) -> (Self, DropGuard) {
        let gone = CancellationToken::new();
        // A time that the clock cannot hold is no deadline.
        let deadline = time_limit.and_then(|time_limit| Instant::now().checked_add(time_limit));
        (Self { disconnected: gone.clone(), deadline }, gone.drop_guard())
    }

    /// Whether the caller still waits.
    pub(in crate::terminal) fn is_waiting(&self) -> bool {
        !self.disconnected.is_cancelled() && self.deadline.is_none_or(|deadline| deadline > Instant::now())
    }

    async fn deadline(&self) {
        match self.deadline {
            Some(deadline) => tokio::time::sleep_until(deadline).await,
            None => std::future::pending().await,
        }
    }
}

impl TerminalContext {
    /// Asks policy for a permit, and a person where a rule says so. After the answer policy decides again, because
    /// files, links and the policy may have changed meanwhile.
    pub(in crate::terminal) async fn permit(
        &self,
        requested: &mut Requested,
        caller: &CallerGuard,
    ) -> Result<Permit, CreateError> {
        let mut grant: Option<policy::ApprovalGrant> = None;
        loop {
            let is_approved = grant.is_some();
            let (policy, begun) = (self.policy().current(), Instant::now());
            let Requested { session, request, .. } = requested;
            let (cache, launch_context) = (self.program_cache(), self.launch_context());
            let decided =
                evaluation::decide(&policy, session, request, cache, launch_context, grant.take()).await?;
            requested.trace = decided.trace;
            self.counters().timings.judge.observe(begun.elapsed());
            let decision = decided.result.as_ref().map_or_else(Denial::decision, |_| Decision::Allow);
            self.counters().decisions.inc(decision);
            let denial = match decided.result {
                Ok(permit) => return Ok(permit),
                Err(denial) => denial,
            };
            let recorded = self.record_denial(requested, &denial, &policy).await;
            let Denial::NeedsApproval(question) = denial else { return Err(CreateError::Denied(denial)) };
            // Nobody is asked about a decision that is not in the journal.
            requested.ask_record = recorded?.map_err(|CountedOnly| CreateError::RefusalRateExceeded)?;
            if is_approved {
                return Err(ApprovalError::Changed(question).into());
            }
            grant = Some(self.ask(requested, question, caller).await?);
        }
    }

    /// Records a decision that does not allow the request. One that does is recorded with the command's start.
    async fn record_denial(
        &self,
        requested: &Requested,
        denial: &Denial,
        policy: &PolicySet,
    ) -> Result<Result<Option<u64>, CountedOnly>, Unrecorded> {
        let Requested { session, request, trace, approval_id, .. } = requested;
        let mut record = records::denied(session, request, denial, policy.generation(), trace);
        records::with_approval(&mut record, *approval_id, None);
        self.known_secrets().redactor(policy).redact(&mut record);
        self.recorder().record_refusal(&record).await
    }

    async fn ask(
        &self,
        requested: &mut Requested,
        question: Box<ApprovalQuestion>,
        caller: &CallerGuard,
    ) -> Result<policy::ApprovalGrant, CreateError> {
        let approvals = self.approvals();
        let (principal, digest, generation) =
            (requested.session.principal, question.digest, question.generation);
        match approvals.take_answer(principal, digest, generation) {
            Some((id, Resolution::Approved(yes))) => {
                requested.approval_id = Some(id);
                return Ok(yes);
            }
            Some((id, Resolution::Denied(answer))) => {
                return Err(ApprovalError::Denied(question, id, answer).into());
            }
            Some((_, Resolution::Expired | Resolution::Superseded | Resolution::Withdrawn)) | None => {}
        }
        match requested.on_ask {
            OnAsk::Refuse => {
                let id = match approvals.find_deferred(principal, digest, generation) {
                    Some(before) => before.id(),
                    None => {
                        let request =
                            self.record_request(requested, &question, RequestMode::Deferred).await?;
                        let (session, id) = (&requested.session, request.id);
                        approvals
                            .submit_deferred(request)
                            .map_err(|reached| self.limit_reached_late(session, id, reached))?
                            .id()
                    }
                };
                self.supersede_older_policies();
                Err(ApprovalError::Required(question, id).into())
            }
            OnAsk::Wait => {
                let request = self.record_request(requested, &question, RequestMode::Waiting).await?;
                let (session, id) = (&requested.session, request.id);
                let waiting = approvals
                    .submit(request)
                    .map_err(|reached| self.limit_reached_late(session, id, reached))?;
                self.supersede_older_policies();
                self.wait(requested, question, waiting, caller).await
            }
        }
    }

    /// A question that is in the journal and may be put. Where there is no room for it by then, nobody sees it.
    async fn record_request(
        &self,
        requested: &Requested,
        question: &ApprovalQuestion,
        asking: RequestMode,
    ) -> Result<ApprovalRequest, CreateError> {
        if let Err(reached) = self.approvals().check_capacity(requested.session.principal) {
            // What cannot be written is refused all the same.
            let _ = self
                .recorder()
                .record_refusal(&approval_records::limit_reached(&requested.session, &reached))
                .await;
            return Err(ApprovalError::LimitReached(reached).into());
        }
        let redactor = self.known_secrets().redactor(&self.policy().current());
        let request = ApprovalRequest::new(requested.approval_request(question.clone(), &redactor), asking);
        let record = approval_records::requested(&request, self.approvals().expiry());
        self.recorder().record(&record).await?;
        Ok(request)
    }

    /// Another one was put while the question was written: it was never put, and that is written, too.
    fn limit_reached_late(
        &self,
        session: &Session,
        id: ApprovalId,
        reached: ApprovalLimitReached,
    ) -> ApprovalError {
        self.recorder().record_best_effort(&approval_records::limit_reached(session, &reached));
        self.recorder().record_best_effort(&approval_records::not_submitted(session, id));
        ApprovalError::LimitReached(reached)
    }

    async fn wait(
        &self,
        requested: &mut Requested,
        question: Box<ApprovalQuestion>,
        waiting: ApprovalWait,
        caller: &CallerGuard,
    ) -> Result<policy::ApprovalGrant, CreateError> {
        let id = waiting.approval().id();
        tokio::select! {
            // An answer counts before the end of what waited for it; and the gateway's end explains its sessions'.
            biased;
            end = waiting.end() => match end {
                Resolution::Approved(yes) => {
                    requested.approval_id = Some(id);
                    Ok(yes)
                }
                Resolution::Denied(answer) => Err(ApprovalError::Denied(question, id, answer).into()),
                Resolution::Expired => Err(ApprovalError::Expired(question, id).into()),
                Resolution::Superseded => Err(ApprovalError::Superseded(question, id).into()),
                Resolution::Withdrawn => Err(ApprovalError::CallerDisconnected(question, id).into()),
            },
            () = self.wait_draining() => Err(CreateError::Draining),
            () = requested.session.wait_closing() => Err(CreateError::SessionClosing),
            () = caller.deadline() => Err(ApprovalError::DeadlineExceeded(question, id).into()),
            () = caller.disconnected.cancelled() => Err(ApprovalError::CallerDisconnected(question, id).into()),
        }
    }

    /// A policy may have come into force between the judging and the question.
    fn supersede_older_policies(&self) {
        self.approvals().supersede(self.policy().current().generation());
    }
}
