//! Creates a terminal: from a caller's request to a running command, and the undoing when a step fails.
//!
//! What was begun for a caller is completed or undone when the caller goes away. Requests with one id are one request. The
//! steps themselves are in `steps`.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use crate::{
    policy::EvaluationTrace,
    proto::supervisor::StopCause,
    reason::Reason,
    session::SessionId,
    terminal::{
        approve::CallerGuard,
        context::TerminalContext,
        errors::CreateError,
        new_request::NewRequest,
        refusal::LimitName,
        release::release,
        run_to_completion::run_to_completion,
        screens::Questions,
        spec::ReaderKind,
        state::terminal::Terminal,
        steps::{Authorized, Requested},
    },
};

impl TerminalContext {
    /// Creates a terminal, or finds the one that the same request created. A caller that goes away meanwhile has
    /// either the one terminal of its request id, or none.
    pub async fn create(self: &Arc<Self>, new: NewRequest) -> Result<Arc<Terminal>, Arc<CreateError>> {
        let this = self.clone();
        let (caller, _guard) = CallerGuard::begin(new.time_limit);
        match new.request_id.clone() {
            Some(request_id) => {
                let (key, reader) = ((new.session.id, request_id), new.reader);
                let context = self.clone();
                let work = async move { this.create_once(key, new, caller).await };
                run_to_completion(work, move |created| async move {
                    // A run has a caller who takes it, or ends.
                    if let (Ok(terminal), ReaderKind::ResumableRun) = (created, reader) {
                        context.await_caller(&terminal);
                    }
                })
                .await
            }
            None => {
                let undo = self.clone();
                let work = async move {
                    let created = this.create_now(&new, &caller).await;
                    created.inspect_err(|error| this.count_refusal(error)).map_err(Arc::new)
                };
                run_to_completion(work, |created| async move {
                    if let Ok(terminal) = created {
                        // A release by another call is as good.
                        let _ = release(
                            undo.registry(),
                            undo.recorder(),
                            &terminal,
                            Some(Duration::ZERO),
                            StopCause::Killed,
                        )
                        .await;
                    }
                })
                .await
            }
        }
    }

    async fn create_once(
        self: Arc<Self>,
        key: (SessionId, String),
        new: NewRequest,
        caller: CallerGuard,
    ) -> Result<Arc<Terminal>, Arc<CreateError>> {
        if let Some(id) = self.registry().quarantined(&key) {
            let error = CreateError::Quarantined(id);
            self.count_refusal(&error);
            return Err(Arc::new(error));
        }
        loop {
            let attempt = self.registry().attempt(&key);
            let work = async {
                let created = self.create_now(&new, &caller).await;
                created.inspect_err(|error| self.count_refusal(error)).map_err(Arc::new)
            };
            let result = attempt.get_or_init(|| work).await.clone();
            let Err(error) = &result else { return result };
            // The next one with this id may try again.
            self.registry().forget_attempt(&key, &attempt);
            // The one who asked a person for all of us has gone: who is still here asks.
            if !(error.is_caller_gone() && caller.is_waiting()) {
                return result;
            }
        }
    }

    fn count_refusal(&self, error: &CreateError) {
        self.counters().create_refusals.inc(Reason::from(error));
        if let Some(limit) = LimitName::of(error) {
            self.counters().limits_reached.inc(limit);
        }
    }

    /// The steps of a create, in their order, up to a command that runs.
    async fn create_now(&self, new: &NewRequest, caller: &CallerGuard) -> Result<Arc<Terminal>, CreateError> {
        if self.is_draining() {
            return Err(CreateError::Draining);
        }
        let begun = Instant::now();
        let entered = new.session.enter().ok_or(CreateError::SessionClosing)?;
        let mut requested = Requested {
            session: new.session.clone(),
            session_guard: entered,
            request: new.request.clone(),
            labels: new.labels.clone(),
            request_id: new.request_id.clone(),
            kept_shell: new.kept_shell,
            reader: new.reader,
            when_left: new.when_left,
            on_ask: new.on_ask,
            given_input: new.given_input.clone(),
            trace: EvaluationTrace::default(),
            approval_id: None,
            ask_record: None,
        };
        let permit =
            self.permit(&mut requested, caller).await.inspect_err(|_| self.counters().refused.inc())?;
        let was_asked = requested.approval_id.is_some();
        let terminal_log = self.logs().of(new.session.id);
        let authorized = requested
            .authorize(
                permit,
                self.quota_tracker(),
                self.counters(),
                self.registry().changes_sender(),
                self.recorder(),
                terminal_log,
            )
            .await
            .inspect_err(|_| self.counters().refused.inc())?;
        let terminal = authorized.terminal.clone();
        self.registry().insert_starting(&terminal);
        match self.start(authorized).await {
            Ok(terminal) => {
                if !was_asked {
                    self.counters().timings.whole.observe(begun.elapsed());
                }
                Ok(terminal)
            }
            Err(error) => {
                self.registry().remove_starting(&terminal);
                Err(error)
            }
        }
    }

    async fn start(&self, authorized: Authorized) -> Result<Arc<Terminal>, CreateError> {
        let terminal = authorized
            .with_secrets(self.known_secrets().redactor(&self.policy().current()))?
            .prepare(self.launch_context(), self.workspaces())
            .await?
            .spawn()
            .await?;
        self.screens().begin(&terminal, Questions::AllNew);
        self.stop_when_left(&terminal);
        Ok(terminal)
    }
}
