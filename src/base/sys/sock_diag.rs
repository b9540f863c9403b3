//! Finds the socket of one TCP connection: sock_diag(7), asked for exactly that connection. The kernel looks it up in its table, so that it
//! costs the same however many connections there are. Never asks for a list.
//!
//! The kernel answers within sendto(2): nothing is ever waited for.

use std::{
    net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener},
    os::fd::{AsFd as _, AsRawFd, BorrowedFd, OwnedFd},
};

use nix::{
    errno::Errno,
    sys::socket::{
        AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, recvfrom, sendto, socket,
    },
};

/// From linux/sock_diag.h and linux/inet_diag.h.
pub(super) const SOCK_DIAG_BY_FAMILY: u16 = 20;
const NO_COOKIE: [u8; 8] = [0xff; 8];
/// From linux/tcp_states.h.
const ESTABLISHED: u8 = 1;

/// `nlmsghdr`.
pub(super) const HEADER_BYTES: usize = 16;
/// `inet_diag_sockid`, and where it begins in an answer.
const ENDS_FROM: usize = HEADER_BYTES + 4;
/// Where an answer has `idiag_inode`, its last field.
const INODE_FROM: usize = HEADER_BYTES + 68;
/// Longer than any answer that is read; what is behind it are attributes.
const ANSWER_BYTES: usize = 1_024;
/// Answers to earlier questions that are skipped.
const MAX_SKIPPED: usize = 8;

/// Makes a socket that finds connections of the calling process's network namespace, also in another process that is given it. It
/// does not block.
///
/// # Errors
/// The errno of socket(2).
pub fn open() -> Result<OwnedFd, Errno> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    socket(AddressFamily::Netlink, SockType::Raw, flags, Some(SockProtocol::NetlinkSockDiag))
}

/// The inode of the socket that has exactly these ends, its own one first, while it is established; a socket of IPv6 with mapped
/// addresses is one. `None`: there is none.
///
/// `number` tells the answer from those to earlier questions.
///
/// # Errors
/// The errno of the call, or of the kernel's answer; `EBADMSG` where there is none that can be read.
pub fn find(
    diag: BorrowedFd<'_>,
    number: u32,
    own: SocketAddrV4,
    other: SocketAddrV4,
) -> Result<Option<u64>, Errno> {
    let found = ask(diag, number, own, other)?;
    // Where there is no such connection the kernel may answer with a listener.
    let is_wanted = |one: &Found| one.ends == (own, other) && one.state == ESTABLISHED && one.inode != 0;
    Ok(found.filter(is_wanted).map(|one| one.inode))
}

/// Whether the kernel knows TCP sockets at all: it may be built without `tcp_diag`, or have that in a module that it does not find. A kernel
/// without it answers as if there were no such connection. It is asked for a listener of the caller's network; no packet is sent.
#[must_use]
pub fn knows_tcp() -> bool {
    let asked = || -> std::io::Result<bool> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let SocketAddr::V4(own) = listener.local_addr()? else { return Ok(false) };
        let diag = open()?;
        let nobody = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 1);
        Ok(ask(diag.as_fd(), 1, own, nobody)?.is_some_and(|found| found.ends.0 == own))
    };
    asked().unwrap_or(false)
}

/// What the kernel knows of one socket.
struct Found {
    inode: u64,
    state: u8,
    ends: (SocketAddrV4, SocketAddrV4),
}

fn ask(
    diag: BorrowedFd<'_>,
    number: u32,
    own: SocketAddrV4,
    other: SocketAddrV4,
) -> Result<Option<Found>, Errno> {
    sendto(diag.as_raw_fd(), &request(number, own, other), &NetlinkAddr::new(0, 0), MsgFlags::MSG_DONTWAIT)?;
    let mut bytes = [0; ANSWER_BYTES];
    for _ in 0..=MAX_SKIPPED {
        let (count, sender) = recvfrom::<NetlinkAddr>(diag.as_raw_fd(), &mut bytes)?;
        let answer = bytes.get(..count.min(ANSWER_BYTES)).unwrap_or_default();
        // The kernel alone has the number 0.
        if sender.is_some_and(|sender| sender.pid() == 0) && u32_at(answer, 8) == Some(number) {
            return read(answer);
        }
    }
    Err(Errno::EBADMSG)
}

/// `nlmsghdr` and `inet_diag_req_v2`, in the processor's byte order; ends are in the network's.
fn request(number: u32, own: SocketAddrV4, other: SocketAddrV4) -> Vec<u8> {
    let mut body = vec![libc::AF_INET as u8, libc::IPPROTO_TCP as u8, 0, 0];
    body.extend_from_slice(&(1_u32 << ESTABLISHED).to_ne_bytes());
    body.extend_from_slice(&own.port().to_be_bytes());
    body.extend_from_slice(&other.port().to_be_bytes());
    for address in [own.ip(), other.ip()] {
        body.extend_from_slice(&address.octets());
        body.extend_from_slice(&[0; 12]);
    }
    // Any interface.
    body.extend_from_slice(&[0; 4]);
    body.extend_from_slice(&NO_COOKIE);
    let mut message = ((HEADER_BYTES + body.len()) as u32).to_ne_bytes().to_vec();
    message.extend_from_slice(&SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    message.extend_from_slice(&(libc::NLM_F_REQUEST as u16).to_ne_bytes());
    message.extend_from_slice(&number.to_ne_bytes());
    message.extend_from_slice(&[0; 4]);
    message.extend(body);
    message
}

/// `nlmsghdr` and `inet_diag_msg`, or `nlmsgerr`.
fn read(answer: &[u8]) -> Result<Option<Found>, Errno> {
    let kind = u16_at(answer, 4).ok_or(Errno::EBADMSG)?;
    if i32::from(kind) == libc::NLMSG_ERROR {
        let error = u32_at(answer, HEADER_BYTES).ok_or(Errno::EBADMSG)?.cast_signed();
        return match Errno::from_raw(error.wrapping_neg()) {
            Errno::ENOENT => Ok(None),
            errno => Err(errno),
        };
    }
    let inode = u32_at(answer, INODE_FROM);
    let (Some(inode), SOCK_DIAG_BY_FAMILY, Some([family, state])) = (inode, kind, at(answer, HEADER_BYTES))
    else {
        return Err(Errno::EBADMSG);
    };
    let ends = ends(answer, i32::from(family)).ok_or(Errno::EBADMSG)?;
    Ok(Some(Found { inode: u64::from(inode), state, ends }))
}

fn ends(answer: &[u8], family: i32) -> Option<(SocketAddrV4, SocketAddrV4)> {
    let address = |from: usize| -> Option<Ipv4Addr> {
        match family {
            libc::AF_INET => at::<4>(answer, from).map(Ipv4Addr::from),
            libc::AF_INET6 => std::net::Ipv6Addr::from(at::<16>(answer, from)?)
                .to_ipv4_mapped()
                .or(Some(Ipv4Addr::UNSPECIFIED)),
            _ => None,
        }
    };
    let port = |from: usize| at::<2>(answer, from).map(u16::from_be_bytes);
    let own = SocketAddrV4::new(address(ENDS_FROM + 4)?, port(ENDS_FROM)?);
    Some((own, SocketAddrV4::new(address(ENDS_FROM + 20)?, port(ENDS_FROM + 2)?)))
}

pub(super) fn at<const COUNT: usize>(bytes: &[u8], from: usize) -> Option<[u8; COUNT]> {
    bytes.get(from..from + COUNT)?.try_into().ok()
}

pub(super) fn u16_at(bytes: &[u8], from: usize) -> Option<u16> {
    at(bytes, from).map(u16::from_ne_bytes)
}

pub(super) fn u32_at(bytes: &[u8], from: usize) -> Option<u32> {
    at(bytes, from).map(u32::from_ne_bytes)
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream;

    use super::*;

    fn four(address: SocketAddr) -> SocketAddrV4 {
        match address {
            SocketAddr::V4(four) => four,
            SocketAddr::V6(six) => SocketAddrV4::new(six.ip().to_ipv4_mapped().unwrap(), six.port()),
        }
    }

    fn inode(socket: &TcpStream) -> u64 {
        nix::sys::stat::fstat(socket).unwrap().st_ino
    }

    #[test]
    fn a_connection_is_found_by_both_ends_and_nothing_else_is() {
        if !knows_tcp() {
            return eprintln!("SKIPPED: this kernel has no tcp_diag");
        }
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let listening = four(listener.local_addr().unwrap());
        let client = TcpStream::connect(listening).unwrap();
        let (server, _) = listener.accept().unwrap();
        let (own, other) = (four(client.local_addr().unwrap()), four(client.peer_addr().unwrap()));
        let diag = open().unwrap();
        let find = |number, own, other| find(diag.as_fd(), number, own, other);
        assert_eq!(find(1, own, other), Ok(Some(inode(&client))));
        assert_eq!(find(2, other, own), Ok(Some(inode(&server))), "the other end is another socket");
        // The kernel would answer with the listener.
        let nobody = SocketAddrV4::new(Ipv4Addr::new(127, 9, 9, 9), 1);
        assert_eq!(find(3, listening, nobody), Ok(None));
        assert_eq!(find(4, nobody, listening), Ok(None));
        // The client's end waits now, and is nobody's.
        drop(client);
        drop(server);
        assert_eq!(find(5, own, other), Ok(None));
        assert_eq!(recvfrom::<NetlinkAddr>(diag.as_raw_fd(), &mut [0; 16]).err(), Some(Errno::EAGAIN));
    }

    #[test]
    fn a_kernel_that_finds_connections_says_that_it_does() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (own, other) = (four(client.local_addr().unwrap()), four(client.peer_addr().unwrap()));
        let finds = open().is_ok_and(|diag| find(diag.as_fd(), 1, own, other).is_ok_and(|one| one.is_some()));
        assert_eq!(knows_tcp(), finds);
    }

    #[test]
    fn a_mapped_connection_is_found_and_an_answer_to_another_question_is_none() {
        if !knows_tcp() {
            return eprintln!("SKIPPED: this kernel has no tcp_diag");
        }
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let Ok(client) = TcpStream::connect(format!("[::ffff:127.0.0.1]:{port}")) else { return };
        let (own, other) = (four(client.local_addr().unwrap()), four(client.peer_addr().unwrap()));
        let diag = open().unwrap();
        // Nobody has read this answer.
        sendto(diag.as_raw_fd(), &request(7, other, own), &NetlinkAddr::new(0, 0), MsgFlags::empty())
            .unwrap();
        assert_eq!(find(diag.as_fd(), 8, own, other), Ok(Some(inode(&client))));
    }

    #[test]
    fn what_is_no_answer_is_said_to_be_none() {
        let read = |answer: &[u8]| read(answer).map(|found| found.is_some());
        assert_eq!(read(&[]), Err(Errno::EBADMSG));
        let mut short = vec![0; INODE_FROM];
        short[4..6].copy_from_slice(&SOCK_DIAG_BY_FAMILY.to_ne_bytes());
        assert_eq!(read(&short), Err(Errno::EBADMSG));
        short.extend([0; 4]);
        assert_eq!(read(&short), Err(Errno::EBADMSG), "of no family");
    }
}
