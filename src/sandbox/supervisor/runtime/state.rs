//! All that the event loop keeps between two turns.

use std::{
    collections::{BTreeSet, HashMap},
    os::{fd::OwnedFd, unix::net::UnixListener},
    sync::Arc,
    time::{Duration, Instant},
};

use nix::{
    errno::Errno,
    sys::{
        epoll::EpollFlags,
        resource::{Resource, getrlimit, setrlimit},
        signal::{SigSet, Signal},
        signalfd::{SfdFlags, SignalFd},
        stat::{Mode, umask},
    },
};

use super::{
    connection::GatewayConnection,
    gate_link::GateLink,
    mode_calls::ModeCalls,
    oom_score::OomScore,
    poll::Poll,
    slot_map::{EventSource, SlotKey, SlotMap},
    terminal::SupervisedTerminal,
    traffic::RefusedTraffic,
    without_gateway::WithoutGateway,
};
use crate::{
    cgroup::leaf::{CloneIntoCgroup, Leaves},
    proto::supervisor::EffectiveConfinement,
    supervisor::ready::{CommandIdentity, Ready, SharedFiles},
    sys::spawn::Spawner,
};

/// Terminals that may be held at once, running and ended. Beyond this a spawn fails with `EDQUOT`.
pub const MAX_TERMINALS: usize = 16_384;

/// How long a sandbox waits for the first handshake.
pub const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(60);

/// A shutdown under way.
#[derive(Debug)]
pub(super) struct Shutdown {
    /// The connections and requests that are answered at its end.
    pub(super) requesters: Vec<(SlotKey, u64)>,
    pub(super) give_up_at: Instant,
}

#[derive(Debug)]
pub(super) struct Runtime {
    pub(super) sandbox_id: String,
    pub(super) effective_confinement: EffectiveConfinement,
    pub(super) identity: CommandIdentity,
    pub(super) die_with_gateway: bool,
    pub(super) without_gateway: WithoutGateway,
    pub(super) listener: UnixListener,
    /// A descriptor that is closed for a moment when a connection must be accepted in order to be refused.
    pub(super) reserve_listener: Option<UnixListener>,
    pub(super) signals: SignalFd,
    pub(super) epoll: Poll,
    pub(super) connections: SlotMap<GatewayConnection>,
    /// While one connection waits for a list, requests of the others are received first.
    pub(super) is_receiving_from_others: bool,
    pub(super) terminals: SlotMap<SupervisedTerminal>,
    pub(super) keys_by_id: HashMap<String, SlotKey>,
    /// Leaders that are not reaped yet, by pid.
    pub(super) leaders: HashMap<i32, SlotKey>,
    pub(super) leaves: Leaves,
    /// Whether the kernel can make a process inside a cgroup: assumed, and given up at the first refusal.
    pub(super) clone_into_cgroup: CloneIntoCgroup,
    pub(super) spawner: Spawner,
    pub(super) oom_score: OomScore,
    pub(super) proxy_listeners: Vec<Arc<OwnedFd>>,
    pub(super) unix_sockets: Vec<String>,
    pub(super) session_files: SharedFiles,
    pub(super) session_network: Vec<Arc<OwnedFd>>,
    pub(super) command_host_id: u32,
    /// The network is the sandbox's own.
    pub(super) own_network: bool,
    /// What the sandbox's network did not reach.
    pub(super) refused_traffic: RefusedTraffic,
    pub(super) gate: GateLink,
    pub(super) mode_calls: ModeCalls,
    /// When to advance which terminal.
    pub(super) timers: BTreeSet<(Instant, SlotKey)>,
    /// When to wait for all children, for one whose SIGCHLD was merged with another's.
    pub(super) rescan_at: Option<Instant>,
    pub(super) shutdown: Option<Shutdown>,
    /// When to exit because a process survives its kill.
    pub(super) exit_at: Option<Instant>,
    /// When to send delayed events.
    pub(super) flush_at: Option<Instant>,
    /// A gateway has completed the handshake.
    pub(super) handshaken: bool,
    /// When to exit if none has.
    pub(super) handshake_deadline: Instant,
    /// The time of this turn.
    pub(super) now: Instant,
}

impl Runtime {
    pub(super) fn new(ready: Ready) -> Result<Self, Errno> {
        umask(Mode::from_bits_truncate(0o022));
        raise_descriptor_limit();
        let errno = |error: std::io::Error| error.raw_os_error().map_or(Errno::EIO, Errno::from_raw);
        let listener = UnixListener::from(ready.listener);
        listener.set_nonblocking(true).map_err(errno)?;
        // Blocks all signals, so SIGCHLD waits for the signalfd.
        let spawner = Spawner::new()?;
        let mut mask = SigSet::empty();
        mask.add(Signal::SIGCHLD);
        let signals = SignalFd::with_flags(&mask, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?;
        let epoll = Poll::new()?;
        epoll.add(&listener, EventSource::Listener, EpollFlags::EPOLLIN)?;
        epoll.add(&signals, EventSource::Children, EpollFlags::EPOLLIN)?;
        let gate = GateLink::new(ready.gate)?;
        if let Some(socket) = gate.socket() {
            epoll.add(socket, EventSource::Gate, EpollFlags::EPOLLIN)?;
        }
        let refused_traffic = RefusedTraffic::new(ready.refusing_resolver, ready.route_counters);
        if let Some(resolver) = refused_traffic.resolver() {
            epoll.add(resolver, EventSource::Names, EpollFlags::EPOLLIN)?;
        }
        let mode_calls = ModeCalls::new(ready.mode_listener, ready.identity);
        if let Some(listener) = mode_calls.listener() {
            epoll.add(listener, EventSource::Modes, EpollFlags::EPOLLIN)?;
        }
        Ok(Self {
            sandbox_id: ready.sandbox_id,
            effective_confinement: ready.effective_confinement,
            identity: ready.identity,
            die_with_gateway: ready.die_with_gateway,
            without_gateway: WithoutGateway::new(ready.without_gateway),
            reserve_listener: listener.try_clone().ok(),
            listener,
            signals,
            epoll,
            connections: SlotMap::new(),
            is_receiving_from_others: false,
            terminals: SlotMap::new(),
            keys_by_id: HashMap::new(),
            leaders: HashMap::new(),
            leaves: Leaves::new(ready.directories),
            clone_into_cgroup: CloneIntoCgroup::Yes,
            spawner,
            oom_score: OomScore::new(ready.oom_score),
            proxy_listeners: ready.proxy_listeners,
            unix_sockets: ready.unix_sockets,
            session_files: ready.session_files,
            session_network: ready.session_network,
            command_host_id: ready.command_host_id,
            own_network: ready.own_network,
            refused_traffic,
            gate,
            mode_calls,
            timers: BTreeSet::new(),
            // Children that exited before the signalfd existed.
            rescan_at: Some(Instant::now()),
            shutdown: None,
            exit_at: None,
            flush_at: None,
            handshaken: false,
            handshake_deadline: Instant::now() + HANDSHAKE_TIMEOUT,
            now: Instant::now(),
        })
    }

    /// Schedules a terminal's next advance, replacing the time set before.
    pub(super) fn schedule(&mut self, key: SlotKey, at: Option<Instant>) {
        let Some(terminal) = self.terminals.get_mut(key) else { return };
        if terminal.wake == at {
            return;
        }
        if let Some(old) = terminal.wake.take() {
            self.timers.remove(&(old, key));
        }
        // Never in the past: a clock that has not moved must not keep the loop busy.
        let at = at.map(|at| at.max(self.now + Duration::from_millis(1)));
        terminal.wake = at;
        self.timers.extend(at.map(|at| (at, key)));
    }
}

/// Raises the limit of descriptors, on which the number of terminals depends.
fn raise_descriptor_limit() {
    if let Ok((_, hard)) = getrlimit(Resource::RLIMIT_NOFILE) {
        // Raising the soft limit to the hard one is always allowed.
        let _ = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
    }
}
