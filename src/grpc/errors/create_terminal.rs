//! Why no command was started: from typed errors to gRPC statuses.

use tonic::{Code, Status};

use super::{
    ResourceKind, control, denied, describe_errno, draining, error_chain, file_system, not_found, quota,
    quota_reached, spawn_status, status, unrecorded,
};
use crate::{
    proto::v1::SpawnError,
    sandbox::{
        handle::StartError,
        launch::LaunchError,
        requests::SpawnRefused,
        spawn_error::{SpawnFailure, SpawnFault, stage_name},
    },
    terminal::{ApprovalError, CreateError, SecretError},
    workspace::WatchError,
};

/// Creating a terminal.
pub fn create(error: &CreateError) -> Status {
    match error {
        CreateError::Draining => draining(),
        CreateError::SessionClosing => not_found(ResourceKind::Session),
        CreateError::Denied(denial) => denied(denial),
        CreateError::Unapproved(unapproved) => self::unapproved(unapproved),
        CreateError::Quota(reached) => quota_reached(reached),
        CreateError::Unrecorded(error) => unrecorded(error),
        CreateError::LogUnwritable(cause) => {
            let errno = cause.raw_os_error().map(|errno| ("errno", errno.to_string()));
            let metadata = [("stage", "roll".to_owned())].into_iter().chain(errno);
            spawn_status(SpawnError::StateUnwritable, Code::Unavailable, error_chain(error), metadata)
        }
        CreateError::Filesystem(cause) => file_system(cause, error_chain(error)),
        CreateError::RefusalRateExceeded => quota("refusals_written", "16 KiB/s", error.to_string()),
        CreateError::Quarantined(_) => {
            status(Code::FailedPrecondition, error.to_string(), "TERMINAL_QUARANTINED", [])
        }
        CreateError::WorkspaceUnwatched(WatchError::TooMany { name, max }) => {
            quota(name, max, error_chain(error))
        }
        CreateError::WorkspaceUnwatched(WatchError::System(_)) => {
            quota("workspace_threads", "the host's", error_chain(error))
        }
        CreateError::Sandbox(error) => sandbox(error),
        CreateError::Secret(error) => secret(error),
        CreateError::Spawn(refused) => match refused {
            SpawnRefused::Failed(failure) => spawn_failed(failure, None),
            SpawnRefused::Changed { failure, path } => spawn_failed(failure, Some(path)),
            SpawnRefused::Control(error) => control(error),
            SpawnRefused::Ring(_) => confinement("output_ring", error_chain(refused), []),
        },
    }
}

/// A secret that a command was to have: its name, and nothing of its file or its value.
fn secret(error: &SecretError) -> Status {
    let metadata = [("stage", "secret".to_owned()), ("secret", error.name.clone())].into_iter();
    let metadata = metadata.chain(error.fault.errno().map(|errno| ("errno", errno.to_string())));
    spawn_status(SpawnError::SecretUnavailable, Code::FailedPrecondition, error_chain(error), metadata)
}

fn unapproved(unapproved: &ApprovalError) -> Status {
    let (code, reason, question, id) = match unapproved {
        ApprovalError::Required(question, id) => {
            (Code::PermissionDenied, "APPROVAL_REQUIRED", question, Some(*id))
        }
        ApprovalError::Denied(question, id, _) => {
            (Code::PermissionDenied, "APPROVAL_DENIED", question, Some(*id))
        }
        ApprovalError::Expired(question, id) => {
            (Code::PermissionDenied, "APPROVAL_EXPIRED", question, Some(*id))
        }
        ApprovalError::Superseded(question, id) => {
            (Code::PermissionDenied, "APPROVAL_REQUIRED", question, Some(*id))
        }
        ApprovalError::Changed(question) => (Code::PermissionDenied, "APPROVAL_REQUIRED", question, None),
        ApprovalError::DeadlineExceeded(question, id) => {
            (Code::DeadlineExceeded, "DEADLINE", question, Some(*id))
        }
        ApprovalError::CallerDisconnected(question, id) => {
            (Code::Cancelled, "CALLER_GONE", question, Some(*id))
        }
        ApprovalError::LimitReached(full) => {
            return quota(full.name(), full.max(), full.to_string());
        }
    };
    let rule = ("rule", question.rule.clone());
    let metadata = std::iter::once(rule).chain(id.map(|id| ("approval_id", id.to_string())));
    status(code, unapproved.to_string(), reason, metadata)
}

/// A sandbox that could not be started: nothing of the command ran.
fn sandbox(error: &StartError) -> Status {
    match error {
        StartError::Launch(LaunchError::Stage { stage, index, errno, what }) => {
            let mut metadata = vec![("index", index.to_string()), ("errno", (*errno as i32).to_string())];
            if !what.is_empty() {
                metadata.push(("path", what.clone()));
            }
            confinement(&stage_name(*stage), error_chain(error), metadata)
        }
        StartError::Launch(LaunchError::NoIdMapping { path, .. }) => {
            // What mount_setattr(2) answers, and the only errno that is explained like this.
            let metadata = [("errno", libc::EINVAL.to_string()), ("path", crate::printable::path(path))];
            confinement("id_map", error_chain(error), metadata)
        }
        StartError::Launch(LaunchError::Governing(_)) => confinement("governing", error_chain(error), []),
        StartError::Launch(
            LaunchError::State { .. }
            | LaunchError::Ids(_)
            | LaunchError::Root(_)
            | LaunchError::Rootfs(_)
            | LaunchError::Cgroup(_)
            | LaunchError::Unavailable { .. }
            | LaunchError::Encode(_)
            | LaunchError::Start(_)
            | LaunchError::Send(_)
            | LaunchError::Receive(_)
            | LaunchError::NoAnswer
            | LaunchError::MalformedAnswer
            | LaunchError::Wait(_),
        ) => confinement("launch", error_chain(error), []),
        StartError::Connect(_) | StartError::TimedOut => confinement("connect", error_chain(error), []),
        StartError::RootGone(path) => {
            confinement("root", error_chain(error), [("path", crate::printable::path(path))])
        }
        StartError::Descriptors(_) => spawn_status(
            SpawnError::LimitReached,
            Code::ResourceExhausted,
            error_chain(error),
            [("stage", "launch".to_owned())],
        ),
    }
}

fn confinement(
    stage: &str,
    message: String,
    metadata: impl IntoIterator<Item = (&'static str, String)>,
) -> Status {
    let metadata = metadata.into_iter().chain([("stage", stage.to_owned())]);
    spawn_status(SpawnError::ConfinementUnavailable, Code::FailedPrecondition, message, metadata)
}

fn spawn_failed(failure: &SpawnFailure, path: Option<&String>) -> Status {
    let SpawnFailure { fault, stage, index, errno } = *failure;
    let (reason, code, what) = match fault {
        SpawnFault::CommandNotFound => {
            (SpawnError::CommandNotFound, Code::FailedPrecondition, "command not found")
        }
        SpawnFault::NotExecutable => {
            (SpawnError::NotExecutable, Code::FailedPrecondition, "the file is not executable")
        }
        SpawnFault::PermissionDenied => (
            SpawnError::PermissionDenied,
            Code::FailedPrecondition,
            "the kernel refused to execute the command",
        ),
        SpawnFault::BadInterpreter => {
            (SpawnError::BadInterpreter, Code::FailedPrecondition, "the command's interpreter cannot be had")
        }
        SpawnFault::CwdGone => {
            (SpawnError::CwdGone, Code::FailedPrecondition, "the working directory does not exist")
        }
        SpawnFault::CwdNotADirectory => (
            SpawnError::CwdNotADirectory,
            Code::FailedPrecondition,
            "the working directory is not a directory",
        ),
        SpawnFault::ArgumentListTooLong => (
            SpawnError::ArgumentListTooLong,
            Code::InvalidArgument,
            "arguments and environment are longer than exec takes",
        ),
        SpawnFault::LimitReached => (SpawnError::LimitReached, Code::ResourceExhausted, "a limit is reached"),
        SpawnFault::ConfinementUnavailable => (
            SpawnError::ConfinementUnavailable,
            Code::FailedPrecondition,
            "a protection could not be put in force, so nothing ran",
        ),
        SpawnFault::ProgramChanged => (
            SpawnError::ProgramChanged,
            Code::FailedPrecondition,
            "the file to be executed is not the one that policy judged, so nothing ran",
        ),
    };
    let stage = stage_name(stage);
    let message = format!("{what} (stage {stage}: {})", describe_errno(errno));
    let metadata = [("stage", stage), ("index", index.to_string()), ("errno", errno.to_string())];
    let path = path.map(|path| ("path", path.clone()));
    spawn_status(reason, code, message, metadata.into_iter().chain(path))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tonic_types::StatusExt;

    use super::*;
    use crate::{
        approval::{ApprovalId, ApprovalLimitReached},
        counters::Word,
        journal::{AppendError, WriteFailure, WriteStep},
        policy::{ApprovalQuestion, Denial, PolicySet},
        proto::supervisor::Stage,
        sandbox::control::ControlError,
        terminal::{CreateRefusal, QuotaKind, QuotaReached, QuotaScope, SecretFault, Unrecorded},
        wire::EncodeError,
    };

    #[test]
    fn what_others_named_is_written_out_in_values_too() {
        let named = format!("/a\u{1b}[2J\u{9b}\u{202e}\n{}", "x".repeat(10_000));
        let status = create(&CreateError::Sandbox(Arc::new(StartError::RootGone(named.into()))));
        let info = status.get_details_error_info().expect("it has details");
        let path = &info.metadata["path"];
        assert!(path.starts_with("/a\\u{1b}[2J\\u{9b}\\u{202e}\\nxxx") && path.len() <= 512, "{path}");
        assert!(!status.message().contains(crate::printable::needs_escape), "{}", status.message());
    }

    #[test]
    fn what_is_counted_is_what_the_caller_gets() {
        let question = || {
            Box::new(ApprovalQuestion {
                rule: "r".into(),
                reason: None,
                command: "c".into(),
                digest: PolicySet::compiled_in().digest(),
                generation: 1,
            })
        };
        let id = ApprovalId::generate();
        let failure = |fault| SpawnFailure { fault, stage: Stage::Exec, index: 0, errno: 1 };
        let io = || Arc::new(std::io::Error::from_raw_os_error(28));
        let unwritable = WriteFailure { step: WriteStep::Append, source: io() };
        let launch = StartError::Launch(LaunchError::NoAnswer);
        let secret = SecretError { name: "S".into(), fault: SecretFault::Nul };
        let errors = [
            CreateError::Draining,
            CreateError::SessionClosing,
            CreateError::Denied(Denial::SecretVariable("S".into())),
            ApprovalError::Required(question(), id).into(),
            ApprovalError::Superseded(question(), id).into(),
            ApprovalError::Changed(question()).into(),
            ApprovalError::Expired(question(), id).into(),
            ApprovalError::DeadlineExceeded(question(), id).into(),
            ApprovalError::CallerDisconnected(question(), id).into(),
            ApprovalError::LimitReached(ApprovalLimitReached::Gateway(1)).into(),
            QuotaReached { kind: QuotaKind::Live, scope: QuotaScope::Session, max: 1 }.into(),
            Unrecorded(AppendError::Stopped).into(),
            Unrecorded(AppendError::Unwritable(unwritable)).into(),
            Unrecorded(AppendError::TooLong { bytes: 2, limit: 1 }).into(),
            Unrecorded(AppendError::Reserved).into(),
            CreateError::Sandbox(Arc::new(launch)),
            CreateError::Sandbox(Arc::new(StartError::TimedOut)),
            CreateError::Sandbox(Arc::new(StartError::RootGone("/x".into()))),
            CreateError::Sandbox(Arc::new(StartError::Descriptors(std::io::Error::from_raw_os_error(24)))),
            secret.into(),
            SpawnRefused::Control(ControlError::Lost).into(),
            SpawnRefused::Control(ControlError::TooLarge(EncodeError::TooLong(9))).into(),
            SpawnRefused::Control(ControlError::UnexpectedMessage).into(),
            SpawnRefused::Failed(failure(SpawnFault::CommandNotFound)).into(),
            SpawnRefused::Failed(failure(SpawnFault::NotExecutable)).into(),
            SpawnRefused::Failed(failure(SpawnFault::PermissionDenied)).into(),
            SpawnRefused::Failed(failure(SpawnFault::BadInterpreter)).into(),
            SpawnRefused::Failed(failure(SpawnFault::CwdGone)).into(),
            SpawnRefused::Failed(failure(SpawnFault::CwdNotADirectory)).into(),
            SpawnRefused::Failed(failure(SpawnFault::ArgumentListTooLong)).into(),
            SpawnRefused::Failed(failure(SpawnFault::LimitReached)).into(),
            SpawnRefused::Failed(failure(SpawnFault::ConfinementUnavailable)).into(),
            SpawnRefused::Changed { failure: failure(SpawnFault::ProgramChanged), path: "/p".into() }.into(),
        ];
        for error in errors {
            let told = create(&error).get_details_error_info().expect("it has details").reason;
            assert_eq!(CreateRefusal::from(&error).word().to_uppercase(), told, "{error}");
        }
    }
}
