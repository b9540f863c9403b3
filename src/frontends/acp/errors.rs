//! Errors in the protocol's words.
//!
//! Most agents show their model nothing but the message: it is one readable sentence, with the rule's reason where a
//! rule refused, and what to do. The codes are JSON-RPC's and the protocol's; -32000, which means that the user must
//! log in, is never one of them. Programs find the gateway's reason in `data`.

use std::error::Error as _;

use agent_client_protocol_schema::v1::{Error, ErrorCode};
use serde_json::{Map, Value};
use tonic::{Code, Status};

use crate::{
    client::{
        self, advice_when_denied, advice_when_not_started, bad_field_of, details_of, message_with_field,
        reason_of,
    },
    printable,
};

/// The code of a command that policy refuses: of the range that JSON-RPC leaves to implementations.
pub const DENIED_CODE: i32 = -32001;
/// How much of a command is named in a sentence.
const QUOTED_MAX_CHARS: usize = 80;
/// How much of a peer's text an error message repeats.
const DETAIL_MAX_BYTES: usize = 1_024;

/// A parameter that cannot be used.
pub(super) fn bad_parameter(name: &str, problem: impl std::fmt::Display) -> Error {
    let problem = problem.to_string();
    let problem = printable::bounded(&problem, DETAIL_MAX_BYTES);
    Error::new(ErrorCode::InvalidParams.into(), format!("{name}: {problem}"))
}

/// A terminal that never was, is another session's, or was released: there is no difference.
pub(super) fn unknown_terminal() -> Error {
    Error::new(
        ErrorCode::ResourceNotFound.into(),
        "There is no such terminal in this session; it may have been released.",
    )
}

/// A session that was not opened through here, or is closed.
pub(super) fn unknown_session() -> Error {
    Error::new(ErrorCode::ResourceNotFound.into(), "There is no such session, or it is closed.")
}

/// A request that was cancelled.
pub(super) fn cancelled() -> Error {
    ErrorCode::RequestCancelled.into()
}

/// More than is kept track of.
pub(super) fn too_many(what: &str, limit: usize) -> Error {
    internal(format!("Too many {what}: at most {limit} at once. End some, and try again."))
}

/// Something that is nobody's mistake on the other side.
pub(super) fn internal(message: impl Into<String>) -> Error {
    Error::new(ErrorCode::InternalError.into(), printable::bounded(&message.into(), DETAIL_MAX_BYTES))
}

/// What the gateway says to a session that is to be opened for a command.
pub(super) fn from_session_status(status: &Status) -> Error {
    from_create_status(status, "")
}

/// What the gateway says to a create, for an agent.
pub(super) fn from_create_status(status: &Status, command: &str) -> Error {
    if client::may_have_been_received(status) {
        let lost = "The gateway was lost before it said whether the command was started";
        return internal(sentence(&[lost, "if it was, it ends with the session", "try again later"]));
    }
    let reason = &*reason_of(status);
    let detail = status.message();
    let (code, message) = match status.code() {
        Code::NotFound => return unknown_session(),
        Code::Cancelled => return cancelled(),
        Code::PermissionDenied => {
            (DENIED_CODE, sentence(&["This command may not run", detail, advice_when_denied(reason)]))
        }
        Code::InvalidArgument => {
            (ErrorCode::InvalidParams.into(), sentence(&["Invalid parameters", &with_field(status)]))
        }
        Code::FailedPrecondition if reason != "CONFINEMENT_UNAVAILABLE" => {
            (ErrorCode::InvalidParams.into(), not_started(command, detail, reason))
        }
        Code::ResourceExhausted => (
            ErrorCode::InternalError.into(),
            sentence(&[
                "The command was not started",
                detail,
                "release terminals that are done with, and try again",
            ]),
        ),
        Code::Unavailable => (
            ErrorCode::InternalError.into(),
            sentence(&["The command was not started", unavailable(status), "nothing of it ran"]),
        ),
        Code::Ok
        | Code::Unknown
        | Code::DeadlineExceeded
        | Code::AlreadyExists
        | Code::FailedPrecondition
        | Code::Aborted
        | Code::OutOfRange
        | Code::Unimplemented
        | Code::Internal
        | Code::DataLoss
        | Code::Unauthenticated => (ErrorCode::InternalError.into(), not_started(command, detail, reason)),
    };
    Error::new(code, message).data(data_of(status))
}

/// What the gateway says to anything else.
pub(super) fn from_status(status: &Status) -> Error {
    if client::is_unanswered(status) {
        return internal(sentence(&[unavailable(status), "try again later"])).data(data_of(status));
    }
    match status.code() {
        Code::NotFound => unknown_terminal(),
        Code::Cancelled => cancelled(),
        Code::InvalidArgument => Error::new(
            ErrorCode::InvalidParams.into(),
            sentence(&["Invalid parameters", &with_field(status)]),
        )
        .data(data_of(status)),
        Code::Ok
        | Code::Unknown
        | Code::DeadlineExceeded
        | Code::AlreadyExists
        | Code::PermissionDenied
        | Code::ResourceExhausted
        | Code::FailedPrecondition
        | Code::Aborted
        | Code::OutOfRange
        | Code::Unimplemented
        | Code::Internal
        | Code::Unavailable
        | Code::DataLoss
        | Code::Unauthenticated => {
            internal(sentence(&["The gateway could not do this", status.message()])).data(data_of(status))
        }
    }
}

fn not_started(command: &str, detail: &str, reason: &str) -> String {
    let what = match command {
        "" => "The command could not be started".to_owned(),
        command => format!("{} could not be started", quoted(command)),
    };
    sentence(&[&what, detail, advice_when_not_started(reason)])
}

/// The beginning of a command, in quotes: a sentence has no room for a whole script.
fn quoted(command: &str) -> String {
    let shown: String = command.chars().take(QUOTED_MAX_CHARS).collect();
    let more = if shown.len() < command.len() { "..." } else { "" };
    format!("\"{}{more}\"", printable::line(&shown))
}

/// What is known of why there is no answer. What a connection failed of is for the log.
fn unavailable(status: &Status) -> &str {
    let is_local = status.source().is_some() || status.message().is_empty();
    if is_local { "the gateway does not answer" } else { status.message() }
}

/// The message, with the name of the field before it.
fn with_field(status: &Status) -> String {
    message_with_field(status, bad_field_of(status).map(|field| protocol_name(&field)).as_deref())
}

/// The gateway's names of fields, as the protocol spells them.
fn protocol_name(field: &str) -> String {
    match field {
        "output_byte_limit" => "outputByteLimit".to_owned(),
        other => other.to_owned(),
    }
}

/// The other details of the gateway's answer, for programs.
fn data_of(status: &Status) -> Value {
    let mut data: Map<String, Value> =
        details_of(status).into_iter().map(|(name, value)| (name, value.into())).collect();
    let reason = reason_of(status);
    if !reason.is_empty() {
        data.insert("reason".to_owned(), reason.into());
    }
    Value::Object(data)
}

/// Parts that are not empty, as one line that begins with a capital and ends with a full stop.
fn sentence(parts: &[&str]) -> String {
    let mut text = String::new();
    for (index, part) in
        parts.iter().map(|part| part.trim_end_matches('.')).filter(|part| !part.is_empty()).enumerate()
    {
        text.push_str(match index {
            0 => "",
            1 => ": ",
            _ => "; ",
        });
        text.push_str(part);
    }
    let mut text = text.replace(['\n', '\r'], " ");
    if let Some(first) = text.get(..1) {
        let first = first.to_ascii_uppercase();
        text.replace_range(..1, &first);
    }
    text.push('.');
    printable::bounded(&text, DETAIL_MAX_BYTES).into_owned()
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use tonic_types::{ErrorDetails, StatusExt as _};

    use super::*;

    fn status(code: Code, message: &str, reason: &str) -> Status {
        let metadata = HashMap::from([("rule".to_owned(), "git-publish".to_owned())]);
        Status::with_error_details(code, message, ErrorDetails::with_error_info(reason, "provost", metadata))
    }

    #[test]
    fn a_refusal_says_the_rules_reason_and_what_to_do_in_one_sentence() {
        let denied = status(Code::PermissionDenied, "publishing needs a person\n(rule x)", "POLICY_DENIED");
        let error = from_create_status(&denied, "git push");
        assert_eq!(
            error.message,
            "This command may not run: publishing needs a person (rule x); do it another way, or ask the user to \
             change the policy."
        );
        assert_eq!(i32::from(error.code), DENIED_CODE);
        assert_eq!(error.data.unwrap()["rule"], "git-publish");
    }

    #[test]
    fn nothing_ever_means_that_the_user_must_log_in() {
        for code in 0..17 {
            let status = status(Code::from_i32(code), "", "X");
            for error in [from_create_status(&status, ""), from_status(&status)] {
                assert_ne!(i32::from(error.code), -32000);
                assert!(
                    error.message.ends_with('.') || error.message == "Request cancelled",
                    "{}",
                    error.message
                );
            }
        }
    }

    #[test]
    fn bad_input_is_invalid_params_with_the_protocols_name_of_the_field() {
        let details = ErrorDetails::with_bad_request_violation("output_byte_limit", "too large");
        let error =
            from_create_status(&Status::with_error_details(Code::InvalidArgument, "too large", details), "");
        assert_eq!(i32::from(error.code), -32602);
        assert!(error.message.contains("outputByteLimit"));
    }
}
