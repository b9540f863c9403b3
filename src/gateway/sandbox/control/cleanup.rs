//! Removes what a sandbox leaves on the host when it has ended.
//!
//! Continues past errors and logs them: no caller could handle them.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    path::PathBuf,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use nix::errno::Errno;
use tokio::{io::unix::AsyncFd, time::timeout};

use crate::{
    sandbox::{cgroup::SandboxCgroup, host::ptys::PtyReservation, launch},
    sys::namespace,
};

/// How long the kernel may take to end a killed sandbox before waiters get a timeout.
const SANDBOX_END_TIMEOUT: Duration = Duration::from_secs(10);

/// What has to be removed when a sandbox ends.
#[derive(Debug)]
pub(crate) struct Cleanup {
    cgroup: SandboxCgroup,
    directory: Option<PathBuf>,
    /// `cgroup.kill` of the sandbox, open since its start.
    kill_file: Option<OwnedFd>,
    ptys: Option<PtyReservation>,
    /// The gate, a child of this process, until it is reaped.
    gate: Mutex<Option<OwnedFd>>,
}

/// The result of killing a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KillOutcome {
    /// No process is left.
    Ended,
    /// The kernel has not ended it in time: a process sleeps uninterruptibly, or is frozen.
    StillAlive,
}

impl Cleanup {
    /// For a sandbox that runs. Opens now what is needed at its end.
    pub(crate) fn new(cgroup: SandboxCgroup, directory: Option<PathBuf>) -> Self {
        let kill_file = cgroup.open_kill_file();
        Self { cgroup, directory, kill_file, ptys: None, gate: Mutex::default() }
    }

    /// Holds the sandbox's pseudo-terminals until it has ended.
    pub(crate) fn with_ptys(self, ptys: PtyReservation) -> Self {
        Self { ptys: Some(ptys), ..self }
    }

    /// Reaps the sandbox's gate when the sandbox ends.
    pub(crate) fn with_gate(self, gate: Option<OwnedFd>) -> Self {
        Self { gate: Mutex::new(gate), ..self }
    }

    /// Releases the sandbox's pseudo-terminals.
    pub(crate) fn release_ptys(self) {
        drop(self.ptys);
    }

    pub(crate) async fn end_and_remove(&self, id: &str, supervisor: &AsyncFd<OwnedFd>) {
        if self.kill_and_wait(id, supervisor).await == KillOutcome::Ended {
            self.remove(id).await;
        }
    }

    /// As [`Self::end_and_remove`], for a supervisor that the reactor could not register: a thread waits for its
    /// exit.
    pub(crate) async fn end_and_remove_unregistered(&self, id: &str, supervisor: OwnedFd) {
        self.kill_supervisor(id, &supervisor);
        let reaped = tokio::task::spawn_blocking(move || launch::reap(supervisor.as_fd()));
        match timeout(SANDBOX_END_TIMEOUT, reaped).await {
            Ok(Ok(Ok(()) | Err(Errno::ECHILD))) => {}
            Ok(Ok(Err(errno))) => {
                tracing::error!(sandbox.id = %id, error = %errno, "cannot reap the supervisor");
            }
            Ok(Err(error)) => {
                tracing::error!(sandbox.id = %id, error = %error, "cannot wait for the supervisor")
            }
            Err(_) => tracing::error!(sandbox.id = %id, "supervisor does not end"),
        }
        self.kill_cgroup(id);
        self.reap_gate();
        self.remove(id).await;
    }

    /// The gate has ended with the supervisor, by its dead-man pipe. A thread waits for that, because it may take a moment.
    fn reap_gate(&self) {
        let gate = self.gate.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(gate) = gate {
            tokio::task::spawn_blocking(move || launch::reap(gate.as_fd()));
        }
    }

    /// Kills the sandbox and waits until no process is left. The kernel ends a pid namespace with its first
    /// process, before that one can be reaped; the cgroup's kill is for processes outside of the namespace.
    pub(crate) async fn kill_and_wait(&self, id: &str, supervisor: &AsyncFd<OwnedFd>) -> KillOutcome {
        self.kill_supervisor(id, supervisor.get_ref());
        if timeout(SANDBOX_END_TIMEOUT, supervisor.readable()).await.is_err() {
            self.kill_cgroup(id);
            return KillOutcome::StillAlive;
        }
        self.reap(id, supervisor);
        KillOutcome::Ended
    }

    /// Waits without limit until a killed sandbox has ended.
    pub(crate) async fn wait_for_end(&self, id: &str, supervisor: &AsyncFd<OwnedFd>) {
        // Fails only when the reactor is shut down, with the gateway.
        let _ = supervisor.readable().await;
        self.reap(id, supervisor);
    }

    /// How many processes of a terminal are left, as far as that can be seen.
    pub(crate) fn processes_left(&self, terminal_id: &str) -> u32 {
        self.cgroup.processes_left(terminal_id)
    }

    fn reap(&self, id: &str, supervisor: &AsyncFd<OwnedFd>) {
        match launch::reap(supervisor.get_ref().as_fd()) {
            // ECHILD: another gateway launched it.
            Ok(()) | Err(Errno::ECHILD) => {}
            Err(errno) => tracing::error!(sandbox.id = %id, error = %errno, "cannot reap the supervisor"),
        }
        self.kill_cgroup(id);
        self.reap_gate();
    }

    fn kill_supervisor(&self, id: &str, supervisor: &OwnedFd) {
        match namespace::kill_pidfd(supervisor.as_fd()) {
            Ok(()) | Err(Errno::ESRCH) => {}
            Err(errno) => tracing::error!(sandbox.id = %id, error = %errno, "cannot kill the supervisor"),
        }
    }

    fn kill_cgroup(&self, id: &str) {
        if let Some(file) = &self.kill_file {
            // ENODEV: the cgroup is gone.
            let _ = nix::unistd::write(file, b"1");
        }
        if let Err(error) = self.cgroup.kill() {
            tracing::error!(sandbox.id = %id, error = %error, "cannot kill the sandbox's group");
        }
    }

    pub(crate) async fn remove(&self, id: &str) {
        if let Err(error) = self.cgroup.remove(SANDBOX_END_TIMEOUT).await {
            // Keep the directory: the next gateway finds the cgroup by it.
            tracing::error!(sandbox.id = %id, error = %error, "cannot remove the sandbox's group");
            return;
        }
        if let Some(directory) = &self.directory {
            match std::fs::remove_dir_all(directory) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => {
                    tracing::error!(sandbox.id = %id, error = %error, "cannot remove its directory")
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_supervisor_that_nobody_watches_is_ended_and_reaped_and_its_directory_goes() {
        let directory = tempfile::tempdir().unwrap();
        let left = directory.path().join("sbx_1");
        std::fs::create_dir(&left).unwrap();
        let mut process = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let pid = nix::unistd::Pid::from_raw(process.id().cast_signed());
        let pidfd = namespace::open_pidfd(pid).unwrap();
        let cleanup = Cleanup::new(SandboxCgroup::absent(), Some(left.clone()));
        cleanup.end_and_remove_unregistered("sbx_1", pidfd).await;
        assert!(!left.exists());
        // Reaped already: there is no child to wait for.
        assert_eq!(process.try_wait().unwrap_err().raw_os_error(), Some(libc::ECHILD));
    }
}
