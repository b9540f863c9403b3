//! A sandbox's directories in the cgroup trees: killed and removed as a whole.
//!
//! Knows the directories that were made for it or recorded, and touches no other.

use std::{
    io,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    time::Duration,
};

use crate::{
    cgroup::{
        Hierarchy,
        directory::{self, CgroupError},
        kill, leaf,
    },
    proto::supervisor::{CgroupDirectory, SandboxPlan, cgroup_directory},
    sandbox::cgroup::principal,
};

/// A sandbox's directories in every hierarchy.
#[derive(Debug, Clone, Default)]
pub struct SandboxCgroup {
    pub(crate) directories: Vec<SandboxCgroupDirectory>,
}

#[derive(Debug, Clone)]
pub(crate) struct SandboxCgroupDirectory {
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
const V1_EMPTY_TIMEOUT: Duration = Duration::from_secs(1);

impl SandboxCgroup {
    /// None at all: no tree could be written, and the profile does not insist.
    #[must_use]
    pub fn absent() -> Self {
        Self::default()
    }

    /// As a plan records them: those of a sandbox that another gateway has made. What does not bear the sandbox's
    /// name is none of its directories.
    pub(crate) fn from_plan(plan: &SandboxPlan) -> Self {
        let recorded = |directory: &CgroupDirectory| {
            let path = PathBuf::from(&directory.path);
            let hierarchy = match directory.hierarchy() {
                cgroup_directory::Hierarchy::V2 => Hierarchy::V2,
                cgroup_directory::Hierarchy::V1 => Hierarchy::V1,
                cgroup_directory::Hierarchy::Unspecified => return None,
            };
            let is_its_own =
                path.is_absolute() && path.file_name().is_some_and(|name| name == &*plan.sandbox_id);
            is_its_own.then(|| SandboxCgroupDirectory {
                path,
                hierarchy,
                controllers: directory.controllers.clone(),
            })
        };
        Self { directories: plan.cgroups.iter().filter_map(recorded).collect() }
    }

    /// Kills everything in the sandbox, the supervisor included.
    ///
    /// # Errors
    /// [`DirectoryError::Set`].
    pub fn kill(&self) -> Result<Killed, CgroupError> {
        let Some(v2) = self.v2() else { return Ok(Killed::NoTree) };
        if !v2.path.join("cgroup.kill").exists() {
            return Ok(Killed::NoTree);
        }
        kill::kill_tree(&v2.path).map(|()| Killed::All)
    }

    /// Waits for the sandbox to be empty and removes its directories.
    ///
    /// # Errors
    /// [`DirectoryError::Remove`] with `EBUSY` when something is still in it at the end of the time.
    pub async fn remove(&self, at_most: Duration) -> Result<(), CgroupError> {
        let this = self.clone();
        let removed = tokio::task::spawn_blocking(move || this.remove_blocking(at_most)).await;
        removed.unwrap_or_else(|join| {
            Err(CgroupError::Remove { path: PathBuf::new(), cause: io::Error::other(join) })
        })
    }

    /// As [`Self::remove`], for a thread that may wait.
    ///
    /// # Errors
    /// As [`Self::remove`].
    pub fn remove_blocking(&self, at_most: Duration) -> Result<(), CgroupError> {
        if let Some(v2) = self.v2() {
            directory::wait_until_empty(&v2.path, at_most)?;
        }
        // A process that was reaped may be in its version 1 groups for some microseconds more (Linux 6.18), of which
        // no event tells.
        let deadline = std::time::Instant::now() + at_most.min(V1_EMPTY_TIMEOUT);
        loop {
            match self.remove_now() {
                Err(CgroupError::Remove { cause, .. })
                    if cause.raw_os_error() == Some(libc::EBUSY) && std::time::Instant::now() < deadline =>
                {
                    std::thread::yield_now();
                }
                done => return done,
            }
        }
    }

    pub(crate) fn remove_now(&self) -> Result<(), CgroupError> {
        let mut first = Ok(());
        for one in &self.directories {
            let done = directory::remove(&one.path);
            principal::remove_above(&one.path);
            if first.is_ok() {
                first = done;
            }
        }
        first
    }

    /// The v2 directory, where there is one.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        self.v2().map(|directory| directory.path.as_path())
    }

    /// A terminal's cgroup in every hierarchy, also where it has none; empty where there is no tree.
    pub(crate) fn leaves(&self, terminal_id: &str) -> Vec<PathBuf> {
        let name = leaf::name_of(terminal_id);
        self.directories.iter().map(|directory| directory.path.join(&name)).collect()
    }

    /// How many processes of a command are left, as far as that can be seen: without a tree, at least so many.
    pub(crate) fn processes_left(&self, terminal_id: &str) -> u32 {
        let counts = self.leaves(terminal_id).into_iter().map(|leaf| kill::count(&leaf));
        // Without a tree the sandbox is the terminal's own. In several hierarchies they are the same processes.
        counts.max().map_or(1, |count| u32::try_from(count).unwrap_or(u32::MAX))
    }

    /// Opens the file by which the whole sandbox is killed, for when there may be no descriptor left to open it with.
    pub(crate) fn open_kill_file(&self) -> Option<OwnedFd> {
        let file = self.v2()?.path.join("cgroup.kill");
        std::fs::OpenOptions::new().write(true).open(file).ok().map(OwnedFd::from)
    }

    fn v2(&self) -> Option<&SandboxCgroupDirectory> {
        self.directories.iter().find(|directory| directory.hierarchy == Hierarchy::V2)
    }

    /// For the plan: what the supervisor gets, in order, with the descriptors.
    pub(crate) fn to_plan(&self) -> Result<(Vec<CgroupDirectory>, Vec<OwnedFd>), CgroupError> {
        let mut planned = Vec::new();
        let mut descriptors = Vec::new();
        for one in &self.directories {
            let hierarchy = match one.hierarchy {
                Hierarchy::V2 => cgroup_directory::Hierarchy::V2,
                Hierarchy::V1 => cgroup_directory::Hierarchy::V1,
            };
            planned.push(CgroupDirectory {
                hierarchy: hierarchy.into(),
                controllers: one.controllers.clone(),
                path: one.path.to_string_lossy().into_owned(),
            });
            descriptors.push(directory::open(&one.path)?);
        }
        Ok((planned, descriptors))
    }
}
