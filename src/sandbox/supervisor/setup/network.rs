//! Makes what programs with the network `proxy` speak to, before any command runs, so that no command can be there first: the listeners of
//! the proxies and the sockets of the resolver on the sandbox's loopback, and the addresses that stand for names. Sandboxes that have one
//! loopback in common have an address each, so that it is known whose connection one is.
//!
//! The supervisor holds the sockets and never accepts or reads: the gateway gets copies, for the process that does.

use std::{
    net::{Ipv4Addr, TcpListener, UdpSocket},
    os::fd::OwnedFd,
    path::Path,
    sync::Arc,
};

use nix::errno::Errno;

use super::StageError;
use crate::{
    network::{HTTP_PROXY_PORT, RESOLVER_PORT, SOCKS_PORT, address},
    proto::supervisor::{Identity, SandboxPlan, Stage},
    sys::{file, loopback},
};

/// The step of the loopback stage that makes the listeners.
const LISTENERS_STEP: usize = 1;

/// Whether the calling process's network namespace has addresses for names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NameAddresses {
    /// It has a route for them, and every port may be bound.
    Ready,
    /// Programs that know no proxy reach nothing: `/proc/sys` cannot be written here.
    Missing,
}

/// Gives the calling process's network namespace the addresses that stand for names. Needs `CAP_NET_ADMIN` over it. Their ports are bound
/// later, by a process without privilege.
pub(crate) fn add_name_addresses(ports: LowPorts) -> NameAddresses {
    match (ports, loopback::add_local(address::SYNTHETIC_NETWORK, address::SYNTHETIC_PREFIX)) {
        (LowPorts::Everybody, Ok(())) => NameAddresses::Ready,
        (LowPorts::Everybody | LowPorts::Privileged, _) => NameAddresses::Missing,
    }
}

/// Whether the plan has proxies. In the host's network they would be everybody's.
pub(crate) fn has_proxies(plan: &SandboxPlan) -> Result<bool, StageError> {
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
pub(super) fn open_listeners(
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

/// The step of the loopback stage that makes the socket.
const SOCKET_STEP: usize = 2;

/// The socket, which does not block; `None` where the plan has proxies, whose resolver it would be, or the host's network, or
/// where the calling process may neither bind a low port of its network namespace nor say that everybody may. Also `None` where a
/// command of the session answers names itself, at every address of the loopback that they share: it then answers these.
///
/// The supervisor refuses every name that is asked for there, so that programs fail at once, and it is known what they wanted. No packet
/// leaves the sandbox. Sandboxes that have one loopback in common have an address each, so that each knows what its own command wanted.
///
/// # Errors
/// [`StageError`] of the loopback.
pub(crate) fn open_refusing_resolver(plan: &SandboxPlan) -> Result<Option<OwnedFd>, StageError> {
    if !plan.own_network || has_proxies(plan)? {
        return Ok(None);
    }
    let address = own_address(plan);
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

/// The lowest port that a process without privilege may bind, of the network namespace of who writes it: ip(7).
const LOWEST_PORT: &str = "/proc/sys/net/ipv4/ip_unprivileged_port_start";
/// The groups whose processes may send and receive echoes, likewise: icmp(7). For both versions of IP.
const PING_GROUPS: &str = "/proc/sys/net/ipv4/ping_group_range";

/// Who may bind the ports below 1024.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LowPorts {
    /// Every process of the network namespace.
    Everybody,
    /// As on a host: `/proc/sys` cannot be written here, or the network is the host's.
    Privileged,
}

/// Gives the commands of a sandbox with a network of its own the rights, in the calling process's network namespace: where
/// `/proc/sys` can be written, else they get EACCES as on a host. `command_gid` is their group in the caller's user namespace.
///
/// What commands may do in a network namespace of their own that is the administrator's on a host: bind the ports below 1024, and
/// ping. Nothing else is in it but commands of the session.
pub(crate) fn give_low_ports(plan: &SandboxPlan, command_gid: u32) -> LowPorts {
    if !plan.own_network {
        return LowPorts::Privileged;
    }
    let put = |file: &str, text: &str| file::write_once(Path::new(file), text.as_bytes());
    // Where the one cannot be written, the other cannot, and then ping says so.
    let _ = put(PING_GROUPS, &format!("{command_gid} {command_gid}"));
    match put(LOWEST_PORT, "0") {
        Ok(()) => LowPorts::Everybody,
        Err(_) => LowPorts::Privileged,
    }
}

/// The group of a sandbox's commands in the user namespace of its supervisor.
pub(crate) fn own_gid(ids: &Identity) -> u32 {
    if ids.separate_ids { ids.command_gid } else { 0 }
}
