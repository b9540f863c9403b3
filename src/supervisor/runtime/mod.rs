//! The event loop of a sandbox: one thread, one epoll set, everything bounded for each turn.
//!
//! A turn does a little for each source that is ready, so that a flood in one terminal starves neither the
//! others nor the control connections. Nothing here waits but [`Poll::wait`], and a spawn for its exec. It decides
//! about no command, and it never panics on what a command, a gateway or the kernel does: with it the sandbox
//! would be lost.

mod command;
mod connections;
mod ending;
mod poll;
mod pump;
mod reap;
mod report;
mod requests;
mod score;
mod spawn;
mod stdin;
mod stop;
mod strays;
mod table;
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
    connections::Connection,
    poll::Poll,
    requests::Shutdown,
    score::Score,
    table::{Key, Source, Table},
    terminal::Terminal,
};
use super::{CommandIdentity, Ready};
use crate::{cgroup::leaf::Leaves, proto::supervisor::SandboxPosture, sys::spawn::Spawner};

/// Terminals that may be held, running and ended together. At the bound a spawn is refused with `EDQUOT`.
pub const MAX_TERMINALS: usize = 16_384;

/// How long a sandbox that no gateway has greeted stays.
pub const UNGREETED_LIMIT: Duration = Duration::from_secs(60);

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
    posture: SandboxPosture,
    identity: CommandIdentity,
    die_with_gateway: bool,
    listener: UnixListener,
    /// A descriptor to give up when a connection must be taken in order to be refused.
    spare: Option<UnixListener>,
    signals: SignalFd,
    epoll: Poll,
    connections: Table<Connection>,
    /// One connection is being told what there is, and the others are heard first.
    hears_out: bool,
    terminals: Table<Terminal>,
    names: HashMap<String, Key>,
    /// Main processes that are not reaped yet.
    mains: HashMap<i32, Key>,
    leaves: Leaves,
    born_inside: spawn::Birth,
    spawner: Spawner,
    score: Score,
    /// When to look at which terminal.
    wakes: BTreeSet<(Instant, Key)>,
    /// When to look through all children for one whose signal was merged with another's.
    scan_at: Option<Instant>,
    shutdown: Option<Shutdown>,
    /// When to end because something of a command outlives its kill.
    end_at: Option<Instant>,
    /// When to say what was put off.
    tells_at: Option<Instant>,
    /// A gateway has said Hello.
    greeted: bool,
    /// When to end, if none has by then.
    alone_until: Instant,
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
        epoll.add(&listener, Source::Listener, EpollFlags::EPOLLIN)?;
        epoll.add(&signals, Source::Children, EpollFlags::EPOLLIN)?;
        Ok(Self {
            sandbox_id: ready.sandbox_id,
            posture: ready.posture,
            identity: ready.identity,
            die_with_gateway: ready.die_with_gateway,
            spare: listener.try_clone().ok(),
            listener,
            signals,
            epoll,
            connections: Table::new(),
            hears_out: false,
            terminals: Table::new(),
            names: HashMap::new(),
            mains: HashMap::new(),
            leaves: Leaves::new(ready.folders),
            born_inside: spawn::Birth::new(),
            spawner,
            score: Score::new(ready.score),
            wakes: BTreeSet::new(),
            // What ended before the signalfd was there.
            scan_at: Some(Instant::now()),
            shutdown: None,
            end_at: None,
            tells_at: None,
            greeted: false,
            alone_until: Instant::now() + UNGREETED_LIMIT,
            now: Instant::now(),
        })
    }

    fn run(&mut self) -> Result<Infallible, Finished> {
        loop {
            self.turn().map_err(Finished::Failed)?;
            if self.is_shut_down() || self.is_unwanted() {
                return Err(Finished::ShutDown);
            }
            if self.end_at.is_some_and(|at| at <= self.now) {
                return Err(Finished::Outlived);
            }
        }
    }

    fn turn(&mut self) -> Result<(), Errno> {
        let ready = self.epoll.wait(self.next_wake())?;
        self.now = Instant::now();
        for (source, flags) in ready {
            match source {
                Source::Listener => self.accept(),
                Source::Children => self.children_changed(),
                Source::Connection(key) => self.connection_ready(key, flags),
                Source::Output(key, index) => self.pump(key, usize::from(index)),
                Source::Stdin(key) => self.feed_stdin(key),
                Source::Leaf(key) => self.leaf_changed(key),
            }
        }
        if self.scan_at.is_some_and(|at| at <= self.now) {
            self.reap_all();
        }
        self.score.lower_at(self.now);
        self.wake_terminals();
        self.tell_put_off();
        Ok(())
    }

    fn next_wake(&self) -> Option<Instant> {
        let terminal = self.wakes.first().map(|(at, _)| *at);
        let shutdown = self.shutdown.as_ref().map(|shutdown| shutdown.give_up_at);
        let alone = (!self.greeted).then_some(self.alone_until);
        let lowers = self.score.lowers();
        [terminal, self.scan_at, shutdown, alone, self.end_at, self.tells_at, lowers]
            .into_iter()
            .flatten()
            .min()
    }

    /// Whether no gateway has ever come: the one that started this sandbox died before it could, and none came after
    /// it. Once one has, its sandbox lives on without it.
    fn is_unwanted(&self) -> bool {
        !self.greeted && self.now >= self.alone_until
    }

    fn wake_terminals(&mut self) {
        // Each is scheduled anew at a later time, or not at all; so this ends.
        while let Some(&(at, key)) = self.wakes.first() {
            if at > self.now {
                return;
            }
            self.schedule(key, None);
            self.advance(key);
        }
    }

    /// Looks at a terminal again at this time, and not at the one set before.
    fn schedule(&mut self, key: Key, at: Option<Instant>) {
        let Some(terminal) = self.terminals.get_mut(key) else { return };
        if terminal.wake == at {
            return;
        }
        if let Some(old) = terminal.wake.take() {
            self.wakes.remove(&(old, key));
        }
        // Never in the past: a clock that did not move must not keep the loop busy.
        let at = at.map(|at| at.max(self.now + Duration::from_millis(1)));
        terminal.wake = at;
        self.wakes.extend(at.map(|at| (at, key)));
    }
}

/// As many descriptors as are allowed; how many terminals fit depends on it.
fn raise_descriptor_limit() {
    if let Ok((_, hard)) = getrlimit(Resource::RLIMIT_NOFILE) {
        // Raising the soft limit to the hard one is always allowed.
        let _ = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
    }
}
