//! Directories and files beneath an open directory, found and made without following any link, and the options of new
//! file systems.

use std::{
    ffi::{CStr, CString},
    os::fd::{BorrowedFd, OwnedFd},
    path::Path,
};

use nix::{
    errno::Errno,
    fcntl::{OFlag, OpenHow, ResolveFlag, openat, openat2},
    sys::stat::Mode,
};

use crate::{
    proto::supervisor::Mount,
    sys::mount::{Attributes, FsOption},
};

/// For all file systems that are not the host's own: no set-id programs, no devices.
pub(super) const NO_SUID_NO_DEV: Attributes = Attributes::NO_SET_ID.and(Attributes::NO_DEVICES);

/// Opens an object without following a link or leaving the directory.
pub(super) fn open_beneath(directory: BorrowedFd<'_>, name: &Path) -> Result<OwnedFd, Errno> {
    let how = OpenHow::new()
        .flags(OFlag::O_PATH | OFlag::O_CLOEXEC)
        .resolve(ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_SYMLINKS);
    openat2(directory, name, how)
}

pub(super) fn is_directory(object: BorrowedFd<'_>) -> Result<bool, Errno> {
    Ok(nix::sys::stat::fstat(object)?.st_mode & libc::S_IFMT == libc::S_IFDIR)
}

pub(super) fn create_file(directory: BorrowedFd<'_>, name: &Path) -> Result<OwnedFd, Errno> {
    let flags = OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_WRONLY | OFlag::O_CLOEXEC;
    openat(directory, name, flags, Mode::from_bits_truncate(0o644))
}

pub(super) fn write_new(directory: BorrowedFd<'_>, name: &Path, mount: &Mount) -> Result<OwnedFd, Errno> {
    let file = create_file(directory, name)?;
    let mut rest = mount.content.as_ref();
    while !rest.is_empty() {
        rest = &rest[nix::unistd::write(&file, rest)?..];
    }
    nix::sys::stat::fchmod(&file, Mode::from_bits_truncate(mount.mode))?;
    Ok(file)
}

/// The path relative to the root; `EINVAL` if it could lead out.
pub(super) fn below_root(target: &Path) -> Result<&Path, Errno> {
    let below = target.strip_prefix("/").map_err(|_| Errno::EINVAL)?;
    if below.components().all(|part| matches!(part, std::path::Component::Normal(_))) {
        Ok(below)
    } else {
        Err(Errno::EINVAL)
    }
}

pub(super) fn fs_option(name: &'static CStr, value: &str) -> FsOption {
    FsOption::Value(name, CString::new(value).unwrap_or_default())
}
