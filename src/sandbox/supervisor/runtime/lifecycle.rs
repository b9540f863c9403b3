//! The steps of a terminal from its leader's exit to the report of its end.
//!
//! `advance` is called whenever anything about a terminal has changed, and does all that can be done now. The end
//! is reported once: by the step to [`TerminalPhase::Ended`], which is final.

use std::time::{Duration, Instant};

use nix::sys::epoll::EpollFlags;

use super::{
    pump::Pumped,
    slot_map::{EventSource, SlotKey},
    state::Runtime,
    stop::KILL_RESCAN_INTERVAL,
    terminal::{LeafRemoval, PipeState, StopState, SupervisedTerminal, TerminalPhase},
};
use crate::{
    cgroup::{leaf::Removal, usage::Usage},
    proto::supervisor::{Exit, Exited, StopCause, exit, from_supervisor::Message},
    sys::wait::{ExitStatus, has_children},
};

/// The longest grace for processes that survive the leader.
const STRAGGLER_GRACE: Duration = Duration::from_secs(1);

/// How long after KILL a process is waited for: one in uninterruptible sleep, one held by a tracer, one that the
/// host has moved away. Then this process exits, and with it the pid namespace.
const KILL_TIMEOUT: Duration = Duration::from_secs(10);

/// How long the gateway may take to read the last report before that.
const FINAL_REPORT_DELAY: Duration = Duration::from_secs(1);

/// The result of a step.
enum StepResult {
    /// Something changed: advance again.
    Again,
    /// Nothing to do before this time or the next event.
    Wait(Option<Instant>),
}

impl Runtime {
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
        stop.and_then(|stop| stop.killed_at).is_some_and(|killed_at| killed_at + KILL_TIMEOUT <= self.now)
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
                Pumped::More if now < removal.until + STRAGGLER_GRACE => is_more = true,
                // The reader may take any time, unless the command was stopped.
                Pumped::Stalled if !stopped => return StepResult::Wait(None),
                // Of an empty pipe, a process outside of the leaf has had its time with it.
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
