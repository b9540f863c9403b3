//! All that the gate's event loop keeps between two turns.
//!
//! ```text
//! notified ─► received ─► (its thread group has an exec in verification: queued) ─► read ─► evaluated
//!    deny  ─► reported ─ Recorded ─► EACCES
//!    ask   ─► reported ─ Answer ──► as deny or allow
//!    allow ─► seized ─► continued ─► at its exec: compared ─► detached, counted
//!                           │                        └──────► reported ─ Recorded ─► killed
//!                           └─► at another stop, or notified again: the exec has failed ─► detached
//! ```

use std::{
    collections::{BTreeMap, HashMap, HashSet, VecDeque},
    os::{fd::OwnedFd, unix::net::UnixListener},
    rc::Rc,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use nix::sys::{epoll::Epoll, signalfd::SignalFd};

use super::{
    connection::Connection,
    evaluation::ProgramNames,
    exec_call::ExecCall,
    policy_state::PolicyState,
    process::{Caller, HostProc},
    reading::{FirstLines, ReadExec},
    refusals::Refusals,
    reports::Reports,
    terminals::Terminals,
    verdicts::{Decided, Verdicts},
};
use crate::{proto::gate::Exec, sys::seccomp_listener::NotifiedCall};

/// Execs that are received and not answered. Beyond this, callers wait in the kernel.
pub(super) const MAX_HELD_EXECS: usize = 1_024;
/// Execs that wait for a person. Beyond this they are denied.
pub(super) const MAX_ASKED_EXECS: usize = 256;
/// Bytes that arguments and environments of execs take, for those that wait for a person and for those in verification each. Beyond this
/// the first are denied, and others wait for the second.
pub(super) const MAX_EXEC_BYTES: usize = 64 << 20;
/// Connections of gateways, of which one is in use. A further one is closed.
pub(super) const MAX_CONNECTIONS: usize = 4;

/// How long an exec is held for the journal's answer. Then it is denied without: the report is kept.
pub(super) const RECORD_TIMEOUT: Duration = Duration::from_secs(5);
/// How long an exec waits for a person while no gateway is connected.
pub(super) const ASK_WITHOUT_GATEWAY: Duration = Duration::from_secs(60);
/// Between two looks at what waits, and two reports of what was allowed.
pub(super) const TICK: Duration = Duration::from_secs(1);

/// Tokens of the epoll set; connections have those from `FIRST_CONNECTION` on.
pub(super) mod token {
    pub(in super::super) const SUPERVISOR: u64 = 0;
    pub(in super::super) const LISTENER: u64 = 1;
    pub(in super::super) const FIRST_CONNECTION: u64 = 16;
}

#[derive(Debug)]
pub(super) struct Gate {
    pub(super) sandbox_id: String,
    pub(super) has_cgroups: bool,
    pub(super) proc: HostProc,
    pub(super) seccomp: OwnedFd,
    /// Whether only what kills a caller ends its wait for an answer.
    pub(super) waits_killable: bool,
    /// Held open: it kills this process.
    pub(super) _dead_man: OwnedFd,
    pub(super) supervisor: Connection,
    pub(super) listener: UnixListener,
    pub(super) signals: SignalFd,
    pub(super) epoll: Epoll,
    /// By token.
    pub(super) connections: BTreeMap<u64, Connection>,
    /// The one that has completed the handshake last.
    pub(super) gateway: Option<u64>,
    pub(super) next_connection: u64,
    pub(super) policy: PolicyState,
    pub(super) names: ProgramNames,
    pub(super) lines: FirstLines,
    pub(super) verdicts: Verdicts,
    pub(super) terminals: Terminals,
    pub(super) refusals: Refusals,
    pub(super) reports: Reports,
    /// Calls that were received and not looked at.
    pub(super) received: VecDeque<NotifiedCall>,
    /// Execs that wait for an answer of the gateway, by notification.
    pub(super) held: BTreeMap<u64, HeldExec>,
    /// Execs that were continued, by thread group: one for each.
    pub(super) verifying: HashMap<i32, Verification>,
    /// Threads that are still seized although their exec has failed. They are let go at their next stop.
    pub(super) seized: HashSet<i32>,
    /// Calls of threads whose group has an exec in verification.
    pub(super) queued: HashMap<i32, VecDeque<(ExecCall, Caller)>>,
    /// A process has begun that shares its parent's working directory.
    pub(super) shares_directories: bool,
    /// Descriptors that are not needed any more. Closed when no exec waits for the gate.
    pub(super) spent: Vec<OwnedFd>,
    pub(super) tick_at: Option<Instant>,
    pub(super) now: Instant,
}

/// An exec that was read and evaluated.
#[derive(Debug)]
pub(super) struct JudgedExec {
    pub(super) call: ExecCall,
    pub(super) group: i32,
    pub(super) terminal_id: String,
    pub(super) exec: ReadExec,
    pub(super) decided: Rc<Decided>,
    /// The report that asked about it.
    pub(super) asked: Option<u64>,
}

/// An exec whose caller waits.
#[derive(Debug)]
pub(super) enum HeldExec {
    /// For the journal to have the report of its denial.
    Denied { report: u64, until: Instant },
    /// For a person's answer.
    Asked { report: u64, judged: Box<JudgedExec>, alone_since: Option<Instant> },
}

/// An exec that was continued.
#[derive(Debug)]
pub(super) struct Verification {
    /// The thread that was seized.
    pub(super) thread: i32,
    /// Absent: a thread that was seized and turned out not to be the caller. It is let go at its next stop.
    pub(super) judged: Option<Box<JudgedExec>>,
    /// It stands at its exec and is not what was evaluated: killed when the journal has this report.
    pub(super) condemned: Option<(u64, Instant)>,
}

impl JudgedExec {
    /// The exec for people and for the journal.
    pub(super) fn described(&self) -> &Exec {
        self.decided.describe(&self.exec)
    }

    /// The rule that decided. Empty: none did.
    pub(super) fn rule(&self) -> &str {
        self.decided.verdict.rule.as_deref().unwrap_or_default()
    }
}

impl HeldExec {
    /// The number of the report that asked, where it waits for a person.
    pub(super) fn question(&self) -> Option<u64> {
        match self {
            Self::Asked { report, .. } => Some(*report),
            Self::Denied { .. } => None,
        }
    }
}

impl Gate {
    /// Whether another call may be received: there is a bound for what is received and not answered.
    pub(super) fn has_room(&self) -> bool {
        let queued: usize = self.queued.values().map(VecDeque::len).sum();
        self.received.len() + self.held.len() + queued < MAX_HELD_EXECS
    }

    /// What the execs that wait for a person take.
    pub(super) fn asked_bytes(&self) -> usize {
        let bytes = |held: &HeldExec| match held {
            HeldExec::Asked { judged, .. } => judged.exec.bytes(),
            HeldExec::Denied { .. } => 0,
        };
        self.held.values().map(bytes).sum()
    }

    /// What the execs in verification take.
    pub(super) fn verified_bytes(&self) -> usize {
        let verified = self.verifying.values().filter_map(|one| one.judged.as_ref());
        verified.map(|judged| judged.exec.bytes()).sum()
    }

    pub(super) fn asked_execs(&self) -> usize {
        self.held.values().filter(|held| matches!(held, HeldExec::Asked { .. })).count()
    }
}

/// CLOCK_REALTIME, for the journal.
pub(super) fn wall_clock_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos() as u64)
}
