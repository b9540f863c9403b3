//! Random bytes from the kernel (getrandom(2)), good enough for secrets.

use nix::errno::Errno;

/// Fills an array.
///
/// # Errors
/// The errno of getrandom(2).
pub fn bytes<const LENGTH: usize>() -> Result<[u8; LENGTH], Errno> {
    let mut bytes = [0; LENGTH];
    let mut filled = 0;
    while filled < LENGTH {
        let rest = &mut bytes[filled..];
        // SAFETY: the kernel writes at most `rest.len()` bytes to `rest`.
        let count = unsafe { libc::getrandom(rest.as_mut_ptr().cast(), rest.len(), 0) };
        match Errno::result(count) {
            Ok(count) => filled += count.unsigned_abs(),
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(bytes)
}
