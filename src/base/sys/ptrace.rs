//! Traces single threads through one exec: ptrace(2) and wait4(2).
//!
//! A thread is seized, interrupted and detached. Its memory and registers are left alone, but for a look at its stack pointer. A
//! traced process dies with its tracer (`PTRACE_O_EXITKILL`).

use nix::errno::Errno;

/// What has happened to a traced thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TraceEvent {
    /// It stands in its new program and has executed nothing of it. The number is the process's, which it has now.
    Execed,
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

/// The requests of this file, as ptrace(2) numbers them. C libraries differ in their type.
pub const REQUESTS: &[u32] = &[
    libc::PTRACE_SEIZE as RequestNumber,
    libc::PTRACE_INTERRUPT as RequestNumber,
    libc::PTRACE_DETACH as RequestNumber,
    libc::PTRACE_GETREGSET as RequestNumber,
];
type RequestNumber = u32;

/// Starts to trace a thread without stopping it; it will stop at its exec.
///
/// # Errors
/// `EPERM`: another process traces it, or it may not be traced; `ESRCH`: it is gone.
pub fn seize(thread: i32) -> Result<(), Errno> {
    let options = libc::PTRACE_O_TRACEEXEC | libc::PTRACE_O_EXITKILL;
    // SAFETY: with PTRACE_SEIZE the address is unused and the data are a number; no memory is touched.
    Errno::result(unsafe { libc::ptrace(libc::PTRACE_SEIZE, thread, 0, options) }).map(drop)
}

/// As [`seize`], for a probe: the thread survives the end of the tracer.
///
/// # Errors
/// As [`seize`].
pub fn seize_for_a_moment(thread: i32) -> Result<(), Errno> {
    // SAFETY: with PTRACE_SEIZE the address is unused and the data are a number; no memory is touched.
    Errno::result(unsafe { libc::ptrace(libc::PTRACE_SEIZE, thread, 0, libc::PTRACE_O_TRACEEXEC) }).map(drop)
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
                libc::PTRACE_EVENT_EXEC => TraceEvent::Execed,
                0 => TraceEvent::Stopped { signal: libc::WSTOPSIG(status) },
                _ => TraceEvent::Stopped { signal: 0 },
            }
        } else {
            TraceEvent::Ended
        };
        return Ok(Some(Traced { thread, event }));
    }
}

/// Where the stack of a thread begins that stands in a stop. At its exec: the count of arguments, the arguments, the variables.
///
/// # Errors
/// `ESRCH`: it is gone, or does not stand; `ENODATA`: its registers are those of another kind of program.
pub fn stack_pointer(thread: i32) -> Result<u64, Errno> {
    // SAFETY: plain data, for which all zeroes is a valid value.
    let mut registers: libc::user_regs_struct = unsafe { std::mem::zeroed() };
    let length = size_of::<libc::user_regs_struct>();
    let mut into = libc::iovec { iov_base: (&raw mut registers).cast(), iov_len: length };
    // SAFETY: the kernel writes at most `iov_len` bytes to the registers and the length to `into`, and both outlive the call.
    let done = unsafe { libc::ptrace(libc::PTRACE_GETREGSET, thread, libc::NT_PRSTATUS, &raw mut into) };
    Errno::result(done)?;
    // A 32-bit program has fewer.
    if into.iov_len != length {
        return Err(Errno::ENODATA);
    }
    #[cfg(target_arch = "x86_64")]
    return Ok(registers.rsp);
    #[cfg(target_arch = "aarch64")]
    return Ok(registers.sp);
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    return Err(Errno::ENODATA);
}
