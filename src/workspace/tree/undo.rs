//! Undoes what was done to a file: what was there comes back, or what is there gets a name that no tool reads.

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

impl Tree {
    /// Makes a path hold what it held before. What is there is lost, but for a directory.
    pub fn restore(&self, path: &Path, before: &FileContent) -> Result<(), Errno> {
        let (directory, name) = self.open_parent(path)?;
        let new = suffixed(name, RESTORE_MARK);
        with_write_permission(&directory, || {
            make(&directory, &new, before)?;
            let done = match renameat(&directory, new.as_os_str(), &directory, name) {
                // A directory is in the place.
                Err(Errno::EISDIR) => {
                    rename_to_quarantine(&directory, name)?;
                    renameat(&directory, new.as_os_str(), &directory, name)
                }
                done => done,
            };
            if done.is_err() {
                let _ = unlinkat(&directory, new.as_os_str(), UnlinkatFlags::NoRemoveDir);
            }
            done
        })
    }

    /// Makes a path hold what it held before, and gives what is there a name that no tool reads: in one step, so that the path is never
    /// without a file, but on a file system that cannot exchange names. Whether it holds that; if not, nothing is there.
    ///
    /// # Errors
    /// `ENOENT`: nothing was there. Nothing has changed then.
    pub fn restore_and_quarantine(&self, path: &Path, before: &FileContent) -> Result<bool, Errno> {
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
                self.quarantine(path)?;
                Ok(self.restore(path, before).is_ok())
            }
            done => done.map(|()| true),
        }
    }

    /// Renames what is at a path to a name in the same directory that no tool reads.
    pub fn quarantine(&self, path: &Path) -> Result<(), Errno> {
        let (directory, name) = self.open_parent(path)?;
        with_write_permission(&directory, || rename_to_quarantine(&directory, name))
    }
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

fn rename_to_quarantine(directory: &OwnedFd, name: &OsStr) -> Result<(), Errno> {
    let new_name = suffixed(name, QUARANTINE_MARK);
    match rename_absent(directory.as_fd(), name, &new_name) {
        // A file system without the flag. The new name is unique.
        Err(Errno::EINVAL) => renameat(directory, name, directory, new_name.as_os_str()),
        done => done,
    }
}
