//! What commands may do in a network namespace of their own that is the administrator's on a host: bind the ports below 1024, and
//! ping. Nothing else is in it but commands of the session.

use std::path::Path;

use crate::{
    proto::supervisor::{Identity, SandboxPlan},
    sys::file,
};

/// The lowest port that a process without privilege may bind, of the network namespace of who writes it: ip(7).
const LOWEST_PORT: &str = "/proc/sys/net/ipv4/ip_unprivileged_port_start";
/// The groups whose processes may send and receive echoes, likewise: icmp(7). For both versions of IP.
const PING_GROUPS: &str = "/proc/sys/net/ipv4/ping_group_range";

/// Who may bind the ports below 1024.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LowPorts {
    /// Every process of the network namespace.
    Everybody,
    /// As on a host: `/proc/sys` cannot be written here, or the network is the host's.
    Privileged,
}

/// Gives the commands of a sandbox with a network of its own the rights, in the calling process's network namespace: where
/// `/proc/sys` can be written, else they get EACCES as on a host. `command_gid` is their group in the caller's user namespace.
pub fn give(plan: &SandboxPlan, command_gid: u32) -> LowPorts {
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
pub fn own_gid(ids: &Identity) -> u32 {
    if ids.separate_ids { ids.command_gid } else { 0 }
}
