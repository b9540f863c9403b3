//! Finds the file that a caller's path means, as the kernel would find it for the caller.
//!
//! The gate has the callers' root, mounts and rights to files. What differs is /proc/self and what leads through it, which the
//! gate follows name by name for the caller.

use std::{
    ffi::CString,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use nix::{
    errno::Errno,
    fcntl::{AtFlags, OFlag, OpenHow, ResolveFlag, openat2},
    sys::stat::{FileStat, SFlag, fstat, fstatat},
};

use super::process::HostProc;
pub(super) use crate::caller::walk::LastLink;
use crate::{
    caller::walk::{ObjectLinks, is_proc, kind, walk},
    sys::access,
};

/// Whose paths are looked up.
#[derive(Debug, Clone, Copy)]
pub(super) struct Lookup<'a> {
    pub(super) proc: &'a HostProc,
    /// The caller; `None` for paths that no process has given.
    pub(super) thread: Option<i32>,
}

const OPEN: OFlag = OFlag::O_PATH.union(OFlag::O_CLOEXEC);

impl Lookup<'_> {
    /// Opens what a path means, relative to a directory, and says what it is.
    ///
    /// # Errors
    /// The errno that the caller would get.
    pub(super) fn open(
        &self,
        from: BorrowedFd<'_>,
        path: &[u8],
        last: LastLink,
    ) -> Result<(OwnedFd, FileStat), Errno> {
        let name = CString::new(path).map_err(|_| Errno::EINVAL)?;
        let flags = if last == LastLink::Refuse { OPEN | OFlag::O_NOFOLLOW } else { OPEN };
        let how = OpenHow::new().flags(flags).resolve(ResolveFlag::RESOLVE_NO_MAGICLINKS);
        let opened = match openat2(from, name.as_c_str(), how) {
            Ok(opened) => opened,
            // Programs are looked for in one directory after another: most names that are not there are simply not there.
            Err(Errno::ENOENT) if is_absent(from, path) => return Err(Errno::ENOENT),
            // The way may lead through /proc/self, which the gate does not have there, or through a link of a process.
            Err(Errno::ENOENT | Errno::ELOOP) => self.walk(from, path, last)?,
            Err(errno) => return Err(errno),
        };
        let status = fstat(&opened)?;
        if kind(&status) == SFlag::S_IFLNK { Err(Errno::ELOOP) } else { Ok((opened, status)) }
    }

    fn walk(&self, from: BorrowedFd<'_>, path: &[u8], last: LastLink) -> Result<OwnedFd, Errno> {
        let own = || self.thread.map(|thread| self.proc.inner_numbers(thread)).transpose();
        walk(from, path, last, ObjectLinks::OfAll, &own)
    }
}

/// Whether the directory of a path is there for everybody, and has no such name.
fn is_absent(from: BorrowedFd<'_>, path: &[u8]) -> bool {
    let (directory, name) = match path.iter().rposition(|byte| *byte == b'/') {
        Some(at) => (&path[..=at], &path[at + 1..]),
        None => (b".".as_slice(), path),
    };
    // A name behind which a slash stands is one more on the way.
    if name.is_empty() {
        return false;
    }
    let looked_up = || -> Result<bool, Errno> {
        let c_string = |text: &[u8]| CString::new(text).map_err(|_| Errno::EINVAL);
        let (directory, name) = (c_string(directory)?, c_string(name)?);
        let how = OpenHow::new().flags(OPEN | OFlag::O_DIRECTORY).resolve(ResolveFlag::RESOLVE_NO_MAGICLINKS);
        let directory = openat2(from, directory.as_c_str(), how)?;
        // There a name may mean something to the caller alone.
        if is_proc(directory.as_fd())? {
            return Ok(false);
        }
        match fstatat(&directory, name.as_c_str(), AtFlags::AT_SYMLINK_NOFOLLOW) {
            Err(Errno::ENOENT) => Ok(true),
            Ok(_) | Err(_) => Ok(false),
        }
    };
    looked_up().unwrap_or(false)
}

/// Whether execve(2) of this file would get past its checks of type, mount and mode.
///
/// # Errors
/// `EACCES` as execve(2).
pub(super) fn check_executable(file: BorrowedFd<'_>, status: &FileStat) -> Result<(), Errno> {
    if kind(status) != SFlag::S_IFREG {
        return Err(Errno::EACCES);
    }
    access::may_execute(file)
}
