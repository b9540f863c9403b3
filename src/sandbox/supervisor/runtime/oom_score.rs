//! The supervisor's OOM score: lower than its commands', which inherit the one it has when they are cloned.
//!
//! Raised before a clone, and lowered when none has followed for a while: each change makes the kernel visit every
//! process of the host, which must not happen twice for each command of a burst.

use std::time::{Duration, Instant};

use nix::errno::Errno;

use crate::sys::oom::OwnOomScore;

/// How long the score stays raised after a clone.
const RAISED_FOR: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub(super) struct OomScore {
    own: OwnOomScore,
    /// When to lower it; `None` when it is lowered.
    lower_due: Option<Instant>,
}

impl OomScore {
    pub(super) fn new(own: OwnOomScore) -> Self {
        Self { own, lower_due: None }
    }

    /// Raises the score for a clone.
    pub(super) fn raise(&mut self) -> Result<(), Errno> {
        if self.lower_due.is_none() {
            self.own.raise()?;
        }
        self.lower_due = Some(Instant::now() + RAISED_FOR);
        Ok(())
    }

    /// When [`Self::lower_if_due`] has something to do.
    pub(super) fn next_change(&self) -> Option<Instant> {
        self.lower_due
    }

    /// Lowers the score, if it is time. After a failed write the supervisor is as likely to be killed as its
    /// commands.
    pub(super) fn lower_if_due(&mut self, now: Instant) {
        if self.lower_due.is_some_and(|at| at <= now) {
            self.lower_due = None;
            let _ = self.own.lower();
        }
    }
}
