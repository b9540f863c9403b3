//! The socket of a resolver on the loopback of a sandbox without a way out.
//!
//! The supervisor refuses every name that is asked for there, so that programs fail at once, and it is known what they wanted. No packet
//! leaves the sandbox. Sandboxes that have one loopback in common have an address each, so that each knows what its own command wanted.

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

/// The socket, which does not block; `None` where the plan has proxies, whose resolver it would be, or the host's network, or
/// where the calling process may neither bind a low port of its network namespace nor say that everybody may. Also `None` where a
/// command of the session answers names itself, at every address of the loopback that they share: it then answers these.
///
/// # Errors
/// [`StageError`] of the loopback.
pub fn open(plan: &SandboxPlan) -> Result<Option<OwnedFd>, StageError> {
    if !plan.own_network || proxy_listeners::has_proxies(plan)? {
        return Ok(None);
    }
    let address = proxy_listeners::own_address(plan);
    let bound = UdpSocket::bind((address, RESOLVER_PORT))
        .and_then(|socket| socket.set_nonblocking(true).map(|()| OwnedFd::from(socket)));
    match bound {
        Ok(socket) => Ok(Some(socket)),
        Err(error) => match error.raw_os_error().map_or(Errno::EIO, Errno::from_raw) {
            // Names are refused all the same: nobody listens where programs ask.
            Errno::EACCES => Ok(None),
            // The usual address may be that of one command or of an earlier sandbox: the next launch has another one.
            Errno::EADDRINUSE if address != Ipv4Addr::LOCALHOST => Ok(None),
            errno => Err(StageError::at(Stage::Loopback, SOCKET_STEP, errno)),
        },
    }
}
