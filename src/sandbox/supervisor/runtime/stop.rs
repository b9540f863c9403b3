//! Ends commands: TERM and CONT to the whole tree, the grace, then KILL, until no process is left; then the rest of the output, and the
//! report of the end. Every clock of the supervisor's part of that is here.
//!
//! Uses the leaf and pidfds, never a process group: setsid, double forks and fork storms do not help. Only the
//! command's main process is killed by pid, which cannot be reused before it is reaped here. Without cgroups the tree is
//! everything in the pid namespace; the sandbox then serves one terminal.
//!
//! Which clock starts which:
//!
//! ```text
//! Stop, a limit, Shutdown
//!  ├─ TERM, CONT; HUP to the main process of a PTY
//!  ├─ every RESCAN_INTERVAL: TERM, CONT to processes that are new since
//!  ├─ after HANG_UP_INTERVAL, twice as long later, ...: HUP to the main process of a PTY again
//!  ├─ main process reaped ──► strays: at most MAX_STRAY_SCANS searches, KILL_RESCAN_INTERVAL apart
//!  ├─ leaf empty and removed ──► drain, at most DRAIN_TIMEOUT ──► Exited
//!  └─ grace, at most MAX_GRACE ──► cgroup.kill, KILL
//!       ├─ every KILL_RESCAN_INTERVAL: KILL to what is left
//!       └─ SURVIVOR_TIMEOUT ──► report with the survivors
//!            └─ FINAL_REPORT_DELAY ──► this process exits, and the kernel ends all that is in its pid namespace
//!
//! main process exits by itself ──► linger ──► as a Stop, with a grace of at most STRAGGLER_GRACE, for what it has left running
//!
//! Shutdown ──► grace + LAST_PROCESS_TIMEOUT ──► this process exits
//! ```

use std::{
    collections::{BTreeSet, HashSet},
    fs,
    time::{Duration, Instant},
};

use nix::{
    errno::Errno,
    sys::{
        epoll::EpollFlags,
        signal::{Signal, kill},
    },
    unistd::Pid,
};

use super::{
    Runtime, Shutdown,
    poll::{EventSource, SlotKey},
    pump::Pumped,
    spawn::wall_clock_ns,
    terminal::{
        EndedProcesses, LeaderExit, LeafRemoval, PipeState, StopState, SupervisedTerminal, TerminalPhase,
    },
};
use crate::{
    cgroup::{
        kill::{for_each_member, kill_members},
        leaf::{Removal, Usage},
    },
    proto::supervisor::{Exit, Exited, StopCause, exit, from_supervisor::Message},
    sys::{
        pty,
        wait::{ExitStatus, ReapResult, Reaped, WaitTarget, has_children, reap},
    },
};

/// The longest grace, of a stop and of a shutdown; a longer one is cut to this. A gateway may send any: a request of its API has at most
/// 600 s (`GRACE_MAX`), but a profile's `times.grace` has no bound, and those of up to a day are kept.
const MAX_GRACE: Duration = Duration::from_secs(86_400);

/// The longest grace of processes that survive a main process which has ended by itself. Nobody waits for them: the command's end
/// does.
const STRAGGLER_GRACE: Duration = Duration::from_secs(1);

/// How often new processes are signalled during the grace: what is forked meanwhile has not had TERM.
const RESCAN_INTERVAL: Duration = Duration::from_millis(50);

/// How long a main process that was sent HUP has before it is sent it again; twice as long each time. See
/// [`Runtime::hang_up_again`].
const HANG_UP_INTERVAL: Duration = Duration::from_secs(2);

/// How often to kill again where the kernel does not report an empty leaf: cgroup v1 and kernels before 5.14 have no `cgroup.kill`, and it
/// misses some thread groups.
const KILL_RESCAN_INTERVAL: Duration = Duration::from_millis(10);

/// How long after KILL a process is waited for: one in uninterruptible sleep, one held by a tracer, one that the
/// host has moved away. Then this process exits, and with it the pid namespace.
const SURVIVOR_TIMEOUT: Duration = Duration::from_secs(10);

/// How long the gateway may take to read the last report before that.
const FINAL_REPORT_DELAY: Duration = Duration::from_secs(1);

/// How long after the linger time, or in a stop after the leaf is removed, a pipe is read that goes on being filled: by a process outside, which could fill it for ever.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);

/// How long after its grace a shutdown waits for the last process. A gateway that asked for it waits less long and kills the sandbox then:
/// this is for a supervisor that no gateway watches.
const LAST_PROCESS_TIMEOUT: Duration = Duration::from_secs(12);

/// The most processes that are sent TERM and remembered. Further ones get only the KILL.
const MAX_SIGNALLED: usize = 4096;

/// Searches for strays in one stop. A killed process is gone by the second.
const MAX_STRAY_SCANS: u8 = 20;

/// With more commands than this strays are not searched, which would take longer than their ends, and scanning all children is delayed.
const MANY_COMMANDS: usize = 256;

/// The delay.
const CHILD_SCAN_DELAY: Duration = Duration::from_millis(2);

/// Reaped in one turn, at most.
const REAPS_PER_TURN: usize = 256;

/// The most different names that are reported of processes that a command left running.
const MAX_LEFT_BEHIND_NAMES: usize = 8;

/// The result of a step.
enum StepResult {
    /// Something changed: advance again.
    Again,
    /// Nothing to do before this time or the next event.
    Wait(Option<Instant>),
}

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

    fn set_stop(&mut self, key: SlotKey, cause: StopCause, grace: Duration) {
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
    fn step_stop(&mut self, key: SlotKey) -> Option<Instant> {
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
                let _ = kill(Pid::from_raw(leader), Signal::SIGHUP);
            }
            return signal_all_others(&[Signal::SIGCONT]);
        }
        let signalled = terminal.stop.as_ref().map(|stop| stop.signalled.clone()).unwrap_or_default();
        let mut new: Vec<i32> =
            self.processes_of(key).into_iter().filter(|pid| !signalled.contains(pid)).collect();
        new.truncate(MAX_SIGNALLED.saturating_sub(signalled.len()));
        for_each_member(
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

    /// Sends HUP again to the main process of a PTY that goes on. A shell that is just about to read its next line when the
    /// signal comes notes it and reads all the same: readline looks at its signals first and waits then.
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
            let _ = kill(Pid::from_raw(terminal.pid), Signal::SIGHUP);
        }
    }

    /// Kills what is left of a terminal, now and again until nothing is.
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
            let _ = kill(Pid::from_raw(terminal.pid), Signal::SIGKILL);
        }
        let is_due = terminal.stop.as_ref().is_some_and(|stop| stop.rescan_at <= self.now);
        if by_cgroup.is_err() || (!first && is_due) {
            // For v1, kernels before 5.14, and thread groups whose main thread has exited, which `cgroup.kill`
            // misses. Repeated until none is left. A fork storm is not slowed down, but each pass kills all listed processes, and
            // the kernel gives a killed process no more time to fork.
            kill_members(|| self.processes_of(key));
        }
    }

    fn processes_of(&self, key: SlotKey) -> Vec<i32> {
        let leaf = self.terminals.get(key).and_then(|terminal: &SupervisedTerminal| terminal.leaf.as_ref());
        leaf.and_then(|leaf| self.leaves.processes(leaf, MAX_SIGNALLED).ok()).unwrap_or_default()
    }

    /// Stops all terminals and ends the sandbox when they have ended.
    pub(super) fn begin_shutdown(&mut self, grace: Duration, asked: Option<(SlotKey, u64)>) {
        let give_up_at = self.now + grace.min(MAX_GRACE) + LAST_PROCESS_TIMEOUT;
        let shutdown = self.shutdown.get_or_insert(Shutdown { requesters: Vec::new(), give_up_at });
        shutdown.give_up_at = shutdown.give_up_at.min(give_up_at);
        shutdown.requesters.extend(asked);
        for key in self.terminals.keys() {
            self.begin_stop(key, StopCause::Shutdown, grace);
        }
    }

    /// Whether a requested shutdown is complete. Then the requesters are answered.
    pub(super) fn is_shut_down(&mut self) -> bool {
        let Some(shutdown) = &self.shutdown else { return false };
        let ended = |key| self.terminals.get(key).is_none_or(SupervisedTerminal::is_ended);
        if self.now < shutdown.give_up_at && !self.terminals.keys().into_iter().all(ended) {
            return false;
        }
        if let Some(shutdown) = self.shutdown.take() {
            for (key, sequence) in shutdown.requesters {
                self.answer_done(key, sequence, Ok(()));
            }
        }
        true
    }
}

// From a main process's exit to the report of the end.
impl Runtime {
    /// Is called whenever anything about a terminal has changed, and does all that can be done now. The end is reported once: by the step
    /// to [`TerminalPhase::Ended`], which is final.
    pub(super) fn advance(&mut self, key: SlotKey) {
        loop {
            let Some(terminal) = self.terminals.get(key) else { return };
            let step = match &terminal.phase {
                TerminalPhase::Running => self.step_running(key),
                TerminalPhase::Lingering { until } => {
                    let until = *until;
                    self.step_lingering(key, until)
                }
                TerminalPhase::KillingStragglers => self.step_killing_stragglers(key),
                TerminalPhase::Draining(removal) => {
                    let removal = *removal;
                    self.step_draining(key, removal)
                }
                TerminalPhase::Ended(_) => StepResult::Wait(None),
            };
            match step {
                StepResult::Again => {}
                StepResult::Wait(at) => return self.schedule(key, at),
            }
        }
    }

    fn step_running(&mut self, key: SlotKey) -> StepResult {
        let now = self.now;
        let Some(terminal) = self.terminals.get_mut(key) else { return StepResult::Wait(None) };
        if let Some(main) = terminal.leader_exit {
            terminal.phase = match &terminal.stop {
                Some(_) => TerminalPhase::KillingStragglers,
                None => TerminalPhase::Lingering { until: main.at + terminal.times.linger },
            };
            return StepResult::Again;
        }
        if terminal.stop.is_some() {
            let at = self.step_stop(key);
            if self.is_given_up(key) {
                self.give_up(key);
                self.exit_sandbox_at(now + FINAL_REPORT_DELAY);
            }
            return StepResult::Wait(at);
        }
        let limit = terminal.times.limit.map(|limit| (terminal.began + limit, StopCause::TimeLimit));
        let idle = terminal.times.idle.filter(|_| !terminal.holds.is_held());
        let idle = idle.map(|idle| (terminal.last_output + idle, StopCause::IdleLimit));
        let next = [limit, idle].into_iter().flatten().min_by_key(|(at, _)| *at);
        match next {
            Some((at, cause)) if at <= now => {
                let grace = terminal.times.grace;
                self.set_stop(key, cause, grace);
                StepResult::Again
            }
            next => StepResult::Wait(next.map(|(at, _)| at)),
        }
    }

    fn step_lingering(&mut self, key: SlotKey, until: Instant) -> StepResult {
        let now = self.now;
        let Some(terminal) = self.terminals.get_mut(key) else { return StepResult::Wait(None) };
        if terminal.stop.is_some() {
            terminal.phase = TerminalPhase::KillingStragglers;
            return StepResult::Again;
        }
        if !terminal.is_drained() && now < until {
            return StepResult::Wait(Some(until));
        }
        if let Some(usage) = self.remove_leaf(key) {
            return self.drain(key, LeafRemoval { usage, survivors: 0, until });
        }
        if now < until {
            self.watch_leaf(key);
            return StepResult::Wait(Some(until));
        }
        let left_behind = self.left_behind(key);
        let Some(terminal) = self.terminals.get_mut(key) else { return StepResult::Wait(None) };
        let grace = terminal.times.grace.min(STRAGGLER_GRACE);
        terminal.stop = Some(StopState { left_behind, ..StopState::new(None, now, grace) });
        StepResult::Again
    }

    fn step_killing_stragglers(&mut self, key: SlotKey) -> StepResult {
        let now = self.now;
        if self.has_leaf(key) && self.kill_strays(key) {
            return StepResult::Wait(Some(now + KILL_RESCAN_INTERVAL));
        }
        if let Some(usage) = self.remove_leaf(key) {
            return self.drain(key, LeafRemoval { usage, survivors: 0, until: now });
        }
        self.watch_leaf(key);
        let at = self.step_stop(key);
        if self.is_given_up(key) {
            let survivors = self.survivors_of(key);
            let usage = self.usage_of(key);
            self.exit_sandbox_at(now + FINAL_REPORT_DELAY);
            return self.drain(key, LeafRemoval { usage, survivors, until: now });
        }
        StepResult::Wait(at)
    }

    /// Whether a terminal was killed and a process is still there when the time for it is over.
    fn is_given_up(&self, key: SlotKey) -> bool {
        let stop = self.terminals.get(key).and_then(|terminal| terminal.stop.as_ref());
        stop.and_then(|stop| stop.killed_at).is_some_and(|killed_at| killed_at + SURVIVOR_TIMEOUT <= self.now)
    }

    /// Reports, once, why the command was stopped. The report has no end, because the end was not seen; the gateway
    /// publishes the outcome when the sandbox has ended.
    fn give_up(&mut self, key: SlotKey) {
        let Some(terminal) = self.terminals.get_mut(key) else { return };
        let Some(stop) = terminal.stop.as_mut().filter(|stop| !stop.given_up) else { return };
        stop.given_up = true;
        let usage = self.usage_of(key);
        let survivors = self.survivors_of(key);
        let Some(terminal) = self.terminals.get(key) else { return };
        let exit = exit_report(terminal, &LeafRemoval { usage, survivors, until: self.now });
        let exited = Exited { terminal_id: terminal.id.clone(), exit: Some(exit) };
        self.broadcast(Message::Exited(exited));
    }

    /// The last resort: the kernel kills everything in a pid namespace when its first process exits.
    fn exit_sandbox_at(&mut self, at: Instant) {
        self.exit_at = Some(self.exit_at.map_or(at, |before| before.min(at)));
    }

    fn drain(&mut self, key: SlotKey, removal: LeafRemoval) -> StepResult {
        if let Some(terminal) = self.terminals.get_mut(key) {
            terminal.leaf = None;
            terminal.events = None;
            terminal.phase = TerminalPhase::Draining(removal);
        }
        self.close_stdin(key);
        StepResult::Again
    }

    /// The leaf is empty, so the pipes hold all that the command wrote.
    fn step_draining(&mut self, key: SlotKey, removal: LeafRemoval) -> StepResult {
        let now = self.now;
        let Some(terminal) = self.terminals.get(key) else { return StepResult::Wait(None) };
        let stopped = terminal.stop.is_some();
        let mut is_more = false;
        for index in 0..terminal.outputs.len() {
            match self.pump_output(key, index) {
                Pumped::Ended => {}
                // The next turn continues. After the time limit only a process outside fills the pipe: it was read
                // once more.
                Pumped::More if now < removal.until + DRAIN_TIMEOUT => is_more = true,
                // The reader may take any time, unless the command was stopped.
                Pumped::Stalled if !stopped => return StepResult::Wait(None),
                // When the pipe is empty, a process outside of the leaf has had its time with it.
                Pumped::More | Pumped::Empty | Pumped::Stalled => self.end_output(key, index),
            }
        }
        if is_more {
            return StepResult::Wait(Some(now));
        }
        self.end(key, removal);
        StepResult::Wait(None)
    }

    fn end(&mut self, key: SlotKey, removal: LeafRemoval) {
        let Some(terminal) = self.terminals.get_mut(key) else { return };
        let mut exit = exit_report(terminal, &removal);
        let has_failed = exit.end != Some(exit::End::Code(0));
        if has_failed {
            exit.unreachable = self.refused_traffic.since(terminal.traffic);
        }
        terminal.phase = TerminalPhase::Ended(Box::new(exit.clone()));
        terminal.stop = None;
        terminal.outputs.iter_mut().for_each(|output| output.flow = PipeState::Ended);
        if let Some(pty) = &mut terminal.pty {
            (pty.master, pty.slave) = (None, None);
        }
        let exited = Exited { terminal_id: terminal.id.clone(), exit: Some(exit) };
        self.broadcast(Message::Exited(exited));
        if !has_failed {
            self.refused_traffic.count();
        }
    }

    /// The usage, if no process of the command is left. The kernel proves that: it removes no cgroup that is in
    /// use.
    fn remove_leaf(&mut self, key: SlotKey) -> Option<Usage> {
        let terminal = self.terminals.get(key)?;
        let Some(leaf) = &terminal.leaf else {
            return (!has_children()).then(Usage::default);
        };
        let usage = self.leaves.usage(leaf);
        match self.leaves.remove(leaf) {
            Ok(Removal::Removed) => Some(usage),
            Ok(Removal::Busy) | Err(_) => None,
        }
    }

    fn has_leaf(&self, key: SlotKey) -> bool {
        self.terminals.get(key).is_some_and(|terminal| terminal.leaf.is_some())
    }

    /// Read from the kernel. Without cgroups this is a lower bound.
    fn survivors_of(&self, key: SlotKey) -> u32 {
        match self.terminals.get(key).map(|terminal| terminal.leaf.is_some()) {
            Some(true) => self.processes_of(key).len() as u32,
            Some(false) => u32::from(has_children()),
            None => 0,
        }
    }

    fn usage_of(&self, key: SlotKey) -> Usage {
        let leaf = self.terminals.get(key).and_then(|terminal| terminal.leaf.as_ref());
        leaf.map(|leaf| self.leaves.usage(leaf)).unwrap_or_default()
    }

    /// Watches for the leaf to become empty. Without the file, timers check.
    fn watch_leaf(&mut self, key: SlotKey) {
        let Some(terminal) = self.terminals.get_mut(key) else { return };
        let (Some(leaf), None) = (&terminal.leaf, &terminal.events) else { return };
        if let Ok(Some(events)) = self.leaves.open_events(leaf)
            && self.epoll.add(&events, EventSource::Leaf(key), EpollFlags::EPOLLPRI).is_ok()
        {
            terminal.events = Some(events);
        }
    }

    pub(super) fn leaf_changed(&mut self, key: SlotKey) {
        if let Some(events) = self.terminals.get(key).and_then(|terminal| terminal.events.as_ref()) {
            // Reading the file clears the event.
            let _ = nix::sys::uio::pread(events, &mut [0; 128], 0);
        }
        self.advance(key);
    }
}

// What outlives a main process: strays, and what is reaped.
impl Runtime {
    /// Names the processes that a command which has ended by itself left running, before they are ended with it. What a caller's stop or a
    /// limit ends with the command is what was asked for.
    fn left_behind(&self, key: SlotKey) -> EndedProcesses {
        let has_leaf = self.terminals.get(key).is_some_and(|terminal| terminal.leaf.is_some());
        let listed = has_leaf.then(|| self.processes_of(key));
        // This /proc shows a process to its own user only (`hidepid`, proc(5)).
        let seen = pty::with_ids_of(self.pty_owner(), || {
            let pids = listed.unwrap_or_else(pids_of_all_others);
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
        EndedProcesses {
            count: seen.len() as u32,
            commands: distinct.into_iter().take(MAX_LEFT_BEHIND_NAMES).collect(),
        }
    }

    /// Kills strays at the end of a terminal's stop: processes of the sandbox that the host has moved out of every terminal's cgroup. A command
    /// cannot leave its cgroup, but the host can move a process. When its command is stopped, such a process becomes our orphan: it
    /// belongs to no running terminal, and is killed. One that cannot be told from a terminal's process is left alone, and ends with the
    /// sandbox. Returns whether there were any, so that another search is worthwhile.
    fn kill_strays(&mut self, key: SlotKey) -> bool {
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
            let _ = kill(Pid::from_raw(*pid), Signal::SIGKILL);
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

    /// Reaps: every process of the sandbox becomes our child in the end. One SIGCHLD may stand for many exits, so after each one all children
    /// are waited for. With very many children, which the kernel scans one by one, only the one that the signal names is reaped at once,
    /// and the rest a moment later.
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
        let at = self.now + CHILD_SCAN_DELAY;
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

    fn reap_one(&mut self, pid: i32) {
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

impl StopState {
    fn new(cause: Option<StopCause>, now: Instant, grace: Duration) -> Self {
        Self {
            cause,
            kill_at: now + grace.min(MAX_GRACE),
            killed_at: None,
            rescan_at: now,
            signalled: HashSet::new(),
            hang_up_again: (now + HANG_UP_INTERVAL, HANG_UP_INTERVAL * 2),
            left_behind: EndedProcesses::default(),
            stragglers: 0,
            stray_scans: 0,
            given_up: false,
        }
    }
}

fn exit_report(terminal: &SupervisedTerminal, removal: &LeafRemoval) -> Exit {
    let usage = removal.usage;
    let mut exit = Exit {
        started_at_ns: terminal.started.started_at_ns,
        memory_limit: usage.memory_limit_hit,
        memory_peak_of_cgroup: usage.memory_peak_bytes.is_some(),
        io_read_bytes: usage.io_bytes.map(|(read, _)| read),
        io_write_bytes: usage.io_bytes.map(|(_, write)| write),
        survivors: removal.survivors,
        ..Exit::default()
    };
    if let Some(stop) = &terminal.stop {
        exit.set_stopped(stop.cause.unwrap_or(StopCause::Unspecified));
        exit.stragglers_killed = stop.stragglers;
        exit.ended_processes = stop.left_behind.count;
        exit.ended_commands = stop.left_behind.commands.iter().cloned().map(Into::into).collect();
        exit.force_killed = stop.killed_at.is_some();
    }
    // Absent only in the report of a command that survives its kill.
    if let Some(main) = &terminal.leader_exit {
        exit.end = Some(match main.reaped.end {
            ExitStatus::Code(code) => exit::End::Code(u32::from(code)),
            ExitStatus::Signal { number, .. } => exit::End::Signal(number),
        });
        exit.core_dumped = matches!(main.reaped.end, ExitStatus::Signal { core_dumped: true, .. });
        exit.ended_at_ns = main.at_ns;
        exit.wall_us = main.at.saturating_duration_since(terminal.began).as_micros() as u64;
        let (user, system) = usage.cpu_us.unwrap_or((main.reaped.user_us, main.reaped.system_us));
        exit.cpu_user_us = user;
        exit.cpu_system_us = system;
        exit.memory_peak_bytes = usage.memory_peak_bytes.unwrap_or(main.reaped.max_resident_bytes);
    }
    exit
}

/// Signals everything in the pid namespace but this process. Only as PID 1: elsewhere this would reach unrelated
/// processes.
fn signal_all_others(signals: &[Signal]) {
    if std::process::id() != 1 {
        return;
    }
    for signal in signals {
        // ESRCH: there is no other process.
        let _ = kill(Pid::from_raw(-1), *signal);
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
fn pids_of_all_others() -> Vec<i32> {
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

/// Our children, zombies included. Empty where the kernel does not list them.
fn children() -> Vec<i32> {
    let own = std::process::id();
    let text = fs::read_to_string(format!("/proc/self/task/{own}/children")).unwrap_or_default();
    text.split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
}

/// Which kind of process was reaped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReapedProcess {
    /// A terminal's main process.
    Leader,
    /// An orphan.
    Orphan,
}
