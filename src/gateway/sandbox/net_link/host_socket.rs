//! A unix socket of the host, as a caller may connect to it: with the caller's identity, and only where no rule of the gateway's own is
//! against it.
//!
//! The file is opened once, without following links, and it is this very file that is connected to. What listens there sees the caller's
//! user and groups, never the gateway's.

use std::{
    io,
    os::fd::{AsFd as _, AsRawFd as _, OwnedFd},
    path::PathBuf,
};

use nix::{
    errno::Errno,
    fcntl::{AT_FDCWD, FcntlArg, OFlag, OpenHow, ResolveFlag, fcntl, openat2},
    sys::{
        socket::{
            AddressFamily, SockFlag, SockType, UnixAddr, connect, getpeername, getsockopt, setsockopt,
            socket,
            sockopt::{PeerCredentials, SendTimeout},
        },
        stat::{FileStat, SFlag, fstat, stat},
        time::{TimeVal, TimeValLike as _},
    },
};

use crate::{
    network::socket_path::{SocketPath, refusal},
    policy::profile::Access,
    sandbox::roots::governing::{Governing, VisiblePath},
    sys::rights::Rights,
};

/// How long a listener may leave a connection waiting.
const CONNECT_TIMEOUT_S: i64 = 2;

/// Why a socket of the host is not connected to.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HostSocketError {
    /// Nothing is there, or the caller cannot get there.
    #[error("the caller cannot find it without following symbolic links: {0}")]
    Open(#[source] Errno),
    /// It is another kind of file.
    #[error("it is no socket")]
    NotSocket,
    /// It is one that no rule lets in.
    #[error("{0}, which no rule lets in")]
    Refused(&'static str),
    /// It is, or reaches, what governs commands.
    #[error("it is a file that governs commands")]
    Governing,
    /// The caller cannot take on its own rights: this gateway is another user's.
    #[error("this gateway cannot connect as the caller")]
    Rights(#[source] Errno),
    /// The caller may not, or nobody listens.
    #[error("the caller cannot connect: {0}")]
    Connect(#[source] Errno),
    /// Its listener cannot be looked at.
    #[error("its listener is not known")]
    Listener(#[source] io::Error),
}

/// Whose connection it is to be, and what it must not be to.
#[derive(Debug, Clone)]
pub(crate) struct HostSocketCaller {
    /// The caller's.
    pub rights: Rights,
    /// The socket of the caller's SSH agent.
    pub agent: Option<PathBuf>,
}

/// The file of a socket that may be connected to.
#[derive(Debug)]
pub(crate) struct HostSocket {
    file: OwnedFd,
    rights: Rights,
}

impl HostSocketCaller {
    /// Looks at the file. Blocks, on a file system that the caller may have chosen.
    ///
    /// # Errors
    /// [`HostSocketError`].
    pub(crate) fn find(
        &self,
        path: &SocketPath,
        governing: &Governing,
    ) -> Result<HostSocket, HostSocketError> {
        let file = self.rights.run_with(|| open(path)).map_err(HostSocketError::Rights)??;
        let found = fstat(&file).map_err(HostSocketError::Open)?;
        if SFlag::from_bits_truncate(found.st_mode) & SFlag::S_IFMT != SFlag::S_IFSOCK {
            return Err(HostSocketError::NotSocket);
        }
        let shown = VisiblePath { path: path.as_path(), descriptor: file.as_fd(), access: Access::Write };
        governing.check(&[shown]).map_err(|_| HostSocketError::Governing)?;
        if self.is_own_agent(&found) {
            return Err(HostSocketError::Refused("it is an agent with keys"));
        }
        Ok(HostSocket { file, rights: self.rights.clone() })
    }

    fn is_own_agent(&self, found: &FileStat) -> bool {
        let agent = self.agent.as_ref().and_then(|agent| self.rights.run_with(|| stat(agent)).ok()?.ok());
        agent.is_some_and(|agent| (agent.st_dev, agent.st_ino) == (found.st_dev, found.st_ino))
    }
}

impl HostSocket {
    /// Connects to this very file, whatever its name leads to by now. Blocks.
    ///
    /// # Errors
    /// [`HostSocketError`].
    pub(crate) fn connect(self) -> Result<OwnedFd, HostSocketError> {
        let connection = self.rights.run_as(|| connect_to(&self.file)).map_err(HostSocketError::Rights)??;
        check_listener(&connection)?;
        Ok(connection)
    }
}

fn open(path: &SocketPath) -> Result<OwnedFd, HostSocketError> {
    let resolve = ResolveFlag::RESOLVE_NO_SYMLINKS | ResolveFlag::RESOLVE_NO_MAGICLINKS;
    let how = OpenHow::new().flags(OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC).resolve(resolve);
    openat2(AT_FDCWD, path.as_path(), how).map_err(HostSocketError::Open)
}

fn connect_to(file: &OwnedFd) -> Result<OwnedFd, HostSocketError> {
    let connecting = || {
        let connection = socket(AddressFamily::Unix, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)?;
        setsockopt(&connection, SendTimeout, &TimeVal::seconds(CONNECT_TIMEOUT_S))?;
        // Whatever has its name by now.
        let same_file = format!("/proc/self/fd/{}", file.as_raw_fd());
        connect(connection.as_raw_fd(), &UnixAddr::new(same_file.as_str())?)?;
        setsockopt(&connection, SendTimeout, &TimeVal::seconds(0))?;
        Ok(connection)
    };
    connecting().map_err(HostSocketError::Connect)
}

/// A file can have further names: by which one its listener has bound it says what it is, and it is not this gateway.
fn check_listener(connection: &OwnedFd) -> Result<(), HostSocketError> {
    let failed = |errno: Errno| HostSocketError::Listener(errno.into());
    let bound: UnixAddr = getpeername(connection.as_raw_fd()).map_err(failed)?;
    let name = bound.path().map(|path| path.to_string_lossy().into_owned()).unwrap_or_default();
    if let Some(why) = refusal(&name) {
        return Err(HostSocketError::Refused(why));
    }
    let listener = getsockopt(connection, PeerCredentials).map_err(failed)?;
    if u32::try_from(listener.pid()).is_ok_and(|pid| pid == std::process::id()) {
        return Err(HostSocketError::Governing);
    }
    fcntl(connection, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).map(drop).map_err(failed)
}
