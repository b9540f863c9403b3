//! What a process sets and asks about itself: its OOM score (`oom_score_adj`, proc_pid_oom_score_adj(5)), session keyring, dead-man pipe and
//! clocks.
//!
//! A score is inherited, and one set by a privileged process cannot be lowered below that by others. So every kind
//! of process sets its own and ignores its parent's: the protection of a gateway must not reach its commands.

use std::{
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    path::Path,
    time::Duration,
};

use nix::{
    errno::Errno,
    fcntl::{AT_FDCWD, OFlag, open},
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::{stat::Mode, uio::pwrite},
    time::{ClockId, clock_gettime},
};

use super::file;

/// The gateway's: killed last, except for processes that the host exempts.
pub const GATEWAY_OOM_SCORE: i16 = -900;
/// A supervisor's: every command of its sandbox would end with it.
const SUPERVISOR_OOM_SCORE: i16 = 100;
/// A command's: killed first.
const COMMAND_OOM_SCORE: i16 = 500;

/// This process's score.
const OOM_SCORE_FILE: &str = "/proc/self/oom_score_adj";

/// Lowers this process's score to the gateway's. `false` when it may not (CAP_SYS_RESOURCE), or is that low already.
#[must_use]
pub fn protect_gateway() -> bool {
    read_oom_score().is_ok_and(|score| score > GATEWAY_OOM_SCORE)
        && file::write_once(Path::new(OOM_SCORE_FILE), GATEWAY_OOM_SCORE.to_string().as_bytes()).is_ok()
}

/// Gives this process a supervisor's score, unless it has a higher one. From a privileged process it is also the lowest
/// that its descendants can choose.
///
/// # Errors
/// The errno of open(2), read(2) or write(2).
pub fn set_supervisor_oom_score() -> Result<(), Errno> {
    if read_oom_score()? >= SUPERVISOR_OOM_SCORE {
        return Ok(());
    }
    file::write_once(Path::new(OOM_SCORE_FILE), SUPERVISOR_OOM_SCORE.to_string().as_bytes())
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
        let own = read_oom_score()?;
        let file = open(OOM_SCORE_FILE, OFlag::O_WRONLY | OFlag::O_CLOEXEC, Mode::empty())?;
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
        self.put(self.own.max(COMMAND_OOM_SCORE))
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

fn read_oom_score() -> Result<i16, Errno> {
    let text = file::read_at(AT_FDCWD, Path::new(OOM_SCORE_FILE))?;
    std::str::from_utf8(&text).ok().and_then(|text| text.trim().parse().ok()).ok_or(Errno::EBADMSG)
}

const KEYCTL_JOIN_SESSION_KEYRING: libc::c_int = 1;

/// Leaves the session keyring that was inherited for a new, empty, unnamed one.
///
/// A kernel without keyrings has nothing to leave: that is success.
///
/// # Errors
/// The errno of keyctl(2), e.g. `EDQUOT`.
pub fn leave_inherited_keyring() -> Result<(), Errno> {
    // SAFETY: a null name asks for an anonymous keyring; no memory is read.
    let done = unsafe {
        libc::syscall(libc::SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, std::ptr::null::<libc::c_char>())
    };
    match Errno::result(done) {
        Ok(_) | Err(Errno::ENOSYS) => Ok(()),
        Err(errno) => Err(errno),
    }
}

/// Lets the writer of this pipe kill this process from here on, and its own end do so. The ids must not be changed later: the kernel compares
/// them.
///
/// The kernel sends KILL when the read end becomes readable or loses its writers (fcntl(2), F_SETSIG), also to a process that is stopped or
/// spins. The writer needs neither a right over this process nor a name for it.
///
/// # Errors
/// The errno of fcntl(2); `EPIPE` if the writer has written or closed before.
pub fn arm_dead_man(read_end: BorrowedFd<'_>) -> Result<(), Errno> {
    let descriptor = read_end.as_raw_fd();
    // SAFETY: fcntl(2) with numbers only, on a descriptor that is borrowed for the call.
    unsafe {
        Errno::result(libc::fcntl(descriptor, libc::F_SETOWN, std::process::id()))?;
        Errno::result(libc::fcntl(descriptor, F_SETSIG, libc::SIGKILL))?;
        Errno::result(libc::fcntl(descriptor, libc::F_SETFL, libc::O_ASYNC | libc::O_NONBLOCK))?;
    }
    let mut ends = [PollFd::new(read_end.as_fd(), PollFlags::POLLIN)];
    if poll(&mut ends, PollTimeout::ZERO)? > 0 { Err(Errno::EPIPE) } else { Ok(()) }
}

/// asm-generic/fcntl.h; x86 and ARM have the same.
const F_SETSIG: libc::c_int = 10;

/// What the calling thread has had of processors since it began (`CLOCK_THREAD_CPUTIME_ID`): what others do on the machine does not count.
pub fn thread_cpu_time() -> Duration {
    clock_time(ClockId::CLOCK_THREAD_CPUTIME_ID)
}

/// The time since the boot, suspended or not, as processes have it for their start: `starttime` of proc_pid_stat(5), in hundredths of a
/// second (USER_HZ, which is 100 on every machine that is known here).
pub fn boot_ticks() -> u64 {
    (clock_time(ClockId::CLOCK_BOOTTIME).as_millis() / 10) as u64
}

fn clock_time(clock: ClockId) -> Duration {
    // It cannot fail for a clock that every kernel has.
    clock_gettime(clock).map_or(Duration::ZERO, Duration::from)
}
