//! The event loop of a sandbox: one thread, one epoll set, everything bounded for each turn.
//!
//! A turn does a little for each source that is ready, so that a flood in one terminal starves neither the
//! others nor the control connections. Nothing here waits but [`Poll::wait`], and a spawn for its exec. It decides
//! about no command, and it never panics on what a command, a gateway or the kernel does: with it the sandbox
//! would be lost.

mod command;
mod connections;
mod lifecycle;
mod oom_score;
mod poll;
mod pump;
mod reap;
mod report;
mod requests;
mod slot_map;
mod spawn;
mod stdin;
mod stop;
mod strays;
mod terminal;

use std::{
    collections::{BTreeSet, HashMap},
    convert::Infallible,
    os::unix::net::UnixListener,
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

use self::{
    connections::GatewayConnection,
    oom_score::OomScore,
    poll::Poll,
    requests::Shutdown,
    slot_map::{EventSource, SlotKey, SlotMap},
    terminal::SupervisedTerminal,
};
use super::{CommandIdentity, Ready};
use crate::{cgroup::leaf::Leaves, proto::supervisor::SandboxPosture, sys::spawn::Spawner};

/// Terminals that may be held, running and ended together. At the bound a spawn is refused with `EDQUOT`.
pub const MAX_TERMINALS: usize = 16_384;

/// How long a sandbox that no gateway has greeted stays.
pub const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(60);

/// Runs the sandbox until it is shut down. Everything in the sandbox ends with this process.
pub fn run(ready: Ready) -> ! {
    let code = match Runtime::new(ready) {
        Ok(mut runtime) => match runtime.run() {
            Ok(never) => match never {},
            Err(Finished::ShutDown) => 0,
            Err(Finished::Failed(_) | Finished::Outlived) => 1,
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
    /// Something of a command outlives its kill, and must not outlive the sandbox.
    Outlived,
    /// epoll_wait(2) failed, which it does for no reason that could pass.
    #[allow(dead_code, reason = "for whoever debugs this")]
    Failed(Errno),
}

#[derive(Debug)]
struct Runtime {
    sandbox_id: String,
    effective_confinement: SandboxPosture,
    identity: CommandIdentity,
    die_with_gateway: bool,
    listener: UnixListener,
    /// A descriptor to give up when a connection must be taken in order to be refused.
    reserve_listener: Option<UnixListener>,
    signals: SignalFd,
    epoll: Poll,
    connections: SlotMap<GatewayConnection>,
    /// One connection is being told what there is, and the others are heard first.
    is_receiving_from_others: bool,
    terminals: SlotMap<SupervisedTerminal>,
    keys_by_id: HashMap<String, SlotKey>,
    /// Main processes that are not reaped yet.
    leaders: HashMap<i32, SlotKey>,
    leaves: Leaves,
    clone_into_cgroup: spawn::CloneMode,
    spawner: Spawner,
    oom_score: OomScore,
    /// When to look at which terminal.
    timers: BTreeSet<(Instant, SlotKey)>,
    /// When to look through all children for one whose signal was merged with another's.
    rescan_at: Option<Instant>,
    shutdown: Option<Shutdown>,
    /// When to end because something of a command outlives its kill.
    exit_at: Option<Instant>,
    /// When to say what was put off.
    flush_at: Option<Instant>,
    /// A gateway has said Hello.
    handshaken: bool,
    /// When to end, if none has by then.
    handshake_deadline: Instant,
    /// Of this turn.
    now: Instant,
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
        Ok(Self {
            sandbox_id: ready.sandbox_id,
            effective_confinement: ready.effective_confinement,
            identity: ready.identity,
            die_with_gateway: ready.die_with_gateway,
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
            clone_into_cgroup: spawn::CloneMode::new(),
            spawner,
            oom_score: OomScore::new(ready.oom_score),
            timers: BTreeSet::new(),
            // What ended before the signalfd was there.
            rescan_at: Some(Instant::now()),
            shutdown: None,
            exit_at: None,
            flush_at: None,
            handshaken: false,
            handshake_deadline: Instant::now() + HANDSHAKE_TIMEOUT,
            now: Instant::now(),
        })
    }

    fn run(&mut self) -> Result<Infallible, Finished> {
        loop {
            self.turn().map_err(Finished::Failed)?;
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
            }
        }
        if self.rescan_at.is_some_and(|at| at <= self.now) {
            self.reap_all();
        }
        self.oom_score.lower_if_due(self.now);
        self.fire_timers();
        self.flush_delayed();
        Ok(())
    }

    fn next_wake(&self) -> Option<Instant> {
        let terminal = self.timers.first().map(|(at, _)| *at);
        let shutdown = self.shutdown.as_ref().map(|shutdown| shutdown.give_up_at);
        let alone = (!self.handshaken).then_some(self.handshake_deadline);
        let lowers = self.oom_score.next_change();
        [terminal, self.rescan_at, shutdown, alone, self.exit_at, self.flush_at, lowers]
            .into_iter()
            .flatten()
            .min()
    }

    /// Whether no gateway has ever come: the one that started this sandbox died before it could, and none came after
    /// it. Once one has, its sandbox lives on without it.
    fn is_handshake_overdue(&self) -> bool {
        !self.handshaken && self.now >= self.handshake_deadline
    }

    fn fire_timers(&mut self) {
        // Each is scheduled again at a later time, or not at all; so this ends.
        while let Some(&(at, key)) = self.timers.first() {
            if at > self.now {
                return;
            }
            self.schedule(key, None);
            self.advance(key);
        }
    }

    /// Looks at a terminal again at this time, and not at the one set before.
    fn schedule(&mut self, key: SlotKey, at: Option<Instant>) {
        let Some(terminal) = self.terminals.get_mut(key) else { return };
        if terminal.wake == at {
            return;
        }
        if let Some(old) = terminal.wake.take() {
            self.timers.remove(&(old, key));
        }
        // Never in the past: a clock that did not move must not keep the loop busy.
        let at = at.map(|at| at.max(self.now + Duration::from_millis(1)));
        terminal.wake = at;
        self.timers.extend(at.map(|at| (at, key)));
    }
}

/// As many descriptors as are allowed; how many terminals fit depends on it.
fn raise_descriptor_limit() {
    if let Ok((_, hard)) = getrlimit(Resource::RLIMIT_NOFILE) {
        // Raising the soft limit to the hard one is always allowed.
        let _ = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
    }
}
