//! The caller of a connection, as the kernel reports it.

use std::{
    fmt, io,
    os::fd::{AsFd, OwnedFd},
    sync::{Arc, OnceLock, Weak},
};

use crate::sys::{peer, rights::Rights};

/// A principal: the holder of this user id on this host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Principal {
    /// The user id, in the gateway's user namespace.
    pub uid: u32,
}

impl fmt::Display for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "uid:{}", self.uid)
    }
}

/// A descriptor that came with the first byte of a connection: what a command of its caller is to read.
pub(crate) type GivenInput = OnceLock<Arc<OwnedFd>>;

/// The caller at the other end of a connection.
#[derive(Debug, Clone)]
pub(crate) struct Peer {
    /// Who it is.
    pub principal: Principal,
    /// The group at connect time: with the uid, who owns what the commands write in the workspace.
    pub gid: u32,
    /// Its other groups at connect time.
    pub groups: Arc<[u32]>,
    /// The process that connected, where the kernel reports it (6.5 and later).
    pub process: Option<Arc<OwnedFd>>,
    /// The connection has it, and closes it with itself.
    pub given_input: Weak<GivenInput>,
}

impl Principal {
    /// Asks the kernel whose this connection is. Opens nothing.
    pub fn of(socket: &impl AsFd) -> io::Result<Self> {
        Ok(Self { uid: peer::credentials(socket)?.uid })
    }
}

impl Peer {
    /// Asks the kernel who made this connection, which may have brought something.
    pub(crate) fn of(socket: &impl AsFd, given_input: &Arc<GivenInput>) -> io::Result<Self> {
        let credentials = peer::credentials(socket)?;
        let principal = Principal { uid: credentials.uid };
        let (groups, process) = (peer::groups(socket)?.into(), peer::pidfd(socket)?.map(Arc::new));
        let given_input = Arc::downgrade(given_input);
        Ok(Self { principal, gid: credentials.gid, groups, process, given_input })
    }

    /// By what the kernel permits it something.
    pub(super) fn rights(&self) -> Rights {
        Rights { uid: self.principal.uid, gid: self.gid, groups: self.groups.clone() }
    }
}
