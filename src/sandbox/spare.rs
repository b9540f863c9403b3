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
    sync::{Mutex, PoisonError},
    time::Duration,
};

use crate::wire::launch::PROCESS_NAME;

/// A launcher that waits for its plan, and our end of its socket. Killed, if it still runs, and reaped with this value.
#[derive(Debug)]
pub(super) struct Launcher {
    process: Child,
    socket: UnixStream,
}

impl Launcher {
    /// Starts this program as a launcher. Sending to it and hearing from it give up after the deadline.
    pub(super) fn start(program: &Path, deadline: Duration) -> io::Result<Self> {
        let (ours, theirs) = UnixStream::pair()?;
        ours.set_read_timeout(Some(deadline))?;
        ours.set_write_timeout(Some(deadline))?;
        let process = Command::new(program)
            .arg0(PROCESS_NAME)
            .env_clear()
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::null())
            .spawn()?;
        Ok(Self { process, socket: ours })
    }

    pub(super) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Waits for the end of one that has answered, which is near.
    pub(super) fn reap(mut self) {
        let _ = self.process.wait();
    }

    fn is_alive(&mut self) -> bool {
        matches!(self.process.try_wait(), Ok(None))
    }
}

impl Drop for Launcher {
    fn drop(&mut self) {
        // Not reaped yet, so the id is still its own; of one that was reaped the standard library knows.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Room for one launcher.
#[derive(Debug, Default)]
pub(super) struct Spare {
    waiting: Mutex<Option<Launcher>>,
}

impl Spare {
    /// The waiting launcher, if there is one and it is alive.
    pub(super) fn take(&self) -> Option<Launcher> {
        let mut launcher = self.waiting.lock().unwrap_or_else(PoisonError::into_inner).take()?;
        launcher.is_alive().then_some(launcher)
    }

    /// Sees to it that one waits. A failure to start one is not said here: the launch that needs it will say it.
    pub(super) fn refill(&self, program: &Path, deadline: Duration) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if waiting.is_none() {
            *waiting = Launcher::start(program, deadline).ok();
        }
    }
}
