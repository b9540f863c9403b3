//! Traces single threads through one exec: ptrace(2) and wait4(2). Reads the memory of other processes, and asks whether two tasks share a
//! resource: process_vm_readv(2) and kcmp(2).
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

/// `KCMP_FS`: working directory, root and umask.
pub const KCMP_DIRECTORY: u32 = 3;

/// Whether what one task's chdir(2) changes is the other's directory, too.
///
/// # Errors
/// `ESRCH`: one is gone; `EPERM`: one may not be looked at; `ENOSYS`: the kernel cannot compare.
pub fn share_directory(task: i32, other: i32) -> Result<bool, Errno> {
    // SAFETY: of this kind the call takes numbers, and touches no memory.
    let order = unsafe { libc::syscall(libc::SYS_kcmp, task, other, KCMP_DIRECTORY, 0, 0) };
    Errno::result(order).map(|order| order == 0)
}

/// Reads from an address of a thread's process. A shorter read ends where memory cannot be read. The process may change its
/// memory at any time: the bytes are what was there once, and no more.
///
/// # Errors
/// `EFAULT`: nothing can be read at the address; `EPERM`: not by this process; `ESRCH`: the thread is gone.
pub fn read_memory(thread: i32, address: u64, into: &mut [u8]) -> Result<usize, Errno> {
    let local = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() };
    let base = std::ptr::without_provenance_mut(usize::try_from(address).map_err(|_| Errno::EFAULT)?);
    let remote = libc::iovec { iov_base: base, iov_len: into.len() };
    // SAFETY: the kernel writes at most `into.len()` bytes to `into`. The remote address is only a number here.
    let count = unsafe { libc::process_vm_readv(thread, &raw const local, 1, &raw const remote, 1, 0) };
    Errno::result(count).map(|count| count.unsigned_abs())
}

/// Reads whole pages of a thread's process, one after the other, until one cannot be read: how many bytes were read. As many
/// addresses are given as pages fit into `into`.
///
/// # Errors
/// As [`read_memory`], for the first page.
pub fn read_memory_pages(thread: i32, addresses: &[u64], into: &mut [u8]) -> Result<usize, Errno> {
    let length = into.len() / addresses.len().max(1);
    let mut remote = Vec::with_capacity(addresses.len());
    for address in addresses {
        let base = usize::try_from(*address).map_err(|_| Errno::EFAULT)?;
        remote.push(libc::iovec { iov_base: std::ptr::without_provenance_mut(base), iov_len: length });
    }
    let local = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: length * remote.len() };
    let (remote, parts) = (remote.as_ptr(), remote.len() as libc::c_ulong);
    // SAFETY: the kernel writes at most `length * addresses.len()` bytes, which `into` has, and reads `parts` iovecs, which outlive the
    // call. The remote addresses are only numbers here.
    let count = unsafe { libc::process_vm_readv(thread, &raw const local, 1, remote, parts, 0) };
    Errno::result(count).map(|count| count.unsigned_abs())
}

/// `KCMP_FILES` of linux/kcmp.h.
const KCMP_FILES: libc::c_long = 2;

/// Whether what one of these threads opens the other one has, too. Where the kernel does not say: no.
pub fn share_descriptor_table(one: u32, other: u32) -> bool {
    let (one, other) = (libc::c_long::from(one), libc::c_long::from(other));
    // SAFETY: kcmp(2) takes numbers, reads no memory of the caller and writes none.
    let compared = unsafe { libc::syscall(libc::SYS_kcmp, one, other, KCMP_FILES, 0_i64, 0_i64) };
    compared == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_share_their_table_and_processes_do_not() {
        let own = std::process::id();
        let threads = std::fs::read_dir("/proc/self/task").unwrap();
        let threads = threads.filter_map(|one| one.unwrap().file_name().to_str()?.parse().ok());
        let (mut count, mut shared) = (0, 0);
        for thread in threads {
            count += 1;
            shared += u32::from(share_descriptor_table(own, thread));
        }
        assert!(count >= 1 && shared == count);
        assert!(!share_descriptor_table(own, 1) || own == 1);
    }
}
