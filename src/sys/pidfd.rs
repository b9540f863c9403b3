//! Processes by descriptor: pidfd_open(2), pidfd_send_signal(2).
//!
//! A signal through a pidfd reaches the process that had the pid when it was opened, or none.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use nix::errno::Errno;

/// A process, whatever becomes of its pid.
#[derive(Debug)]
pub struct Pidfd(OwnedFd);

impl Pidfd {
    /// The process that has `pid` in our pid namespace now.
    ///
    /// # Errors
    /// The errno of pidfd_open(2): `ESRCH` when there is none.
    pub fn open(pid: i32) -> Result<Self, Errno> {
        // SAFETY: takes two integers.
        let raw = Errno::result(unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) })?;
        // SAFETY: the kernel has just made this descriptor for us.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(raw as i32) }))
    }

    /// Sends a signal.
    ///
    /// # Errors
    /// The errno of pidfd_send_signal(2): `ESRCH` when it has ended and was reaped.
    pub fn signal(&self, signal: i32) -> Result<(), Errno> {
        let none = std::ptr::null::<libc::siginfo_t>();
        // SAFETY: a null siginfo asks for what kill(2) would send.
        let result =
            unsafe { libc::syscall(libc::SYS_pidfd_send_signal, self.0.as_raw_fd(), signal, none, 0) };
        Errno::result(result).map(drop)
    }
}

impl From<Pidfd> for OwnedFd {
    fn from(process: Pidfd) -> Self {
        process.0
    }
}
