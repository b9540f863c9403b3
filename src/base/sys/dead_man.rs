//! A dead-man pipe: the holder of the write end can end this process, and ends it by its own end.
//!
//! The kernel sends KILL when the read end becomes readable or loses its writers (fcntl(2), F_SETSIG), also to a process that
//! is stopped or spins. The writer needs neither a right over this process nor a name for it.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use nix::{
    errno::Errno,
    poll::{PollFd, PollFlags, PollTimeout, poll},
};

/// Lets the writer of this pipe kill this process from here on. The ids must not be changed later: the kernel compares them.
///
/// # Errors
/// The errno of fcntl(2); `EPIPE` if the writer has written or closed before.
pub fn arm(read_end: BorrowedFd<'_>) -> Result<(), Errno> {
    let descriptor = read_end.as_raw_fd();
    // SAFETY: fcntl(2) with numbers only, on a descriptor that is borrowed for the call.
    unsafe {
        Errno::result(libc::fcntl(descriptor, libc::F_SETOWN, std::process::id()))?;
        Errno::result(libc::fcntl(descriptor, F_SETSIG, libc::SIGKILL))?;
        Errno::result(libc::fcntl(descriptor, libc::F_SETFL, libc::O_ASYNC | libc::O_NONBLOCK))?;
    }
    let mut ends = [PollFd::new(read_end.as_fd(), PollFlags::POLLIN)];
    if poll(&mut ends, PollTimeout::ZERO)? > 0 { Err(Errno::EPIPE) } else { Ok(()) }
}

/// asm-generic/fcntl.h; x86 and ARM have the same.
const F_SETSIG: libc::c_int = 10;
