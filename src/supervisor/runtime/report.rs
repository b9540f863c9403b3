//! What is said of a spawn: the command that runs, as it was read back, or the step that failed.
//!
//! Makes no sentences: a failure is a stage, an index and an errno.

use std::time::{SystemTime, UNIX_EPOCH};

use nix::errno::Errno;

use super::command::Parsed;
use crate::{
    cgroup::leaf::{Leaf, LeafLimits, MakeError},
    proto::supervisor::{Stage, StageFailure, Started},
    sys::spawn::{Failure, Limit, Running, Step},
};

/// The command that runs.
pub(super) fn describe(parsed: &Parsed, leaf: Option<&Leaf>, running: &Running) -> Started {
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

/// The first limit that is asked for.
pub(super) fn first_limit(limits: &LeafLimits) -> Option<u32> {
    all_limits(limits).next().map(|(_, index)| index)
}

/// CLOCK_REALTIME, for people only: nothing is measured by it.
pub(super) fn wall_clock_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos() as u64)
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

/// What the command needs of us could not be made.
pub(super) fn resources(errno: Errno) -> StageFailure {
    failure(Stage::SpawnResources, 0, errno)
}

/// A failure.
pub(super) fn failure(stage: Stage, index: u32, errno: Errno) -> StageFailure {
    StageFailure { stage: stage as i32, index, errno: errno as i32 }
}

/// The leaf could not be made.
pub(super) fn leaf_failure(error: MakeError) -> StageFailure {
    match error {
        MakeError::Folder { index, errno } => failure(Stage::LeafCgroup, index, errno),
        MakeError::Limit { kind, errno } => failure(Stage::LeafLimit, kind as u32, errno),
    }
}

/// A step of the start failed.
pub(super) fn step_failure(failed: Failure) -> StageFailure {
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
        Step::Program => Stage::Program,
    };
    failure(stage, failed.index, failed.errno)
}
