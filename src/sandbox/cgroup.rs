//! A sandbox's folders in the cgroup trees: killed and removed as a whole.
//!
//! Knows the folders that were made for it or recorded, and touches no other.

use std::{
    io,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    time::Duration,
};

use super::principal;
use crate::{
    cgroup::{
        Hierarchy,
        folder::{self, FolderError},
        kill, leaf,
    },
    proto::supervisor::{CgroupFolder, SandboxPlan, cgroup_folder},
};

/// A sandbox's folders in every hierarchy.
#[derive(Debug, Clone, Default)]
pub struct SandboxCgroup {
    pub(super) folders: Vec<SandboxFolder>,
}

#[derive(Debug, Clone)]
pub(super) struct SandboxFolder {
    pub path: PathBuf,
    pub hierarchy: Hierarchy,
    pub controllers: Vec<String>,
}

/// How a kill by cgroup went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Killed {
    /// The kernel has sent KILL to everything in the tree.
    All,
    /// There is no tree that can be killed: kill the supervisor by its pidfd, which is PID 1 of everything.
    NoTree,
}

/// How long a version 1 group that should be empty is tried again.
const LINGER: Duration = Duration::from_secs(1);

impl SandboxCgroup {
    /// None at all: no tree could be written, and the profile does not insist.
    #[must_use]
    pub fn absent() -> Self {
        Self::default()
    }

    /// As a plan records them: those of a sandbox that another gateway has made. What does not bear the sandbox's
    /// name is none of its folders.
    pub(super) fn recorded(plan: &SandboxPlan) -> Self {
        let recorded = |folder: &CgroupFolder| {
            let path = PathBuf::from(&folder.path);
            let hierarchy = match folder.hierarchy() {
                cgroup_folder::Hierarchy::V2 => Hierarchy::V2,
                cgroup_folder::Hierarchy::V1 => Hierarchy::V1,
                cgroup_folder::Hierarchy::Unspecified => return None,
            };
            let is_its_own =
                path.is_absolute() && path.file_name().is_some_and(|name| name == &*plan.sandbox_id);
            is_its_own.then(|| SandboxFolder { path, hierarchy, controllers: folder.controllers.clone() })
        };
        Self { folders: plan.cgroups.iter().filter_map(recorded).collect() }
    }

    /// Kills everything in the sandbox, the supervisor included.
    ///
    /// # Errors
    /// [`FolderError::Set`].
    pub fn kill(&self) -> Result<Killed, FolderError> {
        let Some(v2) = self.v2() else { return Ok(Killed::NoTree) };
        if !v2.path.join("cgroup.kill").exists() {
            return Ok(Killed::NoTree);
        }
        kill::kill_tree(&v2.path).map(|()| Killed::All)
    }

    /// Waits for the sandbox to be empty and removes its folders.
    ///
    /// # Errors
    /// [`FolderError::Remove`] with `EBUSY` when something is still in it at the end of the time.
    pub async fn remove(&self, at_most: Duration) -> Result<(), FolderError> {
        let this = self.clone();
        let removed = tokio::task::spawn_blocking(move || this.remove_blocking(at_most)).await;
        removed.unwrap_or_else(|join| {
            Err(FolderError::Remove { path: PathBuf::new(), cause: io::Error::other(join) })
        })
    }

    /// As [`Self::remove`], for a thread that may wait.
    ///
    /// # Errors
    /// As [`Self::remove`].
    pub fn remove_blocking(&self, at_most: Duration) -> Result<(), FolderError> {
        if let Some(v2) = self.v2() {
            folder::wait_until_empty(&v2.path, at_most)?;
        }
        // A process that was reaped may be in its version 1 groups for some microseconds more (Linux 6.18), of which
        // no event tells.
        let deadline = std::time::Instant::now() + at_most.min(LINGER);
        loop {
            match self.remove_now() {
                Err(FolderError::Remove { cause, .. })
                    if cause.raw_os_error() == Some(libc::EBUSY) && std::time::Instant::now() < deadline =>
                {
                    std::thread::yield_now();
                }
                done => return done,
            }
        }
    }

    pub(super) fn remove_now(&self) -> Result<(), FolderError> {
        let mut first = Ok(());
        for one in &self.folders {
            let done = folder::remove(&one.path);
            principal::remove_above(&one.path);
            if first.is_ok() {
                first = done;
            }
        }
        first
    }

    /// The v2 folder, where there is one.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        self.v2().map(|folder| folder.path.as_path())
    }

    /// A terminal's cgroup in every hierarchy, also where it has none; empty where there is no tree.
    pub(super) fn leaves(&self, terminal_id: &str) -> Vec<PathBuf> {
        let name = leaf::name_of(terminal_id);
        self.folders.iter().map(|folder| folder.path.join(&name)).collect()
    }

    /// Opens the file by which the whole sandbox is killed, for when there may be no descriptor left to open it with.
    pub(super) fn open_kill(&self) -> Option<OwnedFd> {
        let file = self.v2()?.path.join("cgroup.kill");
        std::fs::OpenOptions::new().write(true).open(file).ok().map(OwnedFd::from)
    }

    fn v2(&self) -> Option<&SandboxFolder> {
        self.folders.iter().find(|folder| folder.hierarchy == Hierarchy::V2)
    }

    /// For the plan: what the supervisor gets, in order, with the descriptors.
    pub(super) fn plan(&self) -> Result<(Vec<CgroupFolder>, Vec<OwnedFd>), FolderError> {
        let mut planned = Vec::new();
        let mut descriptors = Vec::new();
        for one in &self.folders {
            let hierarchy = match one.hierarchy {
                Hierarchy::V2 => cgroup_folder::Hierarchy::V2,
                Hierarchy::V1 => cgroup_folder::Hierarchy::V1,
            };
            planned.push(CgroupFolder {
                hierarchy: hierarchy.into(),
                controllers: one.controllers.clone(),
                path: one.path.to_string_lossy().into_owned(),
            });
            descriptors.push(folder::open(&one.path)?);
        }
        Ok((planned, descriptors))
    }
}
