//! Terminals that a gateway before this one has started, taken in as they are found.
//!
//! Each has the id, the owner, the output and the end that it had; nothing is judged again. What was done for a caller
//! that cannot come back, a run, ends as when that caller goes away. What stands on a session's roll and has no sandbox
//! any more ended with it.

use std::{
    collections::{HashMap, HashSet},
    io,
    sync::Arc,
    time::{Duration, SystemTime},
};

use super::{
    TerminalId, Terminals, WrittenEnds,
    driver::Running,
    holds::Waits,
    keepsake::{self, KeepsakeError, Remembered},
    outcome,
    roll::{Entry, RollError},
    terminal::{Live, NewTerminal, Recording, Terminal},
    workspace,
};
use crate::{
    policy::Streams,
    proto::supervisor::{Exit, StopCause},
    sandbox::{
        adopt::Approached,
        handle::{CommandEnd, Listener},
        spec::Tenancy,
    },
    session::Session,
};

/// Between TERM and KILL of a sandbox of its own in which there is nothing.
const EMPTY_GRACE: Duration = Duration::ZERO;

/// What has become of the sandboxes of the gateway before.
#[derive(Debug)]
pub struct Fates {
    /// Taken back.
    pub alive: HashSet<String>,
    /// Left as they are: they may be alive.
    pub unknown: HashSet<String>,
    /// Ended, and nothing of them is left.
    pub gone: HashSet<String>,
    others: Others,
}

/// What has become of sandboxes that were not looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Others {
    /// There are none: all were looked at.
    Gone,
    /// They are as they were.
    NotLookedAt,
}

impl Fates {
    /// Of none yet.
    #[must_use]
    pub fn new(others: Others) -> Self {
        Self { alive: HashSet::new(), unknown: HashSet::new(), gone: HashSet::new(), others }
    }

    fn is_gone(&self, sandbox_id: &str) -> bool {
        let is_listed = self.alive.contains(sandbox_id) || self.unknown.contains(sandbox_id);
        self.gone.contains(sandbox_id) || (self.others == Others::Gone && !is_listed)
    }
}

/// Why a sandbox is not taken in. It is as it was.
#[derive(Debug, thiserror::Error)]
pub enum AdoptError {
    /// What it calls a terminal has no terminal's id.
    #[error("{0:?} is no terminal's id")]
    Id(String),
    /// What is known of a terminal cannot be read.
    #[error("what is known of {0}")]
    Keepsake(TerminalId, #[source] KeepsakeError),
}

/// What has become of what a terminal wrote.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Output {
    Held,
    Lost,
}

impl Terminals {
    /// Takes in a sandbox of a session, with all that it holds. How many terminals there were.
    ///
    /// # Errors
    /// [`AdoptError`]: nothing was taken in.
    pub fn adopt(
        self: &Arc<Self>,
        session: &Arc<Session>,
        mut found: Approached,
        written: &mut WrittenEnds,
    ) -> Result<usize, AdoptError> {
        let mut recalled = Vec::with_capacity(found.held.len());
        for held in std::mem::take(&mut found.held) {
            let id = TerminalId::parse(&held.id).ok_or_else(|| AdoptError::Id(held.id.clone()))?;
            let remembered =
                keepsake::read(&held.keepsake).map_err(|error| AdoptError::Keepsake(id, error))?;
            let masker = remembered.masker.clone();
            recalled.push((self.recall(session, id, remembered, Output::Held), held, masker));
        }
        let listener =
            |terminal: &Arc<Terminal>| (terminal.id.to_string(), terminal.clone() as Arc<dyn Listener>);
        let listeners: HashMap<_, _> = recalled.iter().map(|(terminal, ..)| listener(terminal)).collect();
        let facts = found.facts.clone();
        let site = self.site();
        let sandbox = found.take_over(&site.host, session.principal.uid, listeners, &site.sandboxes);
        let count = recalled.len();
        for (terminal, held, masker) in recalled {
            if let Err(error) = terminal.roll().begin(&terminal, &facts.id) {
                tracing::error!(terminal.id = %terminal.id, error = %error, "not on its session's roll");
            }
            self.insert(&terminal);
            let live = Live {
                started: held.started,
                stdout: held.stdout,
                stderr: held.stderr,
                sandbox: sandbox.clone(),
                masker,
            };
            self.resume(&terminal, live, held.ended, facts.holder.tenancy, written);
        }
        match facts.holder.tenancy {
            Tenancy::Shared => session.sandboxes.adopt(&facts, sandbox),
            // Its terminal was never spawned, or was released.
            Tenancy::Sole if count == 0 => {
                tokio::spawn(async move { sandbox.shut_down(EMPTY_GRACE).await });
            }
            Tenancy::Sole => {}
        }
        Ok(count)
    }

    /// Reads which terminals a session had, before any of its sandboxes is taken in.
    ///
    /// # Errors
    /// [`RollError`]: some may be missing. The file was put aside.
    pub fn restore_roll(&self, session: &Session) -> Result<(), RollError> {
        self.rolls().restore(session.id).1
    }

    /// Removes the rolls of sessions that are not among these. The names of those that were put aside as damaged.
    ///
    /// # Errors
    /// When the folder cannot be read.
    pub fn tidy_rolls(&self, sessions: &HashSet<String>) -> io::Result<Vec<String>> {
        self.rolls().tidy(sessions)
    }

    /// Settles what stands on a session's roll and was not found in a sandbox, after all sandboxes were looked at. The
    /// commands of those that are gone have ended with them; how many that were.
    pub fn settle_roll(
        self: &Arc<Self>,
        session: &Arc<Session>,
        fates: &Fates,
        written: &mut WrittenEnds,
    ) -> usize {
        let roll = self.rolls().of(session.id);
        let mut lost = 0;
        for (id, entry) in roll.entries() {
            let sandbox_id = &entry.begun.sandbox_id;
            if self.has(id) {
                continue;
            }
            let request_id = entry.begun.terminal.as_ref().map(|record| record.request_id.clone());
            let request_id = request_id.filter(|id| !id.is_empty());
            if fates.unknown.contains(sandbox_id) {
                if let Some(request_id) = request_id {
                    self.withhold(session.id, request_id, id);
                }
            } else if fates.alive.contains(sandbox_id) {
                // Never spawned, or released: its supervisor would know.
                roll.forget(id);
                if let Some(request_id) = request_id {
                    self.withhold_no_more(session.id, request_id);
                }
            } else if fates.is_gone(sandbox_id) {
                match self.mourn(session, id, entry, written) {
                    Ok(()) => lost += 1,
                    // It stays on the roll: another build may read it.
                    Err(error) => {
                        tracing::error!(terminal.id = %id, error = %error, "an ended terminal is not taken back");
                    }
                }
            }
        }
        lost
    }

    /// Takes in a terminal whose sandbox is gone.
    fn mourn(
        self: &Arc<Self>,
        session: &Arc<Session>,
        id: TerminalId,
        entry: Entry,
        written: &mut WrittenEnds,
    ) -> Result<(), KeepsakeError> {
        let outcome = entry.outcome();
        let remembered = keepsake::recall(entry.begun.terminal.unwrap_or_default())?;
        let terminal = self.recall(session, id, remembered, Output::Lost);
        let now = SystemTime::now();
        let since = |at| now.duration_since(at).unwrap_or_default();
        let ended_at = outcome.as_ref().and_then(|outcome| SystemTime::try_from(outcome.ended_at?).ok());
        let recording = match written.has(&id.to_string(), since(ended_at.unwrap_or(terminal.created_at))) {
            true => Recording::Before,
            false => Recording::Now,
        };
        let outcome = outcome.unwrap_or_else(|| outcome::lost(None, None, 0, now));
        self.insert(&terminal);
        terminal.ended_without_trace(outcome, ended_at.map_or(Duration::ZERO, since), recording);
        if terminal.summary.waits == Waits::ForRun {
            self.release_run(&terminal);
        }
        Ok(())
    }

    /// Makes the terminal, which does not know yet where it runs.
    fn recall(
        &self,
        session: &Arc<Session>,
        id: TerminalId,
        remembered: Remembered,
        output: Output,
    ) -> Arc<Terminal> {
        let Remembered { summary, session_id, request_id, created_at, .. } = remembered;
        if session_id != session.id.to_string() {
            // Whose a sandbox is, its record says: a terminal cannot be somebody else's.
            tracing::error!(terminal.id = %id, session.id = %session.id, "the terminal's keepsake names another session");
        }
        let streams = if summary.streams == Streams::Split { 2 } else { 1 };
        let bytes = match output {
            Output::Held => summary.output_limit_bytes.saturating_mul(streams),
            Output::Lost => 0,
        };
        Terminal::new(NewTerminal {
            id,
            created_at,
            session: session.clone(),
            summary,
            request_id,
            reservation: self.ledger().restore(session, bytes),
            roll: self.rolls().of(session.id),
            counters: self.counters().clone(),
            recorder: self.recorder().clone(),
            changes: self.changes_sender().clone(),
        })
    }

    fn resume(
        self: &Arc<Self>,
        terminal: &Arc<Terminal>,
        live: Live,
        ended: Option<(Box<Exit>, Duration)>,
        tenancy: Tenancy,
        written: &mut WrittenEnds,
    ) {
        let sandbox = live.sandbox.clone();
        let told = terminal.roll().outcome(terminal.id);
        let policy = self.policy().current();
        // One that has gone from the policy: as a new profile would be.
        let profile = policy.profile(Some(terminal.summary.profile.as_str()));
        let profile = profile.map_or_else(Arc::default, |(_, profile)| profile.clone());
        workspace::take_up(terminal, &profile, self.workspaces(), told);
        terminal.go_on(Running::adopted(sandbox.clone(), tenancy), live);
        if let Some((exit, ago)) = ended {
            let recording = match written.has(&terminal.id.to_string(), ago) {
                true => Recording::Before,
                false => Recording::Now,
            };
            workspace::look_then(terminal, move |terminal| {
                terminal.ended_before(CommandEnd::Reported(exit), ago, recording);
            });
        }
        match terminal.summary.waits {
            Waits::ForNobody => {}
            // The gateway before may have taken the word that its reader has moved, and not passed it on.
            Waits::ForStream => {
                let id = terminal.id.to_string();
                // A sandbox that is gone has nothing more to write.
                tokio::spawn(async move { sandbox.resume(id).await });
            }
            Waits::ForRun => self.release_run(terminal),
        }
    }

    fn release_run(self: &Arc<Self>, terminal: &Arc<Terminal>) {
        let (this, terminal) = (self.clone(), terminal.clone());
        tokio::spawn(async move {
            tracing::info!(terminal.id = %terminal.id, "the caller of a run is gone: it is stopped");
            // Somebody else's release of it is as good.
            let _ = this.release(&terminal, None, StopCause::Killed).await;
        });
    }
}
