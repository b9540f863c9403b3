//! Terminals that a gateway before this one has started, taken in as they are found.
//!
//! Each has the id, the owner, the output and the end that it had; nothing is judged again. What was done for a caller
//! that cannot come back, a run, ends as when that caller goes away.

use std::{collections::HashMap, sync::Arc, time::Duration};

use super::{
    TerminalId, Terminals, WrittenEnds,
    driver::Running,
    holds::Waits,
    keepsake::{self, KeepsakeError, Remembered},
    terminal::{Live, NewTerminal, Recording, Terminal},
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
            recalled.push((self.recall(session, id, remembered), held, masker));
        }
        let listener =
            |terminal: &Arc<Terminal>| (terminal.id.to_string(), terminal.clone() as Arc<dyn Listener>);
        let listeners: HashMap<_, _> = recalled.iter().map(|(terminal, ..)| listener(terminal)).collect();
        let facts = found.facts.clone();
        let sandbox = found.take_over(listeners, &self.site().sandboxes);
        let count = recalled.len();
        for (terminal, held, masker) in recalled {
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

    /// Makes the terminal, which does not know yet where it runs.
    fn recall(&self, session: &Arc<Session>, id: TerminalId, remembered: Remembered) -> Arc<Terminal> {
        let Remembered { summary, session_id, request_id, created_at, .. } = remembered;
        if session_id != session.id.to_string() {
            // Whose a sandbox is, its record says: a terminal cannot be somebody else's.
            tracing::error!(terminal.id = %id, session.id = %session.id, "the terminal's keepsake names another session");
        }
        let streams = if summary.streams == Streams::Split { 2 } else { 1 };
        let bytes = summary.output_limit_bytes.saturating_mul(streams);
        Terminal::new(NewTerminal {
            id,
            created_at,
            session: session.clone(),
            summary,
            request_id,
            reservation: self.ledger().restore(session, bytes),
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
        terminal.go_on(Running::adopted(sandbox.clone(), tenancy), live);
        if let Some((exit, ago)) = ended {
            let recording = match written.has(&terminal.id.to_string(), ago) {
                true => Recording::Before,
                false => Recording::Now,
            };
            terminal.ended_before(CommandEnd::Reported(exit), ago, recording);
        }
        match terminal.summary.waits {
            Waits::ForNobody => {}
            // The gateway before may have taken the word that its reader has moved, and not passed it on.
            Waits::ForStream => {
                let id = terminal.id.to_string();
                // A sandbox that is gone has nothing more to write.
                tokio::spawn(async move { sandbox.resume(id).await });
            }
            Waits::ForRun => {
                let (this, terminal) = (self.clone(), terminal.clone());
                tokio::spawn(async move {
                    tracing::info!(terminal.id = %terminal.id, "the caller of a run is gone: it is stopped");
                    // Somebody else's release of it is as good.
                    let _ = this.release(&terminal, None, StopCause::Killed).await;
                });
            }
        }
    }
}
