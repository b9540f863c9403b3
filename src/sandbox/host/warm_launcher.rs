//! Launchers, and the one that is started ahead of the launch that will use it.
//!
//! Executing our own program takes longer than building the sandbox, so a gateway keeps one launcher started, which
//! waits for a plan on its socket and ends when the socket does. Never more than one waits. A spare that has ended
//! is thrown away, not used; nothing here decides what is launched.

use std::{
    io,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::{net::UnixStream, process::CommandExt},
    },
    path::Path,
    process::{Child, Command, Stdio},
    sync::{Mutex, PoisonError, mpsc},
    time::Duration,
};

use nix::{
    errno::Errno,
    sys::{
        signal::{Signal, killpg},
        wait::{Id, WaitPidFlag, WaitStatus, waitid},
    },
    unistd::Pid,
};

use crate::wire::launch::PROCESS_NAME;

/// How long a launch may take before the gateway gives it up.
pub(crate) const LAUNCH_TIMEOUT: Duration = Duration::from_secs(10);

/// A launcher that waits for its plan, and our end of its socket.
///
/// It leads a process group, which the supervisor that it makes stays in. Unless [`Launcher::reap`] has let it go,
/// the whole group is killed and reaped with this value: of a launch that fails at whatever point nothing is left,
/// even if nobody has heard of its supervisor yet.
#[derive(Debug)]
pub(crate) struct Launcher {
    /// Not reaped while it is here, so that its id, which is the group's, is still its own.
    process: Option<Child>,
    socket: UnixStream,
}

impl Launcher {
    /// Starts this program as a launcher. Sending to it and hearing from it give up after the deadline.
    pub(crate) fn start(program: &Path, deadline: Duration) -> io::Result<Self> {
        let (ours, theirs) = UnixStream::pair()?;
        ours.set_read_timeout(Some(deadline))?;
        ours.set_write_timeout(Some(deadline))?;
        let process = Command::new(program)
            .arg0(PROCESS_NAME)
            .env_clear()
            .envs(crate::failpoint::launcher_environment())
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::null())
            .process_group(0)
            .spawn()?;
        Ok(Self { process: Some(process), socket: ours })
    }

    pub(crate) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Waits for the end of one that has answered, which is near. Its supervisor is somebody's from here on.
    pub(crate) fn reap(mut self) {
        if let Some(mut process) = self.process.take() {
            let _ = process.wait();
        }
    }

    fn is_alive(&self) -> bool {
        let Some(process) = &self.process else { return false };
        let only_look = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
        waitid(Id::Pid(id_of(process)), only_look) == Ok(WaitStatus::StillAlive)
    }
}

fn id_of(process: &Child) -> Pid {
    // The kernel's ids are positive and fit.
    Pid::from_raw(process.id().cast_signed())
}

impl Drop for Launcher {
    fn drop(&mut self) {
        let Some(process) = &self.process else { return };
        let group = id_of(process);
        // A fork that is under way either is killed with the group or fails for the pending signal (fork(2)).
        kill_process_group(group);
        // One that hangs in the kernel must not stay as a zombie, and nobody should stand still for it.
        let (done, reaped) = mpsc::sync_channel(1);
        let reaper = std::thread::Builder::new().name("reaper".into()).spawn(move || {
            reap_all(group);
            // Whoever waited may have given up.
            let _ = done.send(());
        });
        match reaper {
            Ok(_) => drop(reaped.recv_timeout(REAP_TIMEOUT)),
            Err(_) => reap_all(group),
        }
    }
}

/// How long the end of a killed launch is waited for; after that only its reaper does.
const REAP_TIMEOUT: Duration = Duration::from_secs(2);

#[expect(
    clippy::disallowed_methods,
    reason = "no process of a launch leaves its group: commands, which could, come only after it was claimed"
)]
fn kill_process_group(group: Pid) {
    // ESRCH: there is none left to kill.
    let _ = killpg(group, Signal::SIGKILL);
}

/// Until there is no child of ours left in the group (`ECHILD`).
fn reap_all(group: Pid) {
    let all = WaitPidFlag::WEXITED | WaitPidFlag::__WALL;
    while matches!(waitid(Id::PGid(group), all), Ok(_) | Err(Errno::EINTR)) {}
}

/// Room for one launcher.
#[derive(Debug, Default)]
pub(crate) struct WarmLauncher {
    waiting: Mutex<Option<Launcher>>,
}

impl WarmLauncher {
    /// The waiting launcher, if there is one and it is alive.
    pub(crate) fn take(&self) -> Option<Launcher> {
        let launcher = self.waiting.lock().unwrap_or_else(PoisonError::into_inner).take()?;
        launcher.is_alive().then_some(launcher)
    }

    /// Sees to it that one waits. A failure to start one is not said here: the launch that needs it will say it.
    pub(crate) fn refill(&self, program: &Path, deadline: Duration) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if waiting.is_none() {
            *waiting = Launcher::start(program, deadline).ok();
        }
    }
}
