//! How many bytes can be read from a descriptor.

use std::os::fd::{AsFd, AsRawFd};

use nix::errno::Errno;

/// The number of bytes that a read would return now; for an inotify instance, of all queued events (inotify(7),
/// FIONREAD).
///
/// # Errors
/// The errno of ioctl(2).
pub fn bytes(descriptor: &impl AsFd) -> Result<usize, Errno> {
    let mut count: libc::c_int = 0;
    // SAFETY: FIONREAD writes one int to the address that it is given, which is a local's that outlives the call.
    let done = unsafe { libc::ioctl(descriptor.as_fd().as_raw_fd(), libc::FIONREAD, &raw mut count) };
    Errno::result(done)?;
    // The kernel's counts are not negative.
    Ok(usize::try_from(count).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn what_was_written_waits_until_it_is_read() {
        let (reader, mut writer) = std::io::pipe().unwrap();
        assert_eq!(bytes(&reader), Ok(0));
        writer.write_all(b"12345").unwrap();
        assert_eq!(bytes(&reader), Ok(5));
    }
}
