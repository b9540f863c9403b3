//! Scans the directories of sandboxes that another gateway has started, and adopts the sandboxes that are alive.
//!
//! It probes many sandboxes at once. It removes a sandbox only when that is proven dead, and leaves every other one
//! that it cannot adopt as it is.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    sync::Arc,
};

use tokio::{
    sync::Semaphore,
    task::{JoinSet, block_in_place},
};

use super::{
    quarantine::{QuarantineKind, Quarantined},
    state_directory::StateDirectory,
};
use crate::{
    sandbox::{
        adopt::{self, AdoptableSandbox, Discovered},
        adopt_error::SandboxAdoptError,
        stale::{self, RemoveStaleError},
    },
    session::Session,
    terminal::{RecordedExits, SandboxStatuses, Terminals, UncheckedSandboxes},
};

/// The number of sandboxes that are probed at once.
const CONCURRENT_PROBES: usize = 64;

/// The result of a scan of sandboxes.
#[derive(Debug)]
pub(super) struct AdoptionScan {
    /// What has become of each.
    pub(super) statuses: SandboxStatuses,
    /// Those that are left as they are.
    pub(super) quarantined: Vec<Quarantined>,
    /// Terminals that were taken in.
    pub(super) adopted_terminals: usize,
    /// No thread could look at some, whose fate is not known.
    pub(super) failed: Option<tokio::task::JoinError>,
}

impl AdoptionScan {
    /// Scans these directories, and adopts each live sandbox that belongs to a session.
    pub(super) async fn run(
        directories: Vec<PathBuf>,
        unlisted: UncheckedSandboxes,
        sessions: &HashMap<String, Arc<Session>>,
        terminals: &Arc<Terminals>,
        journaled_ends: &mut RecordedExits,
    ) -> Self {
        let mut scan = Self {
            statuses: SandboxStatuses::new(unlisted),
            quarantined: Vec::new(),
            adopted_terminals: 0,
            failed: None,
        };
        let mut probes = probe_all(directories);
        while let Some(joined) = probes.join_next().await {
            match joined {
                Ok((directory, probe)) => {
                    scan.add(StateDirectory::name_of(&directory), probe, sessions, terminals, journaled_ends);
                }
                Err(error) => scan.failed = Some(error),
            }
        }
        scan
    }

    fn add(
        &mut self,
        id: String,
        probe: Result<Probe, ProbeError>,
        sessions: &HashMap<String, Arc<Session>>,
        terminals: &Arc<Terminals>,
        journaled_ends: &mut RecordedExits,
    ) {
        let entry = match probe {
            Ok(Probe::Removed) => {
                self.statuses.gone.insert(id);
                return;
            }
            Ok(Probe::Alive(found)) => {
                let of = &found.state.assignment.session_id;
                // Nobody may close the session meanwhile.
                match sessions.get(of).and_then(|session| Some((session, session.enter()?))) {
                    None => Quarantined::with_reason(
                        QuarantineKind::Sandbox,
                        id.clone(),
                        format!("its session {of:?} is not there"),
                    ),
                    // It may read the journal.
                    Some((session, _entered)) => {
                        match block_in_place(|| terminals.adopt(session, *found, journaled_ends)) {
                            Ok(count) => {
                                self.adopted_terminals += count;
                                self.statuses.alive.insert(id);
                                return;
                            }
                            Err(error) => Quarantined::new(QuarantineKind::Sandbox, id.clone(), &error),
                        }
                    }
                }
            }
            Err(refused) => Quarantined::new(QuarantineKind::Sandbox, id.clone(), &refused),
        };
        self.statuses.unknown.insert(id);
        self.quarantined.push(entry);
    }
}

/// What came of a directory.
enum Probe {
    /// A sandbox that answers.
    Alive(Box<AdoptableSandbox>),
    /// It was dead, and nothing of it is left.
    Removed,
}

/// Why a directory stays as it is.
#[derive(Debug, thiserror::Error)]
enum ProbeError {
    /// It may be alive.
    #[error(transparent)]
    Adopt(#[from] SandboxAdoptError),
    /// It is dead, and cannot be taken away.
    #[error(transparent)]
    Remove(#[from] RemoveStaleError),
    /// No thread could look at it.
    #[error("look at the sandbox")]
    Thread(#[source] tokio::task::JoinError),
}

fn probe_all(directories: Vec<PathBuf>) -> JoinSet<(PathBuf, Result<Probe, ProbeError>)> {
    let permits = Arc::new(Semaphore::new(CONCURRENT_PROBES));
    let mut probes = JoinSet::new();
    for directory in directories {
        let turns = permits.clone();
        probes.spawn(async move {
            // Never closed: at worst all come at once.
            let _turn = turns.acquire_owned().await;
            let found = probe(&directory).await;
            (directory, found)
        });
    }
    probes
}

async fn probe(directory: &Path) -> Result<Probe, ProbeError> {
    match adopt::discover(directory).await? {
        Discovered::Alive(found) => Ok(Probe::Alive(found)),
        Discovered::Dead(_) => {
            let sandbox = StateDirectory::name_of(directory);
            tracing::warn!(sandbox.id = %sandbox, "a sandbox has ended while no gateway was there");
            let directory = directory.to_owned();
            let ended = tokio::task::spawn_blocking(move || stale::remove(&directory)).await;
            ended.map_err(ProbeError::Thread)??;
            Ok(Probe::Removed)
        }
    }
}
