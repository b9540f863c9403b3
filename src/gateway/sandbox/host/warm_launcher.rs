//! Launcher processes, and the one that is started ahead of the launch that will use it.
//!
//! Executing a program takes a good part of the time of a launch, so a gateway keeps one launcher started, which
//! waits for a plan on its socket and exits when the socket closes. At most one waits. One that has exited is
//! discarded. What is launched is not decided here.

use std::{
    io,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::{net::UnixStream, process::CommandExt},
    },
    process::{Child, Stdio},
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

use crate::{
    sandbox_program::{EXIT_OTHER_BUILD, SandboxProgram},
    wire::launch::PROCESS_NAME,
};

/// How long a launch may take before the gateway gives it up.
pub(crate) const LAUNCH_TIMEOUT: Duration = Duration::from_secs(10);

/// A launcher that waits for its plan, and our end of its socket.
///
/// It leads a process group, in which its supervisor stays. Unless [`Launcher::reap`] was called, dropping it kills
/// and reaps the whole group: a failed launch leaves no process, not even a supervisor that has not been reported
/// yet.
#[derive(Debug)]
pub(crate) struct Launcher {
    /// It is not reaped while it is held here, so its id, which is the group's, cannot be reused.
    process: Option<Child>,
    socket: UnixStream,
}

impl Launcher {
    /// Starts a process of this program, by its name. Sending and receiving time out after the deadline.
    pub(crate) fn start(program: &SandboxProgram, name: &str, deadline: Duration) -> io::Result<Self> {
        let (ours, theirs) = UnixStream::pair()?;
        ours.set_read_timeout(Some(deadline))?;
        ours.set_write_timeout(Some(deadline))?;
        let process = program
            .command(name)
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

    /// Waits for the exit of a launcher that has answered. The caller owns the supervisor from here on.
    pub(crate) fn reap(mut self) {
        if let Some(mut process) = self.process.take() {
            let _ = process.wait();
        }
    }

    /// Ends a launch that has failed. Whether its program has ended it, because it is of another build.
    pub(crate) fn discard(mut self) -> bool {
        self.process.take().is_some_and(|process| kill_and_reap(id_of(&process)))
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
        if let Some(process) = &self.process {
            kill_and_reap(id_of(process));
        }
    }
}

/// Kills a launch and reaps it, and waits for that no longer than [`REAP_TIMEOUT`]. Whether the launcher had ended as one of another build.
fn kill_and_reap(group: Pid) -> bool {
    // A fork in progress is killed with the group or fails for the pending signal (fork(2)).
    kill_process_group(group);
    // A process that hangs in the kernel must be reaped later, without blocking the caller.
    let (done, reaped) = mpsc::sync_channel(1);
    let reaper = std::thread::Builder::new().name("reaper".into()).spawn(move || {
        // The receiver may have timed out.
        let _ = done.send(reap_all(group));
    });
    match reaper {
        Ok(_) => reaped.recv_timeout(REAP_TIMEOUT).unwrap_or(false),
        Err(_) => reap_all(group),
    }
}

/// How long the caller waits for a killed launch to exit. After that only the reaper thread waits.
const REAP_TIMEOUT: Duration = Duration::from_secs(2);

#[expect(
    clippy::disallowed_methods,
    reason = "no process of a launch leaves its group: commands, which could, come only after it was claimed"
)]
fn kill_process_group(group: Pid) {
    // ESRCH: there is none left to kill.
    let _ = killpg(group, Signal::SIGKILL);
}

/// Reaps until no child is left in the group (`ECHILD`). Whether its leader had exited as one of another build.
fn reap_all(group: Pid) -> bool {
    let all = WaitPidFlag::WEXITED | WaitPidFlag::__WALL;
    let mut is_of_other_build = false;
    loop {
        match waitid(Id::PGid(group), all) {
            Ok(status) => is_of_other_build |= status == WaitStatus::Exited(group, EXIT_OTHER_BUILD),
            Err(Errno::EINTR) => {}
            Err(_) => return is_of_other_build,
        }
    }
}

/// Holds at most one launcher that waits.
#[derive(Debug, Default)]
pub(crate) struct WarmLauncher {
    waiting: Mutex<Option<Launcher>>,
}

impl WarmLauncher {
    /// Takes the waiting launcher, if it is alive.
    pub(crate) fn take(&self) -> Option<Launcher> {
        let launcher = self.waiting.lock().unwrap_or_else(PoisonError::into_inner).take()?;
        launcher.is_alive().then_some(launcher)
    }

    /// Starts a launcher if none waits. A failure is not reported: the next launch will report it.
    pub(crate) fn refill(&self, program: &SandboxProgram, deadline: Duration) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if waiting.is_none() {
            *waiting = Launcher::start(program, PROCESS_NAME, deadline).ok();
        }
    }
}
