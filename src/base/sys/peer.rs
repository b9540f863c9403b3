//! Who is at the other end of a unix socket, by the kernel. Nothing that the peer claims is used.

use std::{
    io,
    os::fd::{AsFd, AsRawFd, OwnedFd},
};

use nix::{
    errno::Errno,
    sys::socket::{getsockopt, sockopt},
};

/// Most people have fewer groups.
const GROUPS_FIRST: usize = 32;

/// The peer's credentials, by SO_PEERCRED of unix(7).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeerCredentials {
    /// Effective user id at connect time, in our user namespace.
    pub uid: u32,
    /// Effective group id at connect time.
    pub gid: u32,
    /// Process id at connect time; may be another process's by now.
    pub pid: i32,
}

/// Reads the peer's credentials.
pub fn credentials(socket: &impl AsFd) -> io::Result<PeerCredentials> {
    let peer = getsockopt(socket, sockopt::PeerCredentials)?;
    Ok(PeerCredentials { uid: peer.uid(), gid: peer.gid(), pid: peer.pid() })
}

/// The peer's supplementary groups, by SO_PEERGROUPS of unix(7).
pub fn groups(socket: &impl AsFd) -> io::Result<Vec<u32>> {
    let mut groups: Vec<libc::gid_t> = vec![0; GROUPS_FIRST];
    loop {
        let mut bytes =
            libc::socklen_t::try_from(size_of_val(&groups[..])).map_err(|_| io::ErrorKind::InvalidData)?;
        // SAFETY: the kernel writes no more than `bytes`, which is the length of the buffer, and puts the length of the
        // list into it, also where it is longer (ERANGE).
        let got = unsafe {
            libc::getsockopt(
                socket.as_fd().as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_PEERGROUPS,
                groups.as_mut_ptr().cast(),
                &raw mut bytes,
            )
        };
        let count = bytes as usize / size_of::<libc::gid_t>();
        match Errno::result(got) {
            Ok(_) => {
                groups.truncate(count);
                return Ok(groups);
            }
            Err(Errno::ERANGE) if count > groups.len() => groups.resize(count, 0),
            // The socket is connected to nobody.
            Err(Errno::ENODATA) => return Ok(Vec::new()),
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// A pidfd of the process that connected: never another one, even when its pid has been given away since.
///
/// `None` where the process has ended and was reaped, or the kernel (before 6.5) has no SO_PEERPIDFD.
pub fn pidfd(socket: &impl AsFd) -> io::Result<Option<OwnedFd>> {
    match getsockopt(socket, sockopt::PeerPidfd) {
        Ok(descriptor) => Ok(Some(descriptor)),
        Err(Errno::ESRCH | Errno::EINVAL | Errno::ENODATA | Errno::ENOPROTOOPT) => Ok(None),
        Err(errno) => Err(errno.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn the_peer_of_a_pair_is_this_process() {
        let (a, _b) = UnixStream::pair().unwrap();
        let peer = credentials(&a).unwrap();
        assert_eq!(peer.pid, std::process::id() as i32);
        assert_eq!(peer.uid, nix::unistd::geteuid().as_raw());
        let mine: Vec<u32> =
            nix::unistd::getgroups().unwrap().into_iter().map(nix::unistd::Gid::as_raw).collect();
        assert_eq!(groups(&a).unwrap(), mine);
    }
}
