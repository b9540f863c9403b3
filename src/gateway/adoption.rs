//! Taking back what a gateway before this one has left: its sessions, their sandboxes, their terminals.
//!
//! Done before anything is served, many sandboxes at once. What cannot be taken back is left exactly as it is,
//! and said: in the log, and in the list that `provost doctor` shows. Only what is proven dead is taken away.

use std::{
    collections::{HashMap, HashSet},
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Instant,
};

use tokio::{sync::Semaphore, task::JoinSet};

use super::{
    ServeError,
    quarantine::{self, Kind, Quarantined},
    state::State,
};
use crate::{
    sandbox::{
        adopt::{self, AdoptError, Approached, Found},
        leftover::{self, EndError},
    },
    session::{Session, Sessions},
    terminal::{Fates, Terminals, closing},
};

/// Sandboxes that are asked at once.
const AT_ONCE: usize = 64;

/// Takes back everything that can be. Answers when all of it is there again.
pub(super) async fn adopt(
    state: &State,
    sessions: &Arc<Sessions>,
    terminals: &Arc<Terminals>,
) -> Result<TakenBack, ServeError> {
    let begun = Instant::now();
    let failed = |source| ServeError::State { path: state.folder.clone(), source };
    let mut quarantined = Vec::new();
    let restored = {
        let sessions = sessions.clone();
        let restored = tokio::task::spawn_blocking(move || sessions.restore()).await;
        restored.map_err(io::Error::other).and_then(|restored| restored).map_err(failed)?
    };
    let mut names: HashSet<String> = HashSet::new();
    for (name, error) in restored.refused {
        quarantined.push(Quarantined::new(Kind::Session, name.clone(), &error));
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
        quarantined.push(Quarantined::because(Kind::Roll, name, why));
    }
    let by_id: HashMap<String, Arc<Session>> =
        restored.sessions.iter().map(|session| (session.id.to_string(), session.clone())).collect();

    let (mut adopted, mut dead) = (0, 0);
    let mut fates = Fates::default();
    let mut written = terminals.recorder().written_ends();
    let mut asked = ask_all(state.sandboxes().map_err(failed)?);
    while let Some(joined) = asked.join_next().await {
        let (folder, found) = joined.map_err(|error| failed(io::Error::other(error)))?;
        match found {
            Ok(Asked::Alive(found)) => match by_id.get(&found.facts.holder.session_id) {
                Some(session) => match terminals.adopt(session, *found, &mut written) {
                    Ok(count) => {
                        fates.alive.insert(State::name_of(&folder));
                        adopted += count;
                    }
                    Err(error) => {
                        quarantined.push(Quarantined::new(Kind::Sandbox, State::name_of(&folder), &error));
                    }
                },
                None => quarantined.push(Quarantined::because(
                    Kind::Sandbox,
                    State::name_of(&folder),
                    format!("its session {:?} is not there", found.facts.holder.session_id),
                )),
            },
            Ok(Asked::Removed) => dead += 1,
            Err(refused) => {
                quarantined.push(Quarantined::new(Kind::Sandbox, State::name_of(&folder), &refused))
            }
        }
    }
    let unknown = quarantined.iter().filter(|one| one.kind == Kind::Sandbox);
    fates.unknown.extend(unknown.map(|one| one.id.clone()));
    let mut lost = 0;
    for session in &restored.sessions {
        lost += terminals.settle_roll(session, &fates, &mut written);
    }
    for session in &restored.sessions {
        watch_owner(sessions, terminals, session);
    }
    let is_known = |id: &str| state.folder.join("sandboxes").join(id).exists();
    for sandbox in terminals.site().host.sweep_groups(&state.folder, is_known) {
        tracing::error!(sandbox.id = %sandbox, "something runs in the group of a sandbox that has no folder: it is left alone");
    }
    quarantine::report(&state.folder, &quarantined);
    let left = |kind| quarantined.iter().filter(|one| one.kind == kind).count();
    let taken_back =
        TakenBack { sandboxes_quarantined: left(Kind::Sandbox), sessions_quarantined: left(Kind::Session) };
    let sandboxes = fates.alive.len();
    if !restored.sessions.is_empty() || sandboxes + dead > 0 {
        tracing::info!(
            sessions = restored.sessions.len(),
            sandboxes,
            terminals = adopted,
            sandboxes.dead = dead,
            terminals.lost = lost,
            quarantined = quarantined.len(),
            ms = begun.elapsed().as_millis() as u64,
            "taken back from the gateway before"
        );
    }
    Ok(taken_back)
}

/// What could not be taken back, and was left as it is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct TakenBack {
    pub sandboxes_quarantined: usize,
    pub sessions_quarantined: usize,
}

/// What came of a folder.
enum Asked {
    /// A sandbox that answers.
    Alive(Box<Approached>),
    /// It was dead, and nothing of it is left.
    Removed,
}

/// Why a folder stays as it is.
#[derive(Debug, thiserror::Error)]
enum Refused {
    /// It may be alive.
    #[error(transparent)]
    Adopt(#[from] AdoptError),
    /// It is dead, and cannot be taken away.
    #[error(transparent)]
    End(#[from] EndError),
    /// No thread could look at it.
    #[error("look at the sandbox")]
    Look(#[source] tokio::task::JoinError),
}

fn ask_all(folders: Vec<PathBuf>) -> JoinSet<(PathBuf, Result<Asked, Refused>)> {
    let turns = Arc::new(Semaphore::new(AT_ONCE));
    let mut asked = JoinSet::new();
    for folder in folders {
        let turns = turns.clone();
        asked.spawn(async move {
            // Never closed: at worst all come at once.
            let _turn = turns.acquire_owned().await;
            let found = ask(&folder).await;
            (folder, found)
        });
    }
    asked
}

async fn ask(folder: &Path) -> Result<Asked, Refused> {
    match adopt::approach(folder).await? {
        Found::Alive(found) => Ok(Asked::Alive(found)),
        Found::Dead(_) => {
            let sandbox = State::name_of(folder);
            tracing::warn!(sandbox.id = %sandbox, "a sandbox has ended while no gateway was there");
            let folder = folder.to_owned();
            let ended = tokio::task::spawn_blocking(move || leftover::end(&folder)).await;
            ended.map_err(Refused::Look)??;
            Ok(Asked::Removed)
        }
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

    fn name_of(folder: &Path) -> String {
        folder.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }
}
