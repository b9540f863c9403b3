//! Undoes what was done to a file: what was there comes back, and what is there gets a name that no tool reads. Nothing is lost: it may be a
//! person's.

use std::{
    ffi::{OsStr, OsString},
    os::fd::{AsFd, OwnedFd},
    path::Path,
};

use nix::{
    errno::Errno,
    fcntl::{OFlag, renameat},
    sys::stat::{Mode, fchmod},
    unistd::{UnlinkatFlags, symlinkat, unlinkat, write},
};

use super::{FileContent, QUARANTINE_MARK, RESTORE_MARK, Tree, with_write_permission};
use crate::sys::file::{exchange, rename_absent};

/// What came of an undo.
#[derive(Debug)]
pub struct Undone {
    /// Whether the path holds what it held before; if not, nothing is there.
    pub is_restored: bool,
    /// The name, in the same directory, of what was there; `None`: it was no other than what is there now.
    pub kept: Option<OsString>,
}

impl Tree {
    /// Makes a path hold what it held before, and gives what is there a name that no tool reads: in one step, so that the path is never
    /// without a file, but on a file system that cannot exchange names. `known`: what an earlier undo of this path has kept. What is the
    /// same is not kept twice.
    ///
    /// # Errors
    /// `ENOENT`: nothing was there. Nothing has changed then.
    pub fn restore(&self, path: &Path, before: &FileContent, known: Option<&OsStr>) -> Result<Undone, Errno> {
        let (directory, name) = self.open_parent(path)?;
        let new = suffixed(name, QUARANTINE_MARK);
        let exchanged = with_write_permission(&directory, || {
            make(&directory, &new, before)?;
            exchange(directory.as_fd(), &new, name).inspect_err(|_| {
                let _ = unlinkat(&directory, new.as_os_str(), UnlinkatFlags::NoRemoveDir);
            })
        });
        match exchanged {
            Err(Errno::EINVAL) => {
                let kept = self.quarantine(path)?.kept;
                Ok(Undone { is_restored: put(&directory, name, before).is_ok(), kept })
            }
            Err(errno) => Err(errno),
            Ok(()) => {
                let kept =
                    with_write_permission(&directory, || Ok(keep_once(&directory, &new, before, known)))?;
                Ok(Undone { is_restored: true, kept })
            }
        }
    }

    /// Renames what is at a path to a name in the same directory that no tool reads.
    pub fn quarantine(&self, path: &Path) -> Result<Undone, Errno> {
        let (directory, name) = self.open_parent(path)?;
        let kept = with_write_permission(&directory, || rename_to_quarantine(&directory, name))?;
        Ok(Undone { is_restored: false, kept: Some(kept) })
    }
}

/// Removes what was taken out of its place where the same is there already: in the place itself, or by the name of an earlier undo. Returns
/// where it is otherwise. Nobody is asked whose it was: whatever is not there a second time stays.
fn keep_once(
    directory: &OwnedFd,
    taken: &OsStr,
    before: &FileContent,
    known: Option<&OsStr>,
) -> Option<OsString> {
    let content = |name: &OsStr| {
        let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let place = nix::fcntl::openat(directory, name, flags, Mode::empty()).ok()?;
        match Tree::content_at(&place).0 {
            content @ (FileContent::File { .. } | FileContent::Link(_)) => Some(content),
            FileContent::Absent | FileContent::Directory | FileContent::Unsupported(_) => None,
        }
    };
    let Some(found) = content(taken) else { return Some(taken.to_owned()) };
    let known = known.filter(|known| content(known).as_ref() == Some(&found));
    if known.is_none() && found != *before {
        return Some(taken.to_owned());
    }
    let _ = unlinkat(directory, taken, UnlinkatFlags::NoRemoveDir);
    known.map(OsStr::to_owned)
}

/// Makes a file in a place where nothing is.
fn put(directory: &OwnedFd, name: &OsStr, before: &FileContent) -> Result<(), Errno> {
    let new = suffixed(name, RESTORE_MARK);
    with_write_permission(directory, || {
        make(directory, &new, before)?;
        renameat(directory, new.as_os_str(), directory, name).inspect_err(|_| {
            let _ = unlinkat(directory, new.as_os_str(), UnlinkatFlags::NoRemoveDir);
        })
    })
}

fn suffixed(name: &OsStr, part: &str) -> OsString {
    let mut new = name.to_owned();
    new.push(part);
    new.push(ulid::Ulid::generate().to_string());
    new
}

fn make(directory: &OwnedFd, name: &OsStr, content: &FileContent) -> Result<(), Errno> {
    match content {
        FileContent::File { bytes, mode } => make_file(directory, name, bytes, *mode),
        FileContent::Link(target) => symlinkat(target.as_path(), directory, name),
        FileContent::Absent | FileContent::Directory | FileContent::Unsupported(_) => Err(Errno::ENOENT),
    }
}

fn make_file(directory: &OwnedFd, name: &OsStr, bytes: &[u8], mode: u32) -> Result<(), Errno> {
    let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let file = nix::fcntl::openat(directory, name, flags, Mode::S_IRUSR | Mode::S_IWUSR)?;
    let mut left = bytes;
    let mut written = || -> Result<(), Errno> {
        while !left.is_empty() {
            match write(&file, left) {
                Ok(count) => left = &left[count..],
                Err(Errno::EINTR) => {}
                Err(errno) => return Err(errno),
            }
        }
        fchmod(&file, Mode::from_bits_truncate(mode & 0o7777))
    };
    written().inspect_err(|_| {
        let _ = unlinkat(directory, name, UnlinkatFlags::NoRemoveDir);
    })
}

fn rename_to_quarantine(directory: &OwnedFd, name: &OsStr) -> Result<OsString, Errno> {
    let new_name = suffixed(name, QUARANTINE_MARK);
    match rename_absent(directory.as_fd(), name, &new_name) {
        // A file system without the flag. The new name is unique.
        Err(Errno::EINVAL) => renameat(directory, name, directory, new_name.as_os_str()),
        done => done,
    }?;
    Ok(new_name)
}
