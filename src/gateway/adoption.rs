//! Restores the sessions, sandboxes and terminals of an earlier gateway.
//!
//! A gateway does this before it serves. It probes many sandboxes at once, and adopts those that are alive. It removes a sandbox only when
//! that is proven dead, and leaves every other one that it cannot adopt as it is, in quarantine: the log and `provost doctor` list it. The
//! gateway scans quarantined sandboxes again once a minute and on SIGHUP, because they may answer by then, or an administrator may have
//! reaped them.

use std::{
    collections::{HashMap, HashSet},
    convert::Infallible,
    io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use tokio::{
    signal::unix::Signal,
    sync::Semaphore,
    task::{JoinSet, block_in_place},
    time::{interval, sleep},
};

use crate::{
    quarantine::{self, QuarantineKind, Quarantined},
    sandbox::{
        restore::{
            adopt::{self, AdoptableSandbox, Discovered},
            handshake::SandboxAdoptError,
            stale::{self, RemoveStaleError},
        },
        roots::governing::GoverningError,
        sandbox_state,
    },
    session::{RestoreError, Session, Sessions},
    state_directory::StateDirectory,
    terminal::{CloseReason, RecordedExits, SandboxStatuses, Terminals, UncheckedSandboxes},
};

/// The time between two scans of the quarantine.
const RESCAN_INTERVAL: Duration = Duration::from_secs(60);
/// How long the cgroup of a reaped sandbox may take to become empty.
const CGROUP_EMPTY_TIMEOUT: Duration = Duration::from_secs(2);
/// The time between two looks at such a cgroup.
const CGROUP_POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Why a gateway cannot take over what an earlier one has left.
#[derive(Debug, thiserror::Error)]
pub enum AdoptionError {
    /// The state directory cannot be read.
    #[error("cannot use the state directory {}", crate::printable::path(path))]
    State {
        /// The directory.
        path: PathBuf,
        /// The reason.
        #[source]
        source: io::Error,
    },
    /// Commands that still run reach what would govern them.
    #[error(
        "session {session} of the gateway before still runs commands, and {error} ({}): end it under the \
         configuration that it was opened under, or with `provost reap --state STATE --all`",
        crate::printable::path(error.governing())
    )]
    Conflict {
        /// The session.
        session: String,
        /// The root, and what it reaches.
        error: GoverningError,
    },
}

/// Restores everything that can be restored.
pub(super) async fn adopt(
    state: &StateDirectory,
    sessions: &Arc<Sessions>,
    terminals: &Arc<Terminals>,
) -> Result<Arc<QuarantineList>, AdoptionError> {
    let start = Instant::now();
    let failed = |source| AdoptionError::State { path: state.directory.clone(), source };
    let restored = {
        let sessions = sessions.clone();
        let restored = tokio::task::spawn_blocking(move || sessions.restore()).await;
        restored.map_err(io::Error::other).and_then(|restored| restored).map_err(failed)?
    };
    let mut quarantined = Vec::new();
    let mut names: HashSet<String> = HashSet::new();
    let mut governing = HashMap::new();
    for (name, error) in restored.refused {
        quarantined.push(Quarantined::new(QuarantineKind::Session, name.clone(), &error));
        if let RestoreError::Governing(error) = error {
            governing.insert(name.clone(), error);
        }
        names.insert(name);
    }
    for session in &restored.sessions {
        names.insert(session.id.to_string());
        if let Err(error) = terminals.adopt_log(session) {
            tracing::error!(session.id = %session.id, error = %error, "some of its terminals may be missing");
        }
    }
    terminals.launch_context().nets.authorities().remove_stale(&names).map_err(failed)?;
    for name in terminals.remove_stale_logs(&names).map_err(failed)? {
        let why = "terminals whose sandbox has ended may be missing from their session".to_owned();
        quarantined.push(Quarantined::with_reason(QuarantineKind::TerminalLog, name, why));
    }

    let mut journaled_ends = terminals.recorder().recorded_exits();
    let directories = state.sandbox_directories().map_err(failed)?;
    let scan = AdoptionScan::run(
        directories,
        UncheckedSandboxes::Gone,
        &by_id(&restored.sessions),
        terminals,
        &mut journaled_ends,
    )
    .await;
    if let Some(error) = scan.failed {
        return Err(failed(io::Error::other(error)));
    }
    // What runs there could rewrite the rules that it is judged by.
    for sandbox in scan.quarantined.iter().filter(|one| one.kind == QuarantineKind::Sandbox) {
        let session_id =
            sandbox_state::read(&sandbox.path(&state.directory)).map(|found| found.assignment.session_id);
        if let Some((session, error)) = session_id.ok().and_then(|holder| governing.remove_entry(&holder)) {
            quarantined.extend(scan.quarantined);
            quarantine::report(&state.directory, &quarantined);
            return Err(AdoptionError::Conflict { session, error });
        }
    }
    quarantined.extend(scan.quarantined);
    let mut lost = 0;
    for session in &restored.sessions {
        lost += terminals.adopt_ended(session, &scan.statuses, &mut journaled_ends);
    }
    for session in &restored.sessions {
        watch_owner(sessions, terminals, session);
    }
    remove_stale_cgroups(&state.directory, terminals).await;
    quarantine::report(&state.directory, &quarantined);
    let (sandboxes, dead_sandboxes) = (scan.statuses.alive.len(), scan.statuses.gone.len());
    if !restored.sessions.is_empty() || sandboxes + dead_sandboxes > 0 {
        tracing::info!(
            sessions = restored.sessions.len(),
            sandboxes,
            terminals = scan.adopted_terminals,
            sandboxes.dead = dead_sandboxes,
            terminals.lost = lost,
            quarantined = quarantined.len(),
            ms = start.elapsed().as_millis() as u64,
            "adopted from the gateway before"
        );
    }
    Ok(Arc::new(QuarantineList { state: state.directory.clone(), entries: Mutex::new(quarantined) }))
}

/// Removes groups of sandboxes that have no directory any more: the process that reaped one may not have known its
/// groups, and saw only that the supervisor closed its socket, a moment before it left its group.
async fn remove_stale_cgroups(state: &Path, terminals: &Terminals) {
    // A directory is made before the groups, and removed after them.
    let is_known = |id: &str| state.join("sandboxes").join(id).exists();
    let deadline = Instant::now() + CGROUP_EMPTY_TIMEOUT;
    let mut occupied = terminals.launch_context().host.sweep_cgroups(state, is_known);
    while !occupied.is_empty() && Instant::now() < deadline {
        sleep(CGROUP_POLL_INTERVAL).await;
        occupied = terminals.launch_context().host.sweep_cgroups(state, is_known);
    }
    // One of each hierarchy.
    occupied.sort();
    occupied.dedup();
    for sandbox in occupied {
        tracing::error!(sandbox.id = %sandbox, "something runs in the group of a sandbox that has no directory: it is left alone");
    }
}

fn by_id(sessions: &[Arc<Session>]) -> HashMap<String, Arc<Session>> {
    sessions.iter().map(|session| (session.id.to_string(), session.clone())).collect()
}

/// What could not be restored so far.
#[derive(Debug)]
pub(super) struct QuarantineList {
    state: PathBuf,
    entries: Mutex<Vec<Quarantined>>,
}

impl QuarantineList {
    /// How many of a kind.
    pub(super) fn count(&self, kind: QuarantineKind) -> usize {
        self.lock().iter().filter(|one| one.kind == kind).count()
    }

    /// Scans the quarantine periodically and on each `hangup`. Never returns.
    pub(super) async fn keep_rescanning(
        self: Arc<Self>,
        sessions: Arc<Sessions>,
        terminals: Arc<Terminals>,
        mut hangup: Signal,
    ) -> Infallible {
        let mut due = interval(RESCAN_INTERVAL);
        // The first one is at once, and was just done.
        due.tick().await;
        loop {
            tokio::select! {
                _ = due.tick() => {}
                _ = hangup.recv() => {}
            }
            self.lock().retain(|one| one.kind == QuarantineKind::Sandbox || one.path(&self.state).exists());
            if self.count(QuarantineKind::Sandbox) > 0 && !terminals.is_draining() {
                self.rescan(&sessions, &terminals).await;
            }
        }
    }

    async fn rescan(&self, sessions: &Arc<Sessions>, terminals: &Arc<Terminals>) {
        let (present, reaped): (Vec<_>, Vec<_>) = {
            let entries = self.lock();
            let sandboxes = entries.iter().filter(|one| one.kind == QuarantineKind::Sandbox);
            sandboxes
                .map(|one| (one.id.clone(), one.path(&self.state)))
                .partition(|(_, directory)| directory.exists())
        };
        let open = sessions.all();
        let mut journaled_ends = terminals.recorder().recorded_exits();
        let directories = present.into_iter().map(|(_, directory)| directory).collect();
        let mut scan = AdoptionScan::run(
            directories,
            UncheckedSandboxes::Unchanged,
            &by_id(&open),
            terminals,
            &mut journaled_ends,
        )
        .await;
        if let Some(error) = scan.failed {
            tracing::error!(error = %error, "cannot scan again for what was not adopted");
            return;
        }
        scan.statuses.gone.extend(reaped.into_iter().map(|(id, _)| id));
        if scan.statuses.alive.is_empty() && scan.statuses.gone.is_empty() {
            return;
        }
        let mut lost = 0;
        for session in &open {
            if let Some(_entered) = session.enter() {
                let adopt_ended = || terminals.adopt_ended(session, &scan.statuses, &mut journaled_ends);
                // It may read the journal.
                lost += tokio::task::block_in_place(adopt_ended);
            }
        }
        remove_stale_cgroups(&self.state, terminals).await;
        let mut entries = self.lock();
        entries.retain(|one| one.kind != QuarantineKind::Sandbox);
        entries.extend(scan.quarantined);
        // A sandbox that is reaped at this moment is listed again until the next scan.
        quarantine::report(&self.state, &entries);
        tracing::info!(
            sandboxes = scan.statuses.alive.len(),
            terminals = scan.adopted_terminals,
            sandboxes.dead = scan.statuses.gone.len(),
            terminals.lost = lost,
            quarantined = entries.len(),
            "adopted at a later scan"
        );
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Quarantined>> {
        self.entries.lock().expect("no code panics while it holds the list of what was left")
    }
}

/// A session that is to end with a process that has ended meanwhile, ends now.
fn watch_owner(sessions: &Arc<Sessions>, terminals: &Arc<Terminals>, session: &Arc<Session>) {
    use crate::session::Lifetime;
    if session.lifetime != Lifetime::OwnerProcess {
        return;
    }
    let (sessions, terminals, session) = (sessions.clone(), terminals.clone(), session.clone());
    let owner = session.reopen_owner();
    let watch = match owner {
        Ok(Some(process)) => terminals.end_session_with_process(sessions.clone(), session.clone(), &process),
        Ok(None) => Err(io::ErrorKind::NotFound.into()),
        Err(error) => Err(error),
    };
    if let Err(error) = watch {
        tracing::info!(session.id = %session.id, error = %error, "the owner's process has ended: the session ends");
        tokio::spawn(async move {
            terminals.close_session(&sessions, &session, CloseReason::OwnerExited, None).await
        });
    }
}

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
        Discovered::Dead => {
            let sandbox = StateDirectory::name_of(directory);
            tracing::warn!(sandbox.id = %sandbox, "a sandbox has ended while no gateway was there");
            let directory = directory.to_owned();
            let ended = tokio::task::spawn_blocking(move || stale::remove(&directory)).await;
            ended.map_err(ProbeError::Thread)??;
            Ok(Probe::Removed)
        }
    }
}
