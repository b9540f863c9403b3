//! Asks a person to approve a request, where a rule asks, and takes the answers.
//!
//! A request that waits uses no quota and has no terminal id. The wait ends with an answer, the expiry, the caller or the
//! session, whichever is first. After an approval the request is evaluated again (`permit`).

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::{
    approval::{
        Answer, Approval, ApprovalId, ApprovalLimitReached, ApprovalObserver, ApprovalRequest, ApprovalWait,
        ApproverDecision, RequestMode, RequestedAction, Resolution,
    },
    policy::{ApprovalGrant, ApprovalQuestion, CommandSpec},
    session::Session,
    terminal::{
        errors::{ApprovalError, CreateError, ResolveApprovalError},
        recorder::Recorder,
        records,
        secrets::redactor::Redactor,
        spec::{OnAsk, Requested},
        terminals::{Terminals, run_to_completion},
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
    pub(in crate::terminal) fn begin(answer_timeout: Option<Duration>) -> (Self, DropGuard) {
        let gone = CancellationToken::new();
        // A time that the clock cannot hold is no deadline.
        let deadline = answer_timeout.and_then(|timeout| Instant::now().checked_add(timeout));
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

impl Terminals {
    /// Asks a person, or finds the answer that a person has given already.
    pub(super) async fn ask(
        &self,
        requested: &Requested,
        question: Box<ApprovalQuestion>,
        caller: &CallerGuard,
    ) -> Result<(ApprovalId, ApprovalGrant), CreateError> {
        let approvals = &self.approvals;
        let (principal, digest, generation) =
            (requested.session.principal, question.digest, question.generation);
        match approvals.take_answer(principal, digest, generation) {
            Some((id, Resolution::Approved(yes))) => {
                return Ok((id, yes));
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
        if let Err(reached) = self.approvals.check_capacity(requested.session.principal) {
            // What cannot be written is refused all the same.
            let refused = records::approval_limit_reached(&requested.session, &reached);
            let _ = self.recorder.record_denial(&refused).await;
            return Err(ApprovalError::LimitReached(reached).into());
        }
        let redactor = self.known_secrets.redactor(&self.policy.current());
        let request = ApprovalRequest::new(asked_action(requested, question.clone(), &redactor), asking);
        let record = records::approval_requested(&request, self.approvals.expiry());
        self.recorder.record(&record).await?;
        Ok(request)
    }

    /// Another one was put while the question was written: it was never put, and that is written, too.
    fn limit_reached_late(
        &self,
        session: &Session,
        id: ApprovalId,
        reached: ApprovalLimitReached,
    ) -> ApprovalError {
        self.recorder.record_best_effort(&records::approval_limit_reached(session, &reached));
        self.recorder.record_best_effort(&records::approval_not_submitted(session, id));
        ApprovalError::LimitReached(reached)
    }

    async fn wait(
        &self,
        requested: &Requested,
        question: Box<ApprovalQuestion>,
        waiting: ApprovalWait,
        caller: &CallerGuard,
    ) -> Result<(ApprovalId, ApprovalGrant), CreateError> {
        let id = waiting.approval().id();
        tokio::select! {
            // An answer counts before the end of what waited for it; and the gateway's end explains its sessions'.
            biased;
            end = waiting.end() => match end {
                Resolution::Approved(yes) => Ok((id, yes)),
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
        self.approvals.supersede(self.policy.current().generation());
    }

    /// Answers a question. Of many who answer, one succeeds. An approval counts when it is in the journal; a denial
    /// counts in any case. Once begun, it is done even when the caller goes away.
    pub(crate) async fn resolve(
        self: &Arc<Self>,
        id: ApprovalId,
        answer: Answer,
    ) -> Result<Approval, ResolveApprovalError> {
        let this = self.clone();
        let work = async move {
            let _resolve_lock = this.approvals.lock_resolving().await;
            let pending = this.approvals.check_resolvable(answer.approver, id)?;
            let record = records::approval_resolved(&pending.request, &answer);
            match answer.decision {
                ApproverDecision::Approve => this.recorder.record(&record).await?,
                ApproverDecision::Deny => this.recorder.record_best_effort(&record),
            }
            Ok(this.approvals.resolve(id, answer)?)
        };
        run_to_completion(work, |_| async {}).await
    }
}

/// What a person is to be asked, and is shown of it.
fn asked_action(
    requested: &Requested,
    mut question: ApprovalQuestion,
    redactor: &Redactor,
) -> RequestedAction {
    question.command = redactor.redact_text(&question.command);
    for other in &mut question.others {
        other.command = redactor.redact_text(&other.command);
    }
    let program = match &requested.request.command {
        CommandSpec::ShellLine(line) => CommandSpec::ShellLine(redactor.redact_text(line)),
        CommandSpec::Argv { command, args } => CommandSpec::Argv {
            command: redactor.redact_text(command),
            args: args.iter().map(|argument| redactor.redact_text(argument)).collect(),
        },
    };
    RequestedAction {
        principal: requested.session.principal,
        session: requested.session.id,
        question,
        program,
        cwd: redactor.redact_text(requested.request.cwd.as_str()),
        profile: requested.request.profile.clone().unwrap_or_default(),
        env_names: requested.request.env.iter().map(|entry| entry.name().to_owned()).collect(),
        request_id: requested.request_id.clone(),
        within: None,
    }
}

/// Records the end of questions that end without an answer.
pub(crate) fn approval_observer(recorder: Recorder) -> ApprovalObserver {
    ApprovalObserver(Box::new(move |approval| {
        if let Some(record) = records::approval_ended(approval) {
            recorder.record_best_effort(&record);
        }
    }))
}
