//! The gate: a process next to each sandbox that evaluates every exec in it.
//!
//! It answers the notifications of the sandbox's filter by the policy, and compares at the exec what is executed with what was
//! evaluated. It executes nothing, changes nothing in the sandbox but the modes of directories (`caller`), and ends with the supervisor.
//!
//! [`Gate`] is all that it keeps between two turns of its event loop. An exec is read (`exec_call`), evaluated (`evaluation`), asked about or
//! denied (`denials`), and verified (`verification`); `gateways` has what goes to and comes from a gateway.
//!
//! ```text
//! notified ─► received ─► (its thread group has an exec in verification: queued) ─► read ─► evaluated
//!    deny  ─► reported ─ Recorded ─► EACCES
//!    ask   ─► reported ─ Answer ──► as deny or allow
//!    allow ─► seized ─► continued ─► at its exec: compared ─► detached, counted
//!                           │                        └──────► reported ─ Recorded ─► killed
//!                           └─► at another stop, or notified again: the exec has failed ─► detached
//! ```

mod denials;
mod evaluation;
mod event_loop;
mod exec_call;
mod gateways;
mod process;
mod setup;
mod terminals;
mod verification;

use std::{
    collections::{BTreeMap, HashMap, HashSet, VecDeque},
    os::{fd::OwnedFd, unix::net::UnixListener},
    process::exit,
    rc::Rc,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use nix::{
    errno::Errno,
    sys::{epoll::Epoll, signalfd::SignalFd},
};

use self::{
    denials::Denials,
    evaluation::{DescribedVerdict, KnownVerdicts, ProgramNames},
    exec_call::{ExecCall, FirstLines, ReadExec},
    gateways::{PolicyState, Reports},
    process::{Caller, HostProc},
    terminals::Terminals,
};
use crate::{
    link::PolledConnection,
    proto::{
        gate::{Exec, FromGate, ToGate},
        supervisor::{FromGateProcess, Identity, ToGateProcess},
    },
    sys::{seccomp, seccomp_listener::NotifiedCall},
};

/// Exit codes: the set-up failed and was reported; the launcher is gone.
const EXIT_SETUP_FAILED: i32 = 80;
const EXIT_LAUNCHER_GONE: i32 = 81;

/// The steps of the set-up that make the event loop and give up all other system calls; those of [`setup`] come before them.
const LOOP_STEP: usize = 24;
const FILTER_STEP: usize = 25;

/// Sets the gate up, reports that, and evaluates execs until the sandbox ends.
pub(crate) fn run(mut start: GateStart<'_>) -> ! {
    let entered = setup::enter(&mut start);
    let GateStart { sandbox_id, has_cgroups, socket, listener, report, encode, .. } = start;
    let ready = entered.and_then(|descriptors| {
        let identity = (sandbox_id.to_owned(), has_cgroups);
        Gate::new(identity, socket, listener, descriptors)
            .map_err(|errno| SetupFailure { index: LOOP_STEP, errno })
    });
    let ready = ready.and_then(|gate| {
        let installed = seccomp::install(&setup::filter());
        installed.map(|()| gate).map_err(|errno| SetupFailure { index: FILTER_STEP, errno })
    });
    let outcome = encode(ready.as_ref().map(drop).map_err(|failure| *failure));
    let reported = nix::unistd::write(&report, &outcome).is_ok();
    drop(report);
    match ready {
        Ok(gate) if reported => gate.run(),
        Ok(_) => exit(EXIT_LAUNCHER_GONE),
        Err(_) => exit(EXIT_SETUP_FAILED),
    }
}

/// Execs that are received and not answered. Beyond this, callers wait in the kernel.
const MAX_HELD_EXECS: usize = 1_024;
/// Execs that wait for a person. Beyond this they are denied.
const MAX_ASKED_EXECS: usize = 256;
/// Bytes that arguments and environments of execs take, for those that wait for a person and for those in verification each. Beyond this
/// the first are denied, and others wait for the second.
const MAX_EXEC_BYTES: usize = 64 << 20;
/// Connections of gateways, of which one is in use. A further one is closed.
const MAX_CONNECTIONS: usize = 4;
/// A peer that leaves more than this unread is dropped. All kept reports fit.
const MAX_QUEUED_BYTES: usize = 32 << 20;

/// How long an exec is held for the journal's answer. Then it is denied without: the report is kept.
const RECORD_TIMEOUT: Duration = Duration::from_secs(5);
/// How long an exec waits for a person while no gateway is connected.
const ASK_WITHOUT_GATEWAY: Duration = Duration::from_secs(60);
/// Between two looks at what waits, and two reports of what was allowed.
const TICK: Duration = Duration::from_secs(1);

/// Tokens of the epoll set; connections have those from `FIRST_CONNECTION` on.
mod token {
    pub(super) const SUPERVISOR: u64 = 0;
    pub(super) const LISTENER: u64 = 1;
    pub(super) const FIRST_CONNECTION: u64 = 16;
}

#[derive(Debug)]
struct Gate {
    sandbox_id: String,
    has_cgroups: bool,
    proc: HostProc,
    seccomp: OwnedFd,
    /// Whether only what kills a caller ends its wait for an answer.
    waits_killable: bool,
    /// Held open: it kills this process.
    _dead_man: OwnedFd,
    supervisor: PolledConnection<FromGateProcess, ToGateProcess>,
    listener: UnixListener,
    signals: SignalFd,
    epoll: Epoll,
    /// By token.
    connections: BTreeMap<u64, PolledConnection<FromGate, ToGate>>,
    /// The one that has completed the handshake last.
    gateway: Option<u64>,
    next_connection: u64,
    policy: PolicyState,
    names: ProgramNames,
    lines: FirstLines,
    verdicts: KnownVerdicts,
    terminals: Terminals,
    denials: Denials,
    reports: Reports,
    /// Calls that were received and not looked at.
    received: VecDeque<NotifiedCall>,
    /// Execs that wait for an answer of the gateway, by notification.
    held: BTreeMap<u64, HeldExec>,
    /// Execs that were continued, by thread group: one for each.
    verifying: HashMap<i32, Verification>,
    /// Threads that are still seized although their exec has failed. They are let go at their next stop.
    seized: HashSet<i32>,
    /// Calls of threads whose group has an exec in verification.
    queued: HashMap<i32, VecDeque<(ExecCall, Caller)>>,
    /// A process has begun that shares its parent's working directory.
    shares_directories: bool,
    /// Descriptors that are not needed any more. Closed when no exec waits for the gate.
    spent: Vec<OwnedFd>,
    tick_at: Option<Instant>,
    now: Instant,
}

/// An exec that was read and evaluated.
#[derive(Debug)]
struct EvaluatedExec {
    call: ExecCall,
    group: i32,
    terminal_id: String,
    exec: ReadExec,
    verdict: Rc<DescribedVerdict>,
    /// The report that asked about it.
    asked: Option<u64>,
}

/// An exec whose caller waits.
#[derive(Debug)]
enum HeldExec {
    /// For the journal to have the report of its denial.
    Denied { report: u64, until: Instant },
    /// For a person's answer.
    Asked { report: u64, evaluated: Box<EvaluatedExec>, alone_since: Option<Instant> },
}

/// An exec that was continued.
#[derive(Debug)]
struct Verification {
    /// The thread that was seized.
    thread: i32,
    /// Absent: a thread that was seized and turned out not to be the caller. It is let go at its next stop.
    evaluated: Option<Box<EvaluatedExec>>,
    /// It stands at its exec and is not what was evaluated: killed when the journal has this report.
    condemned: Option<(u64, Instant)>,
}

impl EvaluatedExec {
    /// The exec for people and for the journal.
    fn described(&self) -> &Exec {
        self.verdict.describe(&self.exec)
    }

    /// The rule that decided. Empty: none did.
    fn rule(&self) -> &str {
        self.verdict.by_policy.rule.as_deref().unwrap_or_default()
    }
}

impl HeldExec {
    /// The number of the report that asked, where it waits for a person.
    fn question(&self) -> Option<u64> {
        match self {
            Self::Asked { report, .. } => Some(*report),
            Self::Denied { .. } => None,
        }
    }
}

impl Gate {
    /// Whether another call may be received: there is a bound for what is received and not answered.
    fn has_room(&self) -> bool {
        let queued: usize = self.queued.values().map(VecDeque::len).sum();
        self.received.len() + self.held.len() + queued < MAX_HELD_EXECS
    }

    /// What the execs that wait for a person take.
    fn asked_bytes(&self) -> usize {
        let bytes = |held: &HeldExec| match held {
            HeldExec::Asked { evaluated, .. } => evaluated.exec.bytes(),
            HeldExec::Denied { .. } => 0,
        };
        self.held.values().map(bytes).sum()
    }

    /// What the execs in verification take.
    fn verified_bytes(&self) -> usize {
        let verified = self.verifying.values().filter_map(|one| one.evaluated.as_ref());
        verified.map(|evaluated| evaluated.exec.bytes()).sum()
    }

    fn asked_execs(&self) -> usize {
        self.held.values().filter(|held| matches!(held, HeldExec::Asked { .. })).count()
    }
}

/// CLOCK_REALTIME, for the journal.
fn wall_clock_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos() as u64)
}

/// What the launcher gives to the gate.
#[derive(Debug)]
pub(crate) struct GateStart<'a> {
    /// The sandbox.
    pub sandbox_id: &'a str,
    /// Its ids.
    pub identity: &'a Identity,
    /// Whether each of its terminals has a cgroup. Otherwise there is one terminal.
    pub has_cgroups: bool,
    /// The socket to the supervisor.
    pub socket: OwnedFd,
    /// The socket on which gateways connect.
    pub listener: OwnedFd,
    /// Files of cgroups, open for writing, to be joined by writing `0`.
    pub join: Vec<OwnedFd>,
    /// For the outcome of the set-up.
    pub report: OwnedFd,
    /// How the outcome is written.
    pub encode: fn(Result<(), SetupFailure>) -> [u8; 12],
}

/// A step of the set-up that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SetupFailure {
    /// Its number.
    pub index: usize,
    /// Why.
    pub errno: Errno,
}
