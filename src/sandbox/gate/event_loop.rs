//! The gate's event loop: one thread. Nothing else waits, but for what the sandbox's own file systems make wait.
//!
//! The listener and the signals are polled by themselves, and the connections through an epoll set: the kernel then wakes the gate on
//! the processor of the caller that waits for it, which epoll would not pass on (decision 0250).

use std::{
    os::{
        fd::{AsFd, OwnedFd},
        unix::net::UnixListener,
    },
    process::exit,
    time::{Duration, Instant},
};

use nix::{
    errno::Errno,
    fcntl::{FcntlArg, OFlag, fcntl},
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::{
        epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout},
        signal::{SigSet, Signal},
        signalfd::{SfdFlags, SignalFd},
    },
};

use super::{Gate, MAX_EXEC_BYTES, TICK, process::HostProc, setup::GateDescriptors, token};
use crate::{
    link::PolledConnection,
    proto::supervisor::{GatePong, from_gate_process, to_gate_process},
    sys::seccomp_listener,
};

/// The sandbox has ended, and there is nothing more to evaluate.
const EXIT_SANDBOX_ENDED: i32 = 0;

/// Descriptors that are closed although an exec waits.
const MAX_SPENT: usize = 64;

/// Events handled in one turn.
const EVENTS: usize = 64;

/// What poll(2) has said.
#[derive(Debug, Clone, Copy)]
struct Ready {
    seccomp: PollFlags,
    signals: PollFlags,
    connections: PollFlags,
}

impl Default for Ready {
    fn default() -> Self {
        Self { seccomp: PollFlags::empty(), signals: PollFlags::empty(), connections: PollFlags::empty() }
    }
}

impl Gate {
    /// A gate with nothing to do yet.
    pub(super) fn new(
        (sandbox_id, has_cgroups): (String, bool),
        socket: OwnedFd,
        listener: OwnedFd,
        descriptors: GateDescriptors,
    ) -> Result<Self, Errno> {
        let mut mask = SigSet::empty();
        mask.add(Signal::SIGCHLD);
        mask.thread_block()?;
        let signals = SignalFd::with_flags(&mask, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?;
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        let readable = |token| EpollEvent::new(EpollFlags::EPOLLIN, token);
        let listener = UnixListener::from(listener);
        listener.set_nonblocking(true).map_err(|_| Errno::last())?;
        epoll.add(&listener, readable(token::LISTENER))?;
        fcntl(&socket, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        seccomp_listener::expect_turns(descriptors.seccomp.as_fd());
        let waits_killable = seccomp_listener::callers_wait_killable();
        Ok(Self {
            sandbox_id,
            has_cgroups,
            proc: HostProc::new(descriptors.proc)?,
            seccomp: descriptors.seccomp,
            waits_killable,
            _dead_man: descriptors.dead_man,
            supervisor: PolledConnection::new(socket, &epoll, token::SUPERVISOR)?,
            listener,
            signals,
            epoll,
            connections: Default::default(),
            gateway: None,
            next_connection: token::FIRST_CONNECTION,
            policy: Default::default(),
            names: Default::default(),
            lines: Default::default(),
            verdicts: Default::default(),
            terminals: Default::default(),
            denials: Default::default(),
            reports: Default::default(),
            received: Default::default(),
            held: Default::default(),
            verifying: Default::default(),
            seized: Default::default(),
            queued: Default::default(),
            shares_directories: false,
            spent: Vec::new(),
            tick_at: None,
            now: Instant::now(),
        })
    }

    /// Runs until the sandbox ends.
    pub(super) fn run(mut self) -> ! {
        let mut events = [EpollEvent::empty(); EVENTS];
        loop {
            let ready = match self.wait() {
                Ok(ready) => ready,
                Err(Errno::EINTR) => Ready::default(),
                Err(_) => exit(EXIT_SANDBOX_ENDED),
            };
            self.now = Instant::now();
            // First those who stand at their exec: others of their groups wait for them.
            if !ready.signals.is_empty() {
                // At once: they stand still. The signal can wait.
                self.awaited_events();
                // It may stand for many events. Where there is another one, poll says so again.
                let _ = self.signals.read_signal();
                self.trace_events();
            }
            if ready.seccomp.contains(PollFlags::POLLIN) {
                self.receive_calls();
            } else if !ready.seccomp.is_empty() {
                // No process is left under the filter.
                exit(EXIT_SANDBOX_ENDED);
            }
            // What a gateway says of a line is sent before the line runs: it holds for the line's first exec.
            if !ready.connections.is_empty() {
                let count = self.epoll.wait(&mut events, EpollTimeout::ZERO).unwrap_or(0);
                for event in &events[..count] {
                    self.dispatch(event.data(), event.events());
                }
            }
            if self.has_turn() {
                self.evaluate_next();
            }
            if self.tick_at.is_some_and(|at| at <= self.now) {
                self.tick();
            }
            self.after_turn();
        }
    }

    /// Whether a call that was received can be evaluated now.
    fn has_turn(&self) -> bool {
        !self.received.is_empty() && self.verified_bytes() < MAX_EXEC_BYTES
    }

    fn wait(&self) -> Result<Ready, Errno> {
        let seccomp = if self.has_room() { PollFlags::POLLIN } else { PollFlags::empty() };
        let mut waited = [
            PollFd::new(self.seccomp.as_fd(), seccomp),
            PollFd::new(self.signals.as_fd(), PollFlags::POLLIN),
            PollFd::new(self.epoll.0.as_fd(), PollFlags::POLLIN),
        ];
        poll(&mut waited, self.timeout())?;
        let [seccomp, signals, connections] = waited.map(|one| one.revents().unwrap_or(PollFlags::POLLERR));
        Ok(Ready { seccomp, signals, connections })
    }

    fn dispatch(&mut self, token: u64, flags: EpollFlags) {
        match token {
            token::SUPERVISOR => self.supervisor_ready(flags),
            token::LISTENER => self.accept(),
            connection => self.connection_ready(connection, flags),
        }
    }

    fn supervisor_ready(&mut self, flags: EpollFlags) {
        let Ok(messages) = self.supervisor.ready(&self.epoll, flags) else { exit(EXIT_SANDBOX_ENDED) };
        for (message, _) in messages {
            if let Some(to_gate_process::Message::Ping(ping)) = message.message {
                self.send_to_supervisor(from_gate_process::Message::Pong(GatePong { number: ping.number }));
            }
        }
    }

    /// What is done once a second while anything waits.
    fn tick(&mut self) {
        self.tick_at = None;
        self.report_allowed();
        self.report_denied_again(None);
        // Without a gateway nobody will say that the journal has a report.
        let is_alone = self.gateway.is_none();
        self.answer_denied(|_| is_alone);
        self.kill_condemned(|_| is_alone);
        self.look_at_asked();
    }

    fn after_turn(&mut self) {
        if self.verifying.is_empty() || self.spent.len() >= MAX_SPENT {
            self.spent.clear();
        }
        // Asked only where no tick is due: all terminals may have to be looked at.
        let waits = || {
            !self.held.is_empty()
                || self.verifying.values().any(|one| one.condemned.is_some())
                || (self.gateway.is_some() && (self.terminals.has_allowed() || self.denials.has_counted()))
        };
        if self.tick_at.is_none() && waits() {
            self.tick_at = Some(self.now + TICK);
        }
    }

    fn timeout(&self) -> PollTimeout {
        if self.has_turn() {
            return PollTimeout::ZERO;
        }
        let Some(at) = self.tick_at else { return PollTimeout::NONE };
        // Rounded up: a timer must not fire before its time and spin.
        let left = at.saturating_duration_since(Instant::now()) + Duration::from_micros(999);
        PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX)
    }
}
