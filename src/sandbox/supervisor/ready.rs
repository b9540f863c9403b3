//! What set-up hands to the event loop, and the counters of what had no route.

use std::{
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::Path,
    sync::Arc,
    time::Duration,
};

use crate::{
    cgroup,
    proto::supervisor::EffectiveConfinement,
    sys::{
        file::{self, CallNonce},
        own_process::OwnOomScore,
    },
};

/// A sandbox that is fully set up: what set-up hands to the event loop.
#[derive(Debug)]
pub struct Ready {
    /// The sandbox's id, from the plan.
    pub sandbox_id: String,
    /// The listening control socket (a unix stream socket).
    pub listener: OwnedFd,
    /// The sandbox's cgroups, the v2 one first if there is one. Empty: there are none.
    pub directories: Vec<cgroup::CgroupDirectory>,
    /// The identity of the commands.
    pub identity: CommandIdentity,
    /// The confinement in force, read back from the kernel.
    pub effective_confinement: EffectiveConfinement,
    /// Its OOM score, which new commands inherit.
    pub oom_score: OwnOomScore,
    /// The gate, if the sandbox has one.
    pub gate: Option<SupervisedGate>,
    /// Without a gate: what the supervisor is notified of. Absent: nothing, and these calls are refused.
    pub mode_listener: Option<ModeListener>,
    /// The listeners of the proxies: of HTTP, then of SOCKS5; then the resolver's sockets, if it has one. Empty: there are none.
    pub proxy_listeners: Vec<Arc<OwnedFd>>,
    /// The sockets of the host for which the last of them listen.
    pub unix_sockets: Vec<String>,
    /// The socket of a resolver that refuses every name, if the sandbox has no proxies.
    pub refusing_resolver: Option<OwnedFd>,
    /// Counts what had no route, where the network is the sandbox's own.
    pub route_counters: Option<RouteCounters>,
    /// What it has in common with the other sandboxes of its session, for the next one.
    pub session_files: SharedFiles,
    /// The namespaces of the network that it shares with others of its session, for the next gateway. Empty: it shares none.
    pub session_network: Vec<Arc<OwnedFd>>,
    /// The commands' id on the host, where it is not the gateway's user's; 0: it is.
    pub command_host_id: u32,
    /// The network is the sandbox's own.
    pub own_network: bool,
    /// Whether the sandbox ends with the control connection.
    pub die_with_gateway: bool,
    /// How long it goes on without a gateway otherwise.
    pub without_gateway: WithoutGatewayLimits,
}

/// How long a sandbox goes on to which no gateway comes.
#[derive(Debug, Default)]
pub struct WithoutGatewayLimits {
    /// The file of the control socket, if the sandbox ends when it is unlinked.
    pub socket_file: Option<OwnedFd>,
    /// How long it goes on then.
    pub unreachable_max: Duration,
    /// How long it goes on in any case.
    pub max: Option<Duration>,
}

/// What a session's sandboxes have in common, as one supervisor keeps it.
#[derive(Debug, Default)]
pub struct SharedFiles {
    /// Detached mounts, by their names in the session.
    pub mounts: Vec<(String, Arc<OwnedFd>)>,
    /// The lock on the commands' host id.
    pub lock: Option<Arc<OwnedFd>>,
}

impl SharedFiles {
    /// The mounts, then the lock.
    pub fn descriptors(&self) -> impl Iterator<Item = &Arc<OwnedFd>> {
        self.mounts.iter().map(|(_, mount)| mount).chain(&self.lock)
    }
}

/// What a supervisor holds of its sandbox's gate.
#[derive(Debug)]
pub struct SupervisedGate {
    /// A connected unix stream socket: `ToGateProcess` and `FromGateProcess`.
    pub socket: OwnedFd,
    /// The write end of the gate's dead-man pipe: a byte, or the end of the last copy, kills the gate.
    pub dead_man: OwnedFd,
    /// What lets a command's first exec pass.
    pub nonce: CallNonce,
}

/// The listener for changes of mode with `S_ISGID` (seccomp_unotify(2)).
#[derive(Debug)]
pub struct ModeListener {
    /// The listener of the sandbox's filter.
    pub descriptor: OwnedFd,
    /// What lets the supervisor's own changes pass.
    pub nonce: CallNonce,
}

/// The identity of a command, in ids of the supervisor's user namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommandIdentity {
    /// Change to these ids before exec.
    Change {
        /// User id.
        uid: u32,
        /// Group id.
        gid: u32,
    },
    /// The supervisor and its commands share the only id.
    Keep,
}

/// The files in which the kernel counts what had no route, of one network namespace: that of the process that opened them.
///
/// connect(2) and sendto(2) to an address without a route fail with `ENETUNREACH`, and the kernel counts each, of TCP and of UDP, of IPv4
/// and of IPv6.
#[derive(Debug)]
pub struct RouteCounters {
    ipv4: OwnedFd,
    ipv6: Option<OwnedFd>,
}

impl RouteCounters {
    /// Opens those of the calling process. `None` without procfs: then nothing is counted.
    pub fn open() -> Option<Self> {
        let open = |path: &str| file::open_read(Path::new(path)).ok();
        // A kernel without IPv6 has no second one.
        Some(Self { ipv4: open("/proc/self/net/snmp")?, ipv6: open("/proc/self/net/snmp6") })
    }

    /// The files.
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        std::iter::once(self.ipv4.as_fd()).chain(self.ipv6.iter().map(AsFd::as_fd))
    }

    /// Packets and connections since the namespace was made: 0 if they cannot be read.
    pub fn read(&self) -> u64 {
        let mut bytes = [0; FILE_MAX_BYTES];
        let mut text_of = |file: &OwnedFd| {
            let count = nix::sys::uio::pread(file, &mut bytes, 0).unwrap_or(0);
            String::from_utf8_lossy(&bytes[..count]).into_owned()
        };
        let ipv4 = of_ipv4(&text_of(&self.ipv4)).unwrap_or(0);
        let ipv6 = self.ipv6.as_ref().and_then(|file| of_ipv6(&text_of(file))).unwrap_or(0);
        ipv4.saturating_add(ipv6)
    }
}

/// Both counters are in the first part of their files.
const FILE_MAX_BYTES: usize = 4_096;

/// A line of names, and one of values.
fn of_ipv4(text: &str) -> Option<u64> {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("Ip: "));
    let (names, values) = (lines.next()?, lines.next()?);
    let at = names.split_whitespace().position(|name| name == "OutNoRoutes")?;
    values.split_whitespace().nth(at)?.parse().ok()
}

/// A line for each counter.
fn of_ipv6(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("Ip6OutNoRoutes"))?;
    line.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counters_are_found_by_their_names() {
        let ipv4 =
            "Ip: Forwarding OutDiscards OutNoRoutes ReasmTimeout\nIp: 1 3 7 0\nIcmp: InMsgs\nIcmp: 9\n";
        assert_eq!(of_ipv4(ipv4), Some(7));
        assert_eq!(of_ipv4("Ip: Forwarding\nIp: 1\n"), None);
        assert_eq!(of_ipv4("Ip: OutNoRoutes\n"), None);
        assert_eq!(of_ipv6("Ip6OutRequests  \t5\nIp6OutNoRoutes  \t12\nIp6InMsgs 1\n"), Some(12));
        assert_eq!(of_ipv6("Ip6OutRequests 5\n"), None);
    }

    #[test]
    fn those_of_this_process_can_be_read() {
        let counters = RouteCounters::open().unwrap();
        assert!(of_ipv4(&std::fs::read_to_string("/proc/self/net/snmp").unwrap()).is_some());
        assert!(counters.read() < u64::MAX);
    }
}
