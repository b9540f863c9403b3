//! The one table from typed errors to gRPC statuses. Exhaustive: an error without an entry does not compile.
//!
//! Every status carries an `ErrorInfo` of the domain "provost", by which programs tell errors apart; its message is
//! for people and may change.

mod create_terminal;

use std::collections::HashMap;

pub use create_terminal::create;
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt};

use super::request::FieldError;
use crate::{
    approval::ApprovalResolveError,
    journal::AppendError,
    policy::{Denial, command::rule::Decision},
    pool::PoolError,
    printable,
    proto::v1::SpawnError,
    sandbox::control::ControlError,
    session::{DescriptorQuotaReached, OpenError},
    terminal::{
        OpenSessionError, OperationError, QuotaReached, ResolveApprovalError, TerminalReleased, Unrecorded,
        reader::OutputReadError, run::RunError,
    },
};

/// The domain of every `ErrorInfo`.
const DOMAIN: &str = "provost";

/// A status's message. It travels in a header, twice, escaped: clients take headers of 8 KiB and answer INTERNAL to more.
const MESSAGE_MAX_BYTES: usize = 1_024;
/// One of the values that a status carries for programs, and a field's name or problem.
const VALUE_MAX_BYTES: usize = 512;

/// What can be named that is not there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResourceKind {
    /// A session.
    Session,
    /// A terminal.
    Terminal,
    /// An approval.
    Approval,
}

/// Malformed, unknown, released and foreign ids have one answer.
pub fn not_found(kind: ResourceKind) -> Status {
    let (kind, reason) = match kind {
        ResourceKind::Session => ("session", "SESSION_NOT_FOUND"),
        ResourceKind::Terminal => ("terminal", "TERMINAL_NOT_FOUND"),
        ResourceKind::Approval => ("approval", "APPROVAL_NOT_FOUND"),
    };
    status(Code::NotFound, format!("no such {kind}"), reason, [])
}

/// A field that is wrong.
pub fn bad_field(error: FieldError) -> Status {
    let field = printable::bounded_line(&error.field, VALUE_MAX_BYTES);
    let problem = printable::bounded(&error.problem, VALUE_MAX_BYTES);
    let mut details = ErrorDetails::with_bad_request_violation(field.as_ref(), problem.as_ref());
    let metadata = HashMap::from([("field".to_owned(), field.clone().into_owned())]);
    details.set_error_info("BAD_FIELD", DOMAIN, metadata);
    Status::with_error_details(Code::InvalidArgument, format!("{field}: {problem}"), details)
}

/// A command that cannot be executed, as it is too long.
pub fn arguments_too_long(error: FieldError) -> Status {
    let mut details = ErrorDetails::with_bad_request_violation(&error.field, &error.problem);
    let metadata = HashMap::from([("field".to_owned(), error.field.clone())]);
    details.set_error_info("ARGUMENT_LIST_TOO_LONG", DOMAIN, metadata);
    Status::with_error_details(Code::InvalidArgument, error.to_string(), details)
}

/// The caller's deadline has passed.
pub fn deadline_passed() -> Status {
    status(Code::DeadlineExceeded, "the deadline has passed".into(), "DEADLINE", [])
}

/// Opening a session, and writing that down.
pub fn open_session(error: &OpenSessionError) -> Status {
    match error {
        OpenSessionError::Open(error) => session_error(error),
        OpenSessionError::Unrecorded(error) => unrecorded(error),
        OpenSessionError::JournalShare(reached) => quota_reached(reached),
    }
}

/// Opening a session.
pub fn session_error(error: &OpenError) -> Status {
    match error {
        OpenError::Denied(denial) => denied(denial),
        OpenError::Root(index, cause) => {
            bad_field(FieldError { field: format!("roots[{index}]"), problem: error_chain(cause) })
        }
        OpenError::RootName(index) => {
            bad_field(FieldError { field: format!("roots[{index}]"), problem: error.to_string() })
        }
        OpenError::Governing(_) => {
            bad_field(FieldError { field: "roots".into(), problem: error_chain(error) })
        }
        OpenError::NoOwnerProcess => {
            status(Code::FailedPrecondition, error.to_string(), "OWNER_PROCESS_UNKNOWN", [])
        }
        OpenError::Descriptors(DescriptorQuotaReached(cap)) => {
            quota("descriptors_per_principal", *cap, error.to_string())
        }
        OpenError::TooMany(cap) => quota("sessions_per_principal", *cap, error.to_string()),
        OpenError::Draining => draining(),
        OpenError::Filesystem(cause) => file_system(cause, error_chain(error)),
        OpenError::StateUnwritable(_) => {
            status(Code::Unavailable, error_chain(error), "STATE_UNWRITABLE", [])
        }
    }
}

/// A caller's file system does not answer, or too much of its work waits for one.
pub fn file_system(cause: &PoolError, message: String) -> Status {
    match cause {
        PoolError::TimedOut(limit) => {
            let metadata = [("limit_s", limit.as_secs().to_string())];
            status(Code::Unavailable, message, "FILE_SYSTEM_OVERDUE", metadata)
        }
        PoolError::Busy(places) => quota("file_system_requests", places, message),
        PoolError::ThreadUnavailable => status(Code::Unavailable, message, "NO_THREAD", []),
    }
}

/// Asking something of a terminal.
pub fn terminal_request(error: &OperationError) -> Status {
    match error {
        OperationError::Released(TerminalReleased) => not_found(ResourceKind::Terminal),
        OperationError::Ended => status(Code::FailedPrecondition, error.to_string(), "COMMAND_ENDED", []),
        OperationError::StdinClosed => {
            status(Code::FailedPrecondition, error.to_string(), "STDIN_CLOSED", [])
        }
        OperationError::Control(error) => control(error),
        OperationError::Errno(errno) => {
            status(Code::Internal, describe_errno(*errno), "SUPERVISOR", [("errno", errno.to_string())])
        }
    }
}

/// Reading output.
pub fn read(error: &OutputReadError) -> Status {
    match error {
        OutputReadError::NotSplit => {
            bad_field(FieldError { field: "stream".into(), problem: error.to_string() })
        }
        OutputReadError::Ring(errno) => status(
            Code::Internal,
            error_chain(error),
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
        RunError::Release(error) => terminal_request(error),
    }
}

/// Answering an approval.
pub fn resolve_approval(error: &ResolveApprovalError) -> Status {
    match error {
        ResolveApprovalError::Unrecorded(error) => unrecorded(error),
        ResolveApprovalError::Resolve(ApprovalResolveError::NotFound) => not_found(ResourceKind::Approval),
        ResolveApprovalError::Resolve(ApprovalResolveError::NotAnApprover) => {
            status(Code::PermissionDenied, error.to_string(), "NOT_AN_APPROVER", [])
        }
        ResolveApprovalError::Resolve(ApprovalResolveError::NotPending(state)) => status(
            Code::FailedPrecondition,
            error.to_string(),
            "APPROVAL_NOT_PENDING",
            [("state", state.to_string())],
        ),
    }
}

fn denied(denial: &Denial) -> Status {
    let reason = match denial.decision() {
        Decision::Ask => "APPROVAL_REQUIRED",
        Decision::Deny | Decision::Allow => "POLICY_DENIED",
    };
    status(Code::PermissionDenied, denial.to_string(), reason, [("rule", denial.rule())])
}

/// The journal did not take a record: nothing was started.
pub fn unrecorded(error: &Unrecorded) -> Status {
    let message = error_chain(error);
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

/// The caller holds as much as one user may, before its request was looked at.
pub fn share_reached(limit: &str, cap: u64, message: String) -> Status {
    quota(limit, cap, message)
}

/// The caller reports more than its share of the journal takes.
pub fn reports_too_often() -> Status {
    quota(
        "refusals_written",
        "16 KiB/s",
        "reports of this user come more often than can be written down".into(),
    )
}

/// A request took longer to arrive than it may.
pub fn request_too_slow(limit_s: u64) -> Status {
    let message = format!("the request has not arrived whole within {limit_s} s");
    status(Code::DeadlineExceeded, message, "REQUEST_TOO_SLOW", [("limit_s", limit_s.to_string())])
}

/// Something of the gateway's own has failed.
pub fn internal(what: &str) -> Status {
    status(Code::Internal, what.to_owned(), "INTERNAL", [])
}

fn quota_reached(reached: &QuotaReached) -> Status {
    quota(reached.name(), reached.max, reached.to_string())
}

fn quota(name: &str, cap: impl ToString, message: String) -> Status {
    let message = printable::bounded(&message, MESSAGE_MAX_BYTES).into_owned();
    let mut details = ErrorDetails::with_quota_failure_violation(name, &message);
    let metadata =
        HashMap::from([("limit".to_owned(), name.to_owned()), ("cap".to_owned(), cap.to_string())]);
    details.set_error_info("QUOTA", DOMAIN, metadata);
    Status::with_error_details(Code::ResourceExhausted, message, details)
}

fn control(error: &ControlError) -> Status {
    match error {
        ControlError::Lost => spawn_status(SpawnError::SandboxLost, Code::Aborted, error.to_string(), []),
        ControlError::TooLarge(_) => {
            spawn_status(SpawnError::ArgumentListTooLong, Code::InvalidArgument, error_chain(error), [])
        }
        ControlError::TimedOut => status(Code::Unavailable, error.to_string(), "SUPERVISOR", []),
        ControlError::UnexpectedMessage => status(Code::Internal, error.to_string(), "SUPERVISOR", []),
    }
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
    let bounded = |value: String| printable::bounded_line(&value, VALUE_MAX_BYTES).into_owned();
    let metadata: HashMap<String, String> =
        metadata.into_iter().map(|(name, value)| (name.to_owned(), bounded(value))).collect();
    let message = printable::bounded(&message, MESSAGE_MAX_BYTES).into_owned();
    Status::with_error_details(code, message, ErrorDetails::with_error_info(reason, DOMAIN, metadata))
}

fn describe_errno(errno: i32) -> String {
    let known = nix::errno::Errno::from_raw(errno);
    format!("{}, errno {errno}", known.desc())
}

/// An error with what caused it, on one line.
fn error_chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        text.push_str(": ");
        text.push_str(&inner.to_string());
        cause = inner.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_in_a_status_is_longer_than_a_header_may_be() {
        let status = status(
            Code::Internal,
            "é".repeat(5_000),
            "LONG",
            [("long", "é".repeat(5_000)), ("exact", "e".repeat(VALUE_MAX_BYTES))],
        );
        assert!(status.message().len() <= MESSAGE_MAX_BYTES, "{}", status.message().len());
        let metadata = status.get_error_details().error_info().unwrap().metadata.clone();
        assert!(metadata["long"].starts_with("é") && metadata["long"].len() <= VALUE_MAX_BYTES);
        assert_eq!(metadata["exact"].len(), VALUE_MAX_BYTES);
    }

    #[test]
    fn an_error_is_reported_with_all_that_caused_it() {
        let cause = std::io::Error::from_raw_os_error(libc::ENOSPC);
        let error = crate::session::OpenError::StateUnwritable(cause);
        assert_eq!(error_chain(&error), "the session cannot be kept: No space left on device (os error 28)");
    }
}
