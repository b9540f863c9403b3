//! A calling thread by its directory in a /proc: its numbers, its working directory, its descriptors, a path in its memory.
//!
//! The directory is of one thread, whichever has its number later. Other threads may change everything that is read here.

use std::{
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::Path,
};

use nix::{
    errno::Errno,
    fcntl::{OFlag, openat},
    sys::{stat::Mode, uio::pread},
};

use super::walk::OwnNumbers;
use crate::sys::file;

/// The longest path with its NUL (PATH_MAX, limits.h).
const MAX_PATH_BYTES: usize = 4096;
/// What is read at once does not cross the end of a page: the next one may not be there.
const PAGE_BYTES: u64 = 4096;

const OPEN_PATH: OFlag = OFlag::O_PATH.union(OFlag::O_CLOEXEC);

/// A thread.
#[derive(Debug)]
pub(super) struct Task {
    directory: OwnedFd,
}

impl Task {
    /// The thread that has this number in the pid namespace of this /proc.
    pub(super) fn open(proc: BorrowedFd<'_>, thread: i32) -> Result<Self, Errno> {
        let flags = OPEN_PATH | OFlag::O_DIRECTORY;
        openat(proc, thread.to_string().as_str(), flags, Mode::empty()).map(|directory| Self { directory })
    }

    /// What it and its group are in the innermost pid namespace.
    pub(super) fn numbers(&self) -> Result<OwnNumbers, Errno> {
        let status = file::read_at(self.directory.as_fd(), Path::new("status"))?;
        let number = |field| last_number(&status, field);
        Ok(OwnNumbers { thread: number("NSpid:")?, group: number("NStgid:")? })
    }

    pub(super) fn working_directory(&self) -> Result<OwnedFd, Errno> {
        openat(&self.directory, "cwd", OPEN_PATH, Mode::empty())
    }

    /// What it has open under this number.
    pub(super) fn descriptor(&self, number: i32) -> Result<OwnedFd, Errno> {
        openat(&self.directory, format!("fd/{number}").as_str(), OPEN_PATH, Mode::empty()).map_err(|errno| {
            match errno {
                Errno::ENOENT => Errno::EBADF,
                other => other,
            }
        })
    }

    /// Whether a descriptor is one of `O_PATH`, by which nothing can be changed.
    pub(super) fn is_path_only(&self, number: i32) -> Result<bool, Errno> {
        let information = file::read_at(self.directory.as_fd(), Path::new(&format!("fdinfo/{number}")))
            .map_err(|errno| if errno == Errno::ENOENT { Errno::EBADF } else { errno })?;
        let information = String::from_utf8_lossy(&information);
        let flags = information.lines().find_map(|line| line.strip_prefix("flags:"));
        let flags =
            flags.and_then(|flags| i32::from_str_radix(flags.trim(), 8).ok()).ok_or(Errno::EBADMSG)?;
        Ok(flags & libc::O_PATH != 0)
    }

    /// The path that begins at an address of its memory.
    pub(super) fn path(&self, address: u64) -> Result<Vec<u8>, Errno> {
        let memory = openat(&self.directory, "mem", OFlag::O_RDONLY | OFlag::O_CLOEXEC, Mode::empty())?;
        let (mut path, mut part) = (Vec::new(), [0; PAGE_BYTES as usize]);
        loop {
            let at = address.checked_add(path.len() as u64).ok_or(Errno::EFAULT)?;
            let length = (PAGE_BYTES - at % PAGE_BYTES) as usize;
            let at = i64::try_from(at).map_err(|_| Errno::EFAULT)?;
            let read = match pread(&memory, &mut part[..length], at) {
                Ok(0) | Err(Errno::EIO) => return Err(Errno::EFAULT),
                Ok(count) => &part[..count],
                Err(Errno::EINTR) => continue,
                Err(errno) => return Err(errno),
            };
            let end = read.iter().position(|byte| *byte == 0);
            path.extend_from_slice(&read[..end.unwrap_or(read.len())]);
            if path.len() >= MAX_PATH_BYTES {
                return Err(Errno::ENAMETOOLONG);
            }
            if end.is_some() {
                return Ok(path);
            }
        }
    }
}

/// The last number of a line of proc_pid_status(5).
fn last_number(status: &[u8], field: &str) -> Result<i32, Errno> {
    let status = String::from_utf8_lossy(status);
    let line = status.lines().find_map(|line| line.strip_prefix(field));
    line.and_then(|line| line.split_ascii_whitespace().last()?.parse().ok()).ok_or(Errno::EBADMSG)
}

#[cfg(test)]
mod tests {
    use std::{ffi::CString, fs::File, os::fd::AsRawFd};

    use super::*;

    fn own() -> Task {
        Task::open(File::open("/proc").unwrap().as_fd(), std::process::id().cast_signed()).unwrap()
    }

    #[test]
    fn a_path_is_read_to_its_end_and_has_a_bound() {
        let path = CString::new(vec![b'p'; MAX_PATH_BYTES]).unwrap();
        let address = path.as_ptr() as u64;
        assert_eq!(own().path(address), Err(Errno::ENAMETOOLONG));
        assert_eq!(own().path(address + 1).unwrap().len(), MAX_PATH_BYTES - 1);
        assert_eq!(own().path(address + MAX_PATH_BYTES as u64).unwrap(), b"");
        for unreadable in [0, 8, u64::MAX, 1 << 63] {
            assert_eq!(own().path(unreadable), Err(Errno::EFAULT), "{unreadable:#x}");
        }
    }

    #[test]
    fn a_descriptor_of_a_path_is_told_from_another_one() {
        let by_path = nix::fcntl::open("/", OPEN_PATH, Mode::empty()).unwrap();
        let file = File::open("/").unwrap();
        assert_eq!(own().is_path_only(by_path.as_raw_fd()), Ok(true));
        assert_eq!(own().is_path_only(file.as_raw_fd()), Ok(false));
        assert_eq!(own().is_path_only(-1), Err(Errno::EBADF));
        assert_eq!(own().descriptor(99_999).map(drop), Err(Errno::EBADF));
    }
}
