//! The gate's event loop: one thread, one epoll set. Nothing else waits, but for what the sandbox's own file systems make wait.

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
    sys::{
        epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout},
        signal::{SigSet, Signal},
        signalfd::{SfdFlags, SignalFd},
    },
};

use super::{
    connection::Connection,
    process::HostProc,
    setup::GateDescriptors,
    state::{Gate, MAX_HELD_EXECS, TICK, token},
};
use crate::{
    proto::supervisor::{GatePong, ToGateProcess, from_gate_process, to_gate_process},
    sys::seccomp_listener,
};

/// The sandbox has ended, and there is nothing more to evaluate.
const EXIT_SANDBOX_ENDED: i32 = 0;

/// Events handled in one turn.
const EVENTS: usize = 64;

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
        epoll.add(&descriptors.seccomp, readable(token::SECCOMP))?;
        epoll.add(&signals, readable(token::SIGNALS))?;
        let listener = UnixListener::from(listener);
        listener.set_nonblocking(true).map_err(|_| Errno::last())?;
        epoll.add(&listener, readable(token::LISTENER))?;
        seccomp_listener::expect_turns(descriptors.seccomp.as_fd());
        Ok(Self {
            sandbox_id,
            has_cgroups,
            proc: HostProc::new(descriptors.proc)?,
            seccomp: descriptors.seccomp,
            _dead_man: descriptors.dead_man,
            supervisor: Connection::new(socket, &epoll, token::SUPERVISOR)?,
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
            reports: Default::default(),
            held: Default::default(),
            verifying: Default::default(),
            queued: Default::default(),
            is_receiving: true,
            tick_at: None,
            now: Instant::now(),
        })
    }

    /// Runs until the sandbox ends.
    pub(super) fn run(mut self) -> ! {
        let mut events = [EpollEvent::empty(); EVENTS];
        loop {
            let ready = match self.epoll.wait(&mut events, self.timeout()) {
                Ok(count) => count,
                Err(Errno::EINTR) => 0,
                Err(_) => exit(EXIT_SANDBOX_ENDED),
            };
            self.now = Instant::now();
            for event in &events[..ready] {
                self.dispatch(event.data(), event.events());
            }
            if self.tick_at.is_some_and(|at| at <= self.now) {
                self.tick();
            }
            self.after_turn();
        }
    }

    fn dispatch(&mut self, token: u64, flags: EpollFlags) {
        match token {
            token::SECCOMP if flags.contains(EpollFlags::EPOLLIN) => self.notified(),
            // No process is left under the filter.
            token::SECCOMP => exit(EXIT_SANDBOX_ENDED),
            token::SIGNALS => {
                // One signal may stand for many events. Where there is another one, epoll says so again.
                let _ = self.signals.read_signal();
                self.trace_events();
            }
            token::SUPERVISOR => self.supervisor_ready(flags),
            token::LISTENER => self.accept(),
            connection => self.connection_ready(connection, flags),
        }
    }

    fn supervisor_ready(&mut self, flags: EpollFlags) {
        if flags.contains(EpollFlags::EPOLLOUT) && self.supervisor.flush(&self.epoll).is_err() {
            exit(EXIT_SANDBOX_ENDED);
        }
        if !flags.intersects(EpollFlags::EPOLLIN | EpollFlags::EPOLLHUP | EpollFlags::EPOLLERR) {
            return;
        }
        let Ok(messages) = self.supervisor.receive::<ToGateProcess>() else { exit(EXIT_SANDBOX_ENDED) };
        for message in messages {
            if let Some(to_gate_process::Message::Ping(ping)) = message.message {
                self.send_to_supervisor(from_gate_process::Message::Pong(GatePong { number: ping.number }));
            }
        }
    }

    /// What is done once a second while anything waits.
    fn tick(&mut self) {
        self.tick_at = None;
        self.report_allowed();
        // Without a gateway nobody will say that the journal has a report.
        let is_alone = self.gateway.is_none();
        self.answer_denied(|_| is_alone);
        self.kill_condemned(|_| is_alone);
        self.look_at_asked();
    }

    fn after_turn(&mut self) {
        // Asked only where no tick is due: all terminals may have to be looked at.
        let waits = || {
            !self.held.is_empty()
                || self.verifying.values().any(|one| one.condemned.is_some())
                || (self.gateway.is_some() && self.terminals.has_allowed())
        };
        if self.tick_at.is_none() && waits() {
            self.tick_at = Some(self.now + TICK);
        }
        let has_room = self.held_execs() < MAX_HELD_EXECS;
        if has_room != self.is_receiving {
            let flags = if has_room { EpollFlags::EPOLLIN } else { EpollFlags::empty() };
            if self.epoll.modify(&self.seccomp, &mut EpollEvent::new(flags, token::SECCOMP)).is_ok() {
                self.is_receiving = has_room;
            }
        }
    }

    fn timeout(&self) -> EpollTimeout {
        let Some(at) = self.tick_at else { return EpollTimeout::NONE };
        // Rounded up: a timer must not fire before its time and spin.
        let left = at.saturating_duration_since(Instant::now()) + Duration::from_micros(999);
        EpollTimeout::try_from(left).unwrap_or(EpollTimeout::MAX)
    }
}
