//! Whether an open file may be executed (faccessat2(2)).

use std::os::fd::{AsRawFd, BorrowedFd};

use nix::errno::Errno;

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
