//! Reaping: every process that ends in the sandbox is our child in the end.
//!
//! SIGCHLD says that something has ended, and may stand for many. So after each one all children are looked at
//! until none is left that has ended; with very many children, which the kernel walks through one by one, the
//! one that the signal names is looked at now and the rest a moment later.

use std::time::Duration;

use super::{
    Runtime,
    report::wall_clock_ns,
    table::Key,
    terminal::{MainEnd, Phase},
};
use crate::sys::wait::{Found, Reaped, Which, reap};

/// Reaped in one turn, at most.
const REAPS_PER_TURN: usize = 256;

/// From so many commands on, looking through all children is put off.
const MANY: usize = 256;

/// And by so long.
const SCAN_DELAY: Duration = Duration::from_millis(2);

impl Runtime {
    pub(super) fn children_changed(&mut self) {
        let named = match self.signals.read_signal() {
            Ok(Some(info)) => i32::try_from(info.ssi_pid).ok(),
            Ok(None) | Err(_) => None,
        };
        if self.mains.len() <= MANY {
            self.reap_all();
            return;
        }
        if let Some(pid) = named.filter(|pid| *pid > 0) {
            self.reap_one(pid);
        }
        let at = self.now + SCAN_DELAY;
        self.scan_at.get_or_insert(at);
    }

    pub(super) fn reap_all(&mut self) {
        self.scan_at = None;
        let mut orphans = false;
        for count in 0.. {
            if count == REAPS_PER_TURN {
                // The others have their turn first.
                self.scan_at = Some(self.now);
                break;
            }
            match reap(Which::Any) {
                Ok(Found::Reaped(reaped)) => orphans |= self.take_reaped(reaped) == Whose::Nobodys,
                Ok(Found::NoneEnded | Found::NoChildren) | Err(_) => break,
            }
        }
        if orphans {
            self.orphans_reaped();
        }
    }

    pub(super) fn reap_one(&mut self, pid: i32) {
        if let Ok(Found::Reaped(reaped)) = reap(Which::Pid(pid))
            && self.take_reaped(reaped) == Whose::Nobodys
        {
            self.orphans_reaped();
        }
    }

    fn take_reaped(&mut self, reaped: Reaped) -> Whose {
        let Some(key) = self.mains.remove(&reaped.pid) else { return Whose::Nobodys };
        if let Some(terminal) = self.terminals.get_mut(key) {
            terminal.main = Some(MainEnd { reaped, at: self.now, at_ns: wall_clock_ns() });
            self.advance(key);
        }
        Whose::Terminals
    }

    /// The last one of a leaf may have gone. Where the kernel does not tell of that, look at those that wait for it.
    fn orphans_reaped(&mut self) {
        if self.leaves.is_unified() {
            return;
        }
        let waits = |key: &Key| {
            let phase = self.terminals.get(*key).map(|terminal| &terminal.phase);
            matches!(phase, Some(Phase::Lingering { .. } | Phase::Sweeping))
        };
        let waiting: Vec<Key> = self.terminals.keys().into_iter().filter(waits).collect();
        for key in waiting {
            self.advance(key);
        }
    }
}

/// Whose main process was reaped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Whose {
    /// A terminal's.
    Terminals,
    /// An orphan's.
    Nobodys,
}
