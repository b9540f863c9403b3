//! A sandbox's cgroups: killed and removed as a whole.
//!
//! Touches only cgroups that were made for the sandbox or recorded with it.

use std::{
    ffi::OsStr,
    io,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    time::Duration,
};

use crate::{
    cgroup::{
        Hierarchy,
        directory::{self, CgroupError},
        hierarchy, kill, leaf,
    },
    proto::supervisor::{CgroupDirectory, SandboxPlan, cgroup_directory},
    sandbox::cgroup::principal,
};

/// A sandbox's cgroups, one in each hierarchy.
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
    /// There is no cgroup to kill. Kill the supervisor by its pidfd: it is PID 1 of every process in the sandbox.
    NoTree,
}

/// How long removing an empty version 1 cgroup is tried again.
const V1_EMPTY_TIMEOUT: Duration = Duration::from_secs(1);

impl SandboxCgroup {
    /// No cgroup: none could be made, and the profile does not require one.
    #[must_use]
    pub fn absent() -> Self {
        Self::default()
    }

    /// The cgroups that a plan records, of a sandbox launched by an earlier gateway. A path that does not end in
    /// the sandbox's id is ignored.
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

    /// The cgroups that have the sandbox's name, of a sandbox whose record cannot be read. No two sandboxes have one name.
    pub(crate) fn search(sandbox_id: &OsStr) -> Self {
        let found = hierarchy::search(sandbox_id).unwrap_or_default();
        let directories = found.into_iter().map(|one| SandboxCgroupDirectory {
            path: one.path,
            hierarchy: one.hierarchy,
            controllers: one.controllers,
        });
        Self { directories: directories.collect() }
    }

    /// Kills everything in the sandbox, the supervisor included.
    ///
    /// # Errors
    /// [`CgroupError::Set`].
    pub fn kill(&self) -> Result<Killed, CgroupError> {
        let Some(v2) = self.v2() else { return Ok(Killed::NoTree) };
        if !v2.path.join("cgroup.kill").exists() {
            return Ok(Killed::NoTree);
        }
        kill::kill_cgroup(&v2.path).map(|()| Killed::All)
    }

    /// Waits until the sandbox is empty and removes its cgroups.
    ///
    /// # Errors
    /// [`CgroupError::Remove`] with `EBUSY` when something is still in it at the end of the time.
    pub async fn remove(&self, timeout: Duration) -> Result<(), CgroupError> {
        let this = self.clone();
        let removed = tokio::task::spawn_blocking(move || this.remove_blocking(timeout)).await;
        removed.unwrap_or_else(|join| {
            Err(CgroupError::Remove { path: PathBuf::new(), cause: io::Error::other(join) })
        })
    }

    /// The blocking form of [`Self::remove`].
    ///
    /// # Errors
    /// As [`Self::remove`].
    pub fn remove_blocking(&self, timeout: Duration) -> Result<(), CgroupError> {
        if let Some(v2) = self.v2() {
            directory::wait_until_empty(&v2.path, timeout)?;
        }
        // A reaped process can stay in its version 1 cgroups for some microseconds (Linux 6.18), and no event
        // reports when it has left.
        let deadline = std::time::Instant::now() + timeout.min(V1_EMPTY_TIMEOUT);
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

    /// The v2 cgroup, if there is one.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        self.v2().map(|directory| directory.path.as_path())
    }

    /// The paths of a terminal's cgroup in every hierarchy, whether it exists or not.
    pub(crate) fn leaves(&self, terminal_id: &str) -> Vec<PathBuf> {
        let name = leaf::name_of(terminal_id);
        self.directories.iter().map(|directory| directory.path.join(&name)).collect()
    }

    /// How many processes of a command are left. Without cgroups this is a lower bound.
    pub(crate) fn processes_left(&self, terminal_id: &str) -> u32 {
        let counts = self.leaves(terminal_id).into_iter().map(|leaf| kill::count(&leaf));
        // Without cgroups the sandbox belongs to one terminal. The hierarchies hold the same processes.
        counts.max().map_or(1, |count| u32::try_from(count).unwrap_or(u32::MAX))
    }

    /// Opens `cgroup.kill` of the sandbox, for use when no descriptor is left to open it.
    pub(crate) fn open_kill_file(&self) -> Option<OwnedFd> {
        let file = self.v2()?.path.join("cgroup.kill");
        std::fs::OpenOptions::new().write(true).open(file).ok().map(OwnedFd::from)
    }

    fn v2(&self) -> Option<&SandboxCgroupDirectory> {
        self.directories.iter().find(|directory| directory.hierarchy == Hierarchy::V2)
    }

    /// The cgroups for the plan, and their descriptors in the same order.
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
