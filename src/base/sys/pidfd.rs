//! Processes by descriptor: pidfd_open(2), pidfd_send_signal(2), and what the kernel says about one.
//!
//! A signal through a pidfd reaches the process that had the pid when it was opened, or none.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use nix::errno::Errno;

/// The thread's group and cgroup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ThreadInfo {
    /// The number of its group in our pid namespace.
    pub group: i32,
    /// Its cgroup of version 2. No other cgroup ever has this number.
    pub cgroup: u64,
}

/// `PIDFD_THREAD`, since Linux 6.9.
const THREAD: libc::c_int = libc::O_EXCL;

/// `struct pidfd_info` of linux/pidfd.h in its first version.
#[repr(C)]
#[derive(Debug, Default)]
struct Info {
    mask: u64,
    cgroup: u64,
    pid: u32,
    group: u32,
    parent: u32,
    ids: [u32; 8],
    exit_code: i32,
}

/// `PIDFD_GET_INFO`, since Linux 6.13: read and write of [`Info`], 64 bytes.
const GET_INFO: libc::Ioctl = 0xC040_FF0B_u32 as libc::Ioctl;
const HAS_CGROUP: u64 = 1 << 2;

/// The command of [`thread_info`].
pub const INFO_COMMAND: u32 = GET_INFO as u32;

/// Says what a thread is, with a descriptor of it, which is only to be closed.
///
/// # Errors
/// `ESRCH`: it is gone; `EINVAL`, `ENOTTY` and `ENODATA`: the kernel cannot say it.
pub fn thread_info(thread: i32) -> Result<(OwnedFd, ThreadInfo), Errno> {
    // SAFETY: takes two integers.
    let raw = Errno::result(unsafe { libc::syscall(libc::SYS_pidfd_open, thread, THREAD) })?;
    // SAFETY: the kernel has just made this descriptor for us.
    let opened = unsafe { OwnedFd::from_raw_fd(raw as i32) };
    let mut info = Info { mask: HAS_CGROUP, ..Info::default() };
    // SAFETY: the kernel reads and writes one `Info` of the size that the command has in it.
    Errno::result(unsafe { libc::ioctl(opened.as_raw_fd(), GET_INFO, &raw mut info) })?;
    if info.mask & HAS_CGROUP == 0 {
        return Err(Errno::ENODATA);
    }
    Ok((opened, ThreadInfo { group: info.group.cast_signed(), cgroup: info.cgroup }))
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_in_its_group_and_in_the_groups_cgroup() {
        let own = std::process::id().cast_signed();
        let leader = match thread_info(own) {
            Err(Errno::EINVAL | Errno::ENOTTY | Errno::ENODATA) => {
                println!("SKIPPED: the kernel does not say it");
                return;
            }
            known => known.unwrap().1,
        };
        assert_eq!(leader.group, own);
        let of_thread = || (nix::unistd::gettid().as_raw(), thread_info(nix::unistd::gettid().as_raw()));
        let (thread, info) = std::thread::scope(|scope| scope.spawn(of_thread).join().unwrap());
        assert_ne!(thread, own);
        assert_eq!(info.unwrap().1, leader);
    }

    #[test]
    fn a_number_that_nothing_has_is_refused() {
        assert!(thread_info(i32::MAX).is_err());
    }
}
