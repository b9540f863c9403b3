//! Whether two tasks share a resource: kcmp(2).

use nix::errno::Errno;

/// `KCMP_FS`: working directory, root and umask.
pub const DIRECTORY: u32 = 3;

/// Whether what one task's chdir(2) changes is the other's directory, too.
///
/// # Errors
/// `ESRCH`: one is gone; `EPERM`: one may not be looked at; `ENOSYS`: the kernel cannot compare.
pub fn share_directory(task: i32, other: i32) -> Result<bool, Errno> {
    // SAFETY: of this kind the call takes numbers, and touches no memory.
    let order = unsafe { libc::syscall(libc::SYS_kcmp, task, other, DIRECTORY, 0, 0) };
    Errno::result(order).map(|order| order == 0)
}
