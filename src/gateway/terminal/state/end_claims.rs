//! Who ends a terminal, for what, and by when: each of it is settled by the first who says so.

use std::{
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use super::claim::Claim;
use crate::proto::v1::ExitCause;

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

    /// Sets the time by which it must have ended; `false` when it must by then, or by no more than `same` later.
    pub(in crate::terminal) fn shorten_deadline(&self, at: Instant, tolerance: Duration) -> bool {
        let mut deadline = self.deadline.lock().expect("no code panics while it holds a deadline");
        if deadline.is_some_and(|before| before <= at + tolerance) {
            return false;
        }
        *deadline = Some(at);
        true
    }
}
