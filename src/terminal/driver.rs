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
    time::{Duration, SystemTime},
};

use tokio::sync::broadcast;

use super::{
    OnAsk,
    counters::Counters,
    holds::{Audience, Waits},
    judging, keepsake, outcome,
    quota::{Ledger, QuotaReached},
    secrets::{SecretError, Secrets},
    terminal::{Live, NewTerminal, Summary, Terminal},
};
use crate::{
    approval::Wanted,
    policy::{self, Denial, Overflow, Permit, PolicySet, Program, Question, Request},
    proto::{supervisor::Started, v1::Outcome},
    sandbox::{
        handle::{CommandEnd, Sandbox, SpawnRefused, StartError},
        programs::Remembered,
        spawn_request::Provisions,
    },
    session::{Entered, Session, Site, Tenancy},
};

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
}

impl Requested {
    /// Policy judges; with a person's yes, where there is one.
    pub(super) fn judge(
        &mut self,
        policy: &PolicySet,
        remembered: &Remembered,
        yes: Option<policy::Approval>,
    ) -> Result<Permit, Denial> {
        judging::judge(policy, &self.session, &mut self.request, remembered, yes)
    }

    /// What a person is to be asked.
    pub(super) fn wanted(&self, question: Question) -> Wanted {
        Wanted {
            principal: self.session.principal,
            session: self.session.id,
            question,
            program: self.request.program.clone(),
            cwd: self.request.cwd.to_string(),
            profile: self.request.profile.clone().unwrap_or_default(),
            env_names: self.request.env.iter().map(|entry| entry.name().to_owned()).collect(),
            request_id: self.request_id.clone(),
        }
    }

    /// The books give a place to what policy permits.
    pub(super) fn authorize(
        self,
        permit: Permit,
        ledger: &Arc<Ledger>,
        counters: &Arc<Counters>,
        changes: &broadcast::Sender<Arc<Terminal>>,
    ) -> Result<Authorized, QuotaReached> {
        let order = permit.order();
        let streams = if order.streams() == policy::Streams::Split { 2 } else { 1 };
        let reserved_bytes = order.output_limit_bytes().saturating_mul(streams);
        let reservation = ledger.reserve(&self.session, reserved_bytes)?;
        let summary = summarize(&self, &permit);
        counters.created();
        let terminal = Terminal::new(NewTerminal {
            session: self.session,
            summary,
            request_id: self.request_id,
            reservation,
            counters: counters.clone(),
            changes: changes.clone(),
        });
        Ok(Authorized { terminal, permit, secrets: Secrets::default(), entered: self.entered })
    }
}

fn summarize(requested: &Requested, permit: &Permit) -> Summary {
    let order = permit.order();
    let (command, args) = match &requested.request.program {
        Program::Command { command, args } => (command.clone(), args.clone()),
        Program::ShellLine(line) => (line.clone(), Vec::new()),
    };
    Summary {
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
    entered: Entered,
}

impl Authorized {
    /// What is secret in its environment is read. Before a sandbox is brought up, which may be for nothing.
    pub(super) fn with_secrets(self) -> Result<Self, SecretError> {
        match Secrets::read(self.permit.order().secrets()) {
            Ok(secrets) => Ok(Self { secrets, ..self }),
            Err(error) => {
                self.terminal.abandon();
                Err(error)
            }
        }
    }

    /// The sandbox is up, or is brought up.
    pub(super) async fn prepare(self, site: &Site) -> Result<Prepared, Arc<StartError>> {
        let Self { terminal, permit, secrets, entered } = self;
        match terminal.session.sandbox_for(site, permit.order()).await {
            Ok((sandbox, tenancy)) => {
                let place = Place { sandbox, tenancy };
                Ok(Prepared { terminal, permit, secrets, place, _entered: entered })
            }
            Err(error) => {
                terminal.abandon();
                Err(error)
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
    place: Place,
    _entered: Entered,
}

impl Prepared {
    /// Gives the permit up for the command. Afterwards the terminal runs, or never was.
    pub(super) async fn spawn(self) -> Result<Arc<Terminal>, SpawnRefused> {
        let Self { terminal, permit, secrets, place, _entered } = self;
        let id = terminal.id.to_string();
        let provisions = Provisions {
            keepsake: keepsake::of(&terminal, &secrets),
            secrets: secrets.environment(),
            margin_bytes: secrets.masker().reach() as u64,
        };
        match place.sandbox.spawn(id, permit, provisions, terminal.clone()).await {
            Ok(spawned) => {
                let live = Live {
                    started: spawned.started,
                    stdout: spawned.stdout,
                    stderr: spawned.stderr,
                    sandbox: place.sandbox.clone(),
                    masker: secrets.masker().clone(),
                };
                terminal.start(Running { place }, live);
                Ok(terminal)
            }
            Err(refused) => {
                terminal.abandon();
                place.vacate(Duration::ZERO).await;
                Err(refused)
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
    /// The end, as it came to be known.
    pub(super) fn exited(self, end: CommandEnd, started: Option<&Started>) -> Exited {
        let outcome = match end {
            CommandEnd::Reported(exit) => outcome::reported(&exit),
            CommandEnd::SandboxLost => outcome::lost(started, SystemTime::now()),
        };
        Exited { place: self.place, outcome: Arc::new(outcome) }
    }
}

/// Ended, with its outcome. The output is still here.
#[derive(Debug)]
pub(super) struct Exited {
    place: Place,
    outcome: Arc<Outcome>,
}

impl Exited {
    /// What every waiter gets.
    pub(super) fn outcome(&self) -> &Arc<Outcome> {
        &self.outcome
    }

    /// Frees what the supervisor keeps, and the sandbox when it was the terminal's own.
    pub(super) async fn release(self, terminal: &Terminal) -> Released {
        match self.place.tenancy {
            // A sandbox that has gone has nothing to forget.
            Tenancy::Shared => drop(self.place.sandbox.forget(terminal.id.to_string()).await),
            Tenancy::Sole => self.place.vacate(Duration::ZERO).await,
        }
        Released { outcome: self.outcome }
    }
}

/// Nothing is left but how it ended.
#[derive(Debug)]
pub(super) struct Released {
    pub outcome: Arc<Outcome>,
}
