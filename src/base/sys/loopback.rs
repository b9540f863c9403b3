//! Brings the loopback of a new network namespace up, and makes a network of addresses local to it: netdevice(7), rtnetlink(7).

use std::{
    net::Ipv4Addr,
    os::fd::{AsRawFd, OwnedFd},
};

use nix::{
    errno::Errno,
    sys::socket::{
        AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, recv, sendto, socket,
    },
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

/// The loopback of every network namespace (LOOPBACK_IFINDEX of the kernel).
const LOOPBACK_INDEX: u32 = 1;
const MESSAGE_HEADER_BYTES: usize = 16;

/// Adds `local NETWORK/PREFIX dev lo` to the local table: what is sent there arrives on the loopback. Needs `CAP_NET_ADMIN` over
/// the network namespace. A route that is there already is no error.
///
/// # Errors
/// The errno of socket(2), or of the kernel's answer.
pub fn add_local(network: Ipv4Addr, prefix: u8) -> Result<(), Errno> {
    let netlink = socket(
        AddressFamily::Netlink,
        SockType::Raw,
        SockFlag::SOCK_CLOEXEC,
        Some(SockProtocol::NetlinkRoute),
    )?;
    let request = request(network, prefix);
    sendto(netlink.as_raw_fd(), &request, &NetlinkAddr::new(0, 0), MsgFlags::empty())?;
    match answer(&netlink)? {
        0 | libc::EEXIST => Ok(()),
        errno => Err(Errno::from_raw(errno)),
    }
}

/// `nlmsghdr`, `rtmsg`, and two attributes, in the processor's byte order.
fn request(network: Ipv4Addr, prefix: u8) -> Vec<u8> {
    let mut body = vec![
        libc::AF_INET as u8,
        prefix,
        0,
        0,
        libc::RT_TABLE_LOCAL,
        libc::RTPROT_BOOT,
        libc::RT_SCOPE_HOST,
        libc::RTN_LOCAL,
    ];
    body.extend_from_slice(&0_u32.to_ne_bytes());
    for (kind, value) in [(libc::RTA_DST, network.octets()), (libc::RTA_OIF, LOOPBACK_INDEX.to_ne_bytes())] {
        body.extend_from_slice(&8_u16.to_ne_bytes());
        body.extend_from_slice(&kind.to_ne_bytes());
        body.extend_from_slice(&value);
    }
    let flags = libc::NLM_F_REQUEST | libc::NLM_F_ACK | libc::NLM_F_CREATE | libc::NLM_F_EXCL;
    let mut message = ((MESSAGE_HEADER_BYTES + body.len()) as u32).to_ne_bytes().to_vec();
    message.extend_from_slice(&libc::RTM_NEWROUTE.to_ne_bytes());
    message.extend_from_slice(&(flags as u16).to_ne_bytes());
    message.extend_from_slice(&[0; 8]);
    message.extend(body);
    message
}

/// The error number of the answer; 0: it was done.
fn answer(netlink: &OwnedFd) -> Result<i32, Errno> {
    let mut bytes = [0; 1_024];
    let count = recv(netlink.as_raw_fd(), &mut bytes, MsgFlags::empty())?;
    let kind = bytes.get(4..6).and_then(|kind| kind.try_into().ok()).map(u16::from_ne_bytes);
    let error = bytes.get(MESSAGE_HEADER_BYTES..MESSAGE_HEADER_BYTES + 4);
    match (kind, error.and_then(|error| error.try_into().ok())) {
        (Some(kind), Some(error)) if i32::from(kind) == libc::NLMSG_ERROR && count >= 20 => {
            Ok(-i32::from_ne_bytes(error))
        }
        _ => Err(Errno::EBADMSG),
    }
}
