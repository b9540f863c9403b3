//! Makes what programs with the network `proxy` speak to, before any command runs, so that no command can be there first: the listeners of
//! the proxies and the sockets of the resolver on the sandbox's loopback, and the addresses that stand for names. Sandboxes that have one
//! loopback in common have an address each, so that it is known whose connection one is.
//!
//! The supervisor holds the sockets and never accepts or reads: the gateway gets copies, for the process that does.

use std::{
    net::{Ipv4Addr, TcpListener, UdpSocket},
    os::fd::OwnedFd,
    sync::Arc,
};

use nix::errno::Errno;

use super::{network_rights::LowPorts, stage::StageError};
use crate::{
    network::{HTTP_PROXY_PORT, RESOLVER_PORT, SOCKS_PORT, synthetic},
    proto::supervisor::{SandboxPlan, Stage},
    sys::route,
};

/// The step of the loopback stage that makes the listeners.
const LISTENERS_STEP: usize = 1;

/// Whether the calling process's network namespace has addresses for names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NameAddresses {
    /// It has a route for them, and every port may be bound.
    Ready,
    /// Programs that know no proxy reach nothing: `/proc/sys` cannot be written here.
    Missing,
}

/// Gives the calling process's network namespace the addresses that stand for names. Needs `CAP_NET_ADMIN` over it. Their ports are bound
/// later, by a process without privilege.
pub fn add_name_addresses(ports: LowPorts) -> NameAddresses {
    match (ports, route::add_local(synthetic::NETWORK, synthetic::PREFIX)) {
        (LowPorts::Everybody, Ok(())) => NameAddresses::Ready,
        (LowPorts::Everybody | LowPorts::Privileged, _) => NameAddresses::Missing,
    }
}

/// Whether the plan has proxies. In the host's network they would be everybody's.
pub fn has_proxies(plan: &SandboxPlan) -> Result<bool, StageError> {
    match (plan.proxy.as_ref().is_some_and(|proxy| proxy.enabled), plan.own_network) {
        (true, false) => Err(StageError::malformed_plan()),
        (is_enabled, _) => Ok(is_enabled),
    }
}

/// The address of the sandbox's own on its loopback.
pub(super) fn own_address(plan: &SandboxPlan) -> Ipv4Addr {
    plan.session_network.map_or(Ipv4Addr::LOCALHOST, |network| network.resolver.into())
}

/// The sockets of the plan: the listeners of HTTP and of SOCKS5, then the resolver's UDP socket and TCP listener if names have addresses,
/// then the listeners that the gateway has made in the place of the host's unix sockets. They do not block who accepts.
pub(super) fn open(
    plan: &SandboxPlan,
    names: NameAddresses,
    unix: Vec<OwnedFd>,
) -> Result<Vec<Arc<OwnedFd>>, StageError> {
    if !has_proxies(plan)? {
        return if unix.is_empty() { Ok(Vec::new()) } else { Err(StageError::malformed_plan()) };
    }
    let failed = |error: std::io::Error| {
        let errno = error.raw_os_error().map_or(Errno::EIO, Errno::from_raw);
        StageError::at(Stage::Loopback, LISTENERS_STEP, errno)
    };
    let address = own_address(plan);
    let listen = |port: u16| {
        let listener = TcpListener::bind((address, port))?;
        listener.set_nonblocking(true)?;
        Ok(OwnedFd::from(listener))
    };
    let receive = |port: u16| {
        let socket = UdpSocket::bind((address, port))?;
        socket.set_nonblocking(true)?;
        Ok(OwnedFd::from(socket))
    };
    let mut sockets = vec![listen(HTTP_PROXY_PORT).map_err(failed)?, listen(SOCKS_PORT).map_err(failed)?];
    if names == NameAddresses::Ready {
        sockets.push(receive(RESOLVER_PORT).map_err(failed)?);
        sockets.push(listen(RESOLVER_PORT).map_err(failed)?);
    }
    Ok(sockets.into_iter().chain(unix).map(Arc::new).collect())
}
