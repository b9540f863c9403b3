//! A caller's agent, as the gateway reaches it: with the caller's rights, and only if it is the caller's own process.

use std::{
    io,
    os::{fd::AsFd, unix::net::UnixStream},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};

use crate::{
    pool::{Pool, PoolError},
    sys::rights::Rights,
};

/// How long the file system of the agent's socket may take to answer.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Where a caller's agent listens.
#[derive(Debug, Clone)]
pub struct CallersAgent {
    /// The socket, as the caller names it.
    pub path: PathBuf,
    /// The caller's.
    pub rights: Rights,
    /// Threads for the caller's file system.
    pub pool: Arc<Pool>,
}

/// Why there is no connection to the agent.
#[derive(Debug, thiserror::Error)]
pub(super) enum ConnectError {
    #[error("its socket cannot be connected to")]
    Socket(#[from] io::Error),
    #[error("another user listens there")]
    OtherUser,
    #[error("the file system of its socket does not answer")]
    Wait(#[from] PoolError),
}

impl CallersAgent {
    /// A new connection. The path leads wherever the caller may connect to; a listener of another user, to which the gateway could be
    /// more than the caller is, is sent nothing.
    pub(super) async fn connect(&self) -> Result<tokio::net::UnixStream, ConnectError> {
        let (path, rights) = (self.path.clone(), self.rights.clone());
        let uid = rights.uid;
        let connect = move || rights.run_with(|| UnixStream::connect(path));
        let connected = self.pool.run(uid, CONNECT_TIMEOUT, connect).await?;
        let stream = connected.map_err(io::Error::from)??;
        let listener = getsockopt(&stream.as_fd(), PeerCredentials).map_err(io::Error::from)?;
        if listener.uid() != uid {
            return Err(ConnectError::OtherUser);
        }
        stream.set_nonblocking(true)?;
        Ok(tokio::net::UnixStream::from_std(stream)?)
    }
}
