//! Creates a terminal: from a caller's request to a running command, and the undoing when a step fails.
//!
//! Each step is a type of its own and consumes the one before, so that the order cannot be got wrong:
//!
//! ```text
//! Requested ──► Authorized ──► Prepared ──► Running ──► Finished ──► Released
//!    policy        sandbox        exec       the end     nothing left
//! ```
//!
//! Whatever fails on the way gives back what the steps before it took: a sandbox of its own is shut down, the quota is given back, and the
//! id is never used. What was begun for a caller is completed or undone when the caller goes away. Requests with one id are one request.

use std::{
    os::fd::OwnedFd,
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use crate::{
    counters::Label as _,
    failpoint,
    journal::{CommandLocation, Record},
    kept_shell::ShellKind,
    policy::{CommandSpec, OverflowMode, Permit},
    proto::supervisor::StopCause,
    reason::Reason,
    sandbox::control::{handle::Sandbox, requests::SpawnExtras},
    session::{SandboxOrigin, SessionId},
    terminal::{
        approvals::CallerGuard,
        errors::CreateError,
        kept_shell::ShellKnowledge,
        live::{Live, LiveMasker},
        metadata, permit,
        quotas::{LimitName, OwnSandbox},
        records,
        screens::Questions,
        secrets::{command_secrets::Secrets, redact, redactor::Redactor},
        spec::{Backpressure, CommandForm, ReaderKind, Requested, TerminalId, TerminalSpec, TimeLimits},
        state::{NewTerminal, Running, SandboxLease, Terminal},
        terminal_log::ExecDenials,
        terminals::{Terminals, run_to_completion},
        workspace::WatchedWorkspaces,
    },
};

impl Terminals {
    /// Creates a terminal, or finds the one that the same request created. A caller that goes away meanwhile has
    /// either the one terminal of its request id, or none: a create with an id is completed, because the caller can ask again,
    /// and one without is undone, because nobody could.
    pub(crate) async fn create(
        self: &Arc<Self>,
        requested: Requested,
    ) -> Result<Arc<Terminal>, Arc<CreateError>> {
        let (this, undo) = (self.clone(), self.clone());
        let (caller, _guard) = CallerGuard::begin(requested.answer_timeout);
        match requested.request_id.clone() {
            Some(request_id) => {
                let (key, reader) = ((requested.session.id, request_id), requested.reader);
                let work = async move { this.create_once(key, requested, caller).await };
                run_to_completion(work, move |created| async move {
                    // A run has a caller who takes it, or ends.
                    if let (Ok(terminal), ReaderKind::ResumableRun) = (created, reader) {
                        undo.await_caller(&terminal);
                    }
                })
                .await
            }
            None => {
                let work = async move {
                    this.create_now(requested, &caller).await.map_err(|error| this.refused(error))
                };
                run_to_completion(work, |created| async move {
                    if let Ok(terminal) = created {
                        // A release by another call is as good.
                        let _ = undo.release(&terminal, Some(Duration::ZERO), StopCause::Killed).await;
                    }
                })
                .await
            }
        }
    }

    async fn create_once(
        self: Arc<Self>,
        key: (SessionId, String),
        requested: Requested,
        caller: CallerGuard,
    ) -> Result<Arc<Terminal>, Arc<CreateError>> {
        if let Some(id) = self.registry.quarantined(&key) {
            return Err(self.refused(CreateError::Quarantined(id)));
        }
        loop {
            let attempt = self.registry.attempt(&key);
            let work = async {
                self.create_now(requested.clone(), &caller).await.map_err(|error| self.refused(error))
            };
            let result = attempt.get_or_init(|| work).await.clone();
            let Err(error) = &result else { return result };
            // The next one with this id may try again.
            self.registry.forget_attempt(&key, &attempt);
            // The one who asked a person for all of us has gone: who is still here asks.
            if !(error.is_caller_gone() && caller.is_waiting()) {
                return result;
            }
        }
    }

    /// Counts why nothing is created.
    fn refused(&self, error: CreateError) -> Arc<CreateError> {
        self.counters.create_refusals.inc(Reason::from(&error));
        if let Some(limit) = LimitName::of(&error) {
            self.counters.limits_reached.inc(limit);
        }
        Arc::new(error)
    }

    /// The steps of a create, in their order, up to a command that runs. The session waits with its closing until they are done.
    async fn create_now(
        self: &Arc<Self>,
        requested: Requested,
        caller: &CallerGuard,
    ) -> Result<Arc<Terminal>, CreateError> {
        if self.is_draining() {
            return Err(CreateError::Draining);
        }
        let begun = Instant::now();
        let session = requested.session.clone();
        let _entered = session.enter().ok_or(CreateError::SessionClosing)?;
        let authorized =
            self.authorize(requested, caller).await.inspect_err(|_| self.counters.refused.inc())?;
        let was_asked = authorized.was_asked;
        let terminal = authorized.terminal.clone();
        self.registry.insert_starting(&terminal);
        if let Err(error) = self.start(authorized).await {
            terminal.abandon();
            self.registry.remove_starting(&terminal);
            return Err(error);
        }
        if !was_asked {
            self.counters.timings.whole.observe(begun.elapsed());
        }
        Ok(terminal)
    }

    /// Gets a permit from policy, reserves the quota of what it permits, and makes the terminal.
    async fn authorize(
        &self,
        mut requested: Requested,
        caller: &CallerGuard,
    ) -> Result<Authorized, CreateError> {
        let (permit, mut decision) = self.permit(&mut requested, caller).await?;
        let (session, spec) = (&requested.session, permit.spec());
        let reserved_bytes = spec.output_limit_bytes().saturating_mul(spec.streams().count());
        let sandbox = if spec.secrets().is_empty() { OwnSandbox::No } else { OwnSandbox::Yes };
        let share = self.recorder.check_share(session.principal, permit::command_bytes(&requested.request));
        let reserved = share.and_then(|()| self.quotas.reserve(session, reserved_bytes, sandbox));
        let reservation = match reserved {
            Ok(reservation) => reservation,
            Err(reached) => {
                // What cannot be written is refused all the same.
                let (limit, session_id) = (reached.limit.label(), Some(session.id));
                let refused = records::quota_refused(session.principal, session_id, limit, reached.max);
                let _ = self.recorder.record_denial(&refused).await;
                return Err(reached.into());
            }
        };
        self.counters.created.inc();
        let terminal = Terminal::new(NewTerminal {
            id: TerminalId::generate(),
            created_at: SystemTime::now(),
            spec: spec_of(&requested, &permit),
            terminal_log: self.logs.of(session.id),
            session: requested.session,
            request_id: requested.request_id,
            shell: ShellKnowledge::Unprepared,
            reservation,
            exec_denials: ExecDenials::default(),
            counters: self.counters.clone(),
            changes: self.registry.changes_sender().clone(),
            recorder: self.recorder.clone(),
        });
        failpoint::reach("create.authorized");
        decision.terminal = Some(terminal.id.to_string());
        let redactor = self.known_secrets.redactor(&self.policy.current());
        let (was_asked, command_in) = (decision.approval.is_some(), records::command_in(&decision));
        let mut decision = Record::Decision(decision);
        redactor.redact(&mut decision);
        Ok(Authorized {
            terminal,
            permit,
            secrets: Secrets::default(),
            redactor,
            given_input: requested.given_input,
            decision: Some(decision),
            command_in,
            was_asked,
        })
    }

    async fn start(self: &Arc<Self>, authorized: Authorized) -> Result<(), CreateError> {
        let terminal = authorized.with_secrets()?.prepare(self).await?.spawn().await?;
        self.screens.begin(&terminal, Questions::AllNew);
        self.stop_when_left(&terminal);
        Ok(())
    }
}

fn spec_of(requested: &Requested, permit: &Permit) -> TerminalSpec {
    let exec_spec = permit.spec();
    let (form, command, args) = match &requested.request.command {
        CommandSpec::Argv { command, args } => (CommandForm::Program, command.clone(), args.clone()),
        CommandSpec::ShellLine(line) => (CommandForm::ShellLine, line.clone(), Vec::new()),
    };
    TerminalSpec {
        form,
        command,
        args,
        cwd: exec_spec.cwd().to_string(),
        profile: exec_spec.profile_name().clone(),
        network: exec_spec.network().name(),
        offered: exec_spec.profile().network.choices_but(exec_spec.network()),
        labels: requested.labels.clone(),
        output_limit_bytes: exec_spec.output_limit_bytes(),
        streams: exec_spec.streams(),
        kept_shell: requested.kept_shell,
        backpressure: match (exec_spec.overflow(), requested.reader) {
            (OverflowMode::DropOldest, _) => Backpressure::Never,
            (OverflowMode::Block, ReaderKind::Stream) => Backpressure::ForStream,
            (OverflowMode::Block, ReaderKind::Run) => Backpressure::ForRun,
            (OverflowMode::Block, ReaderKind::ResumableRun) => Backpressure::ForResumableRun,
        },
        when_left: requested.when_left,
        time_limits: TimeLimits {
            limit: exec_spec.time_limit(),
            idle: exec_spec.idle_limit(),
            grace: exec_spec.kill_grace(),
        },
        on_ask: requested.on_ask,
        digest: permit.digest(),
        generation: permit.generation(),
    }
}

/// Permitted, with an id and its quota reserved. Nothing has been started.
#[derive(Debug)]
struct Authorized {
    terminal: Arc<Terminal>,
    permit: Permit,
    secrets: Secrets,
    redactor: Redactor,
    given_input: Option<Arc<OwnedFd>>,
    /// The decision, until it is in the journal: with the spawn where that comes at once.
    decision: Option<Record>,
    /// Where the command's text is, for the records behind it.
    command_in: CommandLocation,
    was_asked: bool,
}

impl Authorized {
    /// What is secret in its environment is read, and taken out of what is recorded. Before a sandbox is
    /// brought up, which may be for nothing.
    fn with_secrets(mut self) -> Result<Self, CreateError> {
        let spec = self.permit.spec();
        match Secrets::read(spec.secrets(), &spec.opened_tls().secrets) {
            Ok(secrets) => {
                self.decision.iter_mut().for_each(|record| redact::redact_secrets(record, secrets.masker()));
                Ok(Self { secrets, ..self })
            }
            Err(error) => {
                self.record_failure(records::secret_failed(self.terminal.subject(), &error));
                Err(error.into())
            }
        }
    }

    /// The sandbox is up, or is brought up. What is brought up is brought up for a decision that is written.
    async fn prepare(mut self, terminals: &Terminals) -> Result<Prepared, CreateError> {
        let (terminal, spec) = (&self.terminal, self.permit.spec());
        let (session, launch_context) = (&terminal.session, &terminals.launch_context);
        if !session.has_sandbox_for(launch_context, spec)
            && let Some(decision) = terminal.record_before(&self.decision.take()).await?
            && self.command_in == CommandLocation::PRECEDING
        {
            self.command_in = CommandLocation::Record(decision);
        }
        let subject = terminal.subject();
        let (recorder, workspaces) = (&terminal.recorder, &terminals.workspaces);
        let attached = WatchedWorkspaces::attach(session, subject, recorder, spec.profile(), workspaces);
        let watched = attached.map_err(|error| {
            self.record_failure(records::watch_failed(subject, &error));
            CreateError::from(error)
        })?;
        if let Some((watched, _)) = &watched
            && terminal.workspace.set(watched.clone()).is_err()
        {
            unreachable!("a terminal's workspaces are attached once, when it is created");
        }
        let begun = Instant::now();
        let found = session.sandbox_for(launch_context, spec).await;
        let (sandbox, sharing, origin) = found.map_err(|error| {
            self.record_failure(records::sandbox_failed(subject, &error));
            CreateError::from(error)
        })?;
        if origin == SandboxOrigin::Started {
            terminal.counters.timings.sandbox.observe(begun.elapsed());
            let shortfalls = records::shortfalls(session, spec.profile_name(), &sandbox);
            shortfalls.iter().for_each(|one| recorder.record_best_effort(one));
        }
        if let Some((watched, scans)) = watched {
            watched.start(scans).await;
        }
        Ok(Prepared { authorized: self, lease: SandboxLease { sandbox, sharing } })
    }

    /// Records why it is not started, behind the decision where that is not written yet.
    fn record_failure(&self, mut failure: Record) {
        self.redactor.redact(&mut failure);
        let records = self.decision.iter().chain([&failure]);
        records.for_each(|record| self.terminal.recorder.record_best_effort(record));
    }
}

/// Permitted, and the sandbox answers.
#[derive(Debug)]
struct Prepared {
    authorized: Authorized,
    lease: SandboxLease,
}

impl Prepared {
    /// Gives the permit up for the command. Afterwards the terminal runs, or never was.
    async fn spawn(self) -> Result<Arc<Terminal>, CreateError> {
        let Self { authorized, lease } = self;
        let terminal = authorized.terminal.clone();
        match authorized.spawn_in(&lease.sandbox).await {
            Ok(live) => {
                terminal.start(Running { lease }, live);
                terminal.enforce_time_limits();
                failpoint::reach("create.started");
                Ok(terminal)
            }
            Err(error) => {
                // Before the sandbox ends: to a gateway that came meanwhile, a command that began would be lost with it.
                terminal.withdraw();
                lease.shut_down_if_sole(Duration::ZERO).await;
                Err(error)
            }
        }
    }
}

impl Authorized {
    /// Nothing is asked of the sandbox before the journal says that it will be.
    async fn spawn_in(mut self, sandbox: &Arc<Sandbox>) -> Result<Live, CreateError> {
        let (terminal, subject) = (self.terminal.clone(), self.terminal.subject());
        let given_input = self.given_input.take().filter(|_| sandbox.takes_stdin());
        if given_input.is_some() {
            terminal.takes_given_stdin();
        }
        // Before the journal: what it says was begun has an end, whatever becomes of the gateway and the sandbox.
        let log = terminal.terminal_log();
        if let Err(error) = log.add(terminal.id, sandbox.id(), || metadata::without_arguments(&terminal)) {
            self.record_failure(records::log_failed(subject, &error));
            return Err(CreateError::LogUnwritable(error));
        }
        failpoint::reach("create.enrolled");
        let mut spawn = records::spawn(subject, &terminal.spec, self.permit.spec(), sandbox, self.command_in);
        self.redactor.redact(&mut spawn);
        redact::redact_secrets(&mut spawn, self.secrets.masker());
        let decision = self.decision.take();
        terminal.record_before(decision.iter().chain([&spawn])).await?;
        let Self { permit, secrets, redactor, .. } = self;
        let extras = SpawnExtras {
            principal: terminal.session.principal.to_string(),
            labels: terminal.session.labels.clone(),
            metadata: metadata::encode(&terminal, &secrets),
            named_cwd: terminal.session.callers_name(permit.spec().cwd()).map(|name| name.to_string()),
            variables: terminal.spec.kept_shell.map_or(&[], ShellKind::variables),
            secrets: secrets.environment(),
            margin_bytes: secrets.masker().context_bytes() as u64,
            given_input,
        };
        failpoint::reach("create.recorded");
        let begun = Instant::now();
        match sandbox.spawn(terminal.id.to_string(), permit, extras, terminal.clone()).await {
            Ok(spawned) => {
                terminal.counters.timings.spawn.observe(begun.elapsed());
                Ok(Live {
                    started: spawned.started,
                    stdout: spawned.stdout,
                    stderr: spawned.stderr,
                    sandbox: sandbox.clone(),
                    masker: LiveMasker::new(secrets.masker().clone()),
                })
            }
            Err(refused) => {
                let mut failure = records::exec_failed(subject, &refused);
                redactor.redact(&mut failure);
                terminal.recorder.record_best_effort(&failure);
                Err(refused.into())
            }
        }
    }
}
