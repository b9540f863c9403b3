//! Reaping: every process of the sandbox becomes our child in the end.
//!
//! One SIGCHLD may stand for many exits, so after each one all children are waited for. With very many children,
//! which the kernel scans one by one, only the one that the signal names is reaped at once, and the rest a moment
//! later.

use std::time::Duration;

use super::{
    report::wall_clock_ns,
    slot_map::SlotKey,
    state::Runtime,
    terminal::{LeaderExit, TerminalPhase},
};
use crate::sys::wait::{ReapResult, Reaped, WaitTarget, reap};

/// Reaped in one turn, at most.
const REAPS_PER_TURN: usize = 256;

/// With more commands than this, scanning all children is delayed.
const MANY_COMMANDS: usize = 256;

/// The delay.
const RESCAN_DELAY: Duration = Duration::from_millis(2);

impl Runtime {
    pub(super) fn children_changed(&mut self) {
        let named = match self.signals.read_signal() {
            Ok(Some(info)) => i32::try_from(info.ssi_pid).ok(),
            Ok(None) | Err(_) => None,
        };
        if self.leaders.len() <= MANY_COMMANDS {
            self.reap_all();
            return;
        }
        if let Some(pid) = named.filter(|pid| *pid > 0) {
            self.reap_one(pid);
        }
        let at = self.now + RESCAN_DELAY;
        self.rescan_at.get_or_insert(at);
    }

    pub(super) fn reap_all(&mut self) {
        self.rescan_at = None;
        let mut orphans = false;
        for count in 0.. {
            if count == REAPS_PER_TURN {
                // Other sources have their turn first.
                self.rescan_at = Some(self.now);
                break;
            }
            match reap(WaitTarget::Any) {
                Ok(ReapResult::Reaped(reaped)) => {
                    orphans |= self.handle_reaped(reaped) == ReapedProcess::Orphan
                }
                Ok(ReapResult::NoneEnded | ReapResult::NoChildren) | Err(_) => break,
            }
        }
        if orphans {
            self.orphans_reaped();
        }
    }

    pub(super) fn reap_one(&mut self, pid: i32) {
        if let Ok(ReapResult::Reaped(reaped)) = reap(WaitTarget::Pid(pid))
            && self.handle_reaped(reaped) == ReapedProcess::Orphan
        {
            self.orphans_reaped();
        }
    }

    fn handle_reaped(&mut self, reaped: Reaped) -> ReapedProcess {
        if self.mode_call_ended(&reaped) {
            return ReapedProcess::Orphan;
        }
        let Some(key) = self.leaders.remove(&reaped.pid) else { return ReapedProcess::Orphan };
        if let Some(terminal) = self.terminals.get_mut(key) {
            terminal.leader_exit = Some(LeaderExit { reaped, at: self.now, at_ns: wall_clock_ns() });
            self.release_pty(key);
            self.advance(key);
        }
        ReapedProcess::Leader
    }

    /// The last process of a leaf may have exited. Where the kernel does not report that, check the terminals that
    /// wait for it.
    fn orphans_reaped(&mut self) {
        if self.leaves.is_v2() {
            return;
        }
        let waits = |key: &SlotKey| {
            let phase = self.terminals.get(*key).map(|terminal| &terminal.phase);
            matches!(phase, Some(TerminalPhase::Lingering { .. } | TerminalPhase::KillingStragglers))
        };
        let waiting: Vec<SlotKey> = self.terminals.keys().into_iter().filter(waits).collect();
        for key in waiting {
            self.advance(key);
        }
    }
}

/// Which kind of process was reaped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReapedProcess {
    /// A terminal's leader.
    Leader,
    /// An orphan.
    Orphan,
}
