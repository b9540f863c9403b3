//! The listener of a system call filter: receives notified calls and answers them (seccomp_unotify(2)).
//!
//! Decides nothing. What a notification says about its caller is only numbers: they mean something while the
//! notification is valid.

use std::os::fd::{AsRawFd, BorrowedFd};

use nix::{
    errno::Errno,
    poll::{PollFd, PollFlags, PollTimeout, poll},
};

/// A call that waits for its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotifiedCall {
    /// Names the notification.
    pub id: u64,
    /// The calling thread, in the pid namespace of the caller of [`receive`]; 0 for one that has no number there.
    pub thread: i32,
    /// The call's number.
    pub number: i32,
    /// Its arguments.
    pub arguments: [u64; 6],
}

/// `SECCOMP_IOCTL_NOTIF_RECV`, `_SEND`, `_ID_VALID` and `_SET_FLAGS` of linux/seccomp.h: read and write of `seccomp_notif` (80
/// bytes) and `seccomp_notif_resp` (24 bytes), write of a `u64`.
const RECEIVE: libc::Ioctl = 0xC050_2100_u32 as libc::Ioctl;
const SEND: libc::Ioctl = 0xC018_2101_u32 as libc::Ioctl;
const ID_VALID: libc::Ioctl = 0x4008_2102_u32 as libc::Ioctl;
const SET_FLAGS: libc::Ioctl = 0x4008_2104_u32 as libc::Ioctl;

/// The commands of this file that are used after [`expect_turns`].
pub const COMMANDS: &[u32] = &[RECEIVE as u32, SEND as u32, ID_VALID as u32];

/// `SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP`, since Linux 6.6.
const WAKE_ON_SAME_PROCESSOR: u64 = 1;

/// Makes the kernel expect that caller and listener take turns, which saves a wake-up on another processor. Kernels before 6.6
/// cannot, and go on as before.
pub fn expect_turns(listener: BorrowedFd<'_>) {
    // SAFETY: the flags are passed by value; no memory is touched.
    unsafe { libc::ioctl(listener.as_raw_fd(), SET_FLAGS, WAKE_ON_SAME_PROCESSOR) };
}

/// Receives the next call. Does not wait if epoll has reported the listener as readable. `None`: the caller was killed
/// meanwhile.
///
/// # Errors
/// The errno of ioctl(2).
pub fn receive(listener: BorrowedFd<'_>) -> Result<Option<NotifiedCall>, Errno> {
    // SAFETY: plain data for which all zeroes is a valid value, and the value that the kernel demands.
    let mut notified: libc::seccomp_notif = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel writes one `seccomp_notif`, which is there.
    let done = unsafe { libc::ioctl(listener.as_raw_fd(), RECEIVE, &raw mut notified) };
    match Errno::result(done) {
        Ok(_) => Ok(Some(NotifiedCall {
            id: notified.id,
            thread: notified.pid.cast_signed(),
            number: notified.data.nr,
            arguments: notified.data.args,
        })),
        Err(Errno::ENOENT | Errno::EINTR) => Ok(None),
        Err(errno) => Err(errno),
    }
}

/// Whether another call waits to be received.
#[must_use]
pub fn has_call(listener: BorrowedFd<'_>) -> bool {
    let mut waited = [PollFd::new(listener, PollFlags::POLLIN)];
    poll(&mut waited, PollTimeout::ZERO).is_ok()
        && waited[0].revents().is_some_and(|ready| ready.contains(PollFlags::POLLIN))
}

/// Whether this kernel lets a caller wait for its answer until it is killed, once the call was received
/// (`SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV`, since Linux 5.19). `false` where that is not known.
#[must_use]
pub fn callers_wait_killable() -> bool {
    let Ok(system) = nix::sys::utsname::uname() else { return false };
    let release = system.release().to_string_lossy().into_owned();
    let mut numbers =
        release.split(|one: char| !one.is_ascii_digit()).map_while(|text| text.parse::<u32>().ok());
    (numbers.next(), numbers.next()) >= (Some(5), Some(19))
}

/// Whether the caller still waits: what was read by its number before was its own.
#[must_use]
pub fn is_waiting(listener: BorrowedFd<'_>, id: u64) -> bool {
    // SAFETY: the kernel reads one u64, which outlives the call.
    let done = unsafe { libc::ioctl(listener.as_raw_fd(), ID_VALID, &raw const id) };
    done == 0
}

/// The answer to a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallAnswer {
    /// It fails with this errno.
    Fail(Errno),
    /// It was done for the caller: it returns 0.
    Done,
    /// The kernel executes it, with whatever the caller's memory then holds.
    Continue,
}

/// Answers a call.
///
/// # Errors
/// `ENOENT`: the caller is gone; else the errno of ioctl(2).
pub fn answer(listener: BorrowedFd<'_>, id: u64, answer: CallAnswer) -> Result<(), Errno> {
    let (error, flags) = match answer {
        CallAnswer::Fail(errno) => (-(errno as i32), 0),
        CallAnswer::Done => (0, 0),
        CallAnswer::Continue => (0, libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32),
    };
    let response = libc::seccomp_notif_resp { id, val: 0, error, flags };
    // SAFETY: the kernel reads one `seccomp_notif_resp`, which outlives the call.
    Errno::result(unsafe { libc::ioctl(listener.as_raw_fd(), SEND, &raw const response) }).map(drop)
}
