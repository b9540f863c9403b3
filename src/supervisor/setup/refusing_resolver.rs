//! The socket of a resolver on the loopback of a sandbox without a way out.
//!
//! The supervisor refuses every name that is asked for there, so that programs fail at once, and it is known what they wanted. No packet
//! leaves the sandbox. Sandboxes that have one loopback in common have an address each, so that each knows what its own command wanted.

use std::{net::UdpSocket, os::fd::OwnedFd, path::Path};

use nix::errno::Errno;

use super::{proxy_listeners, stage::StageError};
use crate::{
    network::RESOLVER_PORT,
    proto::supervisor::{SandboxPlan, Stage},
    sys::file,
};

/// The step of the loopback stage that makes the socket.
const SOCKET_STEP: usize = 2;
/// What a new network namespace has: ip(7).
const LOWEST_PORT_BEFORE: &[u8] = b"1024";

/// The socket, which does not block; `None` where the plan has proxies, whose resolver it would be, or the host's network, or
/// where the calling process may neither bind a low port of its network namespace nor say that everybody may.
///
/// # Errors
/// [`StageError`] of the loopback.
pub fn open(plan: &SandboxPlan) -> Result<Option<OwnedFd>, StageError> {
    if !plan.own_network || proxy_listeners::has_proxies(plan)? {
        return Ok(None);
    }
    let address = proxy_listeners::own_address(plan);
    let bind = || -> std::io::Result<OwnedFd> {
        let socket = UdpSocket::bind((address, RESOLVER_PORT))?;
        socket.set_nonblocking(true)?;
        Ok(OwnedFd::from(socket))
    };
    let failed = |error: std::io::Error| {
        let errno = error.raw_os_error().map_or(Errno::EIO, Errno::from_raw);
        StageError::at(Stage::Loopback, SOCKET_STEP, errno)
    };
    match bind() {
        // A service has the capability for low ports often taken away, and may still set its namespace up.
        Err(error) if error.raw_os_error() == Some(libc::EACCES) => {
            let set_lowest = |port: &[u8]| file::write_once(Path::new(proxy_listeners::LOWEST_PORT), port);
            if set_lowest(b"0").is_err() {
                // Names are refused all the same: nobody listens where programs ask.
                return Ok(None);
            }
            let bound = bind();
            set_lowest(LOWEST_PORT_BEFORE)
                .map_err(|errno| StageError::at(Stage::Loopback, SOCKET_STEP, errno))?;
            bound.map(Some).map_err(failed)
        }
        bound => bound.map(Some).map_err(failed),
    }
}
