//! Watches workspaces for dangerous changes: those by which people's tools would later run a command's code outside its
//! sandbox (git's configuration and hooks, links between repositories, files of other tools).
//!
//! Files that can be read-only are read-only in the sandbox. This module is about files that everyday git writes, and about
//! files that do not exist yet. A workspace that several sessions share is watched once. It knows nothing of terminals and
//! stops no command.
//!
//! `watcher` is the handle, `watcher_thread` scans with a `scanner`, `inspection` says what of it are control files, and
//! `integrity_checker` compares what is found with the baseline and acts on it.

mod baseline_store;
mod command_files;
mod config_references;
mod config_rules;
mod control_files;
mod following;
mod git_state;
pub(crate) mod gitconfig;
mod inotify_events;
mod inspection;
mod integrity_checker;
mod links;
mod path_age;
mod queue;
mod repositories;
mod scan_queue;
mod scanner;
#[cfg(test)]
mod tests;
mod tool_paths;
mod tree;
mod watcher;
mod watcher_thread;

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    io,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard},
};

use nix::sys::stat::fstat;

pub(crate) use gitconfig::{ConfigEntry, config_entries, last_value, worktrees};
pub(crate) use integrity_checker::{ChangeAction, DangerousChange};
pub(crate) use queue::Completion;
pub(crate) use queue::Observer;
pub(crate) use watcher::{ScanWaiter, Watcher};

use baseline_store::BaselineStore;
use inotify_events::InotifyBudget;
use integrity_checker::IntegrityChecker;
use tree::{SharedRoots, Tree};

use crate::sys::rights::Rights;

/// The most workspaces that are watched at a time: each has a thread.
pub(crate) const MAX_WATCHED: usize = 2_048;
/// The most of one owner.
pub(crate) const MAX_WATCHED_PER_OWNER: usize = 128;

/// A root to watch.
#[derive(Debug)]
pub(crate) struct WorkspaceRoot<'a> {
    /// Absolute, without links.
    pub path: &'a Path,
    /// Open.
    pub descriptor: &'a OwnedFd,
    /// Whose files they are, and with what rights they are read: those that the commands in it have.
    pub owner: Rights,
}

/// Why a workspace is not watched.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WatchError {
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
type WorkspaceKey = (u64, u64, u32);

/// All workspaces that are watched.
#[derive(Debug)]
pub(crate) struct Workspaces {
    watched: Mutex<HashMap<WorkspaceKey, WatchedWorkspace>>,
    budget: Arc<InotifyBudget>,
    roots: SharedRoots,
    /// Where baselines are stored for the next gateway.
    state: Option<PathBuf>,
}

#[derive(Debug)]
struct WatchedWorkspace {
    watcher: Arc<Watcher>,
    path: PathBuf,
    sessions: HashSet<String>,
}

impl Workspaces {
    /// None yet. `state`: the gateway's own directory, where another gateway may follow this one.
    pub(crate) fn new(state: Option<&Path>) -> Self {
        Self {
            watched: Mutex::default(),
            budget: InotifyBudget::of_host(),
            roots: SharedRoots::default(),
            state: state.map(|state| state.join("workspaces")),
        }
    }

    /// Watches a root for a session; the same one as before, where it is watched.
    ///
    /// # Errors
    /// [`WatchError`].
    pub(crate) fn watch(&self, root: &WorkspaceRoot<'_>, session: &str) -> Result<Arc<Watcher>, WatchError> {
        let key = key(root)?;
        let mut watched = self.lock();
        if let Some(watched) = watched.get_mut(&key) {
            if !watched.sessions.contains(session) {
                watched.sessions.insert(session.to_owned());
            }
            return Ok(watched.watcher.clone());
        }
        let owner = root.owner.uid;
        let of_owner = watched.keys().filter(|(_, _, uid)| *uid == owner).count();
        for (name, count, max) in [
            ("workspaces_per_principal", of_owner, MAX_WATCHED_PER_OWNER),
            ("workspaces", watched.len(), MAX_WATCHED),
        ] {
            if count >= max {
                return Err(WatchError::TooMany { name, max });
            }
        }
        let store = self.state.as_ref().map(|state| BaselineStore::new(state, key));
        let baseline = store.as_ref().and_then(BaselineStore::read);
        let tree = Tree::new(root.path.to_owned(), root.descriptor.try_clone()?).owned_by(owner);
        let tree = tree.among(self.roots.clone());
        self.lock_roots().insert(root.path.to_owned());
        let watch = Arc::new(Watcher::start(
            IntegrityChecker::new(tree, self.budget.lease_instance(owner), baseline),
            root.owner.clone(),
            store,
        )?);
        watched.insert(
            key,
            WatchedWorkspace {
                watcher: watch.clone(),
                path: root.path.to_owned(),
                sessions: HashSet::from([session.to_owned()]),
            },
        );
        Ok(watch)
    }

    /// Finishes the scans that were cut short, for the workspaces that only this session uses.
    pub(crate) fn finish_pending_scans(&self, session: &str) -> Vec<ScanWaiter> {
        let watched = self.lock();
        let own = watched
            .values()
            .filter(|watched| watched.sessions.len() == 1 && watched.sessions.contains(session));
        own.filter_map(|watched| watched.watcher.finish_pending_scan()).collect()
    }

    /// A session is closed. A workspace without sessions is no longer watched, and its baseline is removed.
    pub(crate) fn close_session(&self, session: &str, roots: &[WorkspaceRoot<'_>]) {
        let mut watched = self.lock();
        watched.retain(|_, watched| {
            watched.sessions.remove(session);
            if watched.sessions.is_empty() {
                watched.watcher.remove_baseline();
            }
            !watched.sessions.is_empty()
        });
        *self.lock_roots() = watched.values().map(|watched| watched.path.clone()).collect();
        // A gateway before this one may have left something of a root in which nothing was run since.
        let Some(state) = &self.state else { return };
        for key in roots.iter().filter_map(|root| key(root).ok()) {
            if !watched.contains_key(&key) {
                BaselineStore::new(state, key).remove();
            }
        }
    }

    fn lock_roots(&self) -> MutexGuard<'_, BTreeSet<PathBuf>> {
        self.roots.lock().expect("no code panics while it holds the list of roots")
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<WorkspaceKey, WatchedWorkspace>> {
        self.watched.lock().expect("no code panics while it holds the table of workspaces")
    }
}

fn key(root: &WorkspaceRoot<'_>) -> Result<WorkspaceKey, io::Error> {
    let stat = fstat(root.descriptor)?;
    Ok((stat.st_dev, stat.st_ino, root.owner.uid))
}
