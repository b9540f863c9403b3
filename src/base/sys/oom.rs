//! The OOM score of a process: `oom_score_adj` (proc_pid_oom_score_adj(5)).
//!
//! A score is inherited, and one set by a privileged process cannot be lowered below that by others. So every kind
//! of process sets its own and ignores its parent's: the protection of a gateway must not reach its commands.

use std::{os::fd::OwnedFd, path::Path};

use nix::{
    errno::Errno,
    fcntl::{AT_FDCWD, OFlag, open},
    sys::{stat::Mode, uio::pwrite},
};

use super::file;

/// The gateway's: killed last, except for processes that the host exempts.
pub const GATEWAY: i16 = -900;
/// A supervisor's: every command of its sandbox would end with it.
pub const SUPERVISOR: i16 = 100;
/// A command's: killed first.
pub const COMMAND: i16 = 500;

/// This process's score.
const OWN: &str = "/proc/self/oom_score_adj";

/// Lowers this process's score to the gateway's. `false` when it may not (CAP_SYS_RESOURCE), or is that low already.
#[must_use]
pub fn protect_gateway() -> bool {
    read().is_ok_and(|score| score > GATEWAY)
        && file::write_once(Path::new(OWN), GATEWAY.to_string().as_bytes()).is_ok()
}

/// Gives this process a supervisor's score, unless it has a higher one. From a privileged process it is also the lowest
/// that its descendants can choose.
///
/// # Errors
/// The errno of open(2), read(2) or write(2).
pub fn become_supervisor() -> Result<(), Errno> {
    if read()? >= SUPERVISOR {
        return Ok(());
    }
    file::write_once(Path::new(OWN), SUPERVISOR.to_string().as_bytes())
}

/// A supervisor's own score file, held open, because commands inherit the score.
#[derive(Debug)]
pub struct OwnOomScore {
    file: OwnedFd,
    /// The supervisor's.
    own: i16,
}

impl OwnOomScore {
    /// Opens it. To be called before a change of ids, after which a process that cannot be dumped owns none of its files
    /// in /proc.
    ///
    /// # Errors
    /// The errno of open(2) or read(2).
    pub fn open() -> Result<Self, Errno> {
        let own = read()?;
        let file = open(OWN, OFlag::O_WRONLY | OFlag::O_CLOEXEC, Mode::empty())?;
        Ok(Self { file, own })
    }

    /// The descriptor, to be kept open when others are closed.
    #[must_use]
    pub fn descriptor(&self) -> &OwnedFd {
        &self.file
    }

    /// Takes a command's score, for a child to inherit. A child cannot set its own: until its exec it shares the
    /// parent's memory, and the kernel gives all processes that share memory one score.
    ///
    /// # Errors
    /// The errno of write(2).
    pub fn raise(&self) -> Result<(), Errno> {
        self.put(self.own.max(COMMAND))
    }

    /// Takes the supervisor's score again, when no child shares its memory.
    ///
    /// # Errors
    /// The errno of write(2).
    pub fn lower(&self) -> Result<(), Errno> {
        self.put(self.own)
    }

    fn put(&self, score: i16) -> Result<(), Errno> {
        pwrite(&self.file, score.to_string().as_bytes(), 0).map(drop)
    }
}

fn read() -> Result<i16, Errno> {
    let text = file::read_at(AT_FDCWD, Path::new(OWN))?;
    std::str::from_utf8(&text).ok().and_then(|text| text.trim().parse().ok()).ok_or(Errno::EBADMSG)
}
