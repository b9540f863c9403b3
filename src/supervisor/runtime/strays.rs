//! Strays: processes of the sandbox that are in no terminal's cgroup any more, because the host has moved them.
//!
//! A command cannot leave its cgroup, but the host can take a process out of it. When the command is stopped, such a
//! process comes to us as an orphan: then it belongs to no terminal that runs, and is killed. One that cannot be told from
//! a terminal's process is left alone, and ends with the sandbox.

use std::{collections::HashSet, fs};

use nix::{sys::signal::Signal, unistd::Pid};

use super::{slot_map::SlotKey, state::Runtime};

/// From so many commands on nobody looks for strays: it would take longer than their ends.
const MANY_COMMANDS: usize = 256;

/// Looks for strays at the end of one stop. A killed process is gone by the second; one that is not is in no terminal's way.
const MAX_STRAY_SCANS: u8 = 20;

impl Runtime {
    /// Kills strays at the end of a terminal's stop. Whether there were any, so that it is worth to look again.
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
        orphans.retain(|pid| !self.leaders.contains_key(pid));
        if orphans.is_empty() {
            return false;
        }
        let Some(held) = self.processes_in_leaves(|other| other != key || own_have_grace) else {
            return false;
        };
        orphans.retain(|pid| !held.contains(pid));
        for pid in &orphans {
            // Ours to reap, and so the number is still its own. ESRCH cannot be.
            let _ = nix::sys::signal::kill(Pid::from_raw(*pid), Signal::SIGKILL);
        }
        !orphans.is_empty()
    }

    /// The processes of terminals that have a cgroup; `None` when one cannot be read, and nobody knows whose is whose.
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

/// Our children, those that are not reaped yet among them. None where the kernel does not tell.
fn children() -> Vec<i32> {
    let own = std::process::id();
    let text = fs::read_to_string(format!("/proc/self/task/{own}/children")).unwrap_or_default();
    text.split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
}
