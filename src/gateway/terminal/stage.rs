//! The stage of a terminal's life, and the claims on what only one caller may do to it.
//!
//! Stages only go forward. Who releases a terminal, who ends it by force and for what, and who takes a resumable run, is settled by the
//! first who says so.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU8, Ordering},
    },
    time::{Duration, Instant},
};

use tokio::sync::watch;

use crate::proto::v1::{ExitCause, Outcome};

/// Where a terminal is in its life.
#[derive(Debug, Clone)]
pub(crate) enum Stage {
    /// Permitted, not yet started.
    Created,
    /// Exec has succeeded.
    Running,
    /// Ended, with an outcome that does not change any more.
    Finished(Arc<Outcome>),
    /// Gone. Without an outcome when it was never started.
    Released(Option<Arc<Outcome>>),
}

impl Stage {
    /// The outcome, once there is one.
    pub(crate) fn outcome(&self) -> Option<&Arc<Outcome>> {
        match self {
            Self::Created | Self::Running => None,
            Self::Finished(outcome) => Some(outcome),
            Self::Released(outcome) => outcome.as_ref(),
        }
    }

    /// Whether the command has ended, or never was.
    pub(crate) fn is_over(&self) -> bool {
        match self {
            Self::Created | Self::Running => false,
            Self::Finished(_) | Self::Released(_) => true,
        }
    }

    /// Publishes this stage, unless a later one was published already: who reports the end does not wait until the start
    /// was published.
    pub(in crate::terminal) fn publish(self, stages: &watch::Sender<Self>) {
        stages.send_if_modified(|now| {
            let is_later = self.rank() > now.rank();
            if is_later {
                *now = self;
            }
            is_later
        });
    }

    fn rank(&self) -> u8 {
        match self {
            Self::Created => 0,
            Self::Running => 1,
            Self::Finished(_) => 2,
            Self::Released(_) => 3,
        }
    }
}

/// Who has claimed something that only one may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::terminal) enum Claim {
    Granted,
    Taken,
}

/// What is settled about the end of one terminal.
#[derive(Debug, Default)]
pub(in crate::terminal) struct EndClaims {
    release: AtomicBool,
    force: AtomicBool,
    kill: AtomicBool,
    /// By when it must have ended, where that was asked for.
    deadline: Mutex<Option<Instant>>,
    /// What it is being ended for.
    cause: Mutex<Option<ExitCause>>,
    /// Whether its end has been reported, which the scan of its workspaces may still keep from being published.
    reported: watch::Sender<bool>,
}

impl EndClaims {
    /// Claims the release. Only the first who asks gets it.
    pub(in crate::terminal) fn claim_release(&self) -> Claim {
        match self.release.swap(true, Ordering::AcqRel) {
            false => Claim::Granted,
            true => Claim::Taken,
        }
    }

    /// Claims the record of the first time that its end is asked for.
    pub(in crate::terminal) fn claim_first_kill(&self) -> Claim {
        match self.kill.swap(true, Ordering::AcqRel) {
            false => Claim::Granted,
            true => Claim::Taken,
        }
    }

    /// Claims to end it by force. Only the first who asks gets it.
    pub(in crate::terminal) fn claim_force(&self) -> Claim {
        match self.force.swap(true, Ordering::AcqRel) {
            false => Claim::Granted,
            true => Claim::Taken,
        }
    }

    /// What it is being ended for, if it is.
    pub(in crate::terminal) fn cause(&self) -> Option<ExitCause> {
        *self.lock_cause()
    }

    /// Notes what it is being ended for. The first cause stands.
    pub(in crate::terminal) fn set_cause(&self, cause: Option<ExitCause>) {
        let mut noted = self.lock_cause();
        *noted = noted.or(cause);
    }

    /// Notes it in place of what was noted.
    pub(in crate::terminal) fn replace_cause(&self, cause: Option<ExitCause>) {
        *self.lock_cause() = cause;
    }

    fn lock_cause(&self) -> std::sync::MutexGuard<'_, Option<ExitCause>> {
        self.cause.lock().expect("no code panics while it holds a cause")
    }

    /// Notes that its end has been reported: the supervisor was in time, or is gone.
    pub(in crate::terminal) fn set_reported(&self) {
        self.reported.send_replace(true);
    }

    /// Waits until its end has been reported.
    pub(in crate::terminal) async fn wait_reported(&self) {
        // The sender is part of `self`: it cannot be gone.
        let _ = self.reported.subscribe().wait_for(|is_reported| *is_reported).await;
    }

    /// Sets the time by which it must have ended; `false` when it must by then already, or by no more than `tolerance` later.
    pub(in crate::terminal) fn shorten_deadline(&self, at: Instant, tolerance: Duration) -> bool {
        let mut deadline = self.deadline.lock().expect("no code panics while it holds a deadline");
        if deadline.is_some_and(|before| before <= at + tolerance) {
            return false;
        }
        *deadline = Some(at);
        true
    }
}

/// Nobody has taken the run yet.
const NOBODY: u8 = 0;
/// Its caller is there.
const PRESENT: u8 = 1;
/// Its gateway or its caller's connection has ended, and the caller may come again.
const AWAITED: u8 = 2;
/// The caller did not come, and the run is stopped.
const GIVEN_UP: u8 = 3;

/// The caller of a run.
#[derive(Debug, Default)]
pub(in crate::terminal) struct RunCaller(AtomicU8);

impl RunCaller {
    /// The caller may come from now on. `Taken`: it is there already.
    pub(in crate::terminal) fn expect(&self) -> Claim {
        self.change(NOBODY, AWAITED)
    }

    /// The one who asked for the run is here to take it, for the first time or again. `Taken`: it has its caller, or is given up.
    pub(in crate::terminal) fn arrive(&self) -> Claim {
        match self.change(NOBODY, PRESENT) {
            Claim::Granted => Claim::Granted,
            Claim::Taken => self.come_back(),
        }
    }

    /// The caller has come back. `Taken`: nobody is awaited, or not any more.
    pub(in crate::terminal) fn come_back(&self) -> Claim {
        self.change(AWAITED, PRESENT)
    }

    /// The caller has not come in time. `Taken`: it has.
    pub(in crate::terminal) fn give_up(&self) -> Claim {
        self.change(AWAITED, GIVEN_UP)
    }

    fn change(&self, from: u8, to: u8) -> Claim {
        match self.0.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => Claim::Granted,
            Err(_) => Claim::Taken,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stage_that_is_published_late_does_not_take_the_place_of_a_later_one() {
        let outcome = Arc::new(Outcome::default());
        let stages = watch::Sender::new(Stage::Created);
        Stage::Finished(outcome.clone()).publish(&stages);
        Stage::Running.publish(&stages);
        assert!(matches!(*stages.borrow(), Stage::Finished(_)), "{stages:?}");
        Stage::Released(Some(outcome.clone())).publish(&stages);
        Stage::Finished(outcome).publish(&stages);
        assert!(matches!(*stages.borrow(), Stage::Released(Some(_))), "{stages:?}");
    }

    #[test]
    fn only_one_caller_comes_back_and_only_to_a_run_that_awaits_one() {
        let caller = RunCaller::default();
        assert_eq!(caller.come_back(), Claim::Taken, "nobody is awaited");
        assert_eq!(caller.expect(), Claim::Granted);
        assert_eq!(caller.come_back(), Claim::Granted);
        assert_eq!(caller.come_back(), Claim::Taken);
        assert_eq!(caller.give_up(), Claim::Taken, "it has its caller again");
        let caller = RunCaller::default();
        assert_eq!(caller.expect(), Claim::Granted);
        assert_eq!(caller.give_up(), Claim::Granted);
        assert_eq!(caller.come_back(), Claim::Taken);
        assert_eq!(caller.arrive(), Claim::Taken);
    }

    #[test]
    fn one_request_takes_a_run_and_its_repetition_only_where_it_is_awaited() {
        let caller = RunCaller::default();
        assert_eq!(caller.arrive(), Claim::Granted);
        assert_eq!(caller.arrive(), Claim::Taken, "it has its caller");
        assert_eq!(caller.expect(), Claim::Taken, "it is not taken away from its caller");
        let caller = RunCaller::default();
        assert_eq!(caller.expect(), Claim::Granted);
        assert_eq!(caller.arrive(), Claim::Granted);
        assert_eq!(caller.give_up(), Claim::Taken);
    }
}
