//! Cgroups by path: made, limited, delegated, killed, removed.
//!
//! Used by the gateway, below its own cgroup only: for sandboxes and principals. Leaves of terminals belong to the supervisor, with their
//! limits ([`super::leaf`]).

use std::{
    ffi::CString,
    io,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, chown},
    },
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use cgroups_rs::{MaxValue, cpu::CpuController, error::Error, memory::MemController, pid::PidController};
use nix::{
    errno::Errno,
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::stat::{Mode, fchmod, fstat},
};

use super::Hierarchy;

/// Why an operation on a cgroup failed.
#[derive(Debug, thiserror::Error)]
pub enum CgroupError {
    /// A directory could not be made.
    #[error("make cgroup {path}")]
    Make {
        /// Where.
        path: PathBuf,
        /// Why.
        #[source]
        cause: io::Error,
    },
    /// A file in it could not be written.
    #[error("set {path} to {value}")]
    Set {
        /// Which file.
        path: PathBuf,
        /// To what.
        value: String,
        /// Why.
        #[source]
        cause: io::Error,
    },
    /// A limit on it could not be set.
    #[error("set {limit} of cgroup {path} to {value}")]
    Limit {
        /// Which one.
        path: PathBuf,
        /// As profiles call it.
        limit: &'static str,
        /// To what.
        value: u64,
        /// Why.
        #[source]
        cause: cgroups_rs::error::Error,
    },
    /// It holds processes of other programs, so it cannot enable controllers for its children.
    #[error(
        "cgroup {path} has {others} other processes and can hand down no controller: start the gateway in a group of its own"
    )]
    Shared {
        /// Which one.
        path: PathBuf,
        /// The number of other processes.
        others: usize,
    },
    /// It could not be delegated to the supervisor.
    #[error("give cgroup {path} to its supervisor")]
    Delegate {
        /// Which one.
        path: PathBuf,
        /// Why.
        #[source]
        cause: io::Error,
    },
    /// It could not be opened.
    #[error("open cgroup {path}")]
    Open {
        /// Which one.
        path: PathBuf,
        /// Why.
        #[source]
        cause: io::Error,
    },
    /// Another process holds the lock for removing it, and does not remove it.
    #[error("cgroup {path} is locked by a process that does not remove it")]
    Locked {
        /// Which one.
        path: PathBuf,
    },
    /// It could not be removed.
    #[error("remove cgroup {path}")]
    Remove {
        /// Which one.
        path: PathBuf,
        /// Why: `EBUSY` when there is still something in it.
        #[source]
        cause: io::Error,
    },
}

/// Makes a directory, and those above it up to a group that exists.
///
/// # Errors
/// [`CgroupError::Make`].
pub fn make(path: &Path) -> Result<(), CgroupError> {
    match make_below(path) {
        Err(CgroupError::Make { path, cause }) if cause.kind() == io::ErrorKind::NotFound => {
            std::fs::create_dir_all(&path).map_err(|cause| CgroupError::Make { path, cause })
        }
        done => done,
    }
}

/// Makes a cgroup below one that is there, if it is missing.
///
/// # Errors
/// [`CgroupError::Make`].
pub fn make_below(path: &Path) -> Result<(), CgroupError> {
    match std::fs::create_dir(path) {
        Err(cause) if cause.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        done => done.map_err(|cause| CgroupError::Make { path: path.to_owned(), cause }),
    }
}

/// Enables controllers for the children of a v2 cgroup.
///
/// # Errors
/// [`CgroupError::Set`]; `EBUSY` when the group has processes of its own.
pub fn enable_controllers(path: &Path, controllers: &[String]) -> Result<(), CgroupError> {
    if controllers.is_empty() {
        return Ok(());
    }
    let value: Vec<String> = controllers.iter().map(|name| format!("+{name}")).collect();
    set(&path.join("cgroup.subtree_control"), &value.join(" "))
}

/// Whether a v2 cgroup has all of these controllers enabled for its children.
#[must_use]
pub fn has_enabled(path: &Path, controllers: &[String]) -> bool {
    let enabled = std::fs::read_to_string(path.join("cgroup.subtree_control")).unwrap_or_default();
    controllers.iter().all(|wanted| enabled.split_whitespace().any(|name| name == wanted))
}

/// The processes directly in a cgroup; 0 stands for one outside of this process's pid namespace.
///
/// # Errors
/// [`CgroupError::Open`].
pub fn processes(path: &Path) -> Result<Vec<u32>, CgroupError> {
    let file = path.join("cgroup.procs");
    match std::fs::read_to_string(&file) {
        Ok(text) => Ok(text.lines().filter_map(|line| line.parse().ok()).collect()),
        Err(cause) => Err(CgroupError::Open { path: file, cause }),
    }
}

/// Delegates a cgroup to its supervisor: what it needs to make leaves and move processes into them (cgroups(7),
/// "delegation"). The files with the sandbox's own limits stay the gateway's.
///
/// # Errors
/// [`CgroupError::Delegate`].
pub fn delegate(path: &Path, hierarchy: Hierarchy, uid: u32, gid: u32) -> Result<(), CgroupError> {
    let files: &[&str] = match hierarchy {
        Hierarchy::V2 => &["", "cgroup.procs", "cgroup.threads", "cgroup.subtree_control"],
        Hierarchy::V1 => &["", "cgroup.procs", "tasks"],
    };
    for file in files {
        let path = if file.is_empty() { path.to_owned() } else { path.join(file) };
        chown(&path, Some(uid), Some(gid))
            .map_err(|cause| CgroupError::Delegate { path: path.clone(), cause })?;
    }
    Ok(())
}

/// Opens a directory for use by descriptor.
///
/// # Errors
/// [`CgroupError::Open`].
pub fn open(path: &Path) -> Result<OwnedFd, CgroupError> {
    std::fs::OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_DIRECTORY | libc::O_NOFOLLOW)
        .open(path)
        .map(OwnedFd::from)
        .map_err(|cause| CgroupError::Open { path: path.to_owned(), cause })
}

/// Kills everything in a v2 cgroup and below it (`cgroup.kill`, Linux 5.14).
///
/// # Errors
/// [`CgroupError::Set`].
pub fn kill(path: &Path) -> Result<(), CgroupError> {
    set(&path.join("cgroup.kill"), "1")
}

/// Waits until a v2 cgroup and those below it are empty; `false` on timeout. A removed cgroup is empty.
///
/// # Errors
/// [`CgroupError::Open`] when it cannot be asked.
pub fn wait_until_empty(path: &Path, timeout: Duration) -> Result<bool, CgroupError> {
    let deadline = Instant::now() + timeout;
    let events = path.join("cgroup.events");
    let error = |cause| CgroupError::Open { path: events.clone(), cause };
    let file = match std::fs::File::open(&events) {
        Ok(file) => file,
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => return Ok(true),
        Err(cause) => return Err(error(cause)),
    };
    let mut text = [0_u8; 256];
    loop {
        let count = match nix::sys::uio::pread(file.as_fd(), &mut text, 0) {
            Ok(count) => count,
            Err(Errno::ENODEV) => return Ok(true),
            Err(errno) => return Err(error(errno.into())),
        };
        if !String::from_utf8_lossy(&text[..count]).contains("populated 1") {
            return Ok(true);
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(false);
        }
        // The kernel raises POLLPRI when the file changes after it was read (cgroups(7)).
        let mut wait = [PollFd::new(file.as_fd(), PollFlags::POLLPRI)];
        let timeout = PollTimeout::try_from(left.as_millis().max(1)).unwrap_or(PollTimeout::MAX);
        match poll(&mut wait, timeout) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => return Err(error(errno.into())),
        }
    }
}

/// Removes a cgroup and those below it, deepest first. Succeeds if it is gone already.
///
/// # Errors
/// [`CgroupError::Remove`].
pub fn remove(path: &Path) -> Result<(), CgroupError> {
    let error = |cause| CgroupError::Remove { path: path.to_owned(), cause };
    let gone = |cause: &io::Error| cause.kind() == io::ErrorKind::NotFound;
    match std::fs::remove_dir(path) {
        Ok(()) => return Ok(()),
        Err(cause) if gone(&cause) => return Ok(()),
        // It may have child cgroups; files do not prevent removal.
        Err(_) => {}
    }
    let entries = match std::fs::read_dir(path) {
        Ok(entries) => entries,
        Err(cause) if gone(&cause) => return Ok(()),
        Err(cause) => return Err(error(cause)),
    };
    for entry in entries {
        let entry = entry.map_err(error)?;
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove(&entry.path())?;
        }
    }
    match std::fs::remove_dir(path) {
        Err(cause) if !gone(&cause) => Err(error(cause)),
        _ => Ok(()),
    }
}

/// Whether a cgroup or one below it has processes.
#[must_use]
pub fn has_processes(path: &Path) -> bool {
    // If it cannot be read it counts as occupied, so that nothing is removed on a guess.
    let Ok(processes) = std::fs::read(path.join("cgroup.procs")) else { return path.exists() };
    if !processes.is_empty() {
        return true;
    }
    let Ok(entries) = std::fs::read_dir(path) else { return path.exists() };
    entries
        .flatten()
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .any(|entry| has_processes(&entry.path()))
}

/// Whether this process can make cgroups here.
#[must_use]
pub fn is_writable(path: &Path) -> bool {
    use std::os::unix::ffi::OsStrExt;
    CString::new(path.as_os_str().as_bytes())
        .is_ok_and(|path| nix::unistd::access(path.as_c_str(), nix::unistd::AccessFlags::W_OK).is_ok())
}

fn set(path: &Path, value: &str) -> Result<(), CgroupError> {
    let written = std::fs::OpenOptions::new()
        .write(true)
        .open(path)
        .and_then(|file| nix::unistd::write(&file, value.as_bytes()).map_err(io::Error::from));
    written.map(drop).map_err(|cause| CgroupError::Set {
        path: path.to_owned(),
        value: value.to_owned(),
        cause,
    })
}

/// A shared lock on a cgroup's directory: while it is held, no other gateway removes the cgroup as abandoned.
pub type PresenceLock = nix::fcntl::Flock<OwnedFd>;

/// How long another process may hold the lock for removing a cgroup. Removal takes microseconds; this allows for an
/// overloaded host.
const MAKE_TIMEOUT: Duration = Duration::from_secs(1);
/// How often this is tried again: no event reports it.
const RETRY_INTERVAL: Duration = Duration::from_millis(1);

/// What a locked cgroup's directory allows others: to pass. A process that can open it for reading can lock it, too (flock(2)), and keep
/// gateways from it.
const LOCKED_MODE: u32 = 0o711;

/// Makes a cgroup, if it is missing, and locks it against removal as abandoned. One that is being removed at this
/// moment is made again. Nobody but its owner can lock it.
///
/// # Errors
/// [`CgroupError::Make`], [`CgroupError::Open`]; [`CgroupError::Locked`] when another process keeps the lock.
pub fn make_locked(path: &Path) -> Result<PresenceLock, CgroupError> {
    let deadline = Instant::now() + MAKE_TIMEOUT;
    loop {
        make_closed(path)?;
        if let Some(presence) = lock_presence(path)? {
            return Ok(presence);
        }
        if Instant::now() >= deadline {
            return Err(CgroupError::Locked { path: path.to_owned() });
        }
        std::thread::park_timeout(RETRY_INTERVAL);
    }
}

/// Makes it with its mode from the beginning, so that nobody opens it first.
fn make_closed(path: &Path) -> Result<(), CgroupError> {
    let create = || std::fs::DirBuilder::new().mode(LOCKED_MODE).create(path);
    let made = match (create(), path.parent()) {
        (Err(cause), Some(above)) if cause.kind() == io::ErrorKind::NotFound => {
            make(above)?;
            create()
        }
        (made, _) => made,
    };
    match made {
        Err(cause) if cause.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => made.map_err(|cause| CgroupError::Make { path: path.to_owned(), cause }),
    }
}

/// `None` when the cgroup is removed or about to be.
fn lock_presence(path: &Path) -> Result<Option<PresenceLock>, CgroupError> {
    let error = |cause| CgroupError::Open { path: path.to_owned(), cause };
    let directory = match open(path) {
        Ok(directory) => directory,
        Err(CgroupError::Open { cause, .. }) if cause.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    close_to_others(directory.as_fd()).map_err(|errno| error(errno.into()))?;
    let presence = match nix::fcntl::Flock::lock(directory, nix::fcntl::FlockArg::LockSharedNonblock) {
        Ok(presence) => presence,
        Err((_, Errno::EWOULDBLOCK)) => return Ok(None),
        Err((_, errno)) => return Err(error(errno.into())),
    };
    Ok(is_at(path, &presence).map_err(error)?.then_some(presence))
}

/// An earlier build has made it open to others, or the umask has closed it to all. One of another user's is refused later.
fn close_to_others(directory: BorrowedFd<'_>) -> Result<(), Errno> {
    let found = fstat(directory)?;
    if found.st_uid != nix::unistd::geteuid().as_raw() || found.st_mode & 0o777 == LOCKED_MODE {
        return Ok(());
    }
    fchmod(directory, Mode::from_bits_truncate(LOCKED_MODE))
}

/// Whether the cgroup at this path is the one that is locked: a lock on a removed directory protects nothing.
fn is_at(path: &Path, presence: &PresenceLock) -> io::Result<bool> {
    let held = fstat(presence.as_fd())?;
    match std::fs::metadata(path) {
        Ok(there) => Ok((there.dev(), there.ino()) == (held.st_dev, held.st_ino)),
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(cause) => Err(cause),
    }
}

/// Makes a lock the exclusive one for removing the cgroup at this path; `false` when another process uses the cgroup, too, and then the lock
/// may be lost (flock(2)), and when the cgroup was removed and another one is there.
#[must_use]
pub fn lock_alone(presence: &PresenceLock, path: &Path) -> bool {
    presence.relock(nix::fcntl::FlockArg::LockExclusiveNonblock).is_ok()
        && is_at(path, presence).unwrap_or(false)
}

/// The exclusive lock for removing a cgroup; `None` when a gateway uses it.
#[must_use]
pub fn lock_abandoned(directory: OwnedFd) -> Option<PresenceLock> {
    nix::fcntl::Flock::lock(directory, nix::fcntl::FlockArg::LockExclusiveNonblock).ok()
}

/// Limits on a cgroup; absent ones are not set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CgroupLimitValues {
    /// Bytes of memory.
    pub memory_bytes: Option<u64>,
    /// Bytes of swap beyond the memory.
    pub swap_bytes: Option<u64>,
    /// Bytes in network sockets, where version 1 counts them apart; the memory when that is less.
    pub socket_bytes: Option<u64>,
    /// Processes and threads.
    pub pids: Option<u64>,
    /// Thousandths of one processor.
    pub cpu_millis: Option<u64>,
    /// The share against sibling cgroups, from 1 to 10,000; the kernel's default is 100.
    pub cpu_weight: Option<u64>,
}

/// The period over which processor time is counted: the kernel's default.
const CPU_PERIOD_US: u64 = 100_000;

/// The most that the network sockets of a sandbox, and those of a principal, may hold in version 1, out of what the host has
/// for all (`net.ipv4.tcp_mem`).
pub const SOCKET_BYTES: u64 = 256 << 20;

/// Sets the limits that this cgroup's controllers support, and returns the names of those that were set. The names and formats of the files in
/// v1 and v2 are left to cgroups-rs; which limits are set, and what a missing file means, is decided here.
///
/// # Errors
/// [`CgroupError::Limit`].
pub fn set_limits(
    path: &Path,
    hierarchy: Hierarchy,
    controllers: &[String],
    limits: &CgroupLimitValues,
) -> Result<Vec<&'static str>, CgroupError> {
    let v2 = hierarchy == Hierarchy::V2;
    let has = |name: &str| controllers.iter().any(|one| one == name);
    let mut done = Vec::new();
    let mut put = |limit: &'static str, value: u64, result: Result<(), Error>| {
        done.push(limit);
        result.map_err(|cause| CgroupError::Limit { path: path.to_owned(), limit, value, cause })
    };
    if has("memory") {
        let memory = MemController::new(path.to_owned(), v2);
        if let Some(bytes) = limits.memory_bytes {
            put("memory_bytes", bytes, memory.set_limit(signed(bytes)))?;
        }
        if let Some(swap) = swap_value(path, v2, limits) {
            put("swap_bytes", swap, memory.set_memswap_limit(signed(swap)))?;
        }
    }
    if let (Some(sockets), Some(memory), true, false) =
        (limits.socket_bytes, limits.memory_bytes, has("memory"), v2)
    {
        limit_sockets(path, memory.min(sockets))?;
    }
    if let (Some(pids), true) = (limits.pids, has("pids")) {
        let controller = PidController::new(path.to_owned(), v2);
        put("pids", pids, controller.set_pid_max(MaxValue::Value(signed(pids))))?;
    }
    if let (Some(millis), true) = (limits.cpu_millis, has("cpu")) {
        let controller = CpuController::new(path.to_owned(), v2);
        let quota_us = signed(millis.saturating_mul(CPU_PERIOD_US / 1000));
        put("cpu_millis", millis, controller.set_cfs_quota_and_period(Some(quota_us), Some(CPU_PERIOD_US)))?;
    }
    if let (Some(weight), true) = (limits.cpu_weight, has("cpu")) {
        // Version 1 counts in shares, of which 1,024 are the default.
        let shares = if v2 { weight } else { (weight * 1024 / 100).max(2) };
        put("cpu_weight", weight, CpuController::new(path.to_owned(), v2).set_shares(shares))?;
    }
    Ok(done)
}

/// Version 2 counts the memory of network sockets as memory; version 1 has a file of its own for it, where the kernel has
/// one.
fn limit_sockets(path: &Path, bytes: u64) -> Result<(), CgroupError> {
    let file = path.join("memory.kmem.tcp.limit_in_bytes");
    if !file.exists() {
        return Ok(());
    }
    let value = bytes.to_string();
    std::fs::write(&file, &value).map_err(|cause| CgroupError::Set { path: file, value, cause })
}

/// What the swap file wants: swap alone in version 2, memory and swap together in version 1. `None` where the kernel
/// does not account for swap, so that there is none to limit, or where version 1 has no limit on memory to add to.
fn swap_value(path: &Path, v2: bool, limits: &CgroupLimitValues) -> Option<u64> {
    let swap = limits.swap_bytes?;
    let file = if v2 { "memory.swap.max" } else { "memory.memsw.limit_in_bytes" };
    if !path.join(file).exists() {
        return None;
    }
    if v2 { Some(swap) } else { limits.memory_bytes.map(|memory| memory.saturating_add(swap)) }
}

/// The crate counts with a sign, -1 meaning no limit. The highest number means no less to the kernel.
fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}
