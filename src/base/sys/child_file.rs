//! What a new process finds out about a file before it executes it. As [`super::child`]: raw system calls on its own stack.

use std::ffi::c_char;

use super::clone::raw_syscall;

/// The identity of a file: `st_dev`, `st_ino` and `st_ctim` (in nanoseconds) of stat(2).
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExecutableId {
    /// The device.
    pub device: u64,
    /// The inode on it.
    pub inode: u64,
    /// When anything about it was last changed.
    pub changed_ns: i64,
}

/// Whether it is the file that was judged.
pub(super) fn is_same(status: Result<libc::stat, isize>, expected: &ExecutableId) -> bool {
    // Wrapping, as in the gateway's computation: only equality matters.
    let changed =
        |status: &libc::stat| status.st_ctime.wrapping_mul(1_000_000_000).wrapping_add(status.st_ctime_nsec);
    status.is_ok_and(|status| {
        status.st_dev == expected.device
            && status.st_ino == expected.inode
            && changed(&status) == expected.changed_ns
    })
}

/// stat(2) of a path relative to a directory; with `AT_EMPTY_PATH` and an empty one, of what is open as `directory`.
///
/// # Safety
/// `path` is a C string.
pub(super) unsafe fn status_of(
    directory: usize,
    path: *const c_char,
    flags: usize,
) -> Result<libc::stat, isize> {
    // SAFETY: plain data for which all zeroes is valid, on our own stack.
    let mut status: libc::stat = unsafe { std::mem::zeroed() };
    let to = &raw mut status as usize;
    // SAFETY: the kernel writes one `stat`.
    let result = unsafe { raw_syscall(libc::SYS_newfstatat, [directory, path as usize, to, flags, 0]) };
    if result < 0 { Err(result) } else { Ok(status) }
}
