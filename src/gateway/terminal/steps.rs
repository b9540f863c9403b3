//! The way of a command, step by step. Each step is a type of its own and consumes the one before, so that the
//! order cannot be got wrong:
//!
//! ```text
//! Requested ──► Authorized ──► Prepared ──► Running ──► Exited ──► Released
//!    policy        sandbox        exec       the end     nothing left
//! ```
//!
//! Whatever fails on the way gives back what the steps before it took: a sandbox of its own is shut down, the
//! quota is given back, and the id is never used.

use std::{
    os::fd::OwnedFd,
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use tokio::sync::broadcast;

use crate::{
    approval::{ApprovalId, RequestedAction},
    failpoint,
    journal::{CommandLocation, Record},
    kept_shell::ShellKind,
    policy::{ApprovalQuestion, CommandSpec, EvaluationTrace, OverflowMode, Permit, Request},
    sandbox::spawn_request::SpawnExtras,
    session::{LaunchContext, SandboxOrigin, Session, SessionGuard},
    terminal::{
        audit::{recorder::Recorder, records, session_records},
        counters::TerminalCounters,
        errors::CreateError,
        evaluation,
        id::TerminalId,
        quotas::QuotaReached,
        secrets::{
            command_secrets::{SecretError, Secrets},
            redact,
            redactor::Redactor,
        },
        spec::{Backpressure, CommandForm, OnAsk, ReaderKind, TerminalSpec, TimeLimits, WhenLeft},
        state::{
            exec_denials::ExecDenials,
            kept_shell::ShellKnowledge,
            lease::{Running, SandboxLease},
            live::{Live, LiveMasker},
            metadata,
            quota_tracker::{OwnSandbox, QuotaTracker},
            terminal::{NewTerminal, Terminal},
            terminal_log::TerminalLog,
            workspace::WatchedWorkspaces,
        },
    },
    workspace::Workspaces,
};

/// A complete request of a session's caller. The session waits with its closing for as long as this lives.
#[derive(Debug)]
pub(in crate::terminal) struct Requested {
    pub session: Arc<Session>,
    pub session_guard: SessionGuard,
    pub request: Request,
    pub labels: std::collections::BTreeMap<String, String>,
    pub kept_shell: Option<ShellKind>,
    pub reader: ReaderKind,
    pub when_left: WhenLeft,
    pub request_id: Option<String>,
    pub on_ask: OnAsk,
    /// The command's stdin, if its caller has given one.
    pub given_input: Option<Arc<OwnedFd>>,
    /// Of its last judging, for the journal.
    pub trace: EvaluationTrace,
    /// The approval that it was given.
    pub approval_id: Option<ApprovalId>,
    /// The record of the decision to ask.
    pub ask_record: Option<u64>,
}

impl Requested {
    /// What a person is to be asked, and is shown of it.
    pub(in crate::terminal) fn approval_request(
        &self,
        mut question: ApprovalQuestion,
        redactor: &Redactor,
    ) -> RequestedAction {
        question.command = redactor.redact_text(&question.command);
        for other in &mut question.others {
            other.command = redactor.redact_text(&other.command);
        }
        let program = match &self.request.command {
            CommandSpec::ShellLine(line) => CommandSpec::ShellLine(redactor.redact_text(line)),
            CommandSpec::Argv { command, args } => CommandSpec::Argv {
                command: redactor.redact_text(command),
                args: args.iter().map(|argument| redactor.redact_text(argument)).collect(),
            },
        };
        RequestedAction {
            principal: self.session.principal,
            session: self.session.id,
            question,
            program,
            cwd: redactor.redact_text(self.request.cwd.as_str()),
            profile: self.request.profile.clone().unwrap_or_default(),
            env_names: self.request.env.iter().map(|entry| entry.name().to_owned()).collect(),
            request_id: self.request_id.clone(),
            within: None,
        }
    }

    /// Reserves the quota of what policy permits, and makes the terminal.
    pub(in crate::terminal) async fn authorize(
        self,
        permit: Permit,
        quota_tracker: &Arc<QuotaTracker>,
        counters: &Arc<TerminalCounters>,
        changes: &broadcast::Sender<Arc<Terminal>>,
        recorder: &Recorder,
        terminal_log: Arc<TerminalLog>,
    ) -> Result<Authorized, QuotaReached> {
        let exec_spec = permit.spec();
        let streams = exec_spec.streams().count();
        let reserved_bytes = exec_spec.output_limit_bytes().saturating_mul(streams);
        let share = recorder.check_share(self.session.principal, evaluation::command_bytes(&self.request));
        let sandbox = if exec_spec.secrets().is_empty() { OwnSandbox::No } else { OwnSandbox::Yes };
        let reserved = share.and_then(|()| quota_tracker.reserve(&self.session, reserved_bytes, sandbox));
        let reservation = match reserved {
            Ok(reservation) => reservation,
            Err(reached) => {
                // What cannot be written is refused all the same.
                let _ = recorder.record_refusal(&records::quota_refused(&self.session, &reached)).await;
                return Err(reached);
            }
        };
        let summary = spec_of(&self, &permit);
        counters.created.inc();
        let terminal = Terminal::new(NewTerminal {
            id: TerminalId::generate(),
            created_at: SystemTime::now(),
            session: self.session,
            spec: summary,
            request_id: self.request_id,
            shell: ShellKnowledge::Unprepared,
            reservation,
            exec_denials: ExecDenials::default(),
            terminal_log,
            counters: counters.clone(),
            changes: changes.clone(),
            recorder: recorder.clone(),
        });
        failpoint::reach("create.authorized");
        let (secrets, redactor) = (Secrets::default(), Redactor::default());
        let mut decision =
            records::allowed(&terminal.session, terminal.id, &self.request, &permit, &self.trace);
        records::with_approval(&mut decision, self.approval_id, self.ask_record);
        let command_in = records::command_in(&decision);
        let decision_record = Some(decision);
        Ok(Authorized {
            terminal,
            permit,
            secrets,
            redactor,
            given_input: self.given_input,
            session_guard: self.session_guard,
            decision_record,
            command_in,
        })
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
pub(in crate::terminal) struct Authorized {
    pub terminal: Arc<Terminal>,
    permit: Permit,
    secrets: Secrets,
    redactor: Redactor,
    given_input: Option<Arc<OwnedFd>>,
    session_guard: SessionGuard,
    /// The decision, until it is in the journal: with the spawn where that comes at once.
    decision_record: Option<Record>,
    /// Where the command's text is, for the records behind it.
    command_in: CommandLocation,
}

impl Authorized {
    /// What is secret in its environment is read, and taken out of what is recorded. Before a sandbox is
    /// brought up, which may be for nothing.
    pub(in crate::terminal) fn with_secrets(mut self, redactor: Redactor) -> Result<Self, SecretError> {
        self.decision_record.iter_mut().for_each(|record| redactor.redact(record));
        let spec = self.permit.spec();
        match Secrets::read(spec.secrets(), &spec.opened_tls().secrets) {
            Ok(secrets) => {
                self.decision_record
                    .iter_mut()
                    .for_each(|record| redact::redact_secrets(record, secrets.masker()));
                Ok(Self { secrets, redactor, ..self })
            }
            Err(error) => {
                self.decision_record
                    .iter()
                    .for_each(|decision| self.terminal.recorder.record_best_effort(decision));
                self.terminal
                    .recorder
                    .record_best_effort(&records::secret_failed(self.terminal.subject(), &error));
                self.terminal.abandon();
                Err(error)
            }
        }
    }

    /// The sandbox is up, or is brought up. What is brought up is brought up for a decision that is written.
    pub(in crate::terminal) async fn prepare(
        self,
        launch_context: &LaunchContext,
        workspaces: &Workspaces,
    ) -> Result<Prepared, CreateError> {
        let Self {
            terminal,
            permit,
            secrets,
            redactor,
            given_input,
            session_guard,
            mut decision_record,
            mut command_in,
        } = self;
        if !terminal.session.has_sandbox_for(launch_context, permit.spec()) {
            match terminal.record_before(&decision_record.take()).await {
                Ok(Some(decision)) if command_in == CommandLocation::PRECEDING => {
                    command_in = CommandLocation::Record(decision);
                }
                Ok(_) => {}
                Err(unrecorded) => {
                    terminal.abandon();
                    return Err(unrecorded.into());
                }
            }
        }
        let profile = permit.spec().profile();
        let attached = WatchedWorkspaces::attach(
            &terminal.session,
            terminal.subject(),
            &terminal.recorder,
            profile,
            workspaces,
        );
        let watched = match attached {
            Ok(watched) => watched,
            Err(error) => {
                decision_record.iter().for_each(|decision| terminal.recorder.record_best_effort(decision));
                terminal.recorder.record_best_effort(&records::watch_failed(terminal.subject(), &error));
                terminal.abandon();
                return Err(error.into());
            }
        };
        if let Some((watched, _)) = &watched
            && terminal.workspace.set(watched.clone()).is_err()
        {
            unreachable!("a terminal's workspaces are attached once, when it is created");
        }
        let begun = Instant::now();
        match terminal.session.sandbox_for(launch_context, permit.spec()).await {
            Ok((sandbox, sharing, origin)) => {
                if origin == SandboxOrigin::Started {
                    terminal.counters.timings.sandbox.observe(begun.elapsed());
                    let profile = permit.spec().profile_name();
                    let shortfalls = session_records::shortfalls(&terminal.session, profile, &sandbox);
                    shortfalls.iter().for_each(|one| terminal.recorder.record_best_effort(one));
                }
                let lease = SandboxLease { sandbox, sharing };
                if let Some((watched, scans)) = watched {
                    watched.start(scans).await;
                }
                let _session_guard = session_guard;
                Ok(Prepared {
                    terminal,
                    permit,
                    secrets,
                    redactor,
                    given_input,
                    lease,
                    _session_guard,
                    decision_record,
                    command_in,
                })
            }
            Err(error) => {
                decision_record.iter().for_each(|decision| terminal.recorder.record_best_effort(decision));
                terminal.recorder.record_best_effort(&records::sandbox_failed(terminal.subject(), &error));
                terminal.abandon();
                Err(error.into())
            }
        }
    }
}

/// Permitted, and the sandbox answers.
#[derive(Debug)]
pub(in crate::terminal) struct Prepared {
    terminal: Arc<Terminal>,
    permit: Permit,
    secrets: Secrets,
    redactor: Redactor,
    given_input: Option<Arc<OwnedFd>>,
    lease: SandboxLease,
    _session_guard: SessionGuard,
    decision_record: Option<Record>,
    command_in: CommandLocation,
}

impl Prepared {
    /// Gives the permit up for the command. Afterwards the terminal runs, or never was. Nothing is asked of the
    /// sandbox before the journal says that it will be.
    pub(in crate::terminal) async fn spawn(self) -> Result<Arc<Terminal>, CreateError> {
        let Self {
            terminal,
            permit,
            secrets,
            redactor,
            given_input,
            lease,
            _session_guard,
            decision_record,
            command_in,
        } = self;
        let given_input = given_input.filter(|_| lease.sandbox.takes_stdin());
        if given_input.is_some() {
            terminal.takes_given_stdin();
        }
        // Before the journal: what it says was begun has an end, whatever becomes of the gateway and the sandbox.
        if let Err(error) = terminal
            .terminal_log()
            .add(terminal.id, lease.sandbox.id(), || metadata::without_arguments(&terminal))
        {
            decision_record.iter().for_each(|decision| terminal.recorder.record_best_effort(decision));
            terminal.recorder.record_best_effort(&records::log_failed(terminal.subject(), &error));
            terminal.abandon();
            lease.shut_down_if_sole(Duration::ZERO).await;
            return Err(CreateError::LogUnwritable(error));
        }
        failpoint::reach("create.enrolled");
        let mut spawn =
            records::spawn(terminal.subject(), &terminal.spec, permit.spec(), &lease.sandbox, command_in);
        redactor.redact(&mut spawn);
        redact::redact_secrets(&mut spawn, secrets.masker());
        if let Err(unrecorded) = terminal.record_before(decision_record.iter().chain([&spawn])).await {
            terminal.abandon();
            lease.shut_down_if_sole(Duration::ZERO).await;
            return Err(unrecorded.into());
        }
        let id = terminal.id.to_string();
        let provisions = SpawnExtras {
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
        match lease.sandbox.spawn(id, permit, provisions, terminal.clone()).await {
            Ok(spawned) => {
                terminal.counters.timings.spawn.observe(begun.elapsed());
                let live = Live {
                    started: spawned.started,
                    stdout: spawned.stdout,
                    stderr: spawned.stderr,
                    sandbox: lease.sandbox.clone(),
                    masker: LiveMasker::new(secrets.masker().clone()),
                };
                terminal.start(Running { lease }, live);
                terminal.enforce_time_limits();
                failpoint::reach("create.started");
                Ok(terminal)
            }
            Err(refused) => {
                let mut not_spawned = records::exec_failed(terminal.subject(), &refused);
                redactor.redact(&mut not_spawned);
                terminal.recorder.record_best_effort(&not_spawned);
                terminal.abandon();
                lease.shut_down_if_sole(Duration::ZERO).await;
                Err(refused.into())
            }
        }
    }
}
