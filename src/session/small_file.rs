//! Reads a small file of a caller as data, with whatever rights the thread has. Never waits for a pipe, and opens no
//! device.

use std::{
    io::{self, Read as _},
    os::fd::BorrowedFd,
    path::Path,
};

use nix::{
    errno::Errno,
    fcntl::{AtFlags, OFlag, OpenHow, ResolveFlag, openat2},
    sys::stat::{FileStat, fstat, fstatat},
};

/// Whether links on the way are followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Links {
    /// The file lies below the directory, without links.
    Refused,
    /// Links lead anywhere, but not by way of /proc.
    Followed,
}

/// A regular file, whole.
///
/// # Errors
/// Of openat2(2) and read(2); `EINVAL` for what is no regular file, `EFBIG` for one that is longer than `max_bytes`.
pub(super) fn read(
    directory: BorrowedFd<'_>,
    path: &Path,
    links: Links,
    max_bytes: u64,
) -> io::Result<Vec<u8>> {
    let (flags, resolve) = match links {
        Links::Refused => {
            (AtFlags::AT_SYMLINK_NOFOLLOW, ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_SYMLINKS)
        }
        Links::Followed => (AtFlags::empty(), ResolveFlag::RESOLVE_NO_MAGICLINKS),
    };
    let how = OpenHow::new()
        .flags(OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_NOCTTY | OFlag::O_CLOEXEC)
        .resolve(resolve);
    let is_regular = |stat: &FileStat| stat.st_mode & libc::S_IFMT == libc::S_IFREG;
    // Before it is opened: to open a device can do something by itself.
    if !is_regular(&fstatat(directory, path, flags)?) {
        return Err(Errno::EINVAL.into());
    }
    let file = std::fs::File::from(openat2(directory, path, how)?);
    if !is_regular(&fstat(&file)?) {
        return Err(Errno::EINVAL.into());
    }
    let mut bytes = Vec::new();
    file.take(max_bytes + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > max_bytes {
        return Err(Errno::EFBIG.into());
    }
    Ok(bytes)
}
