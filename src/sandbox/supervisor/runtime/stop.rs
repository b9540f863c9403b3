//! Stopping: TERM and CONT to the whole tree, the grace, then KILL, until no process is left.
//!
//! Uses the leaf and pidfds, never a process group: setsid, double forks and fork storms do not help. Only the
//! leader is killed by pid, which cannot be reused before it is reaped here. Without cgroups the tree is everything
//! in the pid namespace; the sandbox then serves one terminal.

use std::time::{Duration, Instant};

use nix::{sys::signal::Signal, unistd::Pid};

use super::{
    slot_map::SlotKey,
    state::Runtime,
    terminal::{MAX_GRACE, StopState, SupervisedTerminal, TerminalPhase},
};
use crate::{cgroup::held, proto::supervisor::StopCause};

/// The most processes that are sent TERM and remembered. Further ones get only the KILL.
const MAX_SIGNALLED: usize = 4096;

/// How often new processes are signalled during the grace.
const RESCAN_INTERVAL: Duration = Duration::from_millis(50);

/// How often to kill again where the kernel does not report an empty leaf.
pub(super) const KILL_RESCAN_INTERVAL: Duration = Duration::from_millis(10);

impl Runtime {
    /// Stops a terminal. The first cause is kept; a shorter grace wins; an ended terminal is left alone.
    pub(super) fn begin_stop(&mut self, key: SlotKey, cause: StopCause, grace: Duration) {
        if let Some(terminal) = self.terminals.get(key)
            && matches!(terminal.phase, TerminalPhase::Running)
            && terminal.stop.is_none()
        {
            // If it has just exited by itself, that is its end.
            let pid = terminal.pid;
            self.reap_one(pid);
        }
        self.set_stop(key, cause, grace);
        self.advance(key);
    }

    pub(super) fn set_stop(&mut self, key: SlotKey, cause: StopCause, grace: Duration) {
        let now = self.now;
        let Some(terminal) = self.terminals.get_mut(key) else { return };
        if terminal.is_ended() {
            return;
        }
        let cause = terminal.leader_exit.is_none().then_some(cause);
        let stop = terminal.stop.get_or_insert_with(|| StopState::new(cause, now, grace));
        stop.kill_at = stop.kill_at.min(now + grace.min(MAX_GRACE));
    }

    /// Does what is due, and returns when to continue.
    pub(super) fn step_stop(&mut self, key: SlotKey) -> Option<Instant> {
        let now = self.now;
        let stop = self.terminals.get(key)?.stop.as_ref()?;
        if stop.killed_at.is_some() || stop.kill_at <= now {
            self.kill_tree(key);
        } else if stop.rescan_at <= now {
            self.terminate_tree(key);
            self.hang_up_again(key);
        }
        let stop = self.terminals.get_mut(key)?.stop.as_mut()?;
        if stop.rescan_at <= now {
            stop.rescan_at =
                now + if stop.killed_at.is_some() { KILL_RESCAN_INTERVAL } else { RESCAN_INTERVAL };
        }
        Some(if stop.killed_at.is_some() { stop.rescan_at } else { stop.rescan_at.min(stop.kill_at) })
    }

    /// Sends TERM, then CONT so that a stopped process can handle it, to each process that has not had it.
    fn terminate_tree(&mut self, key: SlotKey) {
        let Some(terminal) = self.terminals.get(key) else { return };
        // As when a person closes the terminal: shells at a prompt ignore TERM.
        let hung_up = terminal.pty.as_ref().map(|_| terminal.pid);
        if terminal.leaf.is_none() {
            signal_all_others(&[Signal::SIGTERM]);
            if let (Some(leader), None) = (hung_up, &terminal.leader_exit) {
                // ESRCH is impossible: it is not reaped yet.
                let _ = nix::sys::signal::kill(Pid::from_raw(leader), Signal::SIGHUP);
            }
            return signal_all_others(&[Signal::SIGCONT]);
        }
        let signalled = terminal.stop.as_ref().map(|stop| stop.signalled.clone()).unwrap_or_default();
        let mut new: Vec<i32> =
            self.processes_of(key).into_iter().filter(|pid| !signalled.contains(pid)).collect();
        new.truncate(MAX_SIGNALLED.saturating_sub(signalled.len()));
        held::for_each_member(
            &new,
            || self.processes_of(key),
            |pid, process| {
                // ESRCH: exited by itself. Other errors are left to the KILL.
                let _ = process.signal(libc::SIGTERM);
                if hung_up == Some(pid) {
                    let _ = process.signal(libc::SIGHUP);
                }
                let _ = process.signal(libc::SIGCONT);
            },
        );
        if let Some(stop) = self.terminals.get_mut(key).and_then(|terminal| terminal.stop.as_mut()) {
            stop.signalled.extend(new);
        }
    }

    /// Sends HUP again to the leader of a PTY that goes on. A shell that is just about to read its next line when the signal
    /// comes notes it and reads all the same: readline looks at its signals first and waits then.
    fn hang_up_again(&mut self, key: SlotKey) {
        let now = self.now;
        let Some(terminal) = self.terminals.get_mut(key) else { return };
        let (Some(stop), Some(_), None) = (&mut terminal.stop, &terminal.pty, &terminal.leader_exit) else {
            return;
        };
        let (at, pause) = stop.hang_up_again;
        if at <= now {
            stop.hang_up_again = (now + pause, pause * 2);
            // ESRCH is impossible: it is not reaped yet.
            let _ = nix::sys::signal::kill(Pid::from_raw(terminal.pid), Signal::SIGHUP);
        }
    }

    fn kill_tree(&mut self, key: SlotKey) {
        let Some(terminal) = self.terminals.get(key) else { return };
        let first = terminal.stop.as_ref().is_some_and(|stop| stop.killed_at.is_none());
        if first {
            let main = terminal.pid;
            let others = self.processes_of(key).into_iter().filter(|pid| *pid != main).count() as u32;
            let now = self.now;
            if let Some(stop) = self.terminals.get_mut(key).and_then(|terminal| terminal.stop.as_mut()) {
                stop.killed_at = Some(now);
                stop.rescan_at = now;
                stop.stragglers = others;
            }
        }
        let Some(terminal) = self.terminals.get(key) else { return };
        let Some(leaf) = &terminal.leaf else {
            return signal_all_others(&[Signal::SIGKILL]);
        };
        let by_cgroup = self.leaves.kill(leaf);
        if terminal.leader_exit.is_none() {
            // Works without a descriptor and outside of the cgroup. ESRCH is impossible: it is not reaped yet.
            let _ = nix::sys::signal::kill(Pid::from_raw(terminal.pid), Signal::SIGKILL);
        }
        let is_due = terminal.stop.as_ref().is_some_and(|stop| stop.rescan_at <= self.now);
        if by_cgroup.is_err() || (!first && is_due) {
            // For v1, kernels before 5.14, and thread groups whose main thread has exited, which `cgroup.kill`
            // misses. Repeated until none is left.
            self.kill_each(key);
        }
    }

    /// A fork storm is not slowed down, but each pass kills all listed processes, and the kernel gives a killed
    /// process no more time to fork.
    fn kill_each(&mut self, key: SlotKey) {
        let members = || self.processes_of(key);
        // ESRCH: exited by itself.
        held::for_each_member(&members(), members, |_, process| {
            let _ = process.signal(libc::SIGKILL);
        });
    }

    pub(super) fn processes_of(&self, key: SlotKey) -> Vec<i32> {
        let leaf = self.terminals.get(key).and_then(|terminal: &SupervisedTerminal| terminal.leaf.as_ref());
        leaf.and_then(|leaf| self.leaves.processes(leaf, MAX_SIGNALLED).ok()).unwrap_or_default()
    }
}

/// Signals everything in the pid namespace but this process. Only as PID 1: elsewhere this would reach unrelated
/// processes.
fn signal_all_others(signals: &[Signal]) {
    if std::process::id() != 1 {
        return;
    }
    for signal in signals {
        // ESRCH: there is no other process.
        let _ = nix::sys::signal::kill(Pid::from_raw(-1), *signal);
    }
}
