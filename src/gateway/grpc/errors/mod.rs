//! Makes gRPC statuses from typed errors.
//!
//! The status and the `reason` of the `ErrorInfo` come from the error's [`Reason`]; this module adds the message, which
//! is for people, and the metadata, which is for programs. Both are bounded, because they travel in a header.

mod create_terminal;
mod operation;

use std::collections::HashMap;

pub(crate) use create_terminal::create;
pub(crate) use operation::{input_write, terminal_request};
use tonic::Status;
use tonic_types::{ErrorDetails, StatusExt};

use super::request::FieldError;
use crate::{
    approval::ApprovalResolveError,
    counters::Label as _,
    display::{input::InputError, mouse::MouseError},
    journal::AppendError,
    link::LinkError,
    policy::Denial,
    pool::PoolError,
    printable,
    reason::Reason,
    session::{DescriptorQuotaReached, OpenError},
    terminal::{
        FollowLineError, ForwardError, MAX_QUEUED_LINES, OpenSessionError, QuotaReached,
        ResolveApprovalError, RunLineError, ScreenAccessError, Unrecorded, output::OutputReadError,
        run::RunError,
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
pub(crate) enum ResourceKind {
    /// A session.
    Session,
    /// A terminal.
    Terminal,
    /// An approval.
    Approval,
}

/// Malformed, unknown, released and foreign ids have one answer.
pub(crate) fn not_found(kind: ResourceKind) -> Status {
    let (resource, reason) = match kind {
        ResourceKind::Session => ("session", Reason::SessionNotFound),
        ResourceKind::Terminal => ("terminal", Reason::TerminalNotFound),
        ResourceKind::Approval => ("approval", Reason::ApprovalNotFound),
    };
    status(reason, format!("no such {resource}"), [])
}

/// A field that is wrong.
pub(crate) fn bad_field(error: FieldError) -> Status {
    field_status(Reason::BadField, error)
}

/// A command that is longer than exec takes.
pub(crate) fn arguments_too_long(error: FieldError) -> Status {
    field_status(Reason::ArgumentListTooLong, error)
}

fn field_status(reason: Reason, error: FieldError) -> Status {
    let field = printable::bounded_line(&error.field, VALUE_MAX_BYTES);
    let problem = printable::bounded(&error.problem, VALUE_MAX_BYTES);
    let mut details = ErrorDetails::with_bad_request_violation(field.as_ref(), problem.as_ref());
    let metadata = HashMap::from([("field".to_owned(), field.clone().into_owned())]);
    details.set_error_info(reason.code(), DOMAIN, metadata);
    Status::with_error_details(reason.status(), format!("{field}: {problem}"), details)
}

/// The caller's deadline has passed.
pub(crate) fn deadline_passed() -> Status {
    status(Reason::Deadline, "the deadline has passed".into(), [])
}

/// Opening a session, and writing that down.
pub(crate) fn open_session(error: &OpenSessionError) -> Status {
    match error {
        OpenSessionError::Open(error) => session_error(error),
        OpenSessionError::Unrecorded(error) => unrecorded(error),
        OpenSessionError::JournalShare(reached) => quota_reached(reached),
    }
}

/// Opening a session.
pub(crate) fn session_error(error: &OpenError) -> Status {
    match error {
        OpenError::Denied(denial) => denied(denial),
        OpenError::Root(field, cause) => {
            bad_field(FieldError { field: field.clone(), problem: error_chain(cause) })
        }
        OpenError::RootName(field) => {
            bad_field(FieldError { field: field.clone(), problem: error.to_string() })
        }
        OpenError::OtherSession { field } => {
            bad_field(FieldError { field: (*field).into(), problem: error.to_string() })
        }
        OpenError::RootReplaced(_) => {
            bad_field(FieldError { field: "roots".into(), problem: error.to_string() })
        }
        OpenError::Governing(_) => {
            bad_field(FieldError { field: "roots".into(), problem: error_chain(error) })
        }
        OpenError::ForeignOwnerProcess => {
            bad_field(FieldError { field: "owner_process".into(), problem: error.to_string() })
        }
        OpenError::NoOwnerProcess => status(error, error.to_string(), []),
        OpenError::Descriptors(DescriptorQuotaReached(cap)) => {
            quota("descriptors_per_principal", *cap, error.to_string())
        }
        OpenError::TooMany(cap) => quota("sessions_per_principal", *cap, error.to_string()),
        OpenError::Draining => draining(),
        OpenError::Filesystem(cause) => file_system(cause, error_chain(error)),
        OpenError::StateUnwritable(_) => status(error, error_chain(error), []),
    }
}

/// A caller's file system does not answer, or too much of its work waits for one.
pub(crate) fn file_system(cause: &PoolError, message: String) -> Status {
    match cause {
        PoolError::TimedOut(limit) => status(cause, message, [("limit_s", limit.as_secs().to_string())]),
        PoolError::Busy(places) => quota("file_system_requests", places, message),
        PoolError::ThreadUnavailable => status(cause, message, []),
    }
}

/// Forwarding a port.
pub(crate) fn forward(error: &ForwardError) -> Status {
    match error {
        ForwardError::Terminal(error) => terminal_request(error),
        ForwardError::Unrecorded(_)
        | ForwardError::TooMany(_)
        | ForwardError::Unavailable
        | ForwardError::Closed { .. } => status(error, error_chain(error), []),
    }
}

/// Running a line in a kept shell.
pub(crate) fn run_line(error: &RunLineError) -> Status {
    match error {
        RunLineError::Operation(error) => terminal_request(error),
        RunLineError::Refused(error) => create(error),
        RunLineError::QueueFull => quota("queued_lines", MAX_QUEUED_LINES, error.to_string()),
        RunLineError::NoGate | RunLineError::Busy | RunLineError::HasSecrets | RunLineError::EarlierBuild => {
            status(error, error.to_string(), [])
        }
        RunLineError::LineEditing => {
            bad_field(FieldError { field: "line".into(), problem: error.to_string() })
        }
        RunLineError::OtherTerminal(effects) => {
            status(error, error.to_string(), [("effects", effects.join(", "))])
        }
    }
}

/// Following a line that runs.
pub(crate) fn follow_line(error: &FollowLineError) -> Status {
    match error {
        FollowLineError::Read(error) => read(error),
        FollowLineError::Abandoned => draining(),
    }
}

/// Showing a screen.
pub(crate) fn screen(error: &ScreenAccessError) -> Status {
    status(error, error_chain(error), [])
}

/// Input that the program has not asked for, or that no terminal has.
pub(crate) fn input(field: String, error: &InputError) -> Status {
    match error {
        InputError::Key(_) | InputError::Mouse(MouseError::NoEvent | MouseError::Position) => {
            bad_field(FieldError { field, problem: error.to_string() })
        }
        InputError::Mouse(MouseError::NotWanted) | InputError::FocusNotWanted => {
            status(Reason::InputNotWanted, format!("{field}: {error}"), [])
        }
    }
}

/// Reading output.
pub(crate) fn read(error: &OutputReadError) -> Status {
    match error {
        OutputReadError::NotSplit => {
            bad_field(FieldError { field: "stream".into(), problem: error.to_string() })
        }
        OutputReadError::Ring(errno) => {
            status(error, error_chain(error), [("errno", (*errno as i32).to_string())])
        }
    }
}

/// A run that broke off.
pub(crate) fn run(error: &RunError) -> Status {
    match error {
        RunError::Read(error) => read(error),
        RunError::Lost { from, to } => {
            status(error, error.to_string(), [("from", from.to_string()), ("to", to.to_string())])
        }
        RunError::Release(error) => terminal_request(error),
    }
}

/// Answering an approval.
pub(crate) fn resolve_approval(error: &ResolveApprovalError) -> Status {
    match error {
        ResolveApprovalError::Unrecorded(error) => unrecorded(error),
        ResolveApprovalError::Resolve(ApprovalResolveError::Unknown) => not_found(ResourceKind::Approval),
        ResolveApprovalError::Resolve(ApprovalResolveError::NotAnApprover) => {
            status(error, error.to_string(), [])
        }
        ResolveApprovalError::Resolve(ApprovalResolveError::Over(state)) => {
            status(error, error.to_string(), [("state", state.to_string())])
        }
    }
}

fn denied(denial: &Denial) -> Status {
    status(denial, denial.to_string(), [("rule", denial.rule())])
}

/// The journal did not take a record: nothing was started.
pub(crate) fn unrecorded(error: &Unrecorded) -> Status {
    let metadata = match &error.0 {
        AppendError::Unwritable(failure) => {
            let errno = failure.source.raw_os_error().unwrap_or_default();
            vec![("step", failure.step.name().to_owned()), ("errno", errno.to_string())]
        }
        AppendError::Stopped => vec![("step", "closed".to_owned())],
        AppendError::TooLong { bytes, limit } => {
            vec![("bytes", bytes.to_string()), ("limit", limit.to_string())]
        }
        AppendError::Reserved | AppendError::Unencodable(_) => Vec::new(),
    };
    status(error, error_chain(error), metadata)
}

/// The gateway is going down.
pub(crate) fn draining() -> Status {
    status(Reason::Draining, "the gateway is draining".into(), [])
}

/// Only root and the gateway's own user may do this.
pub(crate) fn not_an_administrator() -> Status {
    let message = "only root and the gateway's own user may do this";
    status(Reason::NotAnAdministrator, message.into(), [])
}

/// The configuration has no journal.
pub(crate) fn no_journal() -> Status {
    let message = "this gateway keeps no journal";
    status(Reason::NoJournal, message.into(), [])
}

/// The journal's files cannot be read.
pub(crate) fn journal_unreadable(error: &std::io::Error) -> Status {
    let errno = error.raw_os_error().unwrap_or_default();
    let message = format!("the journal cannot be read: {error}");
    status(Reason::JournalUnreadable, message, [("errno", errno.to_string())])
}

/// As many do this at once as may.
pub(crate) fn too_many(limit: &str, cap: usize) -> Status {
    quota(limit, cap, format!("{cap} {limit} are under way, the most there may be"))
}

/// The caller holds as much as one user may, before its request was looked at.
pub(crate) fn share_reached(limit: &str, cap: u64, message: String) -> Status {
    quota(limit, cap, message)
}

/// The caller reports more than its share of the journal takes.
pub(crate) fn reports_too_often() -> Status {
    quota(
        "refusals_written",
        "16 KiB/s",
        "reports of this user come more often than can be written down".into(),
    )
}

/// A request took longer to arrive than it may.
pub(crate) fn request_too_slow(limit_s: u64) -> Status {
    let message = format!("the request has not arrived whole within {limit_s} s");
    status(Reason::RequestTooSlow, message, [("limit_s", limit_s.to_string())])
}

/// Something of the gateway's own has failed.
pub(crate) fn internal(what: &str) -> Status {
    status(Reason::Internal, what.to_owned(), [])
}

fn quota_reached(reached: &QuotaReached) -> Status {
    quota(reached.limit.label(), reached.max, reached.to_string())
}

fn quota(name: &str, cap: impl ToString, message: String) -> Status {
    let message = printable::bounded(&message, MESSAGE_MAX_BYTES).into_owned();
    let mut details = ErrorDetails::with_quota_failure_violation(name, &message);
    let metadata =
        HashMap::from([("limit".to_owned(), name.to_owned()), ("cap".to_owned(), cap.to_string())]);
    details.set_error_info(Reason::Quota.code(), DOMAIN, metadata);
    Status::with_error_details(Reason::Quota.status(), message, details)
}

fn control(error: &LinkError) -> Status {
    status(error, error_chain(error), [])
}

fn status(
    reason: impl Into<Reason>,
    message: String,
    metadata: impl IntoIterator<Item = (&'static str, String)>,
) -> Status {
    let reason: Reason = reason.into();
    let bounded = |value: String| printable::bounded_line(&value, VALUE_MAX_BYTES).into_owned();
    let metadata: HashMap<String, String> =
        metadata.into_iter().map(|(name, value)| (name.to_owned(), bounded(value))).collect();
    let message = printable::bounded(&message, MESSAGE_MAX_BYTES).into_owned();
    let details = ErrorDetails::with_error_info(reason.code(), DOMAIN, metadata);
    Status::with_error_details(reason.status(), message, details)
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
            Reason::Internal,
            "é".repeat(5_000),
            [("long", "é".repeat(5_000)), ("exact", "e".repeat(VALUE_MAX_BYTES))],
        );
        assert!(status.message().len() <= MESSAGE_MAX_BYTES, "{}", status.message().len());
        let metadata = status.get_error_details().error_info().unwrap().metadata.clone();
        assert!(metadata["long"].starts_with("é") && metadata["long"].len() <= VALUE_MAX_BYTES);
        assert_eq!(metadata["exact"].len(), VALUE_MAX_BYTES);
    }

    #[test]
    fn an_errno_is_told_in_words_and_as_its_number() {
        assert_eq!(describe_errno(libc::ENOENT), "No such file or directory, errno 2");
    }

    #[test]
    fn an_error_is_reported_with_all_that_caused_it() {
        let cause = std::io::Error::from_raw_os_error(libc::ENOSPC);
        let error = crate::session::OpenError::StateUnwritable(cause);
        assert_eq!(error_chain(&error), "the session cannot be kept: No space left on device (os error 28)");
    }
}
