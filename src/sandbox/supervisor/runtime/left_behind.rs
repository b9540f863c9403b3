//! Names the processes that a command left running, before they are ended with it.
//!
//! Of a command that has ended by itself. What a caller's stop or a limit ends with the command is what was asked for.

use std::{collections::BTreeSet, fs};

use nix::{errno::Errno, sys::signal::kill, unistd::Pid};

use super::{slot_map::SlotKey, state::Runtime, terminal::EndedProcesses};
use crate::sys::pty;

/// The most different names that are reported.
const NAMES_MAX: usize = 8;

impl Runtime {
    pub(super) fn left_behind(&self, key: SlotKey) -> EndedProcesses {
        let has_leaf = self.terminals.get(key).is_some_and(|terminal| terminal.leaf.is_some());
        let listed = has_leaf.then(|| self.processes_of(key));
        // This /proc shows a process to its own user only (`hidepid`, proc(5)).
        let seen = pty::with_ids_of(self.pty_owner(), || {
            let pids = listed.unwrap_or_else(all_others);
            Ok(pids.into_iter().map(|pid| (pid, state_of(pid))).collect())
        });
        let mut seen: Vec<(i32, ProcessState)> = seen.unwrap_or_default();
        // What has ended meanwhile has ended by itself. One that does not let itself be looked at (prctl(2), PR_SET_DUMPABLE) has no name.
        seen.retain(|(pid, state)| match state {
            ProcessState::Ended => false,
            ProcessState::Alive(_) => true,
            ProcessState::Unseen => kill(Pid::from_raw(*pid), None) != Err(Errno::ESRCH),
        });
        let names = seen.iter().filter_map(|(_, state)| match state {
            ProcessState::Alive(name) => Some(name.clone()),
            ProcessState::Ended | ProcessState::Unseen => None,
        });
        let distinct: BTreeSet<Vec<u8>> = names.collect();
        EndedProcesses { count: seen.len() as u32, commands: distinct.into_iter().take(NAMES_MAX).collect() }
    }
}

/// What /proc says of a process.
enum ProcessState {
    /// With its name.
    Alive(Vec<u8>),
    Ended,
    Unseen,
}

/// Everything in the pid namespace but this process, its first one. Without cgroups the sandbox serves one terminal.
fn all_others() -> Vec<i32> {
    if std::process::id() != 1 {
        return Vec::new();
    }
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.filter(|pid| *pid != 1).collect()
}

fn state_of(pid: i32) -> ProcessState {
    let Ok(stat) = fs::read(format!("/proc/{pid}/stat")) else { return ProcessState::Unseen };
    // The name stands in brackets and may have some itself: proc_pid_stat(5).
    let ends = stat.iter().position(|byte| *byte == b'(').zip(stat.iter().rposition(|byte| *byte == b')'));
    match ends.map(|(open, close)| (stat.get(open + 1..close), stat.get(close + 2))) {
        Some((_, Some(b'Z' | b'X') | None)) => ProcessState::Ended,
        Some((Some(name), Some(_))) => ProcessState::Alive(name.to_vec()),
        Some((None, Some(_))) | None => ProcessState::Unseen,
    }
}
