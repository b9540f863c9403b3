//! Reaps children with wait4(2), without blocking, and returns their resource usage.

use nix::errno::Errno;

/// Which children to wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitTarget {
    /// Any. The kernel looks through all of them.
    Any,
    /// One, found at once however many there are.
    Pid(i32),
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExitStatus {
    /// It exited with this code.
    Code(u8),
    /// It was killed by this signal.
    Signal {
        /// Its number.
        number: i32,
        /// Whether it dumped core.
        core_dumped: bool,
    },
}

/// A reaped process. Its pid may be used again from now on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reaped {
    /// Its process id in our namespace.
    pub pid: i32,
    /// How it ended.
    pub end: ExitStatus,
    /// Processor time of it and of the descendants that it waited for.
    pub user_us: u64,
    /// Likewise, in the kernel.
    pub system_us: u64,
    /// The largest resident set of one of those processes, in bytes.
    pub max_resident_bytes: u64,
}

/// The result of a reap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReapResult {
    /// This one.
    Reaped(Reaped),
    /// Children, but none that has ended.
    NoneEnded,
    /// No such child at all.
    NoChildren,
}

/// Reaps one child that has ended, if there is one.
///
/// # Errors
/// The errno of wait4(2), but for `ECHILD`, which is [`ReapResult::NoChildren`].
pub fn reap(which: WaitTarget) -> Result<ReapResult, Errno> {
    let target = match which {
        WaitTarget::Any => -1,
        WaitTarget::Pid(pid) => pid,
    };
    let mut status = 0;
    // SAFETY: plain data for which all zeroes is a valid value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // __WALL: also children that were cloned with an exit signal other than SIGCHLD.
    let options = libc::WNOHANG | libc::__WALL;
    // SAFETY: both pointers are to locals of the right type.
    let pid = match Errno::result(unsafe { libc::wait4(target, &raw mut status, options, &raw mut usage) }) {
        Ok(0) => return Ok(ReapResult::NoneEnded),
        Ok(pid) => pid,
        Err(Errno::ECHILD) => return Ok(ReapResult::NoChildren),
        Err(errno) => return Err(errno),
    };
    let end = if libc::WIFSIGNALED(status) {
        ExitStatus::Signal { number: libc::WTERMSIG(status), core_dumped: libc::WCOREDUMP(status) }
    } else {
        ExitStatus::Code(libc::WEXITSTATUS(status) as u8)
    };
    Ok(ReapResult::Reaped(Reaped {
        pid,
        end,
        user_us: microseconds(usage.ru_utime),
        system_us: microseconds(usage.ru_stime),
        max_resident_bytes: usage.ru_maxrss.cast_unsigned() * 1024,
    }))
}

/// Whether there is any child at all, dead or alive. Reaps nothing.
#[must_use]
pub fn has_children() -> bool {
    // SAFETY: plain data for which all zeroes is a valid value.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    let options = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT | libc::__WALL;
    // SAFETY: the pointer is to a local of the right type.
    let result = Errno::result(unsafe { libc::waitid(libc::P_ALL, 0, &raw mut info, options) });
    result != Err(Errno::ECHILD)
}

fn microseconds(time: libc::timeval) -> u64 {
    time.tv_sec.cast_unsigned() * 1_000_000 + time.tv_usec.cast_unsigned()
}
