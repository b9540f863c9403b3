//! Lists the unix sockets that processes have bound to files: sock_diag(7), with the file that each is bound to. A path says
//! less: it may be relative to a directory that is not known, and its file may have been renamed since.
//!
//! The kernel answers within recvfrom(2): nothing is ever waited for.

use std::{
    ffi::OsString,
    os::{fd::AsRawFd, unix::ffi::OsStringExt},
    path::PathBuf,
};

use nix::{
    errno::Errno,
    sys::socket::{MsgFlags, NetlinkAddr, recvfrom, sendto},
};

use super::sock_diag::{HEADER_BYTES, SOCK_DIAG_BY_FAMILY, at, open, u16_at, u32_at};

/// From linux/unix_diag.h.
const SHOW_NAME: u32 = 1;
const SHOW_VFS: u32 = 2;
const ATTRIBUTE_NAME: u16 = 0;
const ATTRIBUTE_VFS: u16 = 1;
/// `unix_diag_msg`.
const MESSAGE_BYTES: usize = 16;
/// From linux/tcp_states.h: a socket that listens, and one that takes datagrams or may listen later.
const LISTENING: u32 = 1 << 10;
const UNCONNECTED: u32 = 1 << 7;
/// The kernel sends at most so much at once.
const ANSWER_BYTES: usize = 64 << 10;
/// From linux/kdev_t.h, within the kernel.
const MINOR_BITS: u32 = 20;

/// A socket that is bound to a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BoundSocket {
    /// As it was bound: relative to the directory that its process had then, or to a root of its own.
    pub name: PathBuf,
    /// The file system of the file, by major and minor number, and the lower half of its inode's number. `None`: not known.
    pub file: Option<BoundFile>,
}

/// The file of a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BoundFile {
    /// Major and minor number of the file system.
    pub device: (u32, u32),
    /// The lower half of the inode's number.
    pub inode: u32,
}

/// The sockets of the calling process's network namespace that are bound to files and can be connected or sent to.
///
/// # Errors
/// `ENOENT` where the kernel has no `unix_diag`; the errno of a call or of the kernel's answer; `EBADMSG` for an answer that cannot be
/// read.
pub fn bound() -> Result<Vec<BoundSocket>, Errno> {
    let diag = open()?;
    sendto(diag.as_raw_fd(), &request(), &NetlinkAddr::new(0, 0), MsgFlags::MSG_DONTWAIT)?;
    let (mut bytes, mut found) = (vec![0; ANSWER_BYTES], Vec::new());
    loop {
        let (count, sender) = recvfrom::<NetlinkAddr>(diag.as_raw_fd(), &mut bytes)?;
        // The kernel alone has the number 0.
        if sender.is_some_and(|sender| sender.pid() == 0)
            && read(bytes.get(..count).ok_or(Errno::EBADMSG)?, &mut found)? == Answer::Complete
        {
            return Ok(found);
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Answer {
    Complete,
    More,
}

/// `nlmsghdr` and `unix_diag_req`.
fn request() -> Vec<u8> {
    let mut body = vec![libc::AF_UNIX as u8, 0, 0, 0];
    for word in [LISTENING | UNCONNECTED, 0, SHOW_NAME | SHOW_VFS, u32::MAX, u32::MAX] {
        body.extend_from_slice(&word.to_ne_bytes());
    }
    let flags = (libc::NLM_F_REQUEST | libc::NLM_F_DUMP) as u16;
    let mut message = ((HEADER_BYTES + body.len()) as u32).to_ne_bytes().to_vec();
    message.extend_from_slice(&SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    message.extend_from_slice(&flags.to_ne_bytes());
    message.extend_from_slice(&[0; 8]);
    message.extend(body);
    message
}

fn read(mut bytes: &[u8], found: &mut Vec<BoundSocket>) -> Result<Answer, Errno> {
    while !bytes.is_empty() {
        let length = u32_at(bytes, 0).ok_or(Errno::EBADMSG)? as usize;
        let message = bytes.get(..length).filter(|_| length >= HEADER_BYTES).ok_or(Errno::EBADMSG)?;
        match u16_at(message, 4).ok_or(Errno::EBADMSG)? {
            SOCK_DIAG_BY_FAMILY => found.extend(socket(message.get(HEADER_BYTES..).unwrap_or_default())),
            kind if i32::from(kind) == libc::NLMSG_DONE => return Ok(Answer::Complete),
            kind if i32::from(kind) == libc::NLMSG_ERROR => {
                let error = u32_at(message, HEADER_BYTES).ok_or(Errno::EBADMSG)?.cast_signed();
                return Err(Errno::from_raw(error.wrapping_neg()));
            }
            _ => return Err(Errno::EBADMSG),
        }
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(Answer::More)
}

/// `None`: it is bound to no file.
fn socket(message: &[u8]) -> Option<BoundSocket> {
    let (mut name, mut file) = (None, None);
    let mut rest = message.get(MESSAGE_BYTES..)?;
    while let (Some(length), Some(kind)) = (u16_at(rest, 0), u16_at(rest, 2)) {
        let value = rest.get(4..usize::from(length))?;
        match kind {
            ATTRIBUTE_NAME => name = Some(value),
            ATTRIBUTE_VFS => {
                let [inode, device] = [at::<4>(value, 0)?, at::<4>(value, 4)?].map(u32::from_ne_bytes);
                let device = (device >> MINOR_BITS, device & ((1 << MINOR_BITS) - 1));
                file = Some(BoundFile { device, inode });
            }
            _ => {}
        }
        rest = rest.get(usize::from(length).next_multiple_of(4)..).unwrap_or_default();
    }
    // An abstract name begins with a zero. A name in a file system may end with one.
    let name = name.filter(|name| name.first().is_some_and(|first| *first != 0))?;
    let end = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
    Some(BoundSocket { name: OsString::from_vec(name.get(..end)?.to_vec()).into(), file })
}

#[cfg(test)]
mod tests {
    use std::os::unix::{
        fs::MetadataExt,
        net::{UnixDatagram, UnixListener, UnixStream},
    };

    use super::*;

    #[test]
    fn who_listens_at_a_file_is_found_with_it_and_who_has_connected_is_not() {
        let directory = tempfile::tempdir().unwrap();
        let (stream, datagram) = (directory.path().join("s"), directory.path().join("d"));
        let listener = UnixListener::bind(&stream).unwrap();
        let _datagrams = UnixDatagram::bind(&datagram).unwrap();
        let _client = UnixStream::connect(&stream).unwrap();
        let _accepted = listener.accept().unwrap();
        let found = match bound() {
            Err(Errno::ENOENT) => return eprintln!("SKIPPED: this kernel has no unix_diag"),
            found => found.unwrap(),
        };
        for path in [stream, datagram] {
            let these: Vec<_> = found.iter().filter(|socket| socket.name == path).collect();
            assert_eq!(these.len(), 1, "{path:?}");
            assert_eq!(these[0].file.map(|file| file.inode), Some(path.metadata().unwrap().ino() as u32));
        }
    }

    #[test]
    fn what_is_no_answer_is_said_to_be_none() {
        let read = |bytes: &[u8]| read(bytes, &mut Vec::new());
        assert_eq!(read(&[]), Ok(Answer::More));
        assert_eq!(read(&[1, 2]), Err(Errno::EBADMSG));
        assert_eq!(read(&[200, 0, 0, 0, 20, 0, 0, 0]), Err(Errno::EBADMSG), "shorter than it says");
        assert_eq!(read(&[0; 16]), Err(Errno::EBADMSG), "of no length");
    }
}
