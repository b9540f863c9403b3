//! Which unix socket is at the other end of one: sock_diag(7). The sockets of all network namespaces are connected by file, and the kernel says
//! the peer of one that belongs to the asking socket's namespace. One that was accepted belongs to that of the process that has connected.
//!
//! The kernel answers within sendto(2): nothing is ever waited for.

use std::os::fd::{AsRawFd, BorrowedFd};

use nix::{
    errno::Errno,
    sys::socket::{MsgFlags, NetlinkAddr, recvfrom, sendto},
};

/// From linux/sock_diag.h and linux/unix_diag.h.
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const UDIAG_SHOW_PEER: u32 = 4;
const UNIX_DIAG_PEER: u16 = 2;
/// Whatever cookie it has.
const ANY_COOKIE: u32 = u32::MAX;

/// `nlmsghdr`, and `unix_diag_msg` before its attributes.
const MESSAGE_HEADER_BYTES: usize = 16;
const DIAG_MESSAGE_BYTES: usize = 16;
/// Attributes begin at multiples of this.
const ALIGNMENT: usize = 4;
/// Longer than any answer that is read.
const ANSWER_BYTES: usize = 1_024;
/// Answers to earlier questions that are skipped.
const MAX_SKIPPED: usize = 8;

/// The inode of the peer of a connected unix socket of the network namespace in which `diag` was made ([`super::sock_diag::open`]); `None`:
/// it has none any more. `number` tells the answer from those to earlier questions.
///
/// # Errors
/// Those of sendto(2) and recvfrom(2), and of the kernel's answer: `ENOENT` for a socket that is not there, or where the kernel does not
/// say.
pub fn peer_inode(diag: BorrowedFd<'_>, number: u32, inode: u32) -> Result<Option<u32>, Errno> {
    sendto(diag.as_raw_fd(), &request(number, inode), &NetlinkAddr::new(0, 0), MsgFlags::MSG_DONTWAIT)?;
    let mut bytes = [0; ANSWER_BYTES];
    for _ in 0..=MAX_SKIPPED {
        let (count, sender) = recvfrom::<NetlinkAddr>(diag.as_raw_fd(), &mut bytes)?;
        let bytes = bytes.get(..count.min(ANSWER_BYTES)).unwrap_or_default();
        // The kernel alone has the number 0.
        if sender.is_some_and(|sender| sender.pid() == 0) && word(bytes, 8) == Some(number) {
            return answer(bytes);
        }
    }
    Err(Errno::EBADMSG)
}

/// `nlmsghdr` and `unix_diag_req`, in the processor's byte order.
fn request(number: u32, inode: u32) -> Vec<u8> {
    let mut body = vec![libc::AF_UNIX as u8, 0, 0, 0];
    for word in [u32::MAX, inode, UDIAG_SHOW_PEER, ANY_COOKIE, ANY_COOKIE] {
        body.extend_from_slice(&word.to_ne_bytes());
    }
    let mut message = ((MESSAGE_HEADER_BYTES + body.len()) as u32).to_ne_bytes().to_vec();
    message.extend_from_slice(&SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    message.extend_from_slice(&(libc::NLM_F_REQUEST as u16).to_ne_bytes());
    message.extend_from_slice(&number.to_ne_bytes());
    message.extend_from_slice(&[0; 4]);
    message.extend(body);
    message
}

fn answer(bytes: &[u8]) -> Result<Option<u32>, Errno> {
    match half(bytes, 4).map(i32::from) {
        Some(libc::NLMSG_ERROR) => {
            let error = word(bytes, MESSAGE_HEADER_BYTES).ok_or(Errno::EBADMSG)?;
            Err(Errno::from_raw(error.cast_signed().wrapping_neg()))
        }
        Some(kind) if kind == i32::from(SOCK_DIAG_BY_FAMILY) => {
            Ok(peer(bytes.get(MESSAGE_HEADER_BYTES + DIAG_MESSAGE_BYTES..).unwrap_or_default()))
        }
        Some(_) | None => Err(Errno::EBADMSG),
    }
}

/// The peer among the attributes. A socket whose peer is gone has 0, or none.
fn peer(mut attributes: &[u8]) -> Option<u32> {
    while let (Some(length), Some(kind)) = (half(attributes, 0), half(attributes, 2)) {
        if kind == UNIX_DIAG_PEER {
            return word(attributes, 4).filter(|inode| *inode != 0);
        }
        attributes = attributes.get(usize::from(length).max(ALIGNMENT).next_multiple_of(ALIGNMENT)..)?;
    }
    None
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..at + 2).and_then(|part| part.try_into().ok()).map(u16::from_ne_bytes)
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at + 4).and_then(|part| part.try_into().ok()).map(u32::from_ne_bytes)
}

#[cfg(test)]
mod tests {
    use std::os::{fd::AsFd, unix::net::UnixStream};

    use nix::sys::stat::fstat;

    use super::*;
    use crate::sys::sock_diag;

    fn inode(socket: impl AsFd) -> u32 {
        u32::try_from(fstat(socket).unwrap().st_ino).unwrap()
    }

    #[test]
    fn the_peer_of_a_socket_is_known_while_there_is_one() {
        let diag = sock_diag::open().unwrap();
        let peer_inode = |inode| peer_inode(diag.as_fd(), inode, inode);
        let (one, other) = UnixStream::pair().unwrap();
        assert_eq!(peer_inode(inode(&one)), Ok(Some(inode(&other))));
        assert_eq!(peer_inode(inode(&other)), Ok(Some(inode(&one))));
        let (gone, of_one) = (inode(&other), inode(&one));
        drop(other);
        assert!(peer_inode(of_one).is_ok_and(|peer| peer != Some(of_one)));
        assert_eq!(peer_inode(gone), Err(Errno::ENOENT));
    }
}
