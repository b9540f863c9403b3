//! From a Spawn request to a running command: checked, given its leaf, its pipes and rings, and executed.
//!
//! All that can fail is done before the process is made, so that a refused spawn has run nothing.

use std::{
    ffi::CString,
    os::fd::{AsFd, OwnedFd},
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use bytes::Bytes;
use nix::{
    errno::Errno,
    fcntl::{FcntlArg, OFlag, fcntl},
    sys::epoll::EpollFlags,
    unistd::pipe2,
};

use super::{
    MAX_TERMINALS, Runtime,
    stdin::Stdin,
    table::{Key, Source},
    terminal::{Flow, Output, Phase, Terminal, Times},
};
use crate::{
    cgroup::leaf::{BornInside, Leaf, LeafLimits, LimitDemand, MakeError},
    output::ring::Layout,
    proto::supervisor::{
        Limits, Spawn, Spawned, Stage, StageFailure, Started, from_supervisor::Message, spawned,
    },
    supervisor::CommandIdentity,
    sys::{
        ring::{WhenFull, Writer},
        spawn::{Failure, Ids, Launch, Limit, Running, Step},
    },
};

/// The longest time that is taken at its word; longer ones mean none.
const LONGEST: Duration = Duration::from_secs(10 * 365 * 86_400);

/// The longest terminal id.
const MAX_ID_BYTES: usize = 64;

/// The longest keepsake.
const MAX_KEEPSAKE_BYTES: usize = 1 << 20;

/// Whether this kernel can make a process inside a group. Found out by trying.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Birth {
    inside: BornInside,
}

impl Birth {
    pub(super) fn new() -> Self {
        Self { inside: BornInside::Yes }
    }
}

/// A request, parsed.
struct Parsed {
    layout: Layout,
    when_full: WhenFull,
    candidates: Vec<CString>,
    argv: Vec<CString>,
    env: Vec<CString>,
    cwd: Vec<CString>,
    rlimits: Vec<(u32, Limit)>,
    leaf_name: CString,
    limits: LeafLimits,
    demand: LimitDemand,
}

/// What a command needs from us, made before it.
struct Prepared {
    leaf: Option<Leaf>,
    outputs: Vec<Output>,
    /// The command's ends: standard input, output, error.
    ends: [Option<OwnedFd>; 3],
    feed: Stdin,
}

impl Runtime {
    pub(super) fn spawn(&mut self, connection: Key, sequence: u64, request: Spawn) {
        let (result, descriptors) = match self.try_spawn(request) {
            Ok((started, rings)) => (spawned::Result::Started(started), rings),
            Err(failure) => (spawned::Result::Failure(failure), Vec::new()),
        };
        self.answer(connection, sequence, Message::Spawned(Spawned { result: Some(result) }), descriptors);
    }

    fn try_spawn(&mut self, request: Spawn) -> Result<(Started, Vec<Arc<OwnedFd>>), StageFailure> {
        self.admit(&request).map_err(resources)?;
        let parsed = parse(&request).map_err(resources)?;
        let key = self.terminals.next_key();
        let prepared = self.prepare(key, &request, &parsed)?;
        let running = match self.execute(&parsed, &prepared) {
            Ok(running) => running,
            Err(failure) => {
                self.discard(prepared.leaf);
                return Err(failure);
            }
        };
        Ok(self.hold(request, &parsed, prepared, running))
    }

    fn admit(&self, request: &Spawn) -> Result<(), Errno> {
        if self.shutdown.is_some() {
            return Err(Errno::ESHUTDOWN);
        }
        if self.names.contains_key(&request.terminal_id) {
            return Err(Errno::EEXIST);
        }
        if self.terminals.len() >= MAX_TERMINALS {
            return Err(Errno::EDQUOT);
        }
        if request.keepsake.len() > MAX_KEEPSAKE_BYTES {
            return Err(Errno::EMSGSIZE);
        }
        Ok(())
    }

    fn prepare(&mut self, key: Key, request: &Spawn, parsed: &Parsed) -> Result<Prepared, StageFailure> {
        let mut prepared =
            Prepared { leaf: None, outputs: Vec::new(), ends: [None, None, None], feed: Stdin::Closed };
        let streams = if request.split_output { 2 } else { 1 };
        for index in 0..streams {
            let (output, end) = self.make_output(key, index, parsed).map_err(resources)?;
            prepared.outputs.push(output);
            prepared.ends[1 + usize::from(index)] = Some(end);
        }
        if request.open_stdin {
            let (end, pipe) = make_pipe(NonBlocking::Write).map_err(resources)?;
            prepared.ends[0] = Some(end);
            prepared.feed = Stdin::open(pipe);
        }
        if self.leaves.is_possible() {
            let leaf = self.leaves.make(parsed.leaf_name.clone(), &parsed.limits, parsed.demand);
            prepared.leaf = Some(leaf.map_err(leaf_failure)?);
        } else if let (LimitDemand::Require, Some(index)) = (parsed.demand, first_limit(&parsed.limits)) {
            return Err(failure(Stage::LeafLimit, index, Errno::ENOTSUP));
        }
        Ok(prepared)
    }

    fn make_output(&self, key: Key, index: u8, parsed: &Parsed) -> Result<(Output, OwnedFd), Errno> {
        let ring = Writer::create(parsed.layout, parsed.when_full)?;
        let (pipe, end) = make_pipe(NonBlocking::Read)?;
        self.epoll.add(&pipe, Source::Output(key, index), EpollFlags::EPOLLIN)?;
        Ok((Output { ring, flow: Flow::Reading(pipe) }, end))
    }

    fn execute(&mut self, parsed: &Parsed, prepared: &Prepared) -> Result<Running, StageFailure> {
        let first = self.execute_once(parsed, prepared, self.born_inside.inside);
        match first {
            // A kernel, or a filter, that does not know CLONE_INTO_CGROUP. The process joins by itself instead.
            Err(StageFailure { stage, errno, .. })
                if stage == Stage::Clone as i32
                    && self.born_inside.inside == BornInside::Yes
                    && self.leaves.is_unified()
                    && [libc::E2BIG, libc::EINVAL].contains(&errno) =>
            {
                let second = self.execute_once(parsed, prepared, BornInside::No);
                if second.is_ok() {
                    self.born_inside.inside = BornInside::No;
                }
                second
            }
            other => other,
        }
    }

    fn execute_once(
        &mut self,
        parsed: &Parsed,
        prepared: &Prepared,
        inside: BornInside,
    ) -> Result<Running, StageFailure> {
        let joining = |errno| failure(Stage::JoinCgroup, 0, errno);
        let (mut cgroup, mut joins) = (None, Vec::new());
        if let Some(leaf) = &prepared.leaf {
            if inside == BornInside::Yes {
                cgroup = self.leaves.open_unified(leaf).map_err(joining)?;
            }
            joins = self.leaves.open_joins(leaf, inside).map_err(joining)?;
        }
        let joins: Vec<_> = joins.iter().map(AsFd::as_fd).collect();
        let [input, output, error] = &prepared.ends;
        let launch = Launch {
            candidates: &parsed.candidates,
            argv: &parsed.argv,
            env: &parsed.env,
            cwd: &parsed.cwd,
            stdio: [
                input.as_ref().map(AsFd::as_fd),
                output.as_ref().map(AsFd::as_fd),
                error.as_ref().or(output.as_ref()).map(AsFd::as_fd),
            ],
            cgroup: cgroup.as_ref().map(AsFd::as_fd),
            join: &joins,
            rlimits: &parsed.rlimits,
            ids: match self.identity {
                CommandIdentity::Keep => Ids::Keep,
                CommandIdentity::Change { uid, gid } => Ids::Change { uid, gid },
            },
        };
        self.spawner.spawn(&launch, || ()).0.map_err(step_failure)
    }

    /// Takes a failed spawn's leaf away. It is empty: its only process was reaped.
    fn discard(&mut self, leaf: Option<Leaf>) {
        if let Some(leaf) = leaf {
            // The kernel may still be taking the dead process out of it: then the sandbox's removal takes it.
            for _ in 0..100 {
                if self.leaves.remove(&leaf) != Ok(crate::cgroup::leaf::Removal::Busy) {
                    return;
                }
                std::thread::yield_now();
            }
        }
    }

    fn hold(
        &mut self,
        request: Spawn,
        parsed: &Parsed,
        prepared: Prepared,
        running: Running,
    ) -> (Started, Vec<Arc<OwnedFd>>) {
        let now = std::time::Instant::now();
        let started = describe(parsed, &prepared, &running);
        let rings = prepared.outputs.iter().map(|output| output.ring.file().clone()).collect();
        let time = |ms: u64| (ms > 0).then(|| Duration::from_millis(ms).min(LONGEST));
        let terminal = Terminal {
            id: request.terminal_id.clone(),
            pid: running.pid,
            leaf: prepared.leaf,
            started: started.clone(),
            began: now,
            times: Times {
                limit: time(request.time_limit_ms),
                idle: time(request.idle_limit_ms),
                grace: Duration::from_millis(request.kill_grace_ms).min(LONGEST),
                linger: Duration::from_millis(request.linger_ms).min(LONGEST),
            },
            outputs: prepared.outputs,
            last_output: now,
            stdin: prepared.feed,
            main: None,
            stop: None,
            phase: Phase::Running,
            events: None,
            wake: None,
            // A copy: what came is a view of the whole request.
            keepsake: Bytes::copy_from_slice(&request.keepsake),
            acknowledged: false,
        };
        // The command's ends of the pipes go away with `prepared.ends`.
        let key = self.terminals.insert(terminal);
        self.names.insert(request.terminal_id, key);
        self.mains.insert(running.pid, key);
        self.advance(key);
        (started, rings)
    }
}

fn parse(request: &Spawn) -> Result<Parsed, Errno> {
    let id = request.terminal_id.as_bytes();
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    if id.is_empty() || id.len() > MAX_ID_BYTES || !id.iter().all(plain) || request.argv.is_empty() {
        return Err(Errno::EINVAL);
    }
    let limits = request.limits.clone().unwrap_or_default();
    let layout = Layout::retaining(request.ring_bytes).map_err(|_| Errno::EFBIG)?;
    let when_full = if request.block_when_full { WhenFull::Block } else { WhenFull::DropOldest };
    let suffix = request.terminal_id.strip_prefix("term_").unwrap_or(&request.terminal_id);
    Ok(Parsed {
        layout,
        when_full,
        candidates: candidates(&request.program, &request.path)?,
        argv: strings(&request.argv)?,
        env: strings(&request.env)?,
        cwd: folder_names(&request.cwd)?,
        rlimits: rlimits(&limits),
        leaf_name: string(format!("t-{suffix}"))?,
        limits: LeafLimits {
            memory_bytes: limits.memory_bytes,
            swap_bytes: limits.swap_bytes,
            pids: limits.pids,
            cpu_millis: limits.cpu_millis,
        },
        demand: if limits.require { LimitDemand::Require } else { LimitDemand::Prefer },
    })
}

/// A name with a slash is what it says; a bare one is looked for in the folders.
fn candidates(program: &str, path: &[String]) -> Result<Vec<CString>, Errno> {
    if program.is_empty() || program.contains('/') {
        return Ok(vec![string(program)?]);
    }
    path.iter().map(|folder| string(format!("{folder}/{program}"))).collect()
}

fn rlimits(limits: &Limits) -> Vec<(u32, Limit)> {
    let one = |limit: &crate::proto::supervisor::Rlimit| {
        (limit.resource, Limit { soft: limit.soft, hard: limit.hard })
    };
    limits.rlimits.iter().map(one).collect()
}

fn soft_and_hard(limit: Limit) -> String {
    if limit.soft == limit.hard { limit.soft.to_string() } else { format!("{} {}", limit.soft, limit.hard) }
}

/// As profiles and `ulimit` call it.
fn rlimit_name(resource: u32) -> &'static str {
    match resource {
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

fn strings(values: &[impl AsRef<[u8]>]) -> Result<Vec<CString>, Errno> {
    values.iter().map(|value| string(value.as_ref())).collect()
}

fn string(value: impl Into<Vec<u8>>) -> Result<CString, Errno> {
    CString::new(value).map_err(|_| Errno::EINVAL)
}

/// The names on the way from the root to a folder. The gateway sends absolute paths without "..".
fn folder_names(path: &str) -> Result<Vec<CString>, Errno> {
    let below = path.strip_prefix('/').ok_or(Errno::EINVAL)?;
    let names = below.split('/').filter(|name| !name.is_empty() && *name != ".");
    names.map(|name| if name == ".." { Err(Errno::EINVAL) } else { string(name) }).collect()
}

/// Which end of a pipe is ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NonBlocking {
    Read,
    Write,
}

/// A pipe (read end, write end) whose end on our side does not block.
fn make_pipe(ours: NonBlocking) -> Result<(OwnedFd, OwnedFd), Errno> {
    let (read, write) = pipe2(OFlag::O_CLOEXEC)?;
    let end = match ours {
        NonBlocking::Read => &read,
        NonBlocking::Write => &write,
    };
    fcntl(end, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
    Ok((read, write))
}

fn describe(parsed: &Parsed, prepared: &Prepared, running: &Running) -> Started {
    let leaf_limits = prepared.leaf.iter().flat_map(|leaf| leaf.limits.iter().cloned());
    let rlimits = parsed
        .rlimits
        .iter()
        .zip(&running.rlimits)
        .map(|((resource, _), got)| (format!("rlimit.{}", rlimit_name(*resource)), soft_and_hard(*got)));
    let unset = match &prepared.leaf {
        Some(leaf) => leaf.unset.iter().map(|kind| kind.name().to_owned()).collect(),
        None => all_limits(&parsed.limits).map(|(kind, _)| kind.to_owned()).collect(),
    };
    Started {
        pid: running.pid.cast_unsigned(),
        status: running.status.clone().into(),
        limits: leaf_limits.chain(rlimits).collect(),
        unset_limits: unset,
        started_at_ns: wall_clock_ns(),
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

fn first_limit(limits: &LeafLimits) -> Option<u32> {
    all_limits(limits).next().map(|(_, index)| index)
}

/// CLOCK_REALTIME, for people only: nothing is measured by it.
pub(super) fn wall_clock_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos() as u64)
}

fn resources(errno: Errno) -> StageFailure {
    failure(Stage::SpawnResources, 0, errno)
}

fn failure(stage: Stage, index: u32, errno: Errno) -> StageFailure {
    StageFailure { stage: stage as i32, index, errno: errno as i32 }
}

fn leaf_failure(error: MakeError) -> StageFailure {
    match error {
        MakeError::Folder { index, errno } => failure(Stage::LeafCgroup, index, errno),
        MakeError::Limit { kind, errno } => failure(Stage::LeafLimit, kind as u32, errno),
    }
}

fn step_failure(failed: Failure) -> StageFailure {
    let stage = match failed.step {
        Step::Clone => Stage::Clone,
        Step::JoinCgroup => Stage::JoinCgroup,
        Step::SessionLeader => Stage::SessionLeader,
        Step::Descriptors => Stage::Descriptors,
        Step::Rlimit => Stage::Rlimit,
        Step::Identity => Stage::CommandIdentity,
        Step::Verify => Stage::Verify,
        Step::Cwd => Stage::Cwd,
        Step::Signals => Stage::Signals,
        Step::Resolve => Stage::Resolve,
        Step::Exec => Stage::Exec,
    };
    failure(stage, failed.index, failed.errno)
}
