//! The counters of sessions, requests and terminals since the gateway's start.
//!
//! They hold no name, command or path, so that a scraper sees none.

use crate::{
    counters::{Counter, CounterVec, Histogram, Label, labels},
    policy::command::rule::Decision,
    proto::v1::ExitCause,
    reason::Reason,
    terminal::quotas::LimitName,
};

/// Counts that only go up.
#[derive(Debug, Default)]
pub(crate) struct TerminalCounters {
    /// Sessions that were opened.
    pub sessions_opened: Counter,
    /// Sessions that were not opened, by reason.
    pub session_refusals: CounterVec<Reason>,
    /// Sessions of which nothing is left, by what ended them.
    pub sessions_closed: CounterVec<CloseReason>,
    /// What policy said of commands. A command that a person approved is counted as asked and then as allowed.
    pub decisions: CounterVec<Decision>,
    /// Creates that came to no command, by reason.
    pub create_refusals: CounterVec<Reason>,
    /// Terminals and sessions that a bound refused, by bound.
    pub limits_reached: CounterVec<LimitName>,
    /// Permitted.
    pub created: Counter,
    /// Found after a restart, running or ended.
    pub adopted: Counter,
    /// Exec has succeeded.
    pub started: Counter,
    /// Refused by policy, a person or a cap.
    pub refused: Counter,
    /// Permitted, and not started.
    pub failed: Counter,
    /// Execs within commands that were allowed and happened.
    pub execs_allowed: Counter,
    /// Execs within commands that were denied.
    pub execs_denied: Counter,
    /// Execs within commands that a person was to be asked about.
    pub execs_asked: Counter,
    /// Connections of sandboxes with the network `proxy` that were allowed.
    pub connections_allowed: Counter,
    /// Those that were denied.
    pub connections_denied: Counter,
    /// Bytes from commands, of connections that have ended.
    pub connection_bytes_sent: Counter,
    /// Bytes to commands, likewise.
    pub connection_bytes_received: Counter,
    /// Ended, by what set the end in motion.
    pub ended: CounterVec<CountedCause>,
    /// Ended, and something of it had to be killed that did not end by TERM, or was given no time to.
    pub force_killed: Counter,
    /// Processes other than main ones that had to be killed.
    pub stragglers_killed: Counter,
    /// Processes that could not be ended at all.
    pub survivors: Counter,
    /// What ended commands had written.
    pub output_bytes: Counter,
    /// Released by their caller, with their session or by collection.
    pub released: Counter,
    /// Those that were collected because nobody released them in time.
    pub collected: Counter,
    /// How long the steps of a create took.
    pub timings: CreateTimings,
}

/// How long the steps of a create took, where they were taken.
#[derive(Debug, Default)]
pub(crate) struct CreateTimings {
    /// Policy judged.
    pub judge: Histogram,
    /// A sandbox was brought up.
    pub sandbox: Histogram,
    /// The journal took the records that come before the start.
    pub record: Histogram,
    /// The supervisor started the command.
    pub spawn: Histogram,
    /// All of it, where no person was asked.
    pub whole: Histogram,
}

/// What set an end in motion, counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CountedCause(pub ExitCause);

impl Label for CountedCause {
    const ALL: &'static [Self] = &[
        Self(ExitCause::Exited),
        Self(ExitCause::Signalled),
        Self(ExitCause::Killed),
        Self(ExitCause::TimeLimit),
        Self(ExitCause::IdleLimit),
        Self(ExitCause::MemoryLimit),
        Self(ExitCause::SandboxLost),
        Self(ExitCause::Shutdown),
    ];

    fn label(self) -> &'static str {
        match self.0 {
            ExitCause::Unspecified => "unspecified",
            ExitCause::Exited => "exited",
            ExitCause::Signalled => "signalled",
            ExitCause::Killed => "killed",
            ExitCause::TimeLimit => "time_limit",
            ExitCause::IdleLimit => "idle_limit",
            ExitCause::MemoryLimit => "memory_limit",
            ExitCause::SandboxLost => "sandbox_lost",
            ExitCause::Shutdown => "shutdown",
        }
    }
}

impl TerminalCounters {
    /// Ended, however.
    pub(crate) fn finished(&self) -> u64 {
        self.ended.read().map(|(_, count)| count).sum()
    }
}

labels! {
    /// The reason for which a session ends.
    pub enum CloseReason {
        /// Its owner asked for it.
        Requested = "requested",
        /// The process that it was to end with has ended.
        OwnerExited = "owner_exited",
        /// Its caller went away before it had its id.
        CallerDisconnected = "caller_disconnected",
        /// It has a name, and nothing ran in it for a time.
        Unused = "unused",
        /// The gateway ends.
        Shutdown = "shutdown",
    }
}
