//! Traces single threads through one exec: ptrace(2) and wait4(2).
//!
//! A thread is seized, interrupted and detached. Its memory and registers are left alone. A traced process dies with its
//! tracer (`PTRACE_O_EXITKILL`).

use nix::errno::Errno;

/// What has happened to a traced thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TraceEvent {
    /// It stands in its new program and has executed nothing of it. The number is the process's, which it has now.
    Execed {
        /// The number that it had before, that of a thread.
        former: i32,
    },
    /// It stands elsewhere: its exec has failed, or was not reached.
    Stopped {
        /// The signal that it was about to receive; 0: none.
        signal: i32,
    },
    /// It has ended. Its parent can reap it now.
    Ended,
}

/// A traced thread's number and event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Traced {
    /// The thread.
    pub thread: i32,
    /// What has happened.
    pub event: TraceEvent,
}

/// Starts to trace a thread without stopping it; it will stop at its exec.
///
/// # Errors
/// `EPERM`: another process traces it, or it may not be traced; `ESRCH`: it is gone.
pub fn seize(thread: i32) -> Result<(), Errno> {
    let options = libc::PTRACE_O_TRACEEXEC | libc::PTRACE_O_EXITKILL;
    // SAFETY: with PTRACE_SEIZE the address is unused and the data are a number; no memory is touched.
    Errno::result(unsafe { libc::ptrace(libc::PTRACE_SEIZE, thread, 0, options) }).map(drop)
}

/// Makes a traced thread stop soon, wherever it is.
///
/// # Errors
/// `ESRCH`: it is gone.
pub fn interrupt(thread: i32) -> Result<(), Errno> {
    // SAFETY: with PTRACE_INTERRUPT address and data are unused.
    Errno::result(unsafe { libc::ptrace(libc::PTRACE_INTERRUPT, thread, 0, 0) }).map(drop)
}

/// Lets a stopped thread go on untraced, with a signal if that is not 0.
///
/// # Errors
/// `ESRCH`: it is gone, or does not stand.
pub fn detach(thread: i32, signal: i32) -> Result<(), Errno> {
    // SAFETY: with PTRACE_DETACH the address is unused and the data are a number.
    Errno::result(unsafe { libc::ptrace(libc::PTRACE_DETACH, thread, 0, signal) }).map(drop)
}

/// The next event of any traced thread; `None`: there is none now.
///
/// # Errors
/// The errno of wait4(2), but for `ECHILD`.
pub fn next_event() -> Result<Option<Traced>, Errno> {
    loop {
        let mut status = 0;
        // SAFETY: the pointer is to a local of the right type; no usage is asked for.
        let thread =
            unsafe { libc::wait4(-1, &raw mut status, libc::WNOHANG | libc::__WALL, std::ptr::null_mut()) };
        let thread = match Errno::result(thread) {
            Ok(0) | Err(Errno::ECHILD) => return Ok(None),
            Ok(thread) => thread,
            Err(Errno::EINTR) => continue,
            Err(errno) => return Err(errno),
        };
        let event = if libc::WIFSTOPPED(status) {
            match status >> 16 {
                libc::PTRACE_EVENT_EXEC => match former_thread(thread) {
                    Ok(former) => TraceEvent::Execed { former },
                    // Killed in its stop: its end is the next event.
                    Err(_) => continue,
                },
                0 => TraceEvent::Stopped { signal: libc::WSTOPSIG(status) },
                _ => TraceEvent::Stopped { signal: 0 },
            }
        } else {
            TraceEvent::Ended
        };
        return Ok(Some(Traced { thread, event }));
    }
}

fn former_thread(thread: i32) -> Result<i32, Errno> {
    let mut message: libc::c_ulong = 0;
    // SAFETY: the kernel writes one unsigned long, which is there.
    Errno::result(unsafe { libc::ptrace(libc::PTRACE_GETEVENTMSG, thread, 0, &raw mut message) })?;
    i32::try_from(message).map_err(|_| Errno::ERANGE)
}
