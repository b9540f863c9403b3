//! Brings the loopback of a new network namespace up: netdevice(7).

use std::os::fd::AsRawFd;

use nix::{
    errno::Errno,
    sys::socket::{AddressFamily, SockFlag, SockType, socket},
};

/// Sets `lo` up if it is not. Needs `CAP_NET_ADMIN` over the network namespace; the kernel gives it its addresses.
///
/// # Errors
/// The errno of socket(2) or ioctl(2).
pub fn bring_up() -> Result<(), Errno> {
    let socket = socket(AddressFamily::Unix, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None)?;
    // SAFETY: `ifreq` is plain data for which all zeroes is a valid value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    request.ifr_name[0] = b'l' as libc::c_char;
    request.ifr_name[1] = b'o' as libc::c_char;
    // SAFETY: the request is the structure that this ioctl fills in, and outlives the call.
    let known =
        unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFFLAGS as libc::Ioctl, &raw mut request) };
    Errno::result(known)?;
    let up = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    // SAFETY: the flags are what the kernel has just stored, and any bits are valid for them.
    if unsafe { request.ifr_ifru.ifru_flags } & up == up {
        return Ok(());
    }
    request.ifr_ifru.ifru_flags = up;
    // SAFETY: the request is the structure that this ioctl reads, and outlives the call.
    let done =
        unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS as libc::Ioctl, &raw const request) };
    Errno::result(done).map(drop)
}
