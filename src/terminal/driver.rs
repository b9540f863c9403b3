//! The way of a command, step by step. Each step is a type of its own and consumes the one before, so that the
//! order cannot be got wrong:
//!
//! ```text
//! Requested ──► Authorized ──► Prepared ──► Running ──► Exited ──► Released
//!    policy        sandbox        exec       the end     nothing left
//! ```
//!
//! Whatever fails on the way gives back what the steps before it took: a sandbox of its own is shut down, the
//! place in the books is free again, the id is one that never was.

use std::{
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use tokio::sync::broadcast;

use super::{
    CreateError, OnAsk, Recorder, TerminalId,
    counters::Counters,
    covering,
    holds::{Audience, Waits},
    judging, keepsake,
    known_secrets::Veil,
    outcome,
    quota::{Ledger, OwnSandbox, QuotaReached},
    records,
    roll::Roll,
    secrets::{SecretError, Secrets},
    summary::{Form, Summary, TimeLimits},
    terminal::{Live, NewTerminal, Terminal},
    workspace,
};
use crate::{
    approval::{ApprovalId, Wanted},
    failpoint,
    journal::{CommandIn, Record},
    policy::{self, Denial, Minutes, Overflow, Permit, PolicySet, Program, Question, Request},
    pool::PoolError,
    proto::v1::Outcome,
    sandbox::{
        handle::{CommandEnd, Sandbox},
        programs::Remembered,
        spawn_request::Provisions,
        spec::Tenancy,
    },
    session::{Entered, HOST_LIMIT, Origin, Session, Site},
    sys::allocator,
    workspace::Workspaces,
};

/// How long a large request may be judged.
const LARGE_LIMIT: Duration = Duration::from_secs(30);

/// A complete request of a session's caller. The session waits with its closing for as long as this lives.
#[derive(Debug)]
pub(super) struct Requested {
    pub session: Arc<Session>,
    pub entered: Entered,
    pub request: Request,
    pub labels: std::collections::BTreeMap<String, String>,
    pub audience: Audience,
    pub request_id: Option<String>,
    pub on_ask: OnAsk,
    /// Of its last judging, for the journal.
    pub minutes: Minutes,
    /// The yes that it was given.
    pub approval: Option<ApprovalId>,
    /// The record of the decision to ask.
    pub asked_in: Option<u64>,
}

impl Requested {
    /// Policy judges; with a person's yes, where there is one.
    ///
    /// # Errors
    /// When the file systems of the caller do not answer: policy has then not judged.
    pub(super) async fn judge(
        &mut self,
        policy: &Arc<PolicySet>,
        remembered: &Arc<Remembered>,
        site: &Site,
        yes: Option<policy::Approval>,
    ) -> Result<Result<Permit, Denial>, PoolError> {
        if judging::is_settled_at_once(&self.session, &self.request) {
            let Self { session, request, minutes, .. } = self;
            return Ok(judging::judge(policy, session, request, remembered, yes, minutes));
        }
        let (session, mut request) = (self.session.clone(), self.request.clone());
        let (policy, remembered) = (policy.clone(), remembered.clone());
        let is_large = judging::is_large(&request);
        let judge = move || {
            let mut minutes = Minutes::default();
            let judged = judging::judge(&policy, &session, &mut request, &remembered, yes, &mut minutes);
            if is_large {
                allocator::trim();
            }
            (judged, request, minutes)
        };
        let uid = self.session.principal.uid;
        let (judged, request, minutes) = match is_large {
            true => site.large.run(uid, LARGE_LIMIT, judge).await?,
            false => site.pool.run(uid, HOST_LIMIT, judge).await?,
        };
        (self.request, self.minutes) = (request, minutes);
        Ok(judged)
    }

    /// What a person is to be asked, and is shown of it.
    pub(super) fn wanted(&self, mut question: Question, veil: &Veil) -> Wanted {
        question.command = veil.show(&question.command);
        let program = match &self.request.program {
            Program::ShellLine(line) => Program::ShellLine(veil.show(line)),
            Program::Command { command, args } => Program::Command {
                command: veil.show(command),
                args: args.iter().map(|argument| veil.show(argument)).collect(),
            },
        };
        Wanted {
            principal: self.session.principal,
            session: self.session.id,
            question,
            program,
            cwd: veil.show(self.request.cwd.as_str()),
            profile: self.request.profile.clone().unwrap_or_default(),
            env_names: self.request.env.iter().map(|entry| entry.name().to_owned()).collect(),
            request_id: self.request_id.clone(),
        }
    }

    /// The books give a place to what policy permits.
    pub(super) async fn authorize(
        self,
        permit: Permit,
        ledger: &Arc<Ledger>,
        counters: &Arc<Counters>,
        changes: &broadcast::Sender<Arc<Terminal>>,
        recorder: &Recorder,
        roll: Arc<Roll>,
    ) -> Result<Authorized, QuotaReached> {
        let order = permit.order();
        let streams = if order.streams() == policy::Streams::Split { 2 } else { 1 };
        let reserved_bytes = order.output_limit_bytes().saturating_mul(streams);
        let share = recorder.share(self.session.principal, judging::bytes(&self.request));
        let sandbox = if order.secrets().is_empty() { OwnSandbox::No } else { OwnSandbox::Yes };
        let reserved = share.and_then(|()| ledger.reserve(&self.session, reserved_bytes, sandbox));
        let reservation = match reserved {
            Ok(reservation) => reservation,
            Err(reached) => {
                // What cannot be written is refused all the same.
                let _ = recorder.refused(&records::quota_refused(&self.session, &reached)).await;
                return Err(reached);
            }
        };
        let summary = summarize(&self, &permit);
        counters.created.one();
        let terminal = Terminal::new(NewTerminal {
            id: TerminalId::generate(),
            created_at: SystemTime::now(),
            session: self.session,
            summary,
            request_id: self.request_id,
            reservation,
            roll,
            counters: counters.clone(),
            changes: changes.clone(),
            recorder: recorder.clone(),
        });
        failpoint::reach("create.authorized");
        let (secrets, veil) = (Secrets::default(), Veil::default());
        let mut decision = records::allowed(&terminal, &self.request, &permit, &self.minutes);
        records::after_yes(&mut decision, self.approval, self.asked_in);
        let command_in = records::command_in(&decision);
        let unwritten = Some(decision);
        Ok(Authorized { terminal, permit, secrets, veil, entered: self.entered, unwritten, command_in })
    }
}

fn summarize(requested: &Requested, permit: &Permit) -> Summary {
    let order = permit.order();
    let (form, command, args) = match &requested.request.program {
        Program::Command { command, args } => (Form::Program, command.clone(), args.clone()),
        Program::ShellLine(line) => (Form::Line, line.clone(), Vec::new()),
    };
    Summary {
        form,
        command,
        args,
        cwd: order.cwd().to_string(),
        profile: order.profile_name().clone(),
        network: order.network().name(),
        labels: requested.labels.clone(),
        output_limit_bytes: order.output_limit_bytes(),
        streams: order.streams(),
        waits: match (order.overflow(), requested.audience) {
            (Overflow::DropOldest, _) => Waits::ForNobody,
            (Overflow::Block, Audience::Stream) => Waits::ForStream,
            (Overflow::Block, Audience::Run) => Waits::ForRun,
        },
        times: TimeLimits { limit: order.time_limit(), idle: order.idle_limit(), grace: order.kill_grace() },
        digest: permit.digest(),
        generation: permit.generation(),
    }
}

/// Permitted, with an id and a place in the books. Nothing has been started.
#[derive(Debug)]
pub(super) struct Authorized {
    pub terminal: Arc<Terminal>,
    permit: Permit,
    secrets: Secrets,
    veil: Veil,
    entered: Entered,
    /// The decision, until it is in the journal: with the spawn where that comes at once.
    unwritten: Option<Record>,
    /// Where the command's text is, for the records behind it.
    command_in: CommandIn,
}

impl Authorized {
    /// What is secret in its environment is read, and taken out of what the journal is told. Before a sandbox is
    /// brought up, which may be for nothing.
    pub(super) fn with_secrets(mut self, veil: Veil) -> Result<Self, SecretError> {
        self.unwritten.iter_mut().for_each(|record| veil.cover(record));
        match Secrets::read(self.permit.order().secrets()) {
            Ok(secrets) => {
                self.unwritten.iter_mut().for_each(|record| covering::mask(record, secrets.masker()));
                Ok(Self { secrets, veil, ..self })
            }
            Err(error) => {
                self.unwritten.iter().for_each(|decision| self.terminal.recorder.note(decision));
                self.terminal.recorder.note(&records::no_secret(&self.terminal, &error));
                self.terminal.abandon();
                Err(error)
            }
        }
    }

    /// The sandbox is up, or is brought up. What is brought up is brought up for a decision that is written.
    pub(super) async fn prepare(self, site: &Site, workspaces: &Workspaces) -> Result<Prepared, CreateError> {
        let Self { terminal, permit, secrets, veil, entered, mut unwritten, mut command_in } = self;
        if !terminal.session.has_sandbox_for(site, permit.order()) {
            match terminal.record_before(&unwritten.take()).await {
                Ok(Some(decision)) if command_in == CommandIn::BEFORE => {
                    command_in = CommandIn::Record(decision);
                }
                Ok(_) => {}
                Err(unrecorded) => {
                    terminal.abandon();
                    return Err(unrecorded.into());
                }
            }
        }
        let settling = match workspace::attach(&terminal, permit.order().profile(), workspaces) {
            Ok(settling) => settling,
            Err(error) => {
                unwritten.iter().for_each(|decision| terminal.recorder.note(decision));
                terminal.recorder.note(&records::not_watched(&terminal, &error));
                terminal.abandon();
                return Err(error.into());
            }
        };
        let begun = Instant::now();
        match terminal.session.sandbox_for(site, permit.order()).await {
            Ok((sandbox, tenancy, origin)) => {
                if origin == Origin::StartedNow {
                    terminal.counters.steps.sandbox.took(begun.elapsed());
                    let profile = permit.order().profile_name();
                    let shortfalls = records::shortfalls(&terminal.session, profile, &sandbox);
                    shortfalls.iter().for_each(|one| terminal.recorder.note(one));
                }
                let place = Place { sandbox, tenancy };
                workspace::enter(&terminal, settling).await;
                let _entered = entered;
                Ok(Prepared { terminal, permit, secrets, veil, place, _entered, unwritten, command_in })
            }
            Err(error) => {
                unwritten.iter().for_each(|decision| terminal.recorder.note(decision));
                terminal.recorder.note(&records::not_prepared(&terminal, &error));
                terminal.abandon();
                Err(error.into())
            }
        }
    }
}

/// Where a command runs, and whether the place ends with it.
#[derive(Debug)]
struct Place {
    sandbox: Arc<Sandbox>,
    tenancy: Tenancy,
}

impl Place {
    /// Leaves nothing of a sandbox that was the terminal's own.
    async fn vacate(self, grace: Duration) {
        match self.tenancy {
            Tenancy::Shared => {}
            Tenancy::Sole => self.sandbox.shut_down(grace).await,
        }
    }
}

/// Permitted, and the sandbox answers.
#[derive(Debug)]
pub(super) struct Prepared {
    terminal: Arc<Terminal>,
    permit: Permit,
    secrets: Secrets,
    veil: Veil,
    place: Place,
    _entered: Entered,
    unwritten: Option<Record>,
    command_in: CommandIn,
}

impl Prepared {
    /// Gives the permit up for the command. Afterwards the terminal runs, or never was. Nothing is asked of the
    /// sandbox before the journal says that it will be.
    pub(super) async fn spawn(self) -> Result<Arc<Terminal>, CreateError> {
        let Self { terminal, permit, secrets, veil, place, _entered, unwritten, command_in } = self;
        // Before the journal: what it says was begun has an end, whatever becomes of the gateway and the sandbox.
        if let Err(error) = terminal.roll().begin(&terminal, place.sandbox.id()) {
            unwritten.iter().for_each(|decision| terminal.recorder.note(decision));
            terminal.recorder.note(&records::not_kept(&terminal, &error));
            terminal.abandon();
            place.vacate(Duration::ZERO).await;
            return Err(CreateError::Keep(error));
        }
        failpoint::reach("create.enrolled");
        let mut spawn = records::spawn(&terminal, permit.order(), &place.sandbox, command_in);
        veil.cover(&mut spawn);
        covering::mask(&mut spawn, secrets.masker());
        if let Err(unrecorded) = terminal.record_before(unwritten.iter().chain([&spawn])).await {
            terminal.abandon();
            place.vacate(Duration::ZERO).await;
            return Err(unrecorded.into());
        }
        let id = terminal.id.to_string();
        let provisions = Provisions {
            keepsake: keepsake::of(&terminal, &secrets),
            secrets: secrets.environment(),
            margin_bytes: secrets.masker().reach() as u64,
        };
        failpoint::reach("create.recorded");
        let begun = Instant::now();
        match place.sandbox.spawn(id, permit, provisions, terminal.clone()).await {
            Ok(spawned) => {
                terminal.counters.steps.spawn.took(begun.elapsed());
                let live = Live {
                    started: spawned.started,
                    stdout: spawned.stdout,
                    stderr: spawned.stderr,
                    sandbox: place.sandbox.clone(),
                    masker: secrets.masker().clone(),
                };
                terminal.start(Running { place }, live);
                failpoint::reach("create.started");
                Ok(terminal)
            }
            Err(refused) => {
                let mut not_spawned = records::not_spawned(&terminal, &refused);
                veil.cover(&mut not_spawned);
                terminal.recorder.note(&not_spawned);
                terminal.abandon();
                place.vacate(Duration::ZERO).await;
                Err(refused.into())
            }
        }
    }
}

/// Exec has succeeded: the supervisor holds the process.
#[derive(Debug)]
pub(super) struct Running {
    place: Place,
}

impl Running {
    /// A command that a gateway before this one has started: that one held the permit.
    pub(super) fn adopted(sandbox: Arc<Sandbox>, tenancy: Tenancy) -> Self {
        Self { place: Place { sandbox, tenancy } }
    }

    /// The end, as it came to be known.
    pub(super) fn exited(self, end: CommandEnd, terminal: &Terminal) -> Exited {
        let started = terminal.live().map(|live| &live.started);
        let mut outcome = match end {
            CommandEnd::Reported(exit) => outcome::reported(&exit),
            CommandEnd::SandboxLost { survivors } => {
                outcome::lost(started, terminal.ends_for(), survivors, SystemTime::now())
            }
        };
        workspace::tell(terminal, &mut outcome);
        Exited { place: Some(self.place), outcome: Arc::new(outcome) }
    }
}

/// Ended, with its outcome. The output is still here, unless its sandbox ended while no gateway was there.
#[derive(Debug)]
pub(super) struct Exited {
    place: Option<Place>,
    outcome: Arc<Outcome>,
}

impl Exited {
    /// The end of a command whose sandbox was gone before this gateway came.
    pub(super) fn without_trace(outcome: Outcome) -> Self {
        Self { place: None, outcome: Arc::new(outcome) }
    }

    /// What every waiter gets.
    pub(super) fn outcome(&self) -> &Arc<Outcome> {
        &self.outcome
    }

    /// Frees what the supervisor keeps, and the sandbox when it was the terminal's own.
    pub(super) async fn release(self, terminal: &Terminal) -> Released {
        match self.place {
            None => {}
            Some(place) if place.tenancy == Tenancy::Sole => place.vacate(Duration::ZERO).await,
            // A sandbox that has gone has nothing to forget.
            Some(place) => drop(place.sandbox.forget(terminal.id.to_string()).await),
        }
        terminal.roll().forget(terminal.id);
        Released { outcome: self.outcome }
    }
}

/// Nothing is left but how it ended.
#[derive(Debug)]
pub(super) struct Released {
    pub outcome: Arc<Outcome>,
}
