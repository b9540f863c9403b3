//! Small files of the kernel's own file systems, and descriptors: whole-value writes and reads with the errno
//! kept, and closing all that is not wanted. Whether an open file may be executed.
//!
//! For /proc and cgroup files only: contents are bounded, nothing is created, nothing is retried.

use std::{
    ffi::{CStr, CString, OsStr},
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd},
        unix::ffi::OsStrExt,
    },
    path::Path,
};

use nix::{
    errno::Errno,
    fcntl::{OFlag, open, openat},
    sys::stat::Mode,
};

/// The most that is read of a kernel file, in bytes.
const MAX_READ_BYTES: usize = 1 << 20;

/// Gives something in a directory another name there, unless something has that name.
///
/// # Errors
/// `EEXIST`: the name is taken; `EINVAL`: the file system cannot tell.
pub fn rename_absent(directory: BorrowedFd<'_>, name: &OsStr, new_name: &OsStr) -> Result<(), Errno> {
    rename_with(directory, name, new_name, libc::RENAME_NOREPLACE)
}

/// Lets two things in a directory have each other's name, in one step.
///
/// # Errors
/// `ENOENT`: one of them is not there; `EINVAL`: the file system cannot do it.
pub fn exchange(directory: BorrowedFd<'_>, name: &OsStr, other: &OsStr) -> Result<(), Errno> {
    rename_with(directory, name, other, libc::RENAME_EXCHANGE)
}

/// renameat2(2), which not every C library has.
fn rename_with(
    directory: BorrowedFd<'_>,
    name: &OsStr,
    new_name: &OsStr,
    flags: libc::c_uint,
) -> Result<(), Errno> {
    let (name, new_name) = (c_path(Path::new(name))?, c_path(Path::new(new_name))?);
    let directory = directory.as_raw_fd();
    // SAFETY: the paths end with a NUL and outlive the call, which reads them.
    let done = unsafe {
        libc::syscall(libc::SYS_renameat2, directory, name.as_ptr(), directory, new_name.as_ptr(), flags)
    };
    Errno::result(done).map(drop)
}

/// A path as the kernel wants it.
///
/// # Errors
/// `EINVAL` for a NUL inside.
pub fn c_path(path: &Path) -> Result<CString, Errno> {
    CString::new(path.as_os_str().as_bytes()).map_err(|_| Errno::EINVAL)
}

/// Whether a file has an extended attribute of this name (xattr(7)).
#[must_use]
pub fn has_attribute(path: &Path, name: &CStr) -> bool {
    let Ok(path) = c_path(path) else { return false };
    // SAFETY: getxattr(2) reads two strings that end in NUL and live through the call; with a size of 0 it writes nothing.
    let length = unsafe { libc::getxattr(path.as_ptr(), name.as_ptr(), std::ptr::null_mut(), 0) };
    length > 0
}

/// Three words in the argument registers that a call does not use, by which a sandbox's filter knows who makes it. Zeroes mean nothing.
pub type CallNonce = [usize; 3];

/// Sets the mode of an open object, also of one that was opened by `O_PATH`, with what is allowed to this thread by its ids for access to
/// files. `own_descriptors` is this process's /proc/self/fd: fchmodat2(2) has no registers for a nonce, and is not on every kernel.
///
/// # Errors
/// The errno of fchmodat(2).
pub fn set_mode_of_open(
    own_descriptors: BorrowedFd<'_>,
    object: BorrowedFd<'_>,
    mode: u32,
    [first, second, third]: CallNonce,
) -> Result<(), Errno> {
    let name = c_path(Path::new(&object.as_raw_fd().to_string()))?;
    let directory = own_descriptors.as_raw_fd();
    // SAFETY: the name ends with a NUL and outlives the call, which reads it; the rest are numbers.
    let done =
        unsafe { libc::syscall(libc::SYS_fchmodat, directory, name.as_ptr(), mode, first, second, third) };
    Errno::result(done).map(drop)
}

/// Opens a file for reading, close-on-exec.
///
/// # Errors
/// The errno of open(2).
pub fn open_read(path: &Path) -> Result<OwnedFd, Errno> {
    open(path, OFlag::O_RDONLY | OFlag::O_CLOEXEC, Mode::empty())
}

/// Writes a value in one write(2), as the kernel's files demand.
///
/// # Errors
/// The errno of open(2) or write(2); `EIO` for a short write.
pub fn write_once(path: &Path, value: &[u8]) -> Result<(), Errno> {
    put(&open(path, OFlag::O_WRONLY | OFlag::O_CLOEXEC, Mode::empty())?, value)
}

/// As [`write_once`], for a file in an open directory.
///
/// # Errors
/// As [`write_once`].
pub fn write_once_at(directory: BorrowedFd<'_>, name: &Path, value: &[u8]) -> Result<(), Errno> {
    put(&openat(directory, name, OFlag::O_WRONLY | OFlag::O_CLOEXEC, Mode::empty())?, value)
}

/// Reads a file whole.
///
/// # Errors
/// The errno of open(2) or read(2); `EFBIG` beyond a mebibyte.
pub fn read_at(directory: BorrowedFd<'_>, name: &Path) -> Result<Vec<u8>, Errno> {
    let file = openat(directory, name, OFlag::O_RDONLY | OFlag::O_CLOEXEC, Mode::empty())?;
    let mut bytes = Vec::new();
    let mut part = [0_u8; 4096];
    loop {
        match nix::unistd::read(&file, &mut part) {
            Ok(0) => return Ok(bytes),
            Ok(count) if bytes.len() + count > MAX_READ_BYTES => return Err(Errno::EFBIG),
            Ok(count) => bytes.extend_from_slice(&part[..count]),
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno),
        }
    }
}

fn put(file: &OwnedFd, value: &[u8]) -> Result<(), Errno> {
    match nix::unistd::write(file, value)? {
        count if count == value.len() => Ok(()),
        _ => Err(Errno::EIO),
    }
}

/// An owner of one of the others, such as an [`OwnedFd`], must be forgotten before.
///
/// # Errors
/// The errno of close_range(2).
pub fn close_all_except(kept: &[BorrowedFd<'_>]) -> Result<(), Errno> {
    let mut kept: Vec<RawFd> = kept.iter().map(AsRawFd::as_raw_fd).filter(|fd| *fd > 2).collect();
    kept.sort_unstable();
    kept.dedup();
    let mut from = 3_u32;
    for fd in kept {
        let fd = fd as u32;
        if fd > from {
            close_range(from, fd - 1)?;
        }
        from = fd + 1;
    }
    close_range(from, u32::MAX)
}

fn close_range(first: u32, last: u32) -> Result<(), Errno> {
    // SAFETY: only numbers are passed. That no owner of a closed descriptor is left is the caller's promise,
    // stated above.
    Errno::result(unsafe { libc::syscall(libc::SYS_close_range, first, last, 0_u32) }).map(drop)
}

/// Takes over descriptor 0, which the process was started with.
#[must_use]
pub fn dup_stdin() -> Option<OwnedFd> {
    // A copy, so that nobody else's idea of descriptor 0 is broken.
    // SAFETY: descriptor 0 is not owned by any object of this process; it is only borrowed for the copy.
    let stdin = unsafe { BorrowedFd::borrow_raw(0) };
    stdin.as_fd().try_clone_to_owned().ok()
}

/// Puts a file in the place of descriptors 0, 1 and 2.
///
/// # Errors
/// The errno of dup3(2).
pub fn replace_standard(file: BorrowedFd<'_>) -> Result<(), Errno> {
    nix::unistd::dup2_stdin(file)?;
    nix::unistd::dup2_stdout(file)?;
    nix::unistd::dup2_stderr(file)
}

/// Checks the right to execute as execve(2) does, with the ids for access to files, and the mount's `noexec`.
///
/// # Errors
/// `EACCES`; else the errno of faccessat2(2).
pub fn may_execute(file: BorrowedFd<'_>) -> Result<(), Errno> {
    let flags = libc::AT_EMPTY_PATH | libc::AT_EACCESS;
    // SAFETY: the path is a constant C string; the rest are numbers. Not through libc, which knows fewer flags.
    let done =
        unsafe { libc::syscall(libc::SYS_faccessat2, file.as_raw_fd(), c"".as_ptr(), libc::X_OK, flags) };
    Errno::result(done).map(drop)
}
