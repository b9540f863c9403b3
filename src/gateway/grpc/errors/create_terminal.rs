//! The statuses of a command that was not started.

use tonic::Status;

use super::{
    ResourceKind, control, denied, describe_errno, draining, error_chain, file_system, not_found, quota,
    quota_reached, status, unrecorded,
};
use crate::{
    printable,
    reason::Reason,
    sandbox::{
        control::{
            requests::SpawnRefused,
            spawn_error::{SpawnFailure, SpawnFault, stage_name},
            start::StartError,
        },
        launch::LaunchError,
    },
    terminal::{ApprovalError, CreateError, SecretError},
    workspace::WatchError,
};

/// Creating a terminal.
pub(crate) fn create(error: &CreateError) -> Status {
    match error {
        CreateError::Draining => draining(),
        CreateError::SessionClosing => not_found(ResourceKind::Session),
        CreateError::Denied(denial) => denied(denial),
        CreateError::Unapproved(unapproved) => self::unapproved(unapproved),
        CreateError::Quota(reached) => quota_reached(reached),
        CreateError::Unrecorded(error) => unrecorded(error),
        CreateError::LogUnwritable(cause) => {
            let errno = cause.raw_os_error().map(|errno| ("errno", errno.to_string()));
            let metadata = [("stage", "terminal_log".to_owned())].into_iter().chain(errno);
            status(error, error_chain(error), metadata)
        }
        CreateError::Filesystem(cause) => file_system(cause, error_chain(error)),
        CreateError::RefusalRateExceeded => quota("refusals_written", "16 KiB/s", error.to_string()),
        CreateError::Quarantined(_) => status(error, error.to_string(), []),
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
            SpawnRefused::Ring(_) => {
                status(refused, error_chain(refused), [("stage", "output_ring".to_owned())])
            }
            SpawnRefused::NoPtys => status(refused, error_chain(refused), [("stage", "pty".to_owned())]),
            SpawnRefused::NoUmask => status(refused, error_chain(refused), [("stage", "umask".to_owned())]),
            SpawnRefused::Gate(_) => status(refused, error_chain(refused), [("stage", "gate".to_owned())]),
        },
    }
}

/// A secret that cannot be read. The caller gets its name, and nothing of its file or its value.
fn secret(error: &SecretError) -> Status {
    let metadata = [("stage", "secret".to_owned()), ("secret", error.name.clone())].into_iter();
    let metadata = metadata.chain(error.fault.errno().map(|errno| ("errno", errno.to_string())));
    status(Reason::SecretUnavailable, error_chain(error), metadata)
}

fn unapproved(unapproved: &ApprovalError) -> Status {
    let (question, id) = match unapproved {
        ApprovalError::Required(question, id)
        | ApprovalError::Denied(question, id, _)
        | ApprovalError::Expired(question, id)
        | ApprovalError::Superseded(question, id)
        | ApprovalError::DeadlineExceeded(question, id)
        | ApprovalError::CallerDisconnected(question, id) => (question, Some(*id)),
        ApprovalError::Changed(question) => (question, None),
        ApprovalError::LimitReached(reached) => {
            return quota(reached.name(), reached.max(), reached.to_string());
        }
    };
    let rule = ("rule", question.rule.clone());
    // Nobody can answer that question any more.
    let state =
        matches!(unapproved, ApprovalError::Superseded(..)).then(|| ("state", "superseded".to_owned()));
    let metadata = std::iter::once(rule).chain(id.map(|id| ("approval_id", id.to_string()))).chain(state);
    status(unapproved, unapproved.to_string(), metadata)
}

/// A sandbox that could not be started: nothing of the command ran.
fn sandbox(error: &StartError) -> Status {
    let mut metadata = Vec::new();
    let stage = match error {
        StartError::Launch(LaunchError::Stage { stage, index, errno, what }) => {
            metadata.extend([("index", index.to_string()), ("errno", (*errno as i32).to_string())]);
            metadata.extend((!what.is_empty()).then(|| ("path", what.clone())));
            stage_name(*stage)
        }
        StartError::Launch(LaunchError::NoIdMapping { path, .. }) => {
            // mount_setattr(2) answers EINVAL, and that is the only errno with this explanation.
            metadata.extend([("errno", libc::EINVAL.to_string()), ("path", printable::path(path))]);
            "id_map".to_owned()
        }
        StartError::Launch(LaunchError::SessionFiles { name }) => {
            metadata.push(("path", name.clone()));
            "mount".to_owned()
        }
        StartError::Launch(LaunchError::Governing(_)) => "governing".to_owned(),
        StartError::Launch(
            LaunchError::State { .. }
            | LaunchError::Ids(_)
            | LaunchError::Root(_)
            | LaunchError::Rootfs(_)
            | LaunchError::Cgroup(_)
            | LaunchError::Unavailable { .. }
            | LaunchError::Encode(_)
            | LaunchError::Random(_)
            | LaunchError::Program(_)
            | LaunchError::Start(_)
            | LaunchError::Send(_)
            | LaunchError::Receive(_)
            | LaunchError::ForeignRoot { .. }
            | LaunchError::RootUnmapped
            | LaunchError::MaskedProc
            | LaunchError::NoAnswer
            | LaunchError::MalformedAnswer
            | LaunchError::SourceGone { .. }
            | LaunchError::Wait(_),
        )
        | StartError::Descriptors(_) => "launch".to_owned(),
        StartError::Connect(_) => "connect".to_owned(),
        StartError::Gate(_) => "gate".to_owned(),
        StartError::Net(_) => "net".to_owned(),
        StartError::KeptCaches(error) => {
            metadata.extend(error.errno().map(|errno| ("errno", (errno as i32).to_string())));
            "kept_caches".to_owned()
        }
        StartError::KeptCachesWait(_) => "kept_caches".to_owned(),
        StartError::RootGone(path) => {
            metadata.push(("path", printable::path(path)));
            "root".to_owned()
        }
    };
    metadata.push(("stage", stage));
    status(error, error_chain(error), metadata)
}

fn spawn_failed(failure: &SpawnFailure, path: Option<&String>) -> Status {
    let SpawnFailure { fault, stage, index, errno } = *failure;
    let what = match fault {
        SpawnFault::CommandNotFound => "command not found",
        SpawnFault::NotExecutable => "the file is not executable",
        SpawnFault::PermissionDenied => "the kernel refused to execute the command",
        SpawnFault::BadInterpreter => "the command's interpreter cannot be executed",
        SpawnFault::CwdGone => "the working directory does not exist",
        SpawnFault::CwdNotADirectory => "the working directory is not a directory",
        SpawnFault::ArgumentListTooLong => "arguments and environment are longer than exec takes",
        SpawnFault::LimitReached => "a limit is reached",
        SpawnFault::ConfinementUnavailable => "a protection could not be put in force, so nothing ran",
        SpawnFault::ProgramChanged => {
            "the file to be executed is not the one that policy judged, so nothing ran"
        }
    };
    let stage = stage_name(stage);
    let message = format!("{what} (stage {stage}: {})", describe_errno(errno));
    let metadata = [("stage", stage), ("index", index.to_string()), ("errno", errno.to_string())];
    status(failure, message, metadata.into_iter().chain(path.map(|path| ("path", path.clone()))))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tonic_types::StatusExt;

    use super::*;
    use crate::{
        approval::{ApprovalId, ApprovalLimitReached},
        journal::{AppendError, WriteFailure, WriteStep},
        link::{LinkError, Peer},
        policy::{ApprovalQuestion, Denial, PolicySet},
        proto::supervisor::Stage,
        terminal::{QuotaReached, Unrecorded, quotas::LimitName, secrets::command_secrets::SecretFault},
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
                others: Vec::new(),
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
            QuotaReached { limit: LimitName::LiveOfSession, max: 1, within: None }.into(),
            Unrecorded(AppendError::Stopped).into(),
            Unrecorded(AppendError::Unwritable(unwritable)).into(),
            Unrecorded(AppendError::TooLong { bytes: 2, limit: 1 }).into(),
            Unrecorded(AppendError::Reserved).into(),
            CreateError::Sandbox(Arc::new(launch)),
            CreateError::Sandbox(Arc::new(StartError::Connect(LinkError::TimedOut(Peer::Supervisor)))),
            CreateError::Sandbox(Arc::new(StartError::RootGone("/x".into()))),
            CreateError::Sandbox(Arc::new(StartError::Descriptors(std::io::Error::from_raw_os_error(24)))),
            secret.into(),
            SpawnRefused::Control(LinkError::Lost(Peer::Supervisor)).into(),
            SpawnRefused::Control(LinkError::TooLong(Peer::Supervisor, "a request", EncodeError::TooLong(9)))
                .into(),
            SpawnRefused::Control(LinkError::UnexpectedMessage(Peer::Supervisor)).into(),
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
            let reason = create(&error).get_details_error_info().expect("it has details").reason;
            assert_eq!(Reason::from(&error).code(), reason, "{error}");
        }
    }
}
