//! What is left on the host when a sandbox has ended, and taking it away.
//!
//! Does whatever can be done and says in the log what could not: there is nobody left to tell.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    path::PathBuf,
    time::Duration,
};

use nix::errno::Errno;
use tokio::{io::unix::AsyncFd, time::timeout};

use super::{cgroup::SandboxCgroup, launch};
use crate::sys::namespace;

/// How long the kernel may take to end a killed sandbox, before the log says that it has not.
const KILL_LIMIT: Duration = Duration::from_secs(30);

/// What is left on the host when a sandbox has ended.
#[derive(Debug)]
pub(super) struct Remains {
    pub(super) cgroup: SandboxCgroup,
    pub(super) folder: Option<PathBuf>,
}

impl Remains {
    pub(super) async fn take_away(&self, id: &str, supervisor: &AsyncFd<OwnedFd>) {
        self.end(id, supervisor).await;
        self.remove(id).await;
    }

    /// Makes sure that no process is left. The kernel ends a pid namespace with its first process, before that
    /// one can be reaped; the group's kill is for what may have been outside of the namespace.
    pub(super) async fn end(&self, id: &str, supervisor: &AsyncFd<OwnedFd>) {
        match namespace::kill(supervisor.get_ref().as_fd()) {
            Ok(()) | Err(Errno::ESRCH) => {}
            Err(errno) => tracing::error!(sandbox.id = %id, error = %errno, "cannot kill the supervisor"),
        }
        if timeout(KILL_LIMIT, supervisor.readable()).await.is_err() {
            tracing::error!(sandbox.id = %id, "supervisor does not end");
            return;
        }
        match launch::reap(supervisor.get_ref().as_fd()) {
            // Not our child: another gateway launched it.
            Ok(()) | Err(Errno::ECHILD) => {}
            Err(errno) => tracing::error!(sandbox.id = %id, error = %errno, "cannot reap the supervisor"),
        }
        if let Err(error) = self.cgroup.kill() {
            tracing::error!(sandbox.id = %id, error = %error, "cannot kill the sandbox's group");
        }
    }

    pub(super) async fn remove(&self, id: &str) {
        if let Err(error) = self.cgroup.remove(KILL_LIMIT).await {
            tracing::error!(sandbox.id = %id, error = %error, "cannot remove the sandbox's group");
        }
        if let Some(folder) = &self.folder {
            match std::fs::remove_dir_all(folder) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => tracing::error!(sandbox.id = %id, error = %error, "cannot remove its folder"),
            }
        }
    }
}
