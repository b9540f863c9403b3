//! Clones a process into new namespaces with clone3(2), which returns twice like fork(2), and makes user namespaces
//! that only describe an id map. Finds the host's set-id programs that write maps with subordinate ids.
//!
//! Only for single-threaded processes: the copy has the whole memory but one thread.

use std::{
    os::{
        fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
        unix::fs::{MetadataExt, PermissionsExt},
    },
    path::{Path, PathBuf},
};

use nix::{
    errno::Errno,
    sched::CloneFlags,
    sys::statvfs::{FsFlags, statvfs},
    unistd::Pid,
};

/// A flag of clone3(2); the C library's constant has too few bits.
const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;

/// Length of `clone_args` as the first kernels with clone3(2) knew it.
const BYTES_WITHOUT_CGROUP: usize = 64;

/// The result of the clone, in either process.
#[derive(Debug)]
pub enum Cloned {
    /// The new process.
    Child,
    /// The old one.
    Parent {
        /// The child in the old one's pid namespace.
        pid: Pid,
        /// And by descriptor.
        pidfd: OwnedFd,
    },
}

/// Whose child the new process is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Parent {
    /// The caller.
    Caller,
    /// The caller's own parent, which gets the exit signal (`CLONE_PARENT`).
    CallersParent,
}

/// Copies the calling process into new namespaces and, if given, straight into a cgroup (clone3(2)).
///
/// The caller must be single-threaded.
///
/// # Errors
/// The errno of clone3(2); `E2BIG` or `EINVAL` where the kernel cannot clone into a cgroup (before Linux 5.7).
pub fn clone_into(
    namespaces: CloneFlags,
    cgroup: Option<BorrowedFd<'_>>,
    parent: Parent,
) -> Result<Cloned, Errno> {
    let mut pidfd: i32 = -1;
    // SAFETY: `clone_args` is plain numbers; all zeroes is a valid value for it.
    let mut args: libc::clone_args = unsafe { std::mem::zeroed() };
    args.flags = namespaces.bits() as u32 as u64 | libc::CLONE_PIDFD as u64;
    args.pidfd = (&raw mut pidfd) as u64;
    match parent {
        Parent::Caller => args.exit_signal = libc::SIGCHLD as u64,
        Parent::CallersParent => args.flags |= libc::CLONE_PARENT as u64,
    }
    let mut size = BYTES_WITHOUT_CGROUP;
    if let Some(cgroup) = cgroup {
        args.flags |= CLONE_INTO_CGROUP;
        args.cgroup = cgroup.as_raw_fd() as u64;
        size = size_of::<libc::clone_args>();
    }
    // SAFETY: neither CLONE_VM nor a stack is given, so the child runs on a copy of this stack, as after
    // fork(2); `args` and `pidfd` outlive the call. The caller has no other thread whose locks could be lost.
    let pid = unsafe { libc::syscall(libc::SYS_clone3, &raw mut args, size) };
    match Errno::result(pid)? {
        0 => Ok(Cloned::Child),
        pid => Ok(Cloned::Parent {
            pid: Pid::from_raw(pid as i32),
            // SAFETY: with CLONE_PIDFD the kernel has stored a new descriptor of ours in `pidfd`.
            pidfd: unsafe { OwnedFd::from_raw_fd(pidfd) },
        }),
    }
}

/// One line of an id map: one id inside, one outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IdPair {
    /// In the namespace.
    pub inside: u32,
    /// In the parent's.
    pub outside: u32,
}

/// Writes `uid_map` or `gid_map` of a process, `/proc/PID/FILE`.
///
/// # Errors
/// The errno of open(2) or write(2), see user_namespaces(7).
pub fn write_map(process: &Path, file: &str, pairs: &[IdPair]) -> Result<(), Errno> {
    super::file::write_once(&process.join(file), map_lines(pairs).as_bytes())
}

/// The lines of an id map.
#[must_use]
pub fn map_lines(pairs: &[IdPair]) -> String {
    pairs.iter().map(|pair| format!("{} {} 1\n", pair.inside, pair.outside)).collect()
}

/// The lines of an id map with this pair, in which all other ids are themselves. Nothing is mapped to the outer id of the pair a
/// second time.
#[must_use]
pub fn map_lines_with_others(own: IdPair) -> String {
    let (low, high) = (own.inside.min(own.outside), own.inside.max(own.outside));
    // The last number is no id.
    let runs = [(0, low), (low.saturating_add(1), high), (high.saturating_add(1), u32::MAX)];
    let runs = runs.into_iter().filter(|(first, end)| first < end);
    let others: String = runs.map(|(first, end)| format!("{first} {first} {}\n", end - first)).collect();
    format!("{}{others}", map_lines(&[own]))
}

/// Bytes of stack for the process that holds a namespace and does nothing but wait to be killed.
const HOLDER_STACK_BYTES: usize = 16 << 10;

/// A user namespace with these maps and no process in it: what an id-mapped mount wants. The caller needs
/// `CAP_SETUID` and `CAP_SETGID` over its own namespace.
///
/// # Errors
/// The errno of clone(2), of opening the namespace, or of writing a map.
pub fn make_user_namespace(uids: &str, gids: &str) -> Result<OwnedFd, Errno> {
    extern "C" fn wait_for_the_kill(maker: *mut libc::c_void) -> libc::c_int {
        // If its maker is killed it must not stay, with copies of all descriptors.
        // SAFETY: prctl(2) with numbers only; it touches no memory.
        unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
        // The signal is for deaths from then on.
        // SAFETY: getppid(2) takes nothing and touches no memory.
        if unsafe { libc::getppid() } as usize != maker.addr() {
            return 0;
        }
        loop {
            // SAFETY: pause(2) takes nothing and touches no memory.
            unsafe { libc::pause() };
        }
    }
    let mut stack = vec![0_u128; HOLDER_STACK_BYTES / size_of::<u128>()];
    // SAFETY: the child shares our memory (CLONE_VM) but has a stack of its own, which lives until after it
    // was killed and reaped below, and it runs nothing but prctl(2), getppid(2) and pause(2), or returns, which is
    // exit(2) of that process alone; the stack's end is 16-byte aligned. What it is given is a number, not an address.
    let pid = unsafe {
        libc::clone(
            wait_for_the_kill,
            stack.as_mut_ptr().add(stack.len()).cast(),
            libc::CLONE_VM | libc::CLONE_NEWUSER | libc::SIGCHLD,
            std::ptr::without_provenance_mut(std::process::id() as usize),
        )
    };
    let pid = Pid::from_raw(Errno::result(pid)?);
    let process = std::path::PathBuf::from(format!("/proc/{pid}"));
    let put = |file: &str, lines: &str| super::file::write_once(&process.join(file), lines.as_bytes());
    let namespace = put("uid_map", uids)
        .and_then(|()| put("gid_map", gids))
        .and_then(|()| super::file::open_read(&process.join("ns/user")));
    // The child is ours and unreaped, so its pid is still its own. Nothing but ESRCH could go wrong.
    let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL);
    while nix::sys::wait::waitpid(pid, None) == Err(Errno::EINTR) {}
    drop(stack);
    namespace
}

/// Whether processes can be held by descriptor here (pidfd_open(2), tried on this process).
#[must_use]
pub fn can_open_pidfd() -> bool {
    open_pidfd(Pid::this()).is_ok()
}

/// Opens a process by descriptor (pidfd_open(2)).
///
/// # Errors
/// The errno of pidfd_open(2); `ESRCH` when there is no such process.
pub fn open_pidfd(process: Pid) -> Result<OwnedFd, Errno> {
    // SAFETY: only numbers are passed.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, process.as_raw(), 0_u32) };
    // SAFETY: on success the kernel has just made this descriptor for us alone.
    Errno::result(fd).map(|fd| unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// Whether a thread is there and leads its thread group, told by a signal that is not sent (tgkill(2)).
///
/// # Errors
/// `ESRCH`: it is not there, or does not lead; `EPERM`: it may not be asked.
pub fn reaches_leader(thread: i32) -> Result<(), Errno> {
    // SAFETY: only numbers are passed, and signal 0 is none.
    Errno::result(unsafe { libc::syscall(libc::SYS_tgkill, thread, thread, 0) }).map(drop)
}

/// Sends KILL to a process held by descriptor (pidfd_send_signal(2)). One that has ended needs none.
///
/// # Errors
/// The errno of pidfd_send_signal(2).
pub fn kill_pidfd(process: BorrowedFd<'_>) -> Result<(), Errno> {
    // SAFETY: a null siginfo asks for what kill(2) would send; the other arguments are numbers.
    let sent = unsafe {
        libc::syscall(
            libc::SYS_pidfd_send_signal,
            process.as_raw_fd(),
            libc::SIGKILL,
            std::ptr::null::<libc::siginfo_t>(),
            0_u32,
        )
    };
    match Errno::result(sent) {
        Ok(_) | Err(Errno::ESRCH) => Ok(()),
        Err(errno) => Err(errno),
    }
}

/// Writes `uid_map`.
pub const NEWUIDMAP: &str = "newuidmap";
/// Writes `gid_map`.
pub const NEWGIDMAP: &str = "newgidmap";

/// Where distributions have them. No PATH is asked: a caller could have set it.
const DIRECTORIES: [&str; 4] = ["/usr/bin", "/usr/sbin", "/usr/local/bin", "/run/wrappers/bin"];

/// The program of this name, if it can gain privileges: root's, not writable by others, with the set-uid bit or file capabilities,
/// on a mount that honours them.
#[must_use]
pub fn find_map_program(name: &str) -> Option<PathBuf> {
    DIRECTORIES.iter().map(|directory| Path::new(directory).join(name)).find(|path| gains_privileges(path))
}

fn gains_privileges(path: &Path) -> bool {
    let Ok(file) = path.metadata() else { return false };
    let mode = file.permissions().mode();
    let is_roots = file.is_file() && file.uid() == 0 && mode & 0o022 == 0;
    let is_honoured = statvfs(path).is_ok_and(|mount| !mount.flags().contains(FsFlags::ST_NOSUID));
    is_roots
        && is_honoured
        && (mode & 0o4000 != 0 || super::file::has_attribute(path, c"security.capability"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_map_with_others_has_each_id_once_on_each_side() {
        let lines = |inside, outside| map_lines_with_others(IdPair { inside, outside });
        assert_eq!(lines(1000, 70_000), "1000 70000 1\n0 0 1000\n1001 1001 68999\n70001 70001 4294897294\n");
        assert_eq!(lines(0, 7), "0 7 1\n1 1 6\n8 8 4294967287\n");
    }
}
