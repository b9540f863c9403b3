//! One command and its life in the supervisor: data only.
//!
//! ```text
//! Running ──main process reaped──► Lingering ──until empty──► Draining ──► Ended
//!    │ stop, limit                     │ linger over            ▲
//!    └──────────► (stop) ──reaped──► Sweeping ──leaf removed────┘
//! ```

use std::{
    collections::HashSet,
    os::fd::OwnedFd,
    time::{Duration, Instant},
};

use bytes::Bytes;

use crate::{
    cgroup::{leaf::Leaf, usage::Usage},
    proto::supervisor::{Exit, Started, StopCause},
    sys::{ring::RingWriter, wait::Reaped},
};

use super::stdin_pipe::CommandStdin;

/// No grace is longer.
pub(super) const MAX_GRACE: Duration = Duration::from_secs(86_400);

/// A command that was started and not yet released.
#[derive(Debug)]
pub(super) struct SupervisedTerminal {
    pub(super) id: String,
    pub(super) pid: i32,
    /// `None` without any cgroup tree, and once the leaf is removed.
    pub(super) leaf: Option<Leaf>,
    pub(super) started: Started,
    pub(super) began: Instant,
    pub(super) times: TerminalTimes,
    pub(super) outputs: Vec<OutputStream>,
    pub(super) last_output: Instant,
    pub(super) stdin: CommandStdin,
    /// How the main process ended, once it is reaped.
    pub(super) leader_exit: Option<LeaderExit>,
    pub(super) stop: Option<StopState>,
    pub(super) phase: TerminalPhase,
    /// `cgroup.events`, while something outlives the main process.
    pub(super) events: Option<OwnedFd>,
    /// When the clock has to look at this terminal again.
    pub(super) wake: Option<Instant>,
    /// The gateway's own words about it; nothing here looks into them.
    pub(super) metadata: Bytes,
}

/// The times that the gateway gave.
#[derive(Debug, Clone, Copy)]
pub(super) struct TerminalTimes {
    pub(super) limit: Option<Duration>,
    pub(super) idle: Option<Duration>,
    pub(super) grace: Duration,
    pub(super) linger: Duration,
}

/// One output stream.
#[derive(Debug)]
pub(super) struct OutputStream {
    pub(super) ring: RingWriter,
    pub(super) flow: PipeState,
}

/// Whether a stream's pipe is being read.
#[derive(Debug)]
pub(super) enum PipeState {
    /// The pipe is in the epoll set.
    Reading(OwnedFd),
    /// The ring is full and held: the pipe waits for `Resume`.
    Stalled(OwnedFd),
    /// Nothing more will come.
    Ended,
}

/// The end of the main process.
#[derive(Debug, Clone, Copy)]
pub(super) struct LeaderExit {
    pub(super) reaped: Reaped,
    pub(super) at: Instant,
    pub(super) at_ns: u64,
}

/// Where in its life a terminal is.
#[derive(Debug)]
pub(super) enum TerminalPhase {
    /// The main process lives.
    Running,
    /// It is reaped; what is left has until then.
    Lingering {
        /// The end of the linger time.
        until: Instant,
    },
    /// What is left is being stopped.
    KillingStragglers,
    /// The leaf is gone (or given up); the pipe may still hold bytes.
    Draining(LeafRemoval),
    /// Everything is known and said.
    Ended(Box<Exit>),
}

/// What a leaf left behind.
#[derive(Debug, Clone, Copy)]
pub(super) struct LeafRemoval {
    pub(super) usage: Usage,
    pub(super) survivors: u32,
    /// How long somebody outside of the leaf may still hold the pipe.
    pub(super) until: Instant,
}

/// A stop under way.
#[derive(Debug)]
pub(super) struct StopState {
    /// `None` when it only sweeps up what outlived the main process.
    pub(super) cause: Option<StopCause>,
    pub(super) kill_at: Instant,
    pub(super) killed_at: Option<Instant>,
    pub(super) rescan_at: Instant,
    /// Processes that have had their TERM.
    pub(super) signalled: HashSet<i32>,
    /// Processes other than the main one that had to be killed.
    pub(super) stragglers: u32,
    /// How often processes were looked for that are in no terminal's cgroup.
    pub(super) stray_scans: u8,
    /// It was told that the command outlives its kill.
    pub(super) given_up: bool,
}

impl SupervisedTerminal {
    pub(super) fn is_drained(&self) -> bool {
        self.outputs.iter().all(|output| matches!(output.flow, PipeState::Ended))
    }

    pub(super) fn is_ended(&self) -> bool {
        matches!(self.phase, TerminalPhase::Ended(_))
    }
}

impl StopState {
    pub(super) fn new(cause: Option<StopCause>, now: Instant, grace: Duration) -> Self {
        Self {
            cause,
            kill_at: now + grace.min(MAX_GRACE),
            killed_at: None,
            rescan_at: now,
            signalled: HashSet::new(),
            stragglers: 0,
            stray_scans: 0,
            given_up: false,
        }
    }
}
