//! The response to a spawn: the command as read back from the kernel, or the failed step.
//!
//! A failure is a stage, an index and an errno, without text.

use std::time::{SystemTime, UNIX_EPOCH};

use nix::errno::Errno;

use super::command::ParsedSpawn;
use crate::{
    cgroup::leaf::{Leaf, LeafError, LeafLimits},
    proto::supervisor::{PtySize, Stage, StageFailure, Started},
    sys::{
        pty::WindowSize,
        spawn::{ResourceLimit, SpawnStep, SpawnStepFailure, SpawnedProcess},
    },
};

/// Describes the running command.
pub(super) fn describe(parsed: &ParsedSpawn, leaf: Option<&Leaf>, running: &SpawnedProcess) -> Started {
    let leaf_limits = leaf.iter().flat_map(|leaf| leaf.limits.iter().cloned());
    let rlimits = parsed
        .rlimits
        .iter()
        .zip(&running.rlimits)
        .map(|((resource, _), got)| (format!("rlimit.{}", rlimit_name(*resource)), soft_and_hard(*got)));
    let unset = match leaf {
        Some(leaf) => leaf.unset.iter().map(|kind| kind.name().to_owned()).collect(),
        None => all_limits(&parsed.limits).map(|(kind, _)| kind.to_owned()).collect(),
    };
    Started {
        pid: running.pid.cast_unsigned(),
        status: running.status.clone().into(),
        limits: leaf_limits.chain(rlimits).collect(),
        unset_limits: unset,
        started_at_ns: wall_clock_ns(),
        pty: parsed.pty.map(pty_size),
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
pub(super) fn first_limit(limits: &LeafLimits) -> Option<u32> {
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
pub(super) fn resource_failure(errno: Errno) -> StageFailure {
    failure(Stage::SpawnResources, 0, errno)
}

/// A failure to open a pseudo-terminal.
pub(super) fn pty_failure(errno: Errno) -> StageFailure {
    failure(Stage::SpawnResources, 1, errno)
}

/// A size, as the protocol has it.
pub(super) fn pty_size(size: WindowSize) -> PtySize {
    PtySize { columns: size.columns.into(), rows: size.rows.into() }
}

/// A failure.
pub(super) fn failure(stage: Stage, index: u32, errno: Errno) -> StageFailure {
    StageFailure { stage: stage as i32, index, errno: errno as i32 }
}

/// The leaf could not be made.
pub(super) fn leaf_failure(error: LeafError) -> StageFailure {
    match error {
        LeafError::Directory { index, errno } => failure(Stage::LeafCgroup, index, errno),
        LeafError::Limit { kind, errno } => failure(Stage::LeafLimit, kind as u32, errno),
    }
}

/// A step of the start failed.
pub(super) fn step_failure(failed: SpawnStepFailure) -> StageFailure {
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
