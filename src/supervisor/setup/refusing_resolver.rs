//! The socket of a resolver on the loopback of a sandbox without a way out.
//!
//! The supervisor refuses every name that is asked for there, so that programs fail at once, and it is known what they wanted. No packet
//! leaves the sandbox.

use std::{
    net::{Ipv4Addr, UdpSocket},
    os::fd::OwnedFd,
};

use nix::errno::Errno;

use super::{proxy_listeners, stage::StageError};
use crate::{
    network::RESOLVER_PORT,
    proto::supervisor::{SandboxPlan, Stage},
};

/// The step of the loopback stage that makes the socket.
const SOCKET_STEP: usize = 2;

/// The socket, which does not block; `None` where the plan has proxies, whose resolver it would be, or the host's network. Needs the
/// right to bind a low port of the calling process's network namespace.
///
/// # Errors
/// [`StageError`] of the loopback.
pub fn open(plan: &SandboxPlan) -> Result<Option<OwnedFd>, StageError> {
    if !plan.own_network || proxy_listeners::has_proxies(plan)? {
        return Ok(None);
    }
    let bind = || {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, RESOLVER_PORT))?;
        socket.set_nonblocking(true)?;
        Ok(OwnedFd::from(socket))
    };
    let failed = |error: std::io::Error| {
        let errno = error.raw_os_error().map_or(Errno::EIO, Errno::from_raw);
        StageError::at(Stage::Loopback, SOCKET_STEP, errno)
    };
    bind().map(Some).map_err(failed)
}
