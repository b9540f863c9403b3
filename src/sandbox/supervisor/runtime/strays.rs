//! Strays: processes of the sandbox that the host has moved out of every terminal's cgroup.
//!
//! A command cannot leave its cgroup, but the host can move a process. When its command is stopped, such a process
//! becomes our orphan: it belongs to no running terminal, and is killed. One that cannot be told from a terminal's
//! process is left alone, and ends with the sandbox.

use std::{collections::HashSet, fs};

use nix::{sys::signal::Signal, unistd::Pid};

use super::{slot_map::SlotKey, state::Runtime};

/// With more commands than this strays are not searched: it would take longer than their ends.
const MANY_COMMANDS: usize = 256;

/// Searches for strays in one stop. A killed process is gone by the second.
const MAX_STRAY_SCANS: u8 = 20;

impl Runtime {
    /// Kills strays at the end of a terminal's stop. Returns whether there were any, so that another search is
    /// worthwhile.
    pub(super) fn kill_strays(&mut self, key: SlotKey) -> bool {
        if self.leaders.len() > MANY_COMMANDS {
            return false;
        }
        let Some(stop) = self.terminals.get_mut(key).and_then(|terminal| terminal.stop.as_mut()) else {
            return false;
        };
        if stop.stray_scans >= MAX_STRAY_SCANS {
            return false;
        }
        stop.stray_scans += 1;
        let own_have_grace = stop.killed_at.is_none();
        let mut orphans = children();
        orphans.retain(|pid| !self.leaders.contains_key(pid) && !self.mode_calls.is_answered_by(*pid));
        if orphans.is_empty() {
            return false;
        }
        let Some(held) = self.processes_in_leaves(|other| other != key || own_have_grace) else {
            return false;
        };
        orphans.retain(|pid| !held.contains(pid));
        for pid in &orphans {
            // Our unreaped child, so the pid is still its own. ESRCH is impossible.
            let _ = nix::sys::signal::kill(Pid::from_raw(*pid), Signal::SIGKILL);
        }
        !orphans.is_empty()
    }

    /// The processes in these terminals' cgroups; `None` when one cannot be read, so that strays cannot be told
    /// apart.
    fn processes_in_leaves(&self, counts: impl Fn(SlotKey) -> bool) -> Option<HashSet<i32>> {
        let mut held = HashSet::new();
        for key in self.terminals.keys().into_iter().filter(|key| counts(*key)) {
            if let Some(leaf) = self.terminals.get(key).and_then(|terminal| terminal.leaf.as_ref()) {
                held.extend(self.leaves.processes(leaf, usize::MAX).ok()?);
            }
        }
        Some(held)
    }
}

/// Our children, zombies included. Empty where the kernel does not list them.
fn children() -> Vec<i32> {
    let own = std::process::id();
    let text = fs::read_to_string(format!("/proc/self/task/{own}/children")).unwrap_or_default();
    text.split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
}
