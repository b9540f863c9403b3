//! Directories of sandboxes in the hierarchies: made, owned, killed, removed.
//!
//! By path, from the gateway's side, below its own group only. Leaves of terminals are the supervisor's.

use std::{
    ffi::CString,
    io,
    os::{
        fd::{AsFd, OwnedFd},
        unix::fs::{MetadataExt, OpenOptionsExt, chown},
    },
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use nix::{
    errno::Errno,
    poll::{PollFd, PollFlags, PollTimeout, poll},
};

use super::Hierarchy;

/// What a directory could not be made to do.
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
    /// Other programs' processes are in it, so that it can hand down no controller.
    #[error(
        "cgroup {path} has {others} other processes and can hand down no controller: start the gateway in a group of its own"
    )]
    Shared {
        /// Which one.
        path: PathBuf,
        /// How many processes there are besides the one that asks.
        others: usize,
    },
    /// It could not be handed to the supervisor.
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
    /// Somebody keeps a lock on it that only those hold who are about to remove it.
    #[error("cgroup {path} is claimed by somebody who does not remove it")]
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
/// [`DirectoryError::Make`].
pub fn make(path: &Path) -> Result<(), CgroupError> {
    match std::fs::create_dir(path) {
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => std::fs::create_dir_all(path),
        Err(cause) if cause.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        done => done,
    }
    .map_err(|cause| CgroupError::Make { path: path.to_owned(), cause })
}

/// Lets controllers through to the directories below.
///
/// # Errors
/// [`DirectoryError::Set`]; `EBUSY` when the group has processes of its own.
pub fn enable_controllers(path: &Path, controllers: &[String]) -> Result<(), CgroupError> {
    if controllers.is_empty() {
        return Ok(());
    }
    let value: Vec<String> = controllers.iter().map(|name| format!("+{name}")).collect();
    set(&path.join("cgroup.subtree_control"), &value.join(" "))
}

/// Whether a v2 directory lets all of these controllers through already.
#[must_use]
pub fn has_enabled(path: &Path, controllers: &[String]) -> bool {
    let enabled = std::fs::read_to_string(path.join("cgroup.subtree_control")).unwrap_or_default();
    controllers.iter().all(|wanted| enabled.split_whitespace().any(|name| name == wanted))
}

/// The processes directly in a directory; 0 stands for one outside of this process's namespace.
///
/// # Errors
/// [`DirectoryError::Open`].
pub fn processes(path: &Path) -> Result<Vec<u32>, CgroupError> {
    let file = path.join("cgroup.procs");
    match std::fs::read_to_string(&file) {
        Ok(text) => Ok(text.lines().filter_map(|line| line.parse().ok()).collect()),
        Err(cause) => Err(CgroupError::Open { path: file, cause }),
    }
}

/// Hands a directory to its supervisor: what it needs to make leaves and to put processes into them (cgroups(7),
/// "delegation"). The files with the sandbox's own limits stay the gateway's.
///
/// # Errors
/// [`DirectoryError::Delegate`].
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
/// [`DirectoryError::Open`].
pub fn open(path: &Path) -> Result<OwnedFd, CgroupError> {
    std::fs::OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_DIRECTORY | libc::O_NOFOLLOW)
        .open(path)
        .map(OwnedFd::from)
        .map_err(|cause| CgroupError::Open { path: path.to_owned(), cause })
}

/// Kills everything in a v2 directory and below (`cgroup.kill`, Linux 5.14).
///
/// # Errors
/// [`DirectoryError::Set`].
pub fn kill(path: &Path) -> Result<(), CgroupError> {
    set(&path.join("cgroup.kill"), "1")
}

/// Waits until a v2 directory says that nothing is in it or below; `false` when the time is over first. A directory that is
/// gone has nothing in it.
///
/// # Errors
/// [`DirectoryError::Open`] when it cannot be asked.
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

/// Removes a directory and those below it, deepest first. One that is gone is removed.
///
/// # Errors
/// [`DirectoryError::Remove`].
pub fn remove(path: &Path) -> Result<(), CgroupError> {
    let error = |cause| CgroupError::Remove { path: path.to_owned(), cause };
    let gone = |cause: &io::Error| cause.kind() == io::ErrorKind::NotFound;
    match std::fs::remove_dir(path) {
        Ok(()) => return Ok(()),
        Err(cause) if gone(&cause) => return Ok(()),
        // There may be directories below; files do not count in these file systems.
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

/// Whether anything runs in a directory or below.
#[must_use]
pub fn has_processes(path: &Path) -> bool {
    // An unreadable one is taken for occupied: nothing is removed on a guess.
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

/// Whether this process could make directories here.
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

/// Tells other gateways, by a shared lock for as long as this lives, that somebody is at home in a directory.
pub type PresenceLock = nix::fcntl::Flock<OwnedFd>;

/// How long a directory may be held by whoever is about to remove it. Removing takes microseconds; this is for a host
/// on which nothing gets its turn.
const MAKE_TIMEOUT: Duration = Duration::from_secs(1);
/// How often it is tried again: no event tells of it.
const RETRY_INTERVAL: Duration = Duration::from_millis(1);

/// Makes a directory, if there is none, and declares presence in it: nobody takes it for abandoned from then on. One
/// that is being removed as abandoned at this moment is made again.
///
/// # Errors
/// [`DirectoryError::Make`], [`DirectoryError::Open`]; [`DirectoryError::Claimed`] when somebody keeps the right to remove it.
pub fn make_locked(path: &Path) -> Result<PresenceLock, CgroupError> {
    let deadline = Instant::now() + MAKE_TIMEOUT;
    loop {
        make(path)?;
        if let Some(presence) = lock_presence(path)? {
            return Ok(presence);
        }
        if Instant::now() >= deadline {
            return Err(CgroupError::Locked { path: path.to_owned() });
        }
        std::thread::park_timeout(RETRY_INTERVAL);
    }
}

/// `None` when the directory is about to be removed, or is.
fn lock_presence(path: &Path) -> Result<Option<PresenceLock>, CgroupError> {
    let error = |cause| CgroupError::Open { path: path.to_owned(), cause };
    let directory = match open(path) {
        Ok(directory) => directory,
        Err(CgroupError::Open { cause, .. }) if cause.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let presence = match nix::fcntl::Flock::lock(directory, nix::fcntl::FlockArg::LockSharedNonblock) {
        Ok(presence) => presence,
        Err((_, Errno::EWOULDBLOCK)) => return Ok(None),
        Err((_, errno)) => return Err(error(errno.into())),
    };
    // A lock on a directory that has been removed meanwhile keeps nobody from anything.
    let held = nix::sys::stat::fstat(presence.as_fd()).map_err(|errno| error(errno.into()))?;
    let is_there = match std::fs::metadata(path) {
        Ok(there) => (there.dev(), there.ino()) == (held.st_dev, held.st_ino),
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => false,
        Err(cause) => return Err(error(cause)),
    };
    Ok(is_there.then_some(presence))
}

/// The right to remove a directory in which nobody is present; `None` when somebody is.
#[must_use]
pub fn lock_abandoned(directory: OwnedFd) -> Option<PresenceLock> {
    nix::fcntl::Flock::lock(directory, nix::fcntl::FlockArg::LockExclusiveNonblock).ok()
}
