//! Installing a system call filter: seccomp(2).
//!
//! The program comes from elsewhere; this file refuses one that is not a whole number of instructions and lets
//! the kernel check the rest.

use std::os::fd::{FromRawFd, OwnedFd};

use nix::errno::Errno;

/// Bytes of one `struct sock_filter`.
const INSTRUCTION_BYTES: usize = 8;

/// Puts the calling thread and all it will start under a classic BPF program, for ever.
///
/// Needs `no_new_privs`.
///
/// # Errors
/// `EINVAL` for a malformed program; else the errno of seccomp(2).
pub fn install(program: &[u8]) -> Result<(), Errno> {
    set_filter(program, 0).map(drop)
}

/// As [`install`], and returns the listener of the calls that the program notifies (seccomp_unotify(2)). A call that the
/// listener has received is then interrupted by nothing but a fatal signal, where the kernel can do that (since 5.19).
///
/// # Errors
/// As [`install`]; `EBUSY` if a filter that was inherited has a listener.
pub fn install_with_listener(program: &[u8]) -> Result<OwnedFd, Errno> {
    let listener = libc::SECCOMP_FILTER_FLAG_NEW_LISTENER as u32;
    let descriptor = match set_filter(program, listener | FLAG_WAIT_KILLABLE_RECV) {
        Err(Errno::EINVAL) => set_filter(program, listener)?,
        installed => installed?,
    };
    // SAFETY: with this flag the kernel has just made a descriptor for us (close-on-exec), and returned it.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// As [`install_with_listener`]. Where there can be no listener, because an inherited filter has one or refuses it, every call that
/// the program notifies fails with `EPERM`.
///
/// # Errors
/// As [`install`].
pub fn install_with_listener_or_refuse(program: &[u8]) -> Result<Option<OwnedFd>, Errno> {
    match install_with_listener(program) {
        Ok(listener) => Ok(Some(listener)),
        Err(_) => install(&refusing_what_it_notifies(program)).map(|()| None),
    }
}

/// The program with other answers. It has no instruction that returns anything but a constant.
fn refusing_what_it_notifies(program: &[u8]) -> Vec<u8> {
    let mut refusing = program.to_vec();
    for instruction in refusing.as_chunks_mut::<INSTRUCTION_BYTES>().0 {
        if instruction[..2] == RETURN.to_ne_bytes() && instruction[4..] == RETURN_NOTIFICATION.to_ne_bytes() {
            instruction[4..].copy_from_slice(&RETURN_REFUSAL.to_ne_bytes());
        }
    }
    refusing
}

/// `BPF_RET | BPF_K`.
const RETURN: u16 = 0x06;
const RETURN_NOTIFICATION: u32 = libc::SECCOMP_RET_USER_NOTIF;
const RETURN_REFUSAL: u32 = libc::SECCOMP_RET_ERRNO | libc::EPERM as u32;

/// `SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV`, which libc does not have.
const FLAG_WAIT_KILLABLE_RECV: u32 = 1 << 5;

fn set_filter(program: &[u8], flags: u32) -> Result<i32, Errno> {
    if program.is_empty() || !program.len().is_multiple_of(INSTRUCTION_BYTES) {
        return Err(Errno::EINVAL);
    }
    let mut instructions: Vec<libc::sock_filter> = program
        .chunks_exact(INSTRUCTION_BYTES)
        .map(|bytes| libc::sock_filter {
            code: u16::from_ne_bytes([bytes[0], bytes[1]]),
            jt: bytes[2],
            jf: bytes[3],
            k: u32::from_ne_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]),
        })
        .collect();
    let program = libc::sock_fprog {
        len: u16::try_from(instructions.len()).map_err(|_| Errno::EINVAL)?,
        filter: instructions.as_mut_ptr(),
    };
    // SAFETY: `program` points to `instructions` and says their number; both outlive the call, which copies.
    let done =
        unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &raw const program) };
    Errno::result(done).map(|done| done as i32)
}

/// Whether the kernel has filters that refuse calls.
#[must_use]
pub fn has_errno_action() -> bool {
    has_action(libc::SECCOMP_RET_ERRNO)
}

/// Whether the kernel has filters that notify of calls.
#[must_use]
pub fn has_notify_action() -> bool {
    has_action(libc::SECCOMP_RET_USER_NOTIF)
}

/// `SECCOMP_GET_ACTION_AVAIL` of seccomp(2).
fn has_action(action: u32) -> bool {
    // SAFETY: the pointer is to a u32 that outlives the call.
    let done =
        unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_GET_ACTION_AVAIL, 0_u32, &raw const action) };
    done == 0
}
