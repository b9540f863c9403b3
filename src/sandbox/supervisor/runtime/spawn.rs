//! Handles a Spawn request: checks it, makes the leaf, pipes or a pseudo-terminal, and rings, and executes the command.
//!
//! All that can fail is done before the clone, so that a refused spawn has run nothing.

use std::{
    os::fd::{AsFd, OwnedFd},
    sync::Arc,
    time::Duration,
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
    command::{ParsedSpawn, parse},
    report::{describe, failure, first_limit, leaf_failure, pty_failure, resource_failure, step_failure},
    slot_map::{EventSource, SlotKey},
    state::{MAX_TERMINALS, Runtime},
    stdin_pipe::CommandStdin,
    terminal::{
        IdleHolds, OutputStream, PipeState, SupervisedTerminal, TerminalPhase, TerminalPty, TerminalTimes,
    },
    traffic::TrafficMark,
};
use crate::{
    cgroup::leaf::{CloneIntoCgroup, Leaf, LimitRequirement},
    proto::supervisor::{Spawn, Spawned, Stage, StageFailure, Started, from_supervisor::Message, spawned},
    supervisor::ready::CommandIdentity,
    sys::{
        ring::RingWriter,
        spawn::{Ids, SpawnSpec, SpawnedProcess},
    },
};

/// Longer times than this mean no limit.
const MAX_DURATION: Duration = Duration::from_secs(10 * 365 * 86_400);

/// The index, in [`Stage::CommandIdentity`] after the steps of [`crate::sys::spawn`], of the command's OOM score.
const OOM_SCORE: u32 = 5;

/// The longest metadata.
const MAX_METADATA_BYTES: usize = 1 << 20;

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
        let parsed = parse(&request).map_err(resource_failure)?;
        let key = self.terminals.next_key();
        let traffic = self.refused_traffic.mark();
        let mut prepared = self.prepare(key, &request, &parsed)?;
        if let Some(given) = given_stdin {
            prepared.child_ends[0] = Some(given);
        }
        let running = match self.execute(&parsed, &prepared) {
            Ok(running) => running,
            Err(failure) => {
                self.discard_leaf(prepared.leaf);
                return Err(failure);
            }
        };
        Ok(self.register(request, &parsed, prepared, running, traffic))
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

    fn prepare(
        &mut self,
        key: SlotKey,
        request: &Spawn,
        parsed: &ParsedSpawn,
    ) -> Result<PreparedCommand, StageFailure> {
        let mut prepared = PreparedCommand {
            leaf: None,
            outputs: Vec::new(),
            child_ends: [None, None, None],
            stdin: CommandStdin::Closed,
            pty: None,
        };
        match parsed.pty {
            Some(size) => {
                let pty = self.open_pty(size).map_err(pty_failure)?;
                let (output, stdin) =
                    self.connect_pty(key, &pty, request, parsed).map_err(resource_failure)?;
                prepared.outputs.push(output);
                prepared.stdin = stdin;
                prepared.pty = Some(pty);
            }
            None => self.make_pipes(key, request, parsed, &mut prepared).map_err(resource_failure)?,
        }
        if self.leaves.is_available() {
            let leaf = self.leaves.make(parsed.leaf_name.clone(), &parsed.limits, parsed.requirement);
            prepared.leaf = Some(leaf.map_err(leaf_failure)?);
        } else if let (LimitRequirement::Require, Some(index)) =
            (parsed.requirement, first_limit(&parsed.limits))
        {
            return Err(failure(Stage::LeafLimit, index, Errno::ENOTSUP));
        }
        Ok(prepared)
    }

    fn make_pipes(
        &self,
        key: SlotKey,
        request: &Spawn,
        parsed: &ParsedSpawn,
        prepared: &mut PreparedCommand,
    ) -> Result<(), Errno> {
        let streams = if request.split_output { 2 } else { 1 };
        for index in 0..streams {
            let (output, end) = self.make_output(key, index, parsed)?;
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
        parsed: &ParsedSpawn,
    ) -> Result<(OutputStream, OwnedFd), Errno> {
        let ring = RingWriter::create(parsed.layout, parsed.when_full)?;
        let (pipe, end) = make_pipe(OwnEnd::Read)?;
        self.epoll.add(&pipe, EventSource::Output(key, index), EpollFlags::EPOLLIN)?;
        Ok((OutputStream { ring, flow: PipeState::Reading(pipe) }, end))
    }

    fn execute(
        &mut self,
        parsed: &ParsedSpawn,
        prepared: &PreparedCommand,
    ) -> Result<SpawnedProcess, StageFailure> {
        let first = self.execute_once(parsed, prepared, self.clone_into_cgroup);
        match first {
            // The kernel or a filter does not support CLONE_INTO_CGROUP: the child joins by itself instead.
            Err(StageFailure { stage, errno, .. })
                if stage == Stage::Clone as i32
                    && self.clone_into_cgroup == CloneIntoCgroup::Yes
                    && self.leaves.is_v2()
                    && [libc::E2BIG, libc::EINVAL].contains(&errno) =>
            {
                let second = self.execute_once(parsed, prepared, CloneIntoCgroup::No);
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
        parsed: &ParsedSpawn,
        prepared: &PreparedCommand,
        inside: CloneIntoCgroup,
    ) -> Result<SpawnedProcess, StageFailure> {
        let joining = |errno| failure(Stage::JoinCgroup, 0, errno);
        let (mut cgroup, mut joins) = (None, Vec::new());
        if let Some(leaf) = &prepared.leaf {
            if inside == CloneIntoCgroup::Yes {
                cgroup = self.leaves.open_v2(leaf).map_err(joining)?;
            }
            joins = self.leaves.open_join_files(leaf, inside).map_err(joining)?;
        }
        let joins: Vec<_> = joins.iter().map(AsFd::as_fd).collect();
        let slave = prepared.pty.as_ref().and_then(|pty| pty.slave.as_ref());
        let [input, output, error] = &prepared.child_ends;
        let expected = parsed.expected();
        let launch = SpawnSpec {
            candidates: &parsed.candidates,
            expected: expected.as_deref(),
            argv: &parsed.argv,
            env: &parsed.env,
            cwd: &parsed.cwd,
            cwd_identity: parsed.cwd_identity,
            stdio: [
                slave.or(input.as_ref()).map(AsFd::as_fd),
                slave.or(output.as_ref()).map(AsFd::as_fd),
                slave.or(error.as_ref()).or(output.as_ref()).map(AsFd::as_fd),
            ],
            controlling_terminal: slave.is_some(),
            cgroup: cgroup.as_ref().map(AsFd::as_fd),
            join: &joins,
            rlimits: &parsed.rlimits,
            ids: match self.identity {
                CommandIdentity::Keep => Ids::Keep,
                CommandIdentity::Change { uid, gid } => Ids::Change { uid, gid },
            },
            umask: parsed.umask,
            exec_nonce: self.gate.exec_nonce(),
        };
        self.oom_score.raise().map_err(|errno| failure(Stage::CommandIdentity, OOM_SCORE, errno))?;
        self.spawner.spawn(&launch, || ()).0.map_err(step_failure)
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
        parsed: &ParsedSpawn,
        prepared: PreparedCommand,
        running: SpawnedProcess,
        traffic: TrafficMark,
    ) -> (Started, Vec<Arc<OwnedFd>>) {
        let now = std::time::Instant::now();
        let started = describe(parsed, prepared.leaf.as_ref(), &running);
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
            // Copied, because the received bytes share the whole request's buffer.
            screen: None,
            traffic,
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
