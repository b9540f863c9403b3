//! What has become of sessions, requests and terminals since the gateway's start.
//!
//! Counts only: no name, no command and no path is kept here, so that nothing of them can be told to whoever may see
//! the counts.

use super::{
    closing::Why,
    turned_away::{Limit, NotOpened, TurnedAway},
};
use crate::{
    policy::command::rule::Decision,
    proto::v1::Cause,
    tally::{Count, Tally, Times, Word},
};

/// Counts that only go up.
#[derive(Debug, Default)]
pub struct Counters {
    /// Sessions that were opened.
    pub sessions_opened: Count,
    /// Sessions that were not opened, by reason.
    pub sessions_not_opened: Tally<NotOpened>,
    /// Sessions of which nothing is left, by what ended them.
    pub sessions_closed: Tally<Why>,
    /// What policy said of commands. One that a person said yes to was first asked about and is then allowed.
    pub decisions: Tally<Decision>,
    /// Creates that came to no command, by reason.
    pub turned_away: Tally<TurnedAway>,
    /// Of those, and of sessions, what a bound refused, by bound.
    pub limits: Tally<Limit>,
    /// Permitted.
    pub created: Count,
    /// Found after a restart, running or ended.
    pub adopted: Count,
    /// Exec has succeeded.
    pub started: Count,
    /// Refused by policy, a person or a cap.
    pub refused: Count,
    /// Permitted, and not started.
    pub failed: Count,
    /// Ended, by what set the end in motion.
    pub ended: Tally<Cause>,
    /// Ended, and something of it had to be killed that did not end by TERM, or was given no time to.
    pub force_killed: Count,
    /// Processes, beside main ones, that had to be killed.
    pub stragglers_killed: Count,
    /// Processes that could not be ended at all.
    pub survivors: Count,
    /// What ended commands had written.
    pub output_bytes: Count,
    /// Released by their caller, with their session or by collection.
    pub released: Count,
    /// Of those, collected because nobody released them in time.
    pub collected: Count,
    /// How long the steps of a create took.
    pub steps: Steps,
}

/// How long the steps of a create took, where they were taken.
#[derive(Debug, Default)]
pub struct Steps {
    /// Policy judged.
    pub judge: Times,
    /// A sandbox was brought up.
    pub sandbox: Times,
    /// The journal took the records that come before the start.
    pub record: Times,
    /// The supervisor started the command.
    pub spawn: Times,
    /// All of it, where no person was asked.
    pub whole: Times,
}

impl Word for Decision {
    const ALL: &'static [Self] = &[Self::Allow, Self::Ask, Self::Deny];

    fn word(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Ask => "ask",
            Self::Deny => "deny",
        }
    }
}

impl Word for Cause {
    const ALL: &'static [Self] = &[
        Self::Exited,
        Self::Signalled,
        Self::Killed,
        Self::TimeLimit,
        Self::IdleLimit,
        Self::MemoryLimit,
        Self::SandboxLost,
        Self::Shutdown,
    ];

    fn word(self) -> &'static str {
        match self {
            Self::Unspecified => "unspecified",
            Self::Exited => "exited",
            Self::Signalled => "signalled",
            Self::Killed => "killed",
            Self::TimeLimit => "time_limit",
            Self::IdleLimit => "idle_limit",
            Self::MemoryLimit => "memory_limit",
            Self::SandboxLost => "sandbox_lost",
            Self::Shutdown => "shutdown",
        }
    }
}

impl Counters {
    /// Ended, however.
    pub fn finished(&self) -> u64 {
        self.ended.read().map(|(_, count)| count).sum()
    }
}
