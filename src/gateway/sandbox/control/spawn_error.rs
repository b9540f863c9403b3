//! Why a command could not be started, classified by the failed step and its errno, never by text.

use crate::proto::supervisor::{Stage, StageFailure};

/// Why a command could not be started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SpawnFault {
    /// No such program, in the profile's path or at the path given.
    CommandNotFound,
    /// There is such a file, and it is no program.
    NotExecutable,
    /// The kernel refused to execute it.
    PermissionDenied,
    /// The interpreter of the file cannot be executed.
    BadInterpreter,
    /// The working directory does not exist.
    CwdGone,
    /// The working directory is no directory.
    CwdNotADirectory,
    /// Arguments and environment are longer than exec takes.
    ArgumentListTooLong,
    /// The sandbox or the host is out of processes, memory or descriptors.
    LimitReached,
    /// A protection could not be applied; nothing ran.
    ConfinementUnavailable,
    /// The file was replaced or changed since policy evaluated it; nothing ran.
    ProgramChanged,
}

/// A failed spawn: what it means, and where exactly it failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SpawnFailure {
    /// What it means.
    pub fault: SpawnFault,
    /// The step.
    pub stage: Stage,
    /// Which one of several of that step; 0-based.
    pub index: u32,
    /// errno(3).
    pub errno: i32,
}

impl From<StageFailure> for SpawnFailure {
    fn from(failure: StageFailure) -> Self {
        let stage = failure.stage();
        Self { fault: classify(stage, failure.errno), stage, index: failure.index, errno: failure.errno }
    }
}

fn classify(stage: Stage, errno: i32) -> SpawnFault {
    match stage {
        Stage::Cwd => match errno {
            libc::ENOENT => SpawnFault::CwdGone,
            libc::ENOTDIR => SpawnFault::CwdNotADirectory,
            libc::EACCES | libc::EPERM => SpawnFault::PermissionDenied,
            _ => SpawnFault::CwdGone,
        },
        Stage::Resolve => match errno {
            libc::EACCES | libc::ENOEXEC | libc::EISDIR => SpawnFault::NotExecutable,
            libc::EPERM => SpawnFault::PermissionDenied,
            libc::EMFILE | libc::ENFILE | libc::ENOMEM => SpawnFault::LimitReached,
            // ENOENT, ENOTDIR, ELOOP, ENAMETOOLONG: nothing is there.
            _ => SpawnFault::CommandNotFound,
        },
        Stage::Exec => match errno {
            // The file is there, or its own path would have failed at the step before: it is its interpreter that is not.
            libc::ENOENT | libc::ELIBBAD | libc::ENOTDIR | libc::ELOOP => SpawnFault::BadInterpreter,
            libc::ENOEXEC | libc::EISDIR => SpawnFault::NotExecutable,
            libc::E2BIG => SpawnFault::ArgumentListTooLong,
            libc::EAGAIN | libc::ENOMEM | libc::EMFILE | libc::ENFILE => SpawnFault::LimitReached,
            // EACCES, EPERM, ETXTBSY and what a security module may invent.
            _ => SpawnFault::PermissionDenied,
        },
        Stage::Program => SpawnFault::ProgramChanged,
        Stage::SpawnResources | Stage::LeafCgroup | Stage::Clone | Stage::JoinCgroup => match errno {
            libc::EAGAIN | libc::ENOMEM | libc::EMFILE | libc::ENFILE | libc::ENOSPC | libc::E2BIG => {
                SpawnFault::LimitReached
            }
            _ => SpawnFault::ConfinementUnavailable,
        },
        Stage::Unspecified
        | Stage::Plan
        | Stage::CloneNamespaces
        | Stage::IdMap
        | Stage::SupervisorCgroup
        | Stage::CgroupNamespace
        | Stage::Identity
        | Stage::Hostname
        | Stage::Loopback
        | Stage::Mount
        | Stage::PivotRoot
        | Stage::NestedNamespaces
        | Stage::Keyring
        | Stage::Capabilities
        | Stage::NoNewPrivs
        | Stage::Landlock
        | Stage::Seccomp
        | Stage::EffectiveConfinement
        | Stage::LeafLimit
        | Stage::SessionLeader
        | Stage::Descriptors
        | Stage::Rlimit
        | Stage::CommandIdentity
        | Stage::Verify
        | Stage::Signals
        | Stage::Gate => SpawnFault::ConfinementUnavailable,
    }
}

/// A stage's name without its prefix, in lower case: `leaf_cgroup`.
pub(crate) fn stage_name(stage: Stage) -> String {
    stage.as_str_name().trim_start_matches("STAGE_").to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_errno_means_different_things_at_different_steps() {
        assert_eq!(classify(Stage::Resolve, libc::ENOENT), SpawnFault::CommandNotFound);
        assert_eq!(classify(Stage::Exec, libc::ENOENT), SpawnFault::BadInterpreter);
        assert_eq!(classify(Stage::Cwd, libc::ENOENT), SpawnFault::CwdGone);
        assert_eq!(classify(Stage::Resolve, libc::EACCES), SpawnFault::NotExecutable);
        assert_eq!(classify(Stage::Exec, libc::EACCES), SpawnFault::PermissionDenied);
        assert_eq!(classify(Stage::Resolve, libc::ELOOP), SpawnFault::CommandNotFound);
        assert_eq!(classify(Stage::Exec, libc::ELOOP), SpawnFault::BadInterpreter);
        assert_eq!(classify(Stage::Seccomp, libc::EACCES), SpawnFault::ConfinementUnavailable);
    }

    #[test]
    fn a_stage_is_named_in_lower_case() {
        assert_eq!(stage_name(Stage::LeafCgroup), "leaf_cgroup");
    }
}
