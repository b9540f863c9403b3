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

/// Reads whole pages of a thread's process, one after the other, until one cannot be read: how many bytes were read. As many
/// addresses are given as pages fit into `into`.
///
/// # Errors
/// As [`read`], for the first page.
pub fn read_pages(thread: i32, addresses: &[u64], into: &mut [u8]) -> Result<usize, Errno> {
    let length = into.len() / addresses.len().max(1);
    let mut remote = Vec::with_capacity(addresses.len());
    for address in addresses {
        let base = usize::try_from(*address).map_err(|_| Errno::EFAULT)?;
        remote.push(libc::iovec { iov_base: std::ptr::without_provenance_mut(base), iov_len: length });
    }
    let local = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: length * remote.len() };
    let (remote, parts) = (remote.as_ptr(), remote.len() as libc::c_ulong);
    // SAFETY: the kernel writes at most `length * addresses.len()` bytes, which `into` has, and reads `parts` iovecs, which outlive the
    // call. The remote addresses are only numbers here.
    let count = unsafe { libc::process_vm_readv(thread, &raw const local, 1, remote, parts, 0) };
    Errno::result(count).map(|count| count.unsigned_abs())
}
