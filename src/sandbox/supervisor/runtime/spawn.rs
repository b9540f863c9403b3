//! Handles a Spawn request: parses it, makes the leaf, pipes or a pseudo-terminal, and rings, and executes the command. The answer is the
//! command as read back from the kernel, or the step that failed: a stage, an index and an errno, without text.
//!
//! All that can fail is done before the clone, so that a refused spawn has run nothing.

use std::{
    ffi::CString,
    os::fd::{AsFd, OwnedFd},
    sync::Arc,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use bytes::Bytes;
use nix::{
    errno::Errno,
    fcntl::{FcntlArg, OFlag, fcntl},
    sys::{
        epoll::EpollFlags,
        stat::{Mode, fchmod},
    },
    unistd::pipe2,
};

use super::{
    Runtime,
    poll::{EventSource, SlotKey},
    stdin::CommandStdin,
    terminal::{
        IdleHolds, OutputStream, PipeState, SupervisedTerminal, TerminalPhase, TerminalPty, TerminalTimes,
    },
    traffic::TrafficMark,
};
use crate::{
    byte_text,
    cgroup::leaf::{self, CloneIntoCgroup, Leaf, LeafError, LeafLimits, LimitRequirement},
    output::ring::Layout,
    proto::supervisor::{
        Judged, JudgedFile, Limits, PtySize, Spawn, Spawned, Stage, StageFailure, Started,
        from_supervisor::Message, spawned,
    },
    supervisor::ready::CommandIdentity,
    sys::{
        own_process::OwnOomScore,
        pty::WindowSize,
        ring::{RingWriter, WhenFull},
        spawn::{
            ExecBy, ExecutableId, ExpectedExecutable, Ids, ResourceLimit, SpawnSpec, SpawnStep,
            SpawnStepFailure, SpawnedProcess,
        },
    },
    wire::gate::MAX_TERMINALS,
};

/// Longer times than this mean no limit.
const MAX_DURATION: Duration = Duration::from_secs(10 * 365 * 86_400);

/// The index, in [`Stage::CommandIdentity`] after the steps of [`crate::sys::spawn`], of the command's OOM score.
const OOM_SCORE: u32 = 5;

/// The longest metadata.
const MAX_METADATA_BYTES: usize = 1 << 20;

/// The longest terminal id.
const MAX_ID_BYTES: usize = 64;

/// The umask of a command of which the gateway says nothing.
const DEFAULT_UMASK: u32 = 0o022;

/// How long the OOM score stays raised after a clone.
const RAISED_FOR: Duration = Duration::from_millis(100);

/// What a command needs, made before it is cloned.
struct PreparedCommand {
    leaf: Option<Leaf>,
    outputs: Vec<OutputStream>,
    /// The command's ends: standard input, output, error.
    child_ends: [Option<OwnedFd>; 3],
    stdin: CommandStdin,
    /// Instead of the command's ends.
    pty: Option<TerminalPty>,
}

impl Runtime {
    pub(super) fn spawn(&mut self, connection: SlotKey, sequence: u64, request: Spawn, given: Vec<OwnedFd>) {
        let (result, descriptors) = match self.try_spawn(request, given.into_iter().next()) {
            Ok((started, rings)) => (spawned::Result::Started(started), rings),
            Err(failure) => (spawned::Result::Failure(failure), Vec::new()),
        };
        self.answer(connection, sequence, Message::Spawned(Spawned { result: Some(result) }), descriptors);
    }

    fn try_spawn(
        &mut self,
        request: Spawn,
        given_stdin: Option<OwnedFd>,
    ) -> Result<(Started, Vec<Arc<OwnedFd>>), StageFailure> {
        self.admit(&request).map_err(resource_failure)?;
        if request.stdin_given != given_stdin.is_some() {
            return Err(resource_failure(Errno::EBADF));
        }
        if self.gate.is_lost() {
            return Err(failure(Stage::Gate, 0, Errno::EHOSTDOWN));
        }
        let limits = request.limits.clone().unwrap_or_default();
        let mut spec = self.parse(&request, &limits).map_err(resource_failure)?;
        let key = self.terminals.next_key();
        let traffic = self.refused_traffic.mark();
        let mut prepared = self.prepare(key, &request, &limits)?;
        if let Some(given) = given_stdin {
            prepared.child_ends[0] = Some(given);
        }
        let running = match self.execute(&mut spec, &prepared) {
            Ok(running) => running,
            Err(failure) => {
                self.discard_leaf(prepared.leaf);
                return Err(failure);
            }
        };
        Ok(self.register(request, &limits, prepared, running, traffic))
    }

    fn admit(&self, request: &Spawn) -> Result<(), Errno> {
        if self.shutdown.is_some() {
            return Err(Errno::ESHUTDOWN);
        }
        if self.keys_by_id.contains_key(&request.terminal_id) {
            return Err(Errno::EEXIST);
        }
        if self.terminals.len() >= MAX_TERMINALS {
            return Err(Errno::EDQUOT);
        }
        if request.metadata.len() > MAX_METADATA_BYTES {
            return Err(Errno::EMSGSIZE);
        }
        Ok(())
    }

    /// Makes of a request what is executed: no string has a NUL, and every number that is executed is in its range; those of the ring and of the
    /// window are checked where these are made. No gateway sends what it refuses.
    fn parse(&self, request: &Spawn, limits: &Limits) -> Result<SpawnSpec, Errno> {
        let id = request.terminal_id.as_bytes();
        let plain = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
        if id.is_empty() || id.len() > MAX_ID_BYTES || !id.iter().all(plain) || request.argv.is_empty() {
            return Err(Errno::EINVAL);
        }
        if request.pty.is_some() && request.split_output {
            return Err(Errno::EINVAL);
        }
        if request.umask.is_some_and(|umask| umask > 0o777) {
            return Err(Errno::EINVAL);
        }
        let judged =
            |judged: &Judged| judged.files.iter().map(judged_file).collect::<Result<Vec<_>, Errno>>();
        Ok(SpawnSpec {
            candidates: candidates(&request.program, &request.path)?,
            expected: request.judged.as_ref().map(judged).transpose()?,
            argv: strings(&request.argv)?.into(),
            env: strings(&request.env)?.into(),
            cwd: directory_names(&request.cwd)?,
            cwd_identity: request.cwd_identity.map(|identity| (identity.device, identity.inode)),
            controlling_terminal: request.pty.is_some(),
            cgroup: None,
            join: Vec::new(),
            rlimits: rlimits(limits),
            ids: match self.identity {
                CommandIdentity::Keep => Ids::Keep,
                CommandIdentity::Change { uid, gid } => Ids::Change { uid, gid },
            },
            umask: request.umask.unwrap_or(DEFAULT_UMASK),
            exec_nonce: self.gate.exec_nonce(),
        })
    }

    fn prepare(
        &mut self,
        key: SlotKey,
        request: &Spawn,
        limits: &Limits,
    ) -> Result<PreparedCommand, StageFailure> {
        let mut prepared = PreparedCommand {
            leaf: None,
            outputs: Vec::new(),
            child_ends: [None, None, None],
            stdin: CommandStdin::Closed,
            pty: None,
        };
        match request.pty {
            Some(size) => {
                let size = window_size(size).map_err(resource_failure)?;
                let pty = self.open_pty(size).map_err(pty_failure)?;
                let (output, stdin) = self.connect_pty(key, &pty, request).map_err(resource_failure)?;
                prepared.outputs.push(output);
                prepared.stdin = stdin;
                prepared.pty = Some(pty);
            }
            None => self.make_pipes(key, request, &mut prepared).map_err(resource_failure)?,
        }
        let (of_leaf, requirement) = (leaf_limits(limits), requirement(limits));
        if self.leaves.is_available() {
            let name = string(leaf::name_of(&request.terminal_id)).map_err(resource_failure)?;
            prepared.leaf = Some(self.leaves.make(name, &of_leaf, requirement).map_err(leaf_failure)?);
        } else if let (LimitRequirement::Require, Some(index)) = (requirement, first_limit(&of_leaf)) {
            return Err(failure(Stage::LeafLimit, index, Errno::ENOTSUP));
        }
        Ok(prepared)
    }

    fn make_pipes(&self, key: SlotKey, request: &Spawn, prepared: &mut PreparedCommand) -> Result<(), Errno> {
        let streams = if request.split_output { 2 } else { 1 };
        for index in 0..streams {
            let (output, end) = self.make_output(key, index, request)?;
            prepared.outputs.push(output);
            prepared.child_ends[1 + usize::from(index)] = Some(end);
        }
        if request.open_stdin {
            let (end, pipe) = make_pipe(OwnEnd::Write)?;
            prepared.child_ends[0] = Some(end);
            prepared.stdin = CommandStdin::open(pipe);
        }
        Ok(())
    }

    fn make_output(
        &self,
        key: SlotKey,
        index: u8,
        request: &Spawn,
    ) -> Result<(OutputStream, OwnedFd), Errno> {
        let ring = make_ring(request)?;
        let (pipe, end) = make_pipe(OwnEnd::Read)?;
        self.epoll.add(&pipe, EventSource::Output(key, index), EpollFlags::EPOLLIN)?;
        Ok((OutputStream { ring, flow: PipeState::Reading(pipe) }, end))
    }

    fn execute(
        &mut self,
        spec: &mut SpawnSpec,
        prepared: &PreparedCommand,
    ) -> Result<SpawnedProcess, StageFailure> {
        let first = self.execute_once(spec, prepared, self.clone_into_cgroup);
        match first {
            // The kernel or a filter does not support CLONE_INTO_CGROUP: the child joins by itself instead.
            Err(StageFailure { stage, errno, .. })
                if stage == Stage::Clone as i32
                    && self.clone_into_cgroup == CloneIntoCgroup::Yes
                    && self.leaves.is_v2()
                    && [libc::E2BIG, libc::EINVAL].contains(&errno) =>
            {
                let second = self.execute_once(spec, prepared, CloneIntoCgroup::No);
                if second.is_ok() {
                    self.clone_into_cgroup = CloneIntoCgroup::No;
                }
                second
            }
            other => other,
        }
    }

    fn execute_once(
        &mut self,
        spec: &mut SpawnSpec,
        prepared: &PreparedCommand,
        inside: CloneIntoCgroup,
    ) -> Result<SpawnedProcess, StageFailure> {
        let joining = |errno| failure(Stage::JoinCgroup, 0, errno);
        spec.cgroup = None;
        if let Some(leaf) = &prepared.leaf {
            if inside == CloneIntoCgroup::Yes {
                spec.cgroup = self.leaves.open_v2(leaf).map_err(joining)?;
            }
            spec.join = self.leaves.open_join_files(leaf, inside).map_err(joining)?;
        }
        let slave = prepared.pty.as_ref().and_then(|pty| pty.slave.as_ref());
        let [input, output, error] = &prepared.child_ends;
        let stdio = [
            slave.or(input.as_ref()),
            slave.or(output.as_ref()),
            slave.or(error.as_ref()).or(output.as_ref()),
        ];
        self.oom_score.raise().map_err(|errno| failure(Stage::CommandIdentity, OOM_SCORE, errno))?;
        self.spawner.spawn(spec, stdio.map(|end| end.map(AsFd::as_fd))).map_err(step_failure)
    }

    /// Removes a failed spawn's leaf. It is empty: its only process was reaped.
    fn discard_leaf(&mut self, leaf: Option<Leaf>) {
        if let Some(leaf) = leaf {
            // The kernel may still count the dead process; then the leaf goes with the sandbox.
            for _ in 0..100 {
                if self.leaves.remove(&leaf) != Ok(crate::cgroup::leaf::Removal::Busy) {
                    return;
                }
                std::thread::yield_now();
            }
        }
    }

    fn register(
        &mut self,
        request: Spawn,
        limits: &Limits,
        prepared: PreparedCommand,
        running: SpawnedProcess,
        traffic: TrafficMark,
    ) -> (Started, Vec<Arc<OwnedFd>>) {
        let now = std::time::Instant::now();
        let started = describe(&request, limits, prepared.leaf.as_ref(), &running);
        let rings = prepared.outputs.iter().map(|output| output.ring.file().clone()).collect();
        let time = |ms: u64| (ms > 0).then(|| Duration::from_millis(ms).min(MAX_DURATION));
        let terminal = SupervisedTerminal {
            id: request.terminal_id.clone(),
            pid: running.pid,
            leaf: prepared.leaf,
            started: started.clone(),
            began: now,
            times: TerminalTimes {
                limit: time(request.time_limit_ms),
                idle: time(request.idle_limit_ms),
                grace: Duration::from_millis(request.kill_grace_ms).min(MAX_DURATION),
                linger: Duration::from_millis(request.linger_ms).min(MAX_DURATION),
            },
            outputs: prepared.outputs,
            last_output: now,
            holds: IdleHolds::default(),
            stdin: prepared.stdin,
            pty: prepared.pty,
            leader_exit: None,
            stop: None,
            phase: TerminalPhase::Running,
            events: None,
            wake: None,
            screen: None,
            traffic,
            // Copied, because the received bytes share the whole request's buffer.
            metadata: Bytes::copy_from_slice(&request.metadata),
        };
        // `prepared.child_ends` is dropped here, which closes the command's ends of the pipes.
        let key = self.terminals.insert(terminal);
        self.keys_by_id.insert(request.terminal_id, key);
        self.leaders.insert(running.pid, key);
        self.gate.keep_pinging(now);
        self.advance(key);
        (started, rings)
    }
}

/// Which end of a pipe the supervisor keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OwnEnd {
    Read,
    Write,
}

/// So that a command with another id can open its own `/dev/stdin`, `/dev/stdout` and `/dev/stderr`, for what they are.
const INPUT_MODE: Mode = Mode::from_bits_truncate(0o644);
const OUTPUT_MODE: Mode = Mode::from_bits_truncate(0o622);

/// A pipe (read end, write end). Our end does not block.
fn make_pipe(ours: OwnEnd) -> Result<(OwnedFd, OwnedFd), Errno> {
    let (read, write) = pipe2(OFlag::O_CLOEXEC)?;
    let (end, mode) = match ours {
        OwnEnd::Read => (&read, OUTPUT_MODE),
        OwnEnd::Write => (&write, INPUT_MODE),
    };
    fchmod(end, mode)?;
    fcntl(end, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
    Ok((read, write))
}

/// A ring for one output stream.
pub(super) fn make_ring(request: &Spawn) -> Result<RingWriter, Errno> {
    let layout = Layout::retaining(request.ring_bytes).map_err(|_| Errno::EFBIG)?;
    let when_full = if request.block_when_full { WhenFull::Block } else { WhenFull::DropOldest };
    RingWriter::create(layout, when_full)
}

fn leaf_limits(limits: &Limits) -> LeafLimits {
    LeafLimits {
        memory_bytes: limits.memory_bytes,
        swap_bytes: limits.swap_bytes,
        pids: limits.pids,
        cpu_millis: limits.cpu_millis,
    }
}

fn requirement(limits: &Limits) -> LimitRequirement {
    if limits.require { LimitRequirement::Require } else { LimitRequirement::Prefer }
}

/// A size that the kernel takes.
pub(super) fn window_size(size: PtySize) -> Result<WindowSize, Errno> {
    let number = |number: u32| u16::try_from(number).map_err(|_| Errno::EINVAL);
    Ok(WindowSize { columns: number(size.columns)?, rows: number(size.rows)? })
}

/// A name with a slash is a path; a bare one is searched for in the directories.
fn candidates(program: &str, path: &[String]) -> Result<Vec<CString>, Errno> {
    if program.is_empty() || program.contains('/') {
        return Ok(vec![text(program)?]);
    }
    path.iter().map(|directory| text(&format!("{directory}/{program}"))).collect()
}

fn judged_file(file: &JudgedFile) -> Result<ExpectedExecutable, Errno> {
    Ok(ExpectedExecutable {
        path: string(file.path.to_vec())?,
        identity: file.identity.map(|identity| ExecutableId {
            device: identity.device,
            inode: identity.inode,
            changed_ns: identity.changed_ns,
        }),
        exec_by: if file.is_immutable { ExecBy::Path } else { ExecBy::Descriptor },
    })
}

fn rlimits(limits: &Limits) -> Vec<(u32, ResourceLimit)> {
    let one = |limit: &crate::proto::supervisor::Rlimit| {
        (limit.resource, ResourceLimit { soft: limit.soft, hard: limit.hard })
    };
    limits.rlimits.iter().map(one).collect()
}

fn strings(values: &[impl AsRef<[u8]>]) -> Result<Vec<CString>, Errno> {
    values.iter().map(|value| string(value.as_ref())).collect()
}

/// In the form of [`byte_text`].
fn text(value: &str) -> Result<CString, Errno> {
    string(byte_text::to_bytes(value).into_owned())
}

fn string(value: impl Into<Vec<u8>>) -> Result<CString, Errno> {
    CString::new(value).map_err(|_| Errno::EINVAL)
}

/// The names on the path from the root to a directory. The gateway sends absolute paths without `..`.
fn directory_names(path: &str) -> Result<Vec<CString>, Errno> {
    let below = path.strip_prefix('/').ok_or(Errno::EINVAL)?;
    let names = below.split('/').filter(|name| !name.is_empty() && *name != ".");
    names.map(|name| if name == ".." { Err(Errno::EINVAL) } else { text(name) }).collect()
}

/// Describes the running command.
fn describe(request: &Spawn, limits: &Limits, leaf: Option<&Leaf>, running: &SpawnedProcess) -> Started {
    let of_leaf = leaf.iter().flat_map(|leaf| leaf.limits.iter().cloned());
    let rlimits = limits
        .rlimits
        .iter()
        .zip(&running.rlimits)
        .map(|(limit, got)| (format!("rlimit.{}", rlimit_name(limit.resource)), soft_and_hard(*got)));
    let unset = match leaf {
        Some(leaf) => leaf.unset.iter().map(|kind| kind.name().to_owned()).collect(),
        None => all_limits(&leaf_limits(limits)).map(|(kind, _)| kind.to_owned()).collect(),
    };
    Started {
        pid: running.pid.cast_unsigned(),
        status: running.status.clone().into(),
        limits: of_leaf.chain(rlimits).collect(),
        unset_limits: unset,
        started_at_ns: wall_clock_ns(),
        pty: request.pty,
    }
}

fn all_limits(limits: &LeafLimits) -> impl Iterator<Item = (&'static str, u32)> {
    let all = [
        ("memory", limits.memory_bytes),
        ("swap", limits.swap_bytes),
        ("pids", limits.pids),
        ("cpu", limits.cpu_millis),
    ];
    all.into_iter().zip(0..).filter(|((_, value), _)| value.is_some()).map(|((name, _), index)| (name, index))
}

/// The first requested limit.
fn first_limit(limits: &LeafLimits) -> Option<u32> {
    all_limits(limits).next().map(|(_, index)| index)
}

/// CLOCK_REALTIME, for people only: nothing is measured by it.
pub(super) fn wall_clock_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos() as u64)
}

fn soft_and_hard(limit: ResourceLimit) -> String {
    if limit.soft == limit.hard { limit.soft.to_string() } else { format!("{} {}", limit.soft, limit.hard) }
}

#[cfg(target_env = "musl")]
type ResourceNumber = libc::c_int;
#[cfg(not(target_env = "musl"))]
type ResourceNumber = libc::c_uint;

/// As profiles and `ulimit` call it.
fn rlimit_name(resource: u32) -> &'static str {
    // C libraries differ in the type of these numbers.
    match resource as ResourceNumber {
        libc::RLIMIT_AS => "as",
        libc::RLIMIT_CORE => "core",
        libc::RLIMIT_CPU => "cpu",
        libc::RLIMIT_DATA => "data",
        libc::RLIMIT_FSIZE => "fsize",
        libc::RLIMIT_MEMLOCK => "memlock",
        libc::RLIMIT_MSGQUEUE => "msgqueue",
        libc::RLIMIT_NOFILE => "nofile",
        libc::RLIMIT_NPROC => "nproc",
        libc::RLIMIT_SIGPENDING => "sigpending",
        libc::RLIMIT_STACK => "stack",
        _ => "unnamed",
    }
}

/// A failure to make pipes or rings.
fn resource_failure(errno: Errno) -> StageFailure {
    failure(Stage::SpawnResources, 0, errno)
}

/// A failure to open a pseudo-terminal.
fn pty_failure(errno: Errno) -> StageFailure {
    failure(Stage::SpawnResources, 1, errno)
}

/// A size, as the protocol has it.
pub(super) fn pty_size(size: WindowSize) -> PtySize {
    PtySize { columns: size.columns.into(), rows: size.rows.into() }
}

/// A failure.
fn failure(stage: Stage, index: u32, errno: Errno) -> StageFailure {
    StageFailure { stage: stage as i32, index, errno: errno as i32 }
}

/// The leaf could not be made.
fn leaf_failure(error: LeafError) -> StageFailure {
    match error {
        LeafError::Directory { index, errno } => failure(Stage::LeafCgroup, index, errno),
        LeafError::Limit { kind, errno } => failure(Stage::LeafLimit, kind as u32, errno),
    }
}

/// A step of the start failed.
fn step_failure(failed: SpawnStepFailure) -> StageFailure {
    let stage = match failed.step {
        SpawnStep::Clone => Stage::Clone,
        SpawnStep::JoinCgroup => Stage::JoinCgroup,
        SpawnStep::SessionLeader => Stage::SessionLeader,
        SpawnStep::Descriptors => Stage::Descriptors,
        SpawnStep::Rlimit => Stage::Rlimit,
        SpawnStep::Identity => Stage::CommandIdentity,
        SpawnStep::Verify => Stage::Verify,
        SpawnStep::Cwd => Stage::Cwd,
        SpawnStep::Signals => Stage::Signals,
        SpawnStep::Resolve => Stage::Resolve,
        SpawnStep::Exec => Stage::Exec,
        SpawnStep::Program => Stage::Program,
    };
    failure(stage, failed.index, failed.errno)
}

/// The supervisor's OOM score: lower than its commands', which inherit the one it has when they are cloned.
///
/// Raised before a clone, and lowered when none has followed for a while: each change makes the kernel visit every
/// process of the host, which must not happen twice for each command of a burst.
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
