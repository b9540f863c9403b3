//! Workspaces, watched for changes by which a command's code would be run outside its sandbox, later, by people's tools:
//! git's configuration and hooks, links between repositories, tools' own files.
//!
//! What can be read-only is (`sandbox/protected`); this is about what everyday git writes, and about what does not exist
//! yet. A workspace that several sessions share is watched once. Knows nothing of terminals; stops no command.

mod budget;
mod control;
mod eyes;
mod follow;
mod gitconfig;
mod known;
mod notice;
mod queue;
mod todo;
mod tools;
mod tree;
mod walk;
mod watch;

use std::{
    collections::{HashMap, HashSet},
    io,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard},
};

use nix::sys::stat::fstat;

pub use eyes::{Action, Change};
pub use queue::Ending;
pub use watch::{Observer, Settling, Watch};

use budget::Budget;
use eyes::Eyes;
use known::Store;
use tree::Tree;

/// The most workspaces that are watched at a time: each has a thread.
pub const WATCHED_MAX: usize = 2_048;
/// The most of one owner.
pub const WATCHED_PER_OWNER: usize = 128;

/// A root to watch.
#[derive(Debug)]
pub struct Root<'a> {
    /// Absolute, without links.
    pub path: &'a Path,
    /// Open.
    pub descriptor: &'a OwnedFd,
    /// Whose files they are, by user and group.
    pub owner: (u32, u32),
}

/// Why a workspace is not watched.
#[derive(Debug, thiserror::Error)]
pub enum WatchError {
    /// The bound is reached.
    #[error("{max} workspaces are watched, the most there may be")]
    TooMany {
        /// Which bound.
        name: &'static str,
        /// Its value.
        max: usize,
    },
    /// No thread or descriptor can be had.
    #[error("watch the workspace")]
    System(#[from] io::Error),
}

/// By device and inode, and by owner: another one's rights are others.
type Key = (u64, u64, u32);

/// All workspaces that are watched.
#[derive(Debug)]
pub struct Workspaces {
    watched: Mutex<HashMap<Key, Watched>>,
    budget: Arc<Budget>,
    /// Where what is known is written down for the next gateway.
    state: Option<PathBuf>,
}

#[derive(Debug)]
struct Watched {
    watch: Arc<Watch>,
    sessions: HashSet<String>,
}

impl Workspaces {
    /// None yet. `state`: the gateway's own directory, where another gateway may follow this one.
    pub fn new(state: Option<&Path>) -> Self {
        Self {
            watched: Mutex::default(),
            budget: Budget::of_host(),
            state: state.map(|state| state.join("workspaces")),
        }
    }

    /// Watches a root for a session; the same one as before, where it is watched.
    ///
    /// # Errors
    /// [`WatchError`].
    pub fn watch(&self, root: &Root<'_>, session: &str) -> Result<Arc<Watch>, WatchError> {
        let key = key(root)?;
        let mut watched = self.lock();
        if let Some(watched) = watched.get_mut(&key) {
            if !watched.sessions.contains(session) {
                watched.sessions.insert(session.to_owned());
            }
            return Ok(watched.watch.clone());
        }
        let owner = root.owner.0;
        let of_owner = watched.keys().filter(|(_, _, uid)| *uid == owner).count();
        for (name, count, max) in [
            ("workspaces_per_principal", of_owner, WATCHED_PER_OWNER),
            ("workspaces", watched.len(), WATCHED_MAX),
        ] {
            if count >= max {
                return Err(WatchError::TooMany { name, max });
            }
        }
        let store = self.state.as_ref().map(|state| Store::new(state, key));
        let known = store.as_ref().and_then(Store::read);
        let tree = Tree::new(root.path.to_owned(), root.descriptor.try_clone()?);
        let watch =
            Arc::new(Watch::start(Eyes::new(tree, self.budget.instance(owner), known), root.owner, store)?);
        watched.insert(key, Watched { watch: watch.clone(), sessions: HashSet::from([session.to_owned()]) });
        Ok(watch)
    }

    /// The rests of looks that were cut short, of the workspaces that only this session has.
    pub fn finish(&self, session: &str) -> Vec<Settling> {
        let watched = self.lock();
        let own = watched.values().filter(|one| one.sessions.len() == 1 && one.sessions.contains(session));
        own.filter_map(|one| one.watch.finish()).collect()
    }

    /// A session has ended. A workspace without one is not watched any more, and what is known of it is forgotten.
    pub fn forget(&self, session: &str, roots: &[Root<'_>]) {
        let mut watched = self.lock();
        watched.retain(|_, watched| {
            watched.sessions.remove(session);
            if watched.sessions.is_empty() {
                watched.watch.forget();
            }
            !watched.sessions.is_empty()
        });
        // A gateway before this one may have left something of a root in which nothing was run since.
        let Some(state) = &self.state else { return };
        for key in roots.iter().filter_map(|root| key(root).ok()) {
            if !watched.contains_key(&key) {
                Store::new(state, key).forget();
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Watched>> {
        self.watched.lock().expect("no code panics while it holds the table of workspaces")
    }
}

fn key(root: &Root<'_>) -> Result<Key, io::Error> {
    let stat = fstat(root.descriptor)?;
    Ok((stat.st_dev, stat.st_ino, root.owner.0))
}
