//! The answer to a change of mode with `S_ISGID`: done for a directory, through a descriptor of it, and for nothing else.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::{
    errno::Errno,
    sys::stat::{SFlag, fstat},
};

use super::{
    StartDirectory,
    mode_call::{ModeCall, Target},
    task::Task,
    walk::{LastLink, ObjectLinks, kind, walk},
};
use crate::sys::file::{self, CallNonce};

/// Where the process that answers looks.
#[derive(Debug, Clone, Copy)]
pub struct Viewpoint<'a> {
    /// A /proc in whose pid namespace callers have the numbers that it is notified of.
    pub proc: BorrowedFd<'a>,
    /// Its own descriptors there: /proc/self/fd.
    pub own_descriptors: BorrowedFd<'a>,
    /// What lets its own change of mode pass.
    pub nonce: CallNonce,
}

/// Does for a caller what it asks for, with the rights to files of this thread, which are the caller's: the kernel checks owner, groups and
/// mount. `is_waiting` tells whether the caller still waits for the answer.
///
/// # Errors
/// `EPERM` for what is no directory, and where the caller cannot be looked at; else the errno that the caller would get.
pub fn change_mode(
    view: &Viewpoint<'_>,
    thread: i32,
    call: &ModeCall,
    is_waiting: impl Fn() -> bool,
) -> Result<(), Errno> {
    if call.mode & libc::S_ISUID != 0 {
        return Err(Errno::EPERM);
    }
    let task = Task::open(view.proc, thread).map_err(unseen)?;
    let object = open(&task, &call.target)?;
    // If it does, its number was its own all the time.
    if !is_waiting() {
        return Err(Errno::ESRCH);
    }
    match kind(&fstat(&object)?) {
        SFlag::S_IFDIR => file::set_mode_of_open(view.own_descriptors, object.as_fd(), call.mode, view.nonce),
        // By `AT_SYMLINK_NOFOLLOW`: a link has no mode.
        SFlag::S_IFLNK => Err(Errno::EOPNOTSUPP),
        _ => Err(Errno::EPERM),
    }
}

fn open(task: &Task, target: &Target) -> Result<OwnedFd, Errno> {
    match *target {
        Target::Open(number) if task.is_path_only(number).map_err(unseen)? => Err(Errno::EBADF),
        Target::Open(number) => task.descriptor(number).map_err(unseen),
        Target::Path { from, address, last, may_be_empty } => {
            let path = task.path(address).map_err(unseen)?;
            if path.is_empty() && !may_be_empty {
                return Err(Errno::ENOENT);
            }
            let from = match from {
                // Nothing is relative to it.
                _ if path.starts_with(b"/") => None,
                StartDirectory::Working => Some(task.working_directory().map_err(unseen)?),
                StartDirectory::Descriptor(number) => Some(task.descriptor(number).map_err(unseen)?),
            };
            match from {
                Some(object) if path.is_empty() => Ok(object),
                from => follow(task, from.as_ref(), &path, last),
            }
        }
    }
}

fn follow(task: &Task, from: Option<&OwnedFd>, path: &[u8], last: LastLink) -> Result<OwnedFd, Errno> {
    let from = from.map_or(nix::fcntl::AT_FDCWD, AsFd::as_fd);
    walk(from, path, last, ObjectLinks::OfCaller, &|| task.numbers().map(Some).map_err(unseen))
}

/// A caller that may not be looked at (prctl(2), `PR_SET_DUMPABLE`) is refused as before.
fn unseen(errno: Errno) -> Errno {
    match errno {
        Errno::EBADF | Errno::EFAULT | Errno::ENAMETOOLONG | Errno::ENOMEM => errno,
        _ => Errno::EPERM,
    }
}
