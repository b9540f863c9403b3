//! The event loop of a sandbox: one thread, one epoll set, bounded work in each turn.
//!
//! A turn does a little for each ready source, so that a flood in one terminal starves neither the others nor the
//! control connections. Only `Poll::wait` blocks, and a spawn until its exec. The loop must not panic, whatever a
//! command, a gateway or the kernel does: the sandbox would be lost.
//!
//! Types stand below the files that act on them: `slot_map`, `poll`, `mode_calls`, `connection`, `stdin_pipe`, `terminal`, then
//! `state`, then one file for each concern.

mod command;
mod connection;
mod connections;
mod foreground;
mod gate;
mod gate_link;
mod left_behind;
mod lifecycle;
mod mode_calls;
mod modes;
mod oom_score;
mod poll;
mod pty;
mod pump;
mod reap;
mod report;
mod requests;
mod screen;
mod screen_notifier;
mod slot_map;
mod spawn;
mod state;
mod stdin;
mod stdin_pipe;
mod stop;
mod strays;
mod terminal;
mod traffic;
mod without_gateway;

use std::{convert::Infallible, time::Instant};

use nix::errno::Errno;

pub use self::{
    gate_link::PONG_TIMEOUT,
    state::{HANDSHAKE_TIMEOUT, MAX_TERMINALS},
};
use self::{slot_map::EventSource, state::Runtime};
use super::ready::Ready;

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
    /// A process survives its kill, and must not survive the sandbox.
    Outlived,
    /// epoll_wait(2) failed, for a reason that does not pass.
    #[allow(dead_code, reason = "for debugging")]
    Failed(Errno),
}

impl Runtime {
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
                EventSource::Gate => self.gate_ready(),
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
            self.begin_shutdown(without_gateway::GRACE, None);
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
