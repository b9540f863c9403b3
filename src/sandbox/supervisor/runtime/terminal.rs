//! One command and its life in the supervisor: data only.
//!
//! ```text
//! Running ──main process reaped──► Lingering ──until empty──────► Draining ──► Ended
//!    │ stop, limit                     │ linger over                ▲
//!    └────► (stop) ──reaped──► KillingStragglers ──leaf removed─────┘
//! ```

use std::{
    collections::HashSet,
    os::fd::{AsRawFd, OwnedFd},
    time::{Duration, Instant},
};

use bytes::Bytes;
use nix::{
    errno::Errno,
    sys::socket::{MsgFlags, send},
};

use super::{poll::SlotKey, stdin::CommandStdin, traffic::TrafficMark};
use crate::{
    cgroup::leaf::{Leaf, Usage},
    proto::supervisor::{Exit, Started, StopCause},
    sys::{pty::WindowSize, ring::RingWriter, wait::Reaped},
};

/// A command that was started and is not released.
#[derive(Debug)]
pub(super) struct SupervisedTerminal {
    pub(super) id: String,
    pub(super) pid: i32,
    /// `None` without cgroups, and after the leaf is removed.
    pub(super) leaf: Option<Leaf>,
    pub(super) started: Started,
    pub(super) began: Instant,
    pub(super) times: TerminalTimes,
    pub(super) outputs: Vec<OutputStream>,
    pub(super) last_output: Instant,
    /// Who says that it waits for a person.
    pub(super) holds: IdleHolds,
    pub(super) stdin: CommandStdin,
    /// Instead of pipes.
    pub(super) pty: Option<TerminalPty>,
    /// How the main process exited, once it is reaped.
    pub(super) leader_exit: Option<LeaderExit>,
    pub(super) stop: Option<StopState>,
    pub(super) phase: TerminalPhase,
    /// `cgroup.events`, while a process survives the main process.
    pub(super) events: Option<OwnedFd>,
    /// When this terminal is scheduled to advance.
    pub(super) wake: Option<Instant>,
    /// Where the process that keeps its screen is notified of output.
    pub(super) screen: Option<ScreenNotifier>,
    /// Where its part of what the network did not reach begins.
    pub(super) traffic: TrafficMark,
    /// The gateway's metadata, not interpreted here.
    pub(super) metadata: Bytes,
}

/// A pseudo-terminal. Output and input have copies of its master.
#[derive(Debug)]
pub(super) struct TerminalPty {
    /// `None` when the end was reported.
    pub(super) master: Option<OwnedFd>,
    /// Held while the main process runs: when it closes its descriptors, the output must not end, because it can open
    /// /dev/tty later.
    pub(super) slave: Option<OwnedFd>,
    pub(super) size: WindowSize,
}

/// The time limits from the gateway.
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
    /// The ring is full and its reader holds it: the pipe waits for `Resume`.
    Stalled(OwnedFd),
    /// Nothing more will come.
    Ended,
}

/// The main process's exit.
#[derive(Debug, Clone, Copy)]
pub(super) struct LeaderExit {
    pub(super) reaped: Reaped,
    pub(super) at: Instant,
    pub(super) at_ns: u64,
}

/// The phases of a terminal.
#[derive(Debug)]
pub(super) enum TerminalPhase {
    /// The main process runs.
    Running,
    /// The main process is reaped; other processes have until then.
    Lingering {
        /// The end of the linger time.
        until: Instant,
    },
    /// Processes that survived the main process are being stopped.
    KillingStragglers,
    /// The leaf is removed or given up; the pipes may still hold bytes.
    Draining(LeafRemoval),
    /// The end was reported.
    Ended(Box<Exit>),
}

/// The result of removing a leaf.
#[derive(Debug, Clone, Copy)]
pub(super) struct LeafRemoval {
    pub(super) usage: Usage,
    pub(super) survivors: u32,
    /// How long a process outside of the leaf may still hold the pipe.
    pub(super) until: Instant,
}

/// A stop under way.
#[derive(Debug)]
pub(super) struct StopState {
    /// `None` when it only kills processes that survived the main process.
    pub(super) cause: Option<StopCause>,
    pub(super) kill_at: Instant,
    pub(super) killed_at: Option<Instant>,
    pub(super) rescan_at: Instant,
    /// Processes that were sent TERM.
    pub(super) signalled: HashSet<i32>,
    /// When the main process of a PTY is sent HUP again, and how long it is left alone then.
    pub(super) hang_up_again: (Instant, Duration),
    /// What the command left running, if this ends it.
    pub(super) left_behind: EndedProcesses,
    /// Processes other than the main process that had to be killed.
    pub(super) stragglers: u32,
    /// How often strays were searched.
    pub(super) stray_scans: u8,
    /// The gateway was notified that the command survives its kill.
    pub(super) given_up: bool,
}

/// Processes that were alive when the linger time of their command was over.
#[derive(Debug, Clone, Default)]
pub(super) struct EndedProcesses {
    pub(super) count: u32,
    /// The names of their programs (proc_pid_comm(5)), each once.
    pub(super) commands: Vec<Vec<u8>>,
}

/// Who says that a command waits for a person: its idle clock stands still.
#[derive(Debug, Default)]
pub(super) struct IdleHolds {
    /// An exec waits.
    pub(super) by_gate: bool,
    /// A connection waits, as the gateway at this end says.
    pub(super) by_gateway: Option<SlotKey>,
    since: Option<Instant>,
}

impl IdleHolds {
    pub(super) fn is_held(&self) -> bool {
        self.since.is_some()
    }
}

impl SupervisedTerminal {
    pub(super) fn is_drained(&self) -> bool {
        self.outputs.iter().all(|output| matches!(output.flow, PipeState::Ended))
    }

    /// Takes in what has become of its holds. Whether its idle clock stands still, or goes on, otherwise than before.
    pub(super) fn settle_idle_clock(&mut self, now: Instant) -> bool {
        match (self.holds.by_gate || self.holds.by_gateway.is_some(), self.holds.since) {
            (true, None) => self.holds.since = Some(now),
            (false, Some(since)) => {
                self.holds.since = None;
                self.last_output += now.saturating_duration_since(since.max(self.last_output));
            }
            (true, Some(_)) | (false, None) => return false,
        }
        true
    }

    pub(super) fn is_ended(&self) -> bool {
        matches!(self.phase, TerminalPhase::Ended(_))
    }
}

/// A socket whose other end the screen process has.
#[derive(Debug)]
pub(super) struct ScreenNotifier(OwnedFd);

impl ScreenNotifier {
    pub(super) fn new(socket: OwnedFd) -> Self {
        Self(socket)
    }

    /// Whether it is of further use. A socket that is full says enough. It never waits: not by the descriptor's own flags, which
    /// others that have the socket could change.
    pub(super) fn notify(&self) -> bool {
        let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
        matches!(send(self.0.as_raw_fd(), &[1], flags), Ok(_) | Err(Errno::EAGAIN | Errno::EINTR))
    }
}
