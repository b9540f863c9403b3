//! The supervisor's score when memory runs out: lower than its commands', which are born with the one that it has then.
//!
//! Raised before a command is made, and lowered when none has been made for a while: each change has the kernel look at
//! every process of the host, which is nothing to do twice for each command of a burst.

use std::time::{Duration, Instant};

use nix::errno::Errno;

use crate::sys::oom::OwnOomScore;

/// How long the score stays up after a command was made.
const RAISED_FOR: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub(super) struct OomScore {
    own: OwnOomScore,
    /// When to lower it; absent: it is.
    lower_due: Option<Instant>,
}

impl OomScore {
    pub(super) fn new(own: OwnOomScore) -> Self {
        Self { own, lower_due: None }
    }

    /// A command is about to be made.
    pub(super) fn raise(&mut self) -> Result<(), Errno> {
        if self.lower_due.is_none() {
            self.own.raise()?;
        }
        self.lower_due = Some(Instant::now() + RAISED_FOR);
        Ok(())
    }

    /// When to come back for [`Self::lower_if_due`].
    pub(super) fn next_change(&self) -> Option<Instant> {
        self.lower_due
    }

    /// Lowers it, if it is time. A failed write leaves a supervisor that is as likely to go as its commands are.
    pub(super) fn lower_if_due(&mut self, now: Instant) {
        if self.lower_due.is_some_and(|at| at <= now) {
            self.lower_due = None;
            let _ = self.own.lower();
        }
    }
}
