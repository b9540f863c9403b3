//! The one table from typed errors to gRPC statuses. Exhaustive: an error without an entry does not compile.
//!
//! Every status carries an `ErrorInfo` of the domain "provost", by which programs tell errors apart; its message is
//! for people and may change.

use std::collections::HashMap;

use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt};

use super::fields::FieldError;
use crate::{
    approval::ResolveError,
    journal::AppendError,
    policy::Denial,
    proto::v1::SpawnError,
    sandbox::{
        control::ControlError,
        handle::StartError,
        launch::LaunchError,
        requests::SpawnRefused,
        spawn_error::{SpawnFailure, SpawnFault, stage_name},
    },
    session::OpenError,
    terminal::{
        AnswerError, AskError, CreateError, Gone, QuotaReached, SecretError, SecretFault, Unapproved,
        Unrecorded, opening::OpeningError, reader::ReadError, run::RunError,
    },
};

/// The domain of every `ErrorInfo`.
const DOMAIN: &str = "provost";

/// What can be named that is not there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Missing {
    /// A session.
    Session,
    /// A terminal.
    Terminal,
    /// An approval.
    Approval,
}

/// Malformed, unknown, released and foreign ids have one answer.
pub fn not_found(missing: Missing) -> Status {
    let (kind, reason) = match missing {
        Missing::Session => ("session", "SESSION_NOT_FOUND"),
        Missing::Terminal => ("terminal", "TERMINAL_NOT_FOUND"),
        Missing::Approval => ("approval", "APPROVAL_NOT_FOUND"),
    };
    status(Code::NotFound, format!("no such {kind}"), reason, [])
}

/// A field that is wrong.
pub fn bad_field(error: FieldError) -> Status {
    let mut details = ErrorDetails::with_bad_request_violation(&error.field, &error.problem);
    let metadata = HashMap::from([("field".to_owned(), error.field.clone())]);
    details.set_error_info("BAD_FIELD", DOMAIN, metadata);
    Status::with_error_details(Code::InvalidArgument, error.to_string(), details)
}

/// The caller's deadline has passed.
pub fn deadline_passed() -> Status {
    status(Code::DeadlineExceeded, "the deadline has passed".into(), "DEADLINE", [])
}

/// Opening a session, and writing that down.
pub fn opening(error: &OpeningError) -> Status {
    match error {
        OpeningError::Open(error) => open(error),
        OpeningError::Unrecorded(error) => unrecorded(error),
    }
}

/// Opening a session.
pub fn open(error: &OpenError) -> Status {
    match error {
        OpenError::Denied(denial) => denied(denial),
        OpenError::Root(index, cause) => {
            bad_field(FieldError { field: format!("roots[{index}]"), problem: with_causes(cause) })
        }
        OpenError::RootName(index) => {
            bad_field(FieldError { field: format!("roots[{index}]"), problem: error.to_string() })
        }
        OpenError::NoOwnerProcess => {
            status(Code::FailedPrecondition, error.to_string(), "OWNER_PROCESS_UNKNOWN", [])
        }
        OpenError::TooMany(cap) => quota("sessions_per_principal", *cap, error.to_string()),
        OpenError::Draining => draining(),
        OpenError::Keep(_) => status(Code::Unavailable, with_causes(error), "STATE_UNWRITABLE", []),
    }
}

/// Creating a terminal.
pub fn create(error: &CreateError) -> Status {
    match error {
        CreateError::Draining => draining(),
        CreateError::SessionClosing => not_found(Missing::Session),
        CreateError::Denied(denial) => denied(denial),
        CreateError::Unapproved(unapproved) => self::unapproved(unapproved),
        CreateError::Quota(reached) => quota_reached(reached),
        CreateError::Unrecorded(error) => unrecorded(error),
        CreateError::Keep(_) => status(Code::Unavailable, with_causes(error), "STATE_UNWRITABLE", []),
        CreateError::Withheld(_) => {
            status(Code::FailedPrecondition, error.to_string(), "TERMINAL_QUARANTINED", [])
        }
        CreateError::Sandbox(error) => sandbox(error),
        CreateError::Secret(error) => secret(error),
        CreateError::Spawn(refused) => match refused {
            SpawnRefused::Failed(failure) => spawn_failed(failure, None),
            SpawnRefused::Changed { failure, path } => spawn_failed(failure, Some(path)),
            SpawnRefused::Control(error) => control(error),
            SpawnRefused::Ring(_) => confinement("output_ring", with_causes(refused), []),
        },
    }
}

/// A secret that a command was to have: its name, and nothing of its file or its value.
fn secret(error: &SecretError) -> Status {
    let errno = match &error.fault {
        SecretFault::Open(cause) | SecretFault::Read(cause) => cause.raw_os_error(),
        SecretFault::NotAFile
        | SecretFault::OpenToAll(_)
        | SecretFault::Nul
        | SecretFault::TooMuch(_)
        | SecretFault::Mask(_) => None,
    };
    let metadata = [("stage", "secret".to_owned()), ("secret", error.name.clone())].into_iter();
    let metadata = metadata.chain(errno.map(|errno| ("errno", errno.to_string())));
    spawn_status(SpawnError::SecretUnavailable, Code::FailedPrecondition, with_causes(error), metadata)
}

/// Asking something of a terminal.
pub fn ask(error: &AskError) -> Status {
    match error {
        AskError::Gone(Gone) => not_found(Missing::Terminal),
        AskError::Ended => status(Code::FailedPrecondition, error.to_string(), "COMMAND_ENDED", []),
        AskError::StdinClosed => status(Code::FailedPrecondition, error.to_string(), "STDIN_CLOSED", []),
        AskError::Control(error) => control(error),
        AskError::Errno(errno) => {
            status(Code::Internal, describe_errno(*errno), "SUPERVISOR", [("errno", errno.to_string())])
        }
    }
}

/// Reading output.
pub fn read(error: &ReadError) -> Status {
    match error {
        ReadError::NotSplit => bad_field(FieldError { field: "stream".into(), problem: error.to_string() }),
        ReadError::Ring(errno) => status(
            Code::Internal,
            with_causes(error),
            "OUTPUT_RING",
            [("errno", (*errno as i32).to_string())],
        ),
    }
}

/// A run that broke off.
pub fn run(error: &RunError) -> Status {
    match error {
        RunError::Read(error) => read(error),
        RunError::Lost { from, to } => status(
            Code::DataLoss,
            error.to_string(),
            "OUTPUT_LOST",
            [("from", from.to_string()), ("to", to.to_string())],
        ),
        RunError::Release(error) => ask(error),
    }
}

/// Answering an approval.
pub fn answer(error: &AnswerError) -> Status {
    match error {
        AnswerError::Unrecorded(error) => unrecorded(error),
        AnswerError::Resolve(ResolveError::NotFound) => not_found(Missing::Approval),
        AnswerError::Resolve(ResolveError::NotAnApprover) => {
            status(Code::PermissionDenied, error.to_string(), "NOT_AN_APPROVER", [])
        }
        AnswerError::Resolve(ResolveError::Over(state)) => status(
            Code::FailedPrecondition,
            error.to_string(),
            "APPROVAL_NOT_PENDING",
            [("state", state.to_string())],
        ),
    }
}

fn unapproved(unapproved: &Unapproved) -> Status {
    let (code, reason, question, id) = match unapproved {
        Unapproved::Required(question, id) => {
            (Code::PermissionDenied, "APPROVAL_REQUIRED", question, Some(*id))
        }
        Unapproved::Denied(question, id, _) => {
            (Code::PermissionDenied, "APPROVAL_DENIED", question, Some(*id))
        }
        Unapproved::Expired(question, id) => {
            (Code::PermissionDenied, "APPROVAL_EXPIRED", question, Some(*id))
        }
        Unapproved::Superseded(question, id) => {
            (Code::PermissionDenied, "APPROVAL_REQUIRED", question, Some(*id))
        }
        Unapproved::Changed(question) => (Code::PermissionDenied, "APPROVAL_REQUIRED", question, None),
        Unapproved::DeadlinePassed(question, id) => (Code::DeadlineExceeded, "DEADLINE", question, Some(*id)),
        Unapproved::CallerGone(question, id) => (Code::Cancelled, "CALLER_GONE", question, Some(*id)),
        Unapproved::Full(full) => {
            return quota(full.name(), full.most(), full.to_string());
        }
    };
    let rule = ("rule", question.rule.clone());
    let metadata = std::iter::once(rule).chain(id.map(|id| ("approval_id", id.to_string())));
    status(code, unapproved.to_string(), reason, metadata)
}

fn denied(denial: &Denial) -> Status {
    let reason = match denial {
        Denial::NeedsApproval(_) => "APPROVAL_REQUIRED",
        Denial::Profile(_)
        | Denial::Network { .. }
        | Denial::EnvironmentDenied { .. }
        | Denial::EnvironmentNotAllowed { .. }
        | Denial::Secret(_)
        | Denial::Command { .. }
        | Denial::Variable { .. }
        | Denial::Conflict(..)
        | Denial::Profiles(..)
        | Denial::Cwd(_) => "POLICY_DENIED",
    };
    status(Code::PermissionDenied, denial.to_string(), reason, [("rule", denial.rule())])
}

/// The journal did not take a record: nothing was started.
pub fn unrecorded(error: &Unrecorded) -> Status {
    let message = with_causes(error);
    match &error.0 {
        AppendError::Unwritable(failure) => {
            let errno = failure.source.raw_os_error().unwrap_or_default();
            let metadata = [("step", failure.step.name().to_owned()), ("errno", errno.to_string())];
            status(Code::Unavailable, message, "JOURNAL_UNWRITABLE", metadata)
        }
        AppendError::Stopped => {
            status(Code::Unavailable, message, "JOURNAL_UNWRITABLE", [("step", "closed".to_owned())])
        }
        AppendError::TooLong { bytes, limit } => {
            let metadata = [("bytes", bytes.to_string()), ("limit", limit.to_string())];
            status(Code::InvalidArgument, message, "JOURNAL_RECORD_TOO_LONG", metadata)
        }
        AppendError::Reserved | AppendError::Unencodable(_) => {
            status(Code::Internal, message, "JOURNAL_RECORD", [])
        }
    }
}

/// The gateway is going down.
pub fn draining() -> Status {
    status(Code::Unavailable, "the gateway is draining".into(), "DRAINING", [])
}

/// Only root and the gateway's own user may do this.
pub fn not_an_administrator() -> Status {
    let message = "only root and the gateway's own user may do this";
    status(Code::PermissionDenied, message.into(), "NOT_AN_ADMINISTRATOR", [])
}

/// The configuration has no journal.
pub fn no_journal() -> Status {
    let message = "this gateway keeps no journal";
    status(Code::FailedPrecondition, message.into(), "NO_JOURNAL", [])
}

/// The journal's files cannot be read.
pub fn journal_unreadable(error: &std::io::Error) -> Status {
    let errno = error.raw_os_error().unwrap_or_default();
    let message = format!("the journal cannot be read: {error}");
    status(Code::Internal, message, "JOURNAL_UNREADABLE", [("errno", errno.to_string())])
}

/// As many do this at once as may.
pub fn too_many(limit: &str, cap: usize) -> Status {
    quota(limit, cap, format!("{cap} {limit} are under way, the most there may be"))
}

/// Something of the gateway's own has failed.
pub fn internal(what: &str) -> Status {
    status(Code::Internal, what.to_owned(), "INTERNAL", [])
}

fn quota_reached(reached: &QuotaReached) -> Status {
    quota(reached.name(), reached.cap, reached.to_string())
}

fn quota(name: &str, cap: impl ToString, message: String) -> Status {
    let mut details = ErrorDetails::with_quota_failure_violation(name, &message);
    let metadata =
        HashMap::from([("limit".to_owned(), name.to_owned()), ("cap".to_owned(), cap.to_string())]);
    details.set_error_info("QUOTA", DOMAIN, metadata);
    Status::with_error_details(Code::ResourceExhausted, message, details)
}

/// A sandbox that could not be started: nothing of the command ran.
fn sandbox(error: &StartError) -> Status {
    match error {
        StartError::Launch(LaunchError::Stage { stage, index, errno, what }) => {
            let mut metadata = vec![("index", index.to_string()), ("errno", (*errno as i32).to_string())];
            if !what.is_empty() {
                metadata.push(("path", what.clone()));
            }
            confinement(&stage_name(*stage), with_causes(error), metadata)
        }
        StartError::Launch(LaunchError::NoIdMapping { path, .. }) => {
            // What mount_setattr(2) answers, and the only errno that is explained like this.
            let metadata = [("errno", libc::EINVAL.to_string()), ("path", path.display().to_string())];
            confinement("id_map", with_causes(error), metadata)
        }
        StartError::Launch(
            LaunchError::State { .. }
            | LaunchError::Ids(_)
            | LaunchError::View(_)
            | LaunchError::Cgroup(_)
            | LaunchError::Unavailable { .. }
            | LaunchError::Encode(_)
            | LaunchError::Start(_)
            | LaunchError::Send(_)
            | LaunchError::Receive(_)
            | LaunchError::Silent
            | LaunchError::Answer
            | LaunchError::Wait(_),
        ) => confinement("launch", with_causes(error), []),
        StartError::Connect(_) | StartError::Silent => confinement("connect", with_causes(error), []),
        StartError::RootGone(path) => {
            confinement("root", with_causes(error), [("path", path.display().to_string())])
        }
        StartError::Descriptors(_) => spawn_status(
            SpawnError::LimitReached,
            Code::ResourceExhausted,
            with_causes(error),
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

fn control(error: &ControlError) -> Status {
    match error {
        ControlError::Lost => spawn_status(SpawnError::SandboxLost, Code::Aborted, error.to_string(), []),
        ControlError::TooLarge(_) => {
            spawn_status(SpawnError::ArgumentListTooLong, Code::InvalidArgument, with_causes(error), [])
        }
        ControlError::Nonsense => status(Code::Internal, error.to_string(), "SUPERVISOR", []),
    }
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
            (SpawnError::CwdGone, Code::FailedPrecondition, "the working folder does not exist")
        }
        SpawnFault::CwdNotAFolder => {
            (SpawnError::CwdNotAFolder, Code::FailedPrecondition, "the working folder is not a folder")
        }
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

fn spawn_status(
    reason: SpawnError,
    code: Code,
    message: String,
    metadata: impl IntoIterator<Item = (&'static str, String)>,
) -> Status {
    status(code, message, reason.as_str_name().trim_start_matches("SPAWN_ERROR_"), metadata)
}

fn status(
    code: Code,
    message: String,
    reason: &str,
    metadata: impl IntoIterator<Item = (&'static str, String)>,
) -> Status {
    let metadata: HashMap<String, String> =
        metadata.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    Status::with_error_details(code, message, ErrorDetails::with_error_info(reason, DOMAIN, metadata))
}

fn describe_errno(errno: i32) -> String {
    let known = nix::errno::Errno::from_raw(errno);
    format!("{}, errno {errno}", known.desc())
}

/// An error with what caused it, on one line.
fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        text.push_str(": ");
        text.push_str(&inner.to_string());
        cause = inner.source();
    }
    text
}
