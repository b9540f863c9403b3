//! The event loop of a sandbox: one thread, one epoll set, bounded work in each turn.
//!
//! A turn does a little for each ready source, so that a flood in one terminal starves neither the others nor the
//! control connections. Only `Poll::wait` blocks, and a spawn until its exec. The loop must not panic, whatever a
//! command, a gateway or the kernel does: the sandbox would be lost.
//!
//! [`Runtime`] is all that the loop keeps between two turns. Each file below acts on a part of it: `requests` dispatches what gateways ask,
//! `spawn` starts commands, `stop` ends and reaps them, `pump` copies what they write, `stdin` what they read.

mod connections;
mod gate;
mod links;
mod mode_calls;
mod poll;
mod pty;
mod pump;
mod requests;
mod spawn;
mod stdin;
mod stop;
mod terminal;
mod traffic;

use std::{
    collections::{BTreeSet, HashMap},
    convert::Infallible,
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

pub use self::links::PONG_TIMEOUT;
use self::{
    links::{GateState, GatewayConnection},
    mode_calls::ModeCalls,
    poll::{EventSource, Poll, SlotKey, SlotMap},
    requests::{WITHOUT_GATEWAY_GRACE, WithoutGateway},
    spawn::OomScore,
    terminal::SupervisedTerminal,
    traffic::RefusedTraffic,
};
use crate::{
    cgroup::leaf::{CloneIntoCgroup, Leaves},
    proto::supervisor::EffectiveConfinement,
    supervisor::ready::{CommandIdentity, Ready, SharedFiles},
    sys::spawn::Spawner,
};

/// How long a sandbox waits for the first handshake.
pub const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(60);

/// A shutdown under way.
#[derive(Debug)]
struct Shutdown {
    /// The connections and requests that are answered at its end.
    requesters: Vec<(SlotKey, u64)>,
    give_up_at: Instant,
}

/// All that the event loop keeps between two turns.
#[derive(Debug)]
struct Runtime {
    sandbox_id: String,
    effective_confinement: EffectiveConfinement,
    identity: CommandIdentity,
    die_with_gateway: bool,
    without_gateway: WithoutGateway,
    listener: UnixListener,
    /// A descriptor that is closed for a moment when a connection must be accepted in order to be refused.
    reserve_listener: Option<UnixListener>,
    signals: SignalFd,
    epoll: Poll,
    connections: SlotMap<GatewayConnection>,
    /// While one connection waits for a list, requests of the others are received first.
    is_receiving_from_others: bool,
    terminals: SlotMap<SupervisedTerminal>,
    keys_by_id: HashMap<String, SlotKey>,
    /// Terminals whose main process is not reaped yet, by its pid.
    leaders: HashMap<i32, SlotKey>,
    leaves: Leaves,
    /// Whether the kernel can make a process inside a cgroup: assumed, and given up at the first refusal.
    clone_into_cgroup: CloneIntoCgroup,
    spawner: Spawner,
    oom_score: OomScore,
    proxy_listeners: Vec<Arc<OwnedFd>>,
    unix_sockets: Vec<String>,
    session_files: SharedFiles,
    session_network: Vec<Arc<OwnedFd>>,
    command_host_id: u32,
    /// The network is the sandbox's own.
    own_network: bool,
    /// What the sandbox's network did not reach.
    refused_traffic: RefusedTraffic,
    gate: GateState,
    mode_calls: ModeCalls,
    /// When to advance which terminal.
    timers: BTreeSet<(Instant, SlotKey)>,
    /// When to wait for all children, for one whose SIGCHLD was merged with another's.
    rescan_at: Option<Instant>,
    shutdown: Option<Shutdown>,
    /// When to exit because a process survives its kill.
    exit_at: Option<Instant>,
    /// When to send delayed events.
    flush_at: Option<Instant>,
    /// A gateway has completed the handshake.
    handshaken: bool,
    /// When to exit if none has.
    handshake_deadline: Instant,
    /// The time of this turn.
    now: Instant,
}

/// Runs the sandbox until it is shut down. Everything in the sandbox ends with this process.
pub fn run(ready: Ready) -> ! {
    let code = match Runtime::new(ready) {
        Ok(mut runtime) => match runtime.run() {
            Ok(never) => match never {},
            Err(Finished::ShutDown) => 0,
            Err(Finished::Failed | Finished::Outlived) => 1,
        },
        Err(_) => 1,
    };
    std::process::exit(code)
}

/// Why the loop ended.
#[derive(Debug)]
enum Finished {
    /// As asked.
    ShutDown,
    /// A process survives its kill, and must not survive the sandbox.
    Outlived,
    /// epoll_wait(2) failed, for a reason that does not pass.
    Failed,
}

impl Runtime {
    fn new(ready: Ready) -> Result<Self, Errno> {
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
        let gate = GateState::new(ready.gate, &epoll)?;
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
    fn schedule(&mut self, key: SlotKey, at: Option<Instant>) {
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

    fn run(&mut self) -> Result<Infallible, Finished> {
        loop {
            self.turn().map_err(|_| Finished::Failed)?;
            if self.is_shut_down() || self.is_handshake_overdue() {
                return Err(Finished::ShutDown);
            }
            if self.exit_at.is_some_and(|at| at <= self.now) {
                return Err(Finished::Outlived);
            }
        }
    }

    fn turn(&mut self) -> Result<(), Errno> {
        let ready = self.epoll.wait(self.next_wake())?;
        self.now = Instant::now();
        for (source, flags) in ready {
            match source {
                EventSource::Listener => self.accept(),
                EventSource::Children => self.children_changed(),
                EventSource::Connection(key) => self.connection_ready(key, flags),
                EventSource::Output(key, index) => self.pump(key, usize::from(index)),
                EventSource::Stdin(key) => self.flush_stdin(key),
                EventSource::Leaf(key) => self.leaf_changed(key),
                EventSource::Gate => self.gate_ready(flags),
                EventSource::Names => self.refused_traffic.answer(),
                EventSource::Modes => self.mode_call_waits(),
            }
        }
        if self.rescan_at.is_some_and(|at| at <= self.now) {
            self.reap_all();
        }
        self.oom_score.lower_if_due(self.now);
        self.watch_gate();
        self.mode_calls.end_overdue(self.now);
        self.end_without_gateway();
        self.fire_timers();
        self.flush_delayed();
        Ok(())
    }

    fn next_wake(&self) -> Option<Instant> {
        let terminal = self.timers.first().map(|(at, _)| *at);
        let shutdown = self.shutdown.as_ref().map(|shutdown| shutdown.give_up_at);
        let alone = (!self.handshaken).then_some(self.handshake_deadline);
        let lowers = self.oom_score.next_change();
        let gate = self.gate.next_change();
        let left = self.without_gateway.next_change();
        let modes = self.mode_calls.next_change();
        [terminal, self.rescan_at, shutdown, alone, self.exit_at, self.flush_at, lowers, gate, left, modes]
            .into_iter()
            .flatten()
            .min()
    }

    /// Whether no gateway has completed the handshake in time: the one that launched this sandbox died before, and
    /// no other came. After a first handshake the sandbox stays without a gateway.
    fn is_handshake_overdue(&self) -> bool {
        !self.handshaken && self.now >= self.handshake_deadline
    }

    /// When it has waited for the next gateway for long enough.
    fn end_without_gateway(&mut self) {
        if self.without_gateway.is_over(self.now) {
            self.without_gateway.end();
            self.begin_shutdown(WITHOUT_GATEWAY_GRACE, None);
        }
    }

    fn fire_timers(&mut self) {
        // Each is scheduled at a later time or not at all, so this ends.
        while let Some(&(at, key)) = self.timers.first() {
            if at > self.now {
                return;
            }
            self.schedule(key, None);
            self.advance(key);
        }
    }
}

/// Raises the limit of descriptors, on which the number of terminals depends.
fn raise_descriptor_limit() {
    if let Ok((_, hard)) = getrlimit(Resource::RLIMIT_NOFILE) {
        // Raising the soft limit to the hard one is always allowed.
        let _ = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
    }
}
