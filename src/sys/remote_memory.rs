//! Reads the memory of another process (process_vm_readv(2)).
//!
//! The other process may change what is read at any time: the bytes are what was there once, and no more.

use nix::errno::Errno;

/// Reads from an address of a thread's process. A shorter read ends where memory cannot be read.
///
/// # Errors
/// `EFAULT`: nothing can be read at the address; `EPERM`: not by this process; `ESRCH`: the thread is gone.
pub fn read(thread: i32, address: u64, into: &mut [u8]) -> Result<usize, Errno> {
    let local = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() };
    let base = std::ptr::without_provenance_mut(usize::try_from(address).map_err(|_| Errno::EFAULT)?);
    let remote = libc::iovec { iov_base: base, iov_len: into.len() };
    // SAFETY: the kernel writes at most `into.len()` bytes to `into`. The remote address is only a number here.
    let count = unsafe { libc::process_vm_readv(thread, &raw const local, 1, &raw const remote, 1, 0) };
    Errno::result(count).map(|count| count.unsigned_abs())
}
