//! Parses requests into typed values, or names the field that is invalid.
//!
//! A valid request may still be refused by policy.

mod fields;
mod session;
mod terminal;

pub(crate) use self::fields::FieldError;
use self::fields::{field_error, unknown_value};
pub(crate) use self::fields::{grace, pty_size};
pub(crate) use self::session::new_session;
pub(crate) use self::terminal::new_terminal;
pub(crate) use self::terminal::{arguments_fit, new_line};
use crate::{
    approval::{ApprovalId, ApproverDecision},
    journal::BypassReport,
    printable,
    proto::v1::{
        ApprovalDecision, Bypass, CheckPolicyRequest, OutputStream, PolicyFile, ResolveApprovalRequest,
    },
    signal,
    terminal::Channel,
};

/// Policy files that are checked in one call; a gateway loads no more.
const POLICY_FILES_MAX: usize = 256;
/// Bytes of what an approver says.
const COMMENT_MAX_BYTES: usize = 1_024;
/// Bytes of the name of a person that an approver speaks for.
const ON_BEHALF_OF_MAX_BYTES: usize = 256;
/// How much of what is not the name of a signal is said again.
const SIGNAL_SHOWN_BYTES: usize = 64;

/// A call of Attach that does not begin with its start, or has another one.
pub(crate) fn attach_without_start() -> FieldError {
    field_error("start", "must be in the first message, and in no other")
}

/// A port that is none.
pub(crate) fn forward_port() -> FieldError {
    field_error("start.port", "a port is from 1 to 65535")
}

/// A command's session by its id and by its name.
pub(crate) fn session_named_twice(prefix: &str) -> FieldError {
    field_error(format!("{prefix}session_name"), "must be empty if session_id is given")
}

/// An answer to an approval.
#[derive(Debug)]
pub(crate) struct ParsedAnswer {
    /// `None`: no approval has such an id.
    pub id: Option<ApprovalId>,
    /// Yes or no.
    pub decision: ApproverDecision,
    /// In the approver's words.
    pub comment: String,
    /// For whom, as the approver says.
    pub on_behalf_of: String,
}

/// Policy files to be checked.
pub(crate) fn policy_files(request: CheckPolicyRequest) -> Result<Vec<PolicyFile>, FieldError> {
    match request.files.len() {
        0 => Err(field_error("files", "must be at least one")),
        count if count > POLICY_FILES_MAX => {
            Err(field_error("files", format!("must be at most {POLICY_FILES_MAX}")))
        }
        _ => Ok(request.files),
    }
}

/// An answer to an approval.
pub(crate) fn approval_answer(request: ResolveApprovalRequest) -> Result<ParsedAnswer, FieldError> {
    let decision = match ApprovalDecision::try_from(request.decision) {
        Ok(ApprovalDecision::Approve) => ApproverDecision::Approve,
        Ok(ApprovalDecision::Deny) => ApproverDecision::Deny,
        Ok(ApprovalDecision::Unspecified) => return Err(field_error("decision", "must be APPROVE or DENY")),
        Err(_) => return Err(unknown_value("decision", request.decision)),
    };
    for (field, text, most) in [
        ("comment", &request.comment, COMMENT_MAX_BYTES),
        ("on_behalf_of", &request.on_behalf_of, ON_BEHALF_OF_MAX_BYTES),
    ] {
        if text.len() > most {
            return Err(field_error(field, format!("must have at most {most} bytes")));
        }
    }
    let id = ApprovalId::parse(&request.approval_id);
    Ok(ParsedAnswer { id, decision, comment: request.comment, on_behalf_of: request.on_behalf_of })
}

/// Which output.
pub(crate) fn channel(value: i32) -> Result<Channel, FieldError> {
    match OutputStream::try_from(value) {
        Ok(OutputStream::Unspecified | OutputStream::Stdout) => Ok(Channel::Stdout),
        Ok(OutputStream::Stderr) => Ok(Channel::Stderr),
        Err(_) => Err(unknown_value("stream", value)),
    }
}

/// How the gateway was bypassed.
pub(crate) fn bypass(value: i32) -> Result<BypassReport, FieldError> {
    match Bypass::try_from(value) {
        Ok(Bypass::CommandRun) => Ok(BypassReport::Bypassed),
        Ok(Bypass::AgentNotCovered) => Ok(BypassReport::AgentNotCovered),
        Ok(Bypass::Unspecified) => Err(field_error("bypass", "must say how the gateway was bypassed")),
        Err(_) => Err(unknown_value("bypass", value)),
    }
}

/// A signal by its name.
pub(crate) fn signal_number(name: &str) -> Result<i32, FieldError> {
    signal::number(name).ok_or_else(|| {
        let name = printable::bounded(name, SIGNAL_SHOWN_BYTES);
        field_error("signal", format!("{name:?} is neither the name nor the number of a signal"))
    })
}

#[cfg(test)]
mod tests;
