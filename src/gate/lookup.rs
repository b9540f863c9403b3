//! Finds the file that a caller's path means, as the kernel would find it for the caller.
//!
//! The gate has the callers' root, mounts and rights to files. What differs is /proc/self and what leads through it, which the
//! gate follows name by name for the caller.

use std::{
    ffi::CString,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
};

use nix::{
    errno::Errno,
    fcntl::{AT_FDCWD, AtFlags, OFlag, OpenHow, ResolveFlag, openat, openat2, readlinkat},
    sys::{
        stat::{FileStat, Mode, SFlag, fstat, fstatat},
        statfs::{PROC_SUPER_MAGIC, fstatfs},
    },
};

use super::process::HostProc;
use crate::sys::access;

/// Links on the way to a file (path_resolution(7)).
const MAX_LINKS: usize = 40;
/// The inode number of a /proc's root.
const PROC_ROOT: u64 = 1;

/// Whose paths are looked up.
#[derive(Debug, Clone, Copy)]
pub(super) struct Lookup<'a> {
    pub(super) proc: &'a HostProc,
    /// The caller; `None` for paths that no process has given.
    pub(super) thread: Option<i32>,
}

/// Whether the last name may be a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LastLink {
    Follow,
    /// `AT_SYMLINK_NOFOLLOW`.
    Refuse,
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
        if path.is_empty() {
            return Err(Errno::ENOENT);
        }
        let root = || openat(AT_FDCWD, c"/", OPEN | OFlag::O_DIRECTORY, Mode::empty());
        let mut at = if path.starts_with(b"/") {
            root()?
        } else {
            openat(from, c".", OPEN | OFlag::O_DIRECTORY, Mode::empty())?
        };
        let mut rest = names(path);
        let mut links = 0;
        while let Some(name) = rest.pop() {
            let is_last = rest.is_empty();
            if let Some(own) = self.own_name(at.as_fd(), &name)? {
                rest.extend(names(&own));
                continue;
            }
            let c_name = CString::new(name.as_slice()).map_err(|_| Errno::EINVAL)?;
            let next = openat(&at, c_name.as_c_str(), OPEN | OFlag::O_NOFOLLOW, Mode::empty())?;
            if kind(&fstat(&next)?) != SFlag::S_IFLNK || (is_last && last == LastLink::Refuse) {
                at = next;
                continue;
            }
            links += 1;
            if links > MAX_LINKS {
                return Err(Errno::ELOOP);
            }
            if is_proc(next.as_fd())? && fstat(&at)?.st_ino != PROC_ROOT {
                // A link to an object that a process has: it can only be followed.
                at = openat(&at, c_name.as_c_str(), OPEN, Mode::empty())?;
                continue;
            }
            let target = readlinkat(&next, c"")?;
            if target.as_bytes().starts_with(b"/") {
                at = root()?;
            }
            rest.extend(names(target.as_bytes()));
        }
        if path.ends_with(b"/") && kind(&fstat(&at)?) != SFlag::S_IFDIR {
            return Err(Errno::ENOTDIR);
        }
        Ok(at)
    }

    /// What /proc/self and /proc/thread-self are to the caller.
    fn own_name(&self, directory: BorrowedFd<'_>, name: &[u8]) -> Result<Option<Vec<u8>>, Errno> {
        let (Some(thread), b"self" | b"thread-self") = (self.thread, name) else { return Ok(None) };
        if fstat(directory)?.st_ino != PROC_ROOT || !is_proc(directory)? {
            return Ok(None);
        }
        let (inner, group) = self.proc.inner_numbers(thread)?;
        Ok(Some(
            match name {
                b"self" => group.to_string(),
                _ => format!("{group}/task/{inner}"),
            }
            .into_bytes(),
        ))
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

fn kind(status: &FileStat) -> SFlag {
    SFlag::from_bits_truncate(status.st_mode & SFlag::S_IFMT.bits())
}

fn is_proc(object: BorrowedFd<'_>) -> Result<bool, Errno> {
    fstatfs(object.as_fd()).map(|found| found.filesystem_type() == PROC_SUPER_MAGIC)
}

/// The names on a path, the last one first.
fn names(path: &[u8]) -> Vec<Vec<u8>> {
    let names = path.split(|byte| *byte == b'/').filter(|name| !name.is_empty() && *name != b".");
    names.rev().map(<[u8]>::to_vec).collect()
}
