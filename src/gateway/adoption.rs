//! Taking back what a gateway before this one has left: its sessions, their sandboxes, their terminals.
//!
//! Done before anything is served. What cannot be taken back is left exactly as it is, and said: in the log, and in the
//! list that `provost doctor` shows. Sandboxes among it are looked at again, now and then and with SIGHUP: they may
//! answer, or somebody may have reaped them.

use std::{
    collections::{HashMap, HashSet},
    convert::Infallible,
    fs, io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use tokio::{
    signal::unix::Signal,
    time::{interval, sleep},
};

use super::{
    ServeError,
    looking::Look,
    quarantine::{self, Kind, Quarantined},
    state::State,
};
use crate::{
    sandbox::facts,
    session::{RestoreError, Session, Sessions},
    terminal::{Others, Terminals, closing},
};

/// How often what was left is looked at again.
const LOOK_AGAIN: Duration = Duration::from_secs(60);
/// How long the group of a sandbox that was reaped may take to become empty, before it is left alone.
const EMPTY_WITHIN: Duration = Duration::from_secs(2);
/// How often that is looked at.
const EMPTY_EVERY: Duration = Duration::from_millis(20);

/// Takes back everything that can be. Answers when all of it is there again.
pub(super) async fn adopt(
    state: &State,
    sessions: &Arc<Sessions>,
    terminals: &Arc<Terminals>,
) -> Result<Arc<Left>, ServeError> {
    let begun = Instant::now();
    let failed = |source| ServeError::State { path: state.folder.clone(), source };
    let restored = {
        let sessions = sessions.clone();
        let restored = tokio::task::spawn_blocking(move || sessions.restore()).await;
        restored.map_err(io::Error::other).and_then(|restored| restored).map_err(failed)?
    };
    let mut left = Vec::new();
    let mut names: HashSet<String> = HashSet::new();
    let mut governing = HashMap::new();
    for (name, error) in restored.refused {
        left.push(Quarantined::new(Kind::Session, name.clone(), &error));
        if let RestoreError::Governing(error) = error {
            governing.insert(name.clone(), error);
        }
        names.insert(name);
    }
    for session in &restored.sessions {
        names.insert(session.id.to_string());
        if let Err(error) = terminals.restore_roll(session) {
            tracing::error!(session.id = %session.id, error = %error, "some of its terminals may be missing");
        }
    }
    for name in terminals.tidy_rolls(&names).map_err(failed)? {
        let why = "terminals whose sandbox has ended may be missing from their session".to_owned();
        left.push(Quarantined::because(Kind::Roll, name, why));
    }

    let mut written = terminals.recorder().written_ends();
    let folders = state.sandboxes().map_err(failed)?;
    let look = Look::at(folders, Others::Gone, &by_id(&restored.sessions), terminals, &mut written).await;
    if let Some(error) = look.failed {
        return Err(failed(io::Error::other(error)));
    }
    // What runs there could rewrite the rules that it is judged by.
    for sandbox in look.left.iter().filter(|one| one.kind == Kind::Sandbox) {
        let holder = facts::read(&sandbox.place(&state.folder)).map(|facts| facts.holder.session_id);
        if let Some((session, error)) = holder.ok().and_then(|holder| governing.remove_entry(&holder)) {
            left.extend(look.left);
            quarantine::report(&state.folder, &left);
            return Err(ServeError::Adopted { session, error });
        }
    }
    left.extend(look.left);
    let mut lost = 0;
    for session in &restored.sessions {
        lost += terminals.settle_roll(session, &look.fates, &mut written);
    }
    for session in &restored.sessions {
        watch_owner(sessions, terminals, session);
    }
    sweep_groups(&state.folder, terminals).await;
    quarantine::report(&state.folder, &left);
    let (sandboxes, dead) = (look.fates.alive.len(), look.fates.gone.len());
    if !restored.sessions.is_empty() || sandboxes + dead > 0 {
        tracing::info!(
            sessions = restored.sessions.len(),
            sandboxes,
            terminals = look.terminals,
            sandboxes.dead = dead,
            terminals.lost = lost,
            quarantined = left.len(),
            ms = begun.elapsed().as_millis() as u64,
            "taken back from the gateway before"
        );
    }
    Ok(Arc::new(Left { state: state.folder.clone(), all: Mutex::new(left) }))
}

/// Removes groups of sandboxes that have no folder any more: whoever reaped one may not have known its groups, and saw
/// only that its supervisor closed its socket, which is a moment before that has left its group.
async fn sweep_groups(state: &Path, terminals: &Terminals) {
    // A folder is made before the groups, and removed after them.
    let is_known = |id: &str| state.join("sandboxes").join(id).exists();
    let deadline = Instant::now() + EMPTY_WITHIN;
    let mut occupied = terminals.site().host.sweep_groups(state, is_known);
    while !occupied.is_empty() && Instant::now() < deadline {
        sleep(EMPTY_EVERY).await;
        occupied = terminals.site().host.sweep_groups(state, is_known);
    }
    // One of each hierarchy.
    occupied.sort();
    occupied.dedup();
    for sandbox in occupied {
        tracing::error!(sandbox.id = %sandbox, "something runs in the group of a sandbox that has no folder: it is left alone");
    }
}

fn by_id(sessions: &[Arc<Session>]) -> HashMap<String, Arc<Session>> {
    sessions.iter().map(|session| (session.id.to_string(), session.clone())).collect()
}

/// What could not be taken back so far.
#[derive(Debug)]
pub(super) struct Left {
    state: PathBuf,
    all: Mutex<Vec<Quarantined>>,
}

impl Left {
    /// How many of a kind.
    pub(super) fn count(&self, kind: Kind) -> usize {
        self.lock().iter().filter(|one| one.kind == kind).count()
    }

    /// Looks again at the sandboxes, now and then and with each `hangup`. Never ends.
    pub(super) async fn look_again(
        self: Arc<Self>,
        sessions: Arc<Sessions>,
        terminals: Arc<Terminals>,
        mut hangup: Signal,
    ) -> Infallible {
        let mut due = interval(LOOK_AGAIN);
        // The first one is at once, and was just done.
        due.tick().await;
        loop {
            tokio::select! {
                _ = due.tick() => {}
                _ = hangup.recv() => {}
            }
            self.lock().retain(|one| one.kind == Kind::Sandbox || one.place(&self.state).exists());
            if self.count(Kind::Sandbox) > 0 && !terminals.is_draining() {
                self.look(&sessions, &terminals).await;
            }
        }
    }

    async fn look(&self, sessions: &Arc<Sessions>, terminals: &Arc<Terminals>) {
        let (there, reaped): (Vec<_>, Vec<_>) = {
            let all = self.lock();
            let sandboxes = all.iter().filter(|one| one.kind == Kind::Sandbox);
            sandboxes
                .map(|one| (one.id.clone(), one.place(&self.state)))
                .partition(|(_, folder)| folder.exists())
        };
        let open = sessions.all();
        let mut written = terminals.recorder().written_ends();
        let folders = there.into_iter().map(|(_, folder)| folder).collect();
        let mut look = Look::at(folders, Others::NotLookedAt, &by_id(&open), terminals, &mut written).await;
        if let Some(error) = look.failed {
            tracing::error!(error = %error, "cannot look again at what was not taken back");
            return;
        }
        look.fates.gone.extend(reaped.into_iter().map(|(id, _)| id));
        if look.fates.alive.is_empty() && look.fates.gone.is_empty() {
            return;
        }
        let mut lost = 0;
        for session in &open {
            if let Some(_entered) = session.enter() {
                let settle = || terminals.settle_roll(session, &look.fates, &mut written);
                // It may read the journal.
                lost += tokio::task::block_in_place(settle);
            }
        }
        sweep_groups(&self.state, terminals).await;
        let mut all = self.lock();
        all.retain(|one| one.kind != Kind::Sandbox);
        all.extend(look.left);
        // What somebody reaps at this moment comes back on the list until the next look.
        quarantine::report(&self.state, &all);
        tracing::info!(
            sandboxes = look.fates.alive.len(),
            terminals = look.terminals,
            sandboxes.dead = look.fates.gone.len(),
            terminals.lost = lost,
            quarantined = all.len(),
            "taken back at another look"
        );
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Quarantined>> {
        self.all.lock().expect("no code panics while it holds the list of what was left")
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
    let watched = match owner {
        Ok(Some(process)) => {
            closing::end_with_process(terminals.clone(), sessions.clone(), session.clone(), &process)
        }
        Ok(None) => Err(io::ErrorKind::NotFound.into()),
        Err(error) => Err(error),
    };
    if let Err(error) = watched {
        tracing::info!(session.id = %session.id, error = %error, "the owner's process has ended: the session ends");
        tokio::spawn(async move {
            closing::close(&terminals, &sessions, &session, closing::Why::OwnerGone, None).await
        });
    }
}

impl State {
    /// The folders of all sandboxes.
    fn sandboxes(&self) -> io::Result<Vec<PathBuf>> {
        let entries = match fs::read_dir(self.folder.join("sandboxes")) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let mut folders = Vec::new();
        for entry in entries {
            folders.push(entry?.path());
        }
        folders.sort();
        Ok(folders)
    }

    pub(super) fn name_of(folder: &Path) -> String {
        folder.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }
}
