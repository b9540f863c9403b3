//! Looking at the folders of sandboxes that another gateway has started: which of them live, and taking those in.
//!
//! Many at once. What cannot be taken in is left exactly as it is, and said; only what is proven dead is taken away.

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
    quarantine::{Kind, Quarantined},
    state::State,
};
use crate::{
    sandbox::{
        adopt::{self, AdoptError, Approached, Found},
        leftover::{self, EndError},
    },
    session::Session,
    terminal::{Fates, Others, Terminals, WrittenEnds},
};

/// Sandboxes that are asked at once.
const AT_ONCE: usize = 64;

/// What came of looking at sandboxes.
#[derive(Debug)]
pub(super) struct Look {
    /// What has become of each.
    pub(super) fates: Fates,
    /// Those that are left as they are.
    pub(super) left: Vec<Quarantined>,
    /// Terminals that were taken in.
    pub(super) terminals: usize,
    /// No thread could look at some, whose fate is not known.
    pub(super) failed: Option<tokio::task::JoinError>,
}

impl Look {
    /// Looks at these folders, and takes in what lives and is a session's.
    pub(super) async fn at(
        folders: Vec<PathBuf>,
        others: Others,
        sessions: &HashMap<String, Arc<Session>>,
        terminals: &Arc<Terminals>,
        written: &mut WrittenEnds,
    ) -> Self {
        let mut look = Self { fates: Fates::new(others), left: Vec::new(), terminals: 0, failed: None };
        let mut asked = ask_all(folders);
        while let Some(joined) = asked.join_next().await {
            match joined {
                Ok((folder, asked)) => {
                    look.settle(State::name_of(&folder), asked, sessions, terminals, written);
                }
                Err(error) => look.failed = Some(error),
            }
        }
        look
    }

    fn settle(
        &mut self,
        id: String,
        asked: Result<Asked, Refused>,
        sessions: &HashMap<String, Arc<Session>>,
        terminals: &Arc<Terminals>,
        written: &mut WrittenEnds,
    ) {
        let why = match asked {
            Ok(Asked::Removed) => {
                self.fates.gone.insert(id);
                return;
            }
            Ok(Asked::Alive(found)) => {
                let of = &found.facts.holder.session_id;
                // Nobody may close the session meanwhile.
                match sessions.get(of).and_then(|session| Some((session, session.enter()?))) {
                    None => Quarantined::because(
                        Kind::Sandbox,
                        id.clone(),
                        format!("its session {of:?} is not there"),
                    ),
                    // It may read the journal.
                    Some((session, _entered)) => {
                        match block_in_place(|| terminals.adopt(session, *found, written)) {
                            Ok(count) => {
                                self.terminals += count;
                                self.fates.alive.insert(id);
                                return;
                            }
                            Err(error) => Quarantined::new(Kind::Sandbox, id.clone(), &error),
                        }
                    }
                }
            }
            Err(refused) => Quarantined::new(Kind::Sandbox, id.clone(), &refused),
        };
        self.fates.unknown.insert(id);
        self.left.push(why);
    }
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
