//! The steps of a terminal from stage to stage: its command starts, ends, is looked after, and is released.

use std::{
    path::Path,
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use super::{
    lease::{Exited, Running},
    live::Live,
    outcome,
    protection_hints::{self, TAIL_BYTES},
    receipt,
    stage::Stage,
    terminal::{Slot, Terminal},
};
use crate::{
    failpoint,
    proto::{
        supervisor::StopCause,
        v1::{Outcome, ProtectionHint, outcome::End},
    },
    sandbox::listener::{CommandEnd, Listener},
    sys::ring::RingReader,
    terminal::audit::{records, workspace_records},
};

/// When the end of a command is recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::terminal) enum Recording {
    /// By this gateway.
    Now,
    /// It was, by a gateway before this one.
    AlreadyRecorded,
}

impl Terminal {
    /// The command runs.
    pub(in crate::terminal) fn start(&self, running: Running, live: Live) {
        let pid = live.started.pid;
        self.set_live(live);
        self.counters.started.inc();
        // Before its end can be noted.
        if let Some(receipt) = self.receipt() {
            self.recorder.record_best_effort(&records::started(self.subject(), pid, receipt));
        }
        self.run(running);
    }

    /// The command has run since before this gateway was there.
    pub(in crate::terminal) fn resume(&self, running: Running, live: Live) {
        let adopted = records::adopted(self.subject(), live.sandbox.id(), live.started.pid);
        self.set_live(live);
        self.counters.adopted.inc();
        self.recorder.record_best_effort(&adopted);
        self.run(running);
    }

    fn set_live(&self, live: Live) {
        if self.live.set(live).is_err() {
            unreachable!("a terminal is started or found once, by the one who made it");
        }
    }

    fn run(&self, running: Running) {
        let early_end = {
            let mut slot = self.lock_slot();
            match std::mem::replace(&mut *slot, Slot::Running(running)) {
                Slot::Starting(early_end) => early_end,
                Slot::Running(_) | Slot::Exited(_) | Slot::Empty => None,
            }
        };
        self.publish(Stage::Running);
        if let Some(end) = early_end {
            self.finish(end, Instant::now(), Recording::Now);
        }
    }

    /// The command has ended before this gateway was there.
    pub(in crate::terminal) fn ended_earlier(&self, end: CommandEnd, ago: Duration, recording: Recording) {
        let now = Instant::now();
        self.finish(end, now.checked_sub(ago).unwrap_or(now), recording);
    }

    /// The command has ended, and its sandbox is gone with all that it wrote. So much of its end is known.
    pub(in crate::terminal) fn ended_with_sandbox(
        &self,
        mut outcome: Outcome,
        ago: Duration,
        recording: Recording,
    ) {
        self.counters.adopted.inc();
        self.denials.report(&mut outcome);
        let exited = Exited::without_sandbox(outcome);
        let outcome = exited.outcome().clone();
        *self.lock_slot() = Slot::Exited(exited);
        let now = Instant::now();
        self.conclude(outcome, now.checked_sub(ago).unwrap_or(now), recording);
    }

    /// The command will never run.
    pub(in crate::terminal) fn abandon(&self) {
        if let Some(watched) = self.workspace.get() {
            watched.withdraw();
        }
        self.terminal_log.remove(self.id);
        *self.lock_slot() = Slot::Empty;
        self.reservation.lock().expect("no code panics while it holds a reservation").take();
        self.counters.failed.inc();
        self.publish(Stage::Released(None));
    }

    fn finish(&self, end: CommandEnd, at: Instant, recording: Recording) {
        let was_forced = matches!(&end, CommandEnd::Reported(exit) if exit.force_killed);
        let outcome = {
            let mut slot = self.lock_slot();
            match std::mem::replace(&mut *slot, Slot::Empty) {
                Slot::Starting(_) => {
                    *slot = Slot::Starting(Some(end));
                    return;
                }
                Slot::Running(running) => {
                    let exited = running.exited(self.outcome_of(end));
                    let outcome = exited.outcome().clone();
                    *slot = Slot::Exited(exited);
                    outcome
                }
                other @ (Slot::Exited(_) | Slot::Empty) => {
                    *slot = other;
                    return;
                }
            }
        };
        if was_forced {
            self.counters.force_killed.inc();
        }
        self.conclude(outcome, at, recording);
    }

    fn outcome_of(&self, end: CommandEnd) -> Outcome {
        let mut outcome = match end {
            CommandEnd::Reported(exit) => outcome::reported(&exit),
            CommandEnd::SandboxLost { survivors } => {
                let started = self.live().map(|live| &live.started);
                outcome::lost(started, self.end_claims.cause(), survivors, SystemTime::now())
            }
        };
        self.denials.report(&mut outcome);
        outcome.protection_hints = self.protection_hints(&outcome);
        if let Some(unreachable) = &mut outcome.unreachable {
            unreachable.set_network(receipt::network(self.spec.network));
            let offered = self.spec.offered.iter();
            unreachable.offered = offered.map(|network| receipt::network(network.name()).into()).collect();
        }
        if let Some(shortfall) = self.workspace.get().and_then(|watched| watched.report_changes(&mut outcome))
        {
            let sandbox_id = self.live().map(|live| live.sandbox.id().to_owned());
            let record = workspace_records::workspace_shortfall(
                self.subject(),
                sandbox_id,
                &self.spec.profile,
                &shortfall,
            );
            self.recorder.record_best_effort(&record);
        }
        outcome
    }

    /// What may explain errors in the last output of a command that failed.
    fn protection_hints(&self, outcome: &Outcome) -> Vec<ProtectionHint> {
        let Some(live) = self.live().filter(|_| !matches!(outcome.end, None | Some(End::ExitCode(0)))) else {
            return Vec::new();
        };
        let tail = |ring: &RingReader| {
            let mut bytes = vec![0; TAIL_BYTES.min(ring.head()) as usize];
            let start = ring.head() - bytes.len() as u64;
            // What cannot be read explains nothing.
            let copied = ring.read_at(start, &mut bytes).ok()?.length;
            Some(String::from_utf8_lossy(&bytes[..copied]).into_owned())
        };
        let tails: Vec<_> =
            [Some(&live.stdout), live.stderr.as_ref()].into_iter().flatten().filter_map(tail).collect();
        protection_hints::hints(outcome, &tails, live.sandbox.protections(), Path::new(&self.spec.cwd))
    }

    /// Does what comes after the command's end, after a look at what it has changed where that is needed.
    pub(in crate::terminal) fn after_workspace_check(
        &self,
        conclude: impl FnOnce(&Self) + Send + Sync + 'static,
    ) {
        match (self.workspace.get(), self.upgrade()) {
            (Some(watched), Some(this)) => watched.check_then(move || conclude(&this)),
            (None, _) | (_, None) => conclude(self),
        }
    }

    /// What an end brings with it, once: only the end of a command that ran comes here, and only the first.
    fn conclude(&self, outcome: Arc<Outcome>, at: Instant, recording: Recording) {
        if let Some(reservation) =
            self.reservation.lock().expect("no code panics while it holds a reservation").as_mut()
        {
            reservation.finished();
        }
        // What this gateway publishes is what the next one publishes.
        self.terminal_log.set_outcome(self.id, &outcome);
        if recording == Recording::Now {
            self.recorder.record_best_effort(&records::exit(self.subject(), &outcome));
        }
        failpoint::reach("exit.recorded");
        let _ = self.finished_at.set(at);
        self.count_end(&outcome);
        self.publish(Stage::Finished(outcome));
        failpoint::reach("exit.published");
    }

    fn count_end(&self, outcome: &Outcome) {
        self.counters.ended.inc(crate::terminal::CountedCause(outcome.cause()));
        self.counters.stragglers_killed.add(outcome.stragglers_killed.into());
        self.counters.survivors.add(outcome.survivors.into());
        self.counters.output_bytes.add(self.written_bytes());
    }

    /// Takes the last step's value out, to release it.
    pub(in crate::terminal) fn take_exited(&self) -> Option<Exited> {
        let mut slot = self.lock_slot();
        match std::mem::replace(&mut *slot, Slot::Empty) {
            Slot::Exited(exited) => Some(exited),
            other @ (Slot::Starting(_) | Slot::Running(_) | Slot::Empty) => {
                *slot = other;
                None
            }
        }
    }

    /// Nothing is left of it.
    pub(in crate::terminal) fn mark_released(&self, outcome: Arc<Outcome>) {
        self.reservation.lock().expect("no code panics while it holds a reservation").take();
        self.counters.released.inc();
        self.publish(Stage::Released(Some(outcome)));
    }
}

impl Listener for Terminal {
    fn progressed(&self) {
        self.progress.notify_waiters();
    }

    fn given_up(&self, cause: StopCause) {
        // The supervisor counts the limits: what it says came first.
        self.end_claims.replace_cause(outcome::cause_of_stop(cause));
    }

    fn ended(&self, end: CommandEnd) {
        let at = Instant::now();
        self.after_workspace_check(move |terminal| terminal.finish(end, at, Recording::Now));
    }
}
