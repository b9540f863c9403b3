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
    sys::{ring::Writer, wait::Reaped},
};

use super::stdin::Stdin;

/// A command that was started and not yet released.
#[derive(Debug)]
pub(super) struct Terminal {
    pub(super) id: String,
    pub(super) pid: i32,
    /// `None` without any cgroup tree, and once the leaf is removed.
    pub(super) leaf: Option<Leaf>,
    pub(super) started: Started,
    pub(super) began: Instant,
    pub(super) times: Times,
    pub(super) outputs: Vec<Output>,
    pub(super) last_output: Instant,
    pub(super) stdin: Stdin,
    /// How the main process ended, once it is reaped.
    pub(super) main: Option<MainEnd>,
    pub(super) stop: Option<Stop>,
    pub(super) phase: Phase,
    /// `cgroup.events`, while something outlives the main process.
    pub(super) events: Option<OwnedFd>,
    /// When the clock has to look at this terminal again.
    pub(super) wake: Option<Instant>,
    /// The gateway's own words about it; nothing here looks into them.
    pub(super) keepsake: Bytes,
}

/// The times that the gateway gave.
#[derive(Debug, Clone, Copy)]
pub(super) struct Times {
    pub(super) limit: Option<Duration>,
    pub(super) idle: Option<Duration>,
    pub(super) grace: Duration,
    pub(super) linger: Duration,
}

/// One output stream.
#[derive(Debug)]
pub(super) struct Output {
    pub(super) ring: Writer,
    pub(super) flow: Flow,
}

/// Whether a stream's pipe is being read.
#[derive(Debug)]
pub(super) enum Flow {
    /// The pipe is in the epoll set.
    Reading(OwnedFd),
    /// The ring is full and held: the pipe waits for `Resume`.
    Stalled(OwnedFd),
    /// Nothing more will come.
    Ended,
}

/// The end of the main process.
#[derive(Debug, Clone, Copy)]
pub(super) struct MainEnd {
    pub(super) reaped: Reaped,
    pub(super) at: Instant,
    pub(super) at_ns: u64,
}

/// Where in its life a terminal is.
#[derive(Debug)]
pub(super) enum Phase {
    /// The main process lives.
    Running,
    /// It is reaped; what is left has until then.
    Lingering {
        /// The end of the linger time.
        until: Instant,
    },
    /// What is left is being stopped.
    Sweeping,
    /// The leaf is gone (or given up); the pipe may still hold bytes.
    Draining(Remains),
    /// Everything is known and said.
    Ended(Box<Exit>),
}

/// What a leaf left behind.
#[derive(Debug, Clone, Copy)]
pub(super) struct Remains {
    pub(super) usage: Usage,
    pub(super) survivors: u32,
    /// How long somebody outside of the leaf may still hold the pipe.
    pub(super) until: Instant,
}

/// A stop under way.
#[derive(Debug)]
pub(super) struct Stop {
    /// `None` when it only sweeps up what outlived the main process.
    pub(super) cause: Option<StopCause>,
    pub(super) kill_at: Instant,
    pub(super) killed_at: Option<Instant>,
    pub(super) look_at: Instant,
    /// Processes that have had their TERM.
    pub(super) told: HashSet<i32>,
    /// Processes other than the main one that had to be killed.
    pub(super) stragglers: u32,
    /// How often processes were looked for that are in no terminal's cgroup.
    pub(super) stray_looks: u8,
    /// It was told that the command outlives its kill.
    pub(super) given_up: bool,
}

impl Terminal {
    pub(super) fn is_drained(&self) -> bool {
        self.outputs.iter().all(|output| matches!(output.flow, Flow::Ended))
    }

    pub(super) fn is_ended(&self) -> bool {
        matches!(self.phase, Phase::Ended(_))
    }
}
