//! Errors in the protocol's words: what this server refuses itself, and what a gateway's refusal is: a sentence that names rule and reason,
//! and the gateway's reason for programs.
//!
//! Tells errors apart by the gateway's code and reason, never by the text of a message.

use serde_json::{Map, Value, json};
use tonic::{Code, Status};

use crate::{
    client::{
        advice_when_denied, advice_when_not_started, details_of, is_unanswered, may_have_been_received,
        message_with_bad_field, message_with_rule, reason_or_code_of,
    },
    printable,
};

/// The longest sentence of an error, in bytes.
const MESSAGE_MAX_BYTES: usize = 2_048;
/// What is shown of the name of a method, in bytes.
const METHOD_SHOWN_MAX_BYTES: usize = 80;

/// The protocol's numbers of errors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ErrorCode {
    InvalidRequest,
    MethodNotFound,
    InvalidParams,
    Internal,
    /// A file or directory that is not there.
    NotFound,
    /// Refused: by policy, by a limit, or because the client's wish cannot be met.
    Refused,
    /// The session has a connection. A client that comes back tries again.
    SessionAttached,
}

/// An answer that is an error.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct RpcError {
    pub(super) code: ErrorCode,
    /// For the model or a person.
    pub(super) message: String,
    /// The gateway's reason and its details, for programs.
    pub(super) data: Map<String, Value>,
}

impl ErrorCode {
    fn number(self) -> i64 {
        match self {
            Self::InvalidRequest => -32_600,
            Self::MethodNotFound => -32_601,
            Self::InvalidParams => -32_602,
            Self::Internal => -32_603,
            Self::NotFound => -32_004,
            Self::Refused => -32_000,
            Self::SessionAttached => -32_010,
        }
    }
}

impl RpcError {
    pub(super) fn new(code: ErrorCode, reason: &str, message: &str) -> Self {
        let message = printable::bounded(message, MESSAGE_MAX_BYTES).into_owned();
        let data = [("reason".to_owned(), Value::from(reason))].into_iter().collect();
        Self { code, message, data }
    }

    /// A parameter that cannot be used.
    pub(super) fn bad_params(problem: &str) -> Self {
        Self::new(ErrorCode::InvalidParams, "BAD_ARGUMENT", problem)
    }

    /// More than the server does or keeps at once.
    pub(super) fn too_many(what: &str, limit: usize) -> Self {
        let message = format!("too many {what}: at most {limit} at once");
        Self::new(ErrorCode::Refused, "LIMIT_REACHED", &message)
    }

    /// A method that this server does not have.
    pub(super) fn unknown_method(method: &str) -> Self {
        let method = printable::bounded_line(method, METHOD_SHOWN_MAX_BYTES);
        let problem = format!("this server has no method {method}");
        Self::new(ErrorCode::MethodNotFound, "UNKNOWN_METHOD", &problem)
    }

    /// As the protocol has it.
    pub(super) fn into_value(self) -> Value {
        json!({ "code": self.code.number(), "message": self.message, "data": self.data })
    }

    /// The connection ends, or the request's process was told to stop before it was started.
    pub(super) fn cancelled() -> Self {
        Self::new(ErrorCode::Refused, "CANCELLED", "the request was cancelled")
    }
}

/// What the gateway says to a command that is to be started, or to a session that is to be opened.
pub(super) fn not_started(status: &Status) -> RpcError {
    if may_have_been_received(status) {
        let lost = "the gateway was lost before it said whether the command was started; if it was, it ends with this server";
        return RpcError::new(ErrorCode::Refused, "GATEWAY_LOST", lost);
    }
    if is_unanswered(status) {
        let away = "the gateway does not answer; nothing was run, here or elsewhere";
        return RpcError::new(ErrorCode::Refused, "GATEWAY_AWAY", away);
    }
    let reason = reason_or_code_of(status);
    let text = status.message().trim_end_matches('.');
    let (code, message) = match status.code() {
        Code::PermissionDenied => {
            let (text, advice) = (message_with_rule(status), advice_when_denied(&reason));
            (ErrorCode::Refused, format!("denied: {text}; nothing was run. Advice: {advice}"))
        }
        Code::InvalidArgument => (ErrorCode::InvalidParams, message_with_bad_field(status)),
        _ => match advice_when_not_started(&reason) {
            "" => (ErrorCode::Refused, format!("the command was not started: {text}")),
            advice => (ErrorCode::Refused, format!("the command was not started: {text}. Advice: {advice}")),
        },
    };
    with_details(RpcError::new(code, &reason, &message), status)
}

/// What the gateway says to a call about a command that was started.
pub(super) fn of_process(status: &Status) -> RpcError {
    let error = if is_unanswered(status) {
        RpcError::new(
            ErrorCode::Refused,
            "GATEWAY_AWAY",
            "the gateway does not answer; the command may go on",
        )
    } else {
        RpcError::new(ErrorCode::Refused, &reason_or_code_of(status), &message_with_bad_field(status))
    };
    with_details(error, status)
}

fn with_details(mut error: RpcError, status: &Status) -> RpcError {
    for (name, value) in details_of(status) {
        error.data.entry(name).or_insert_with(|| Value::from(value));
    }
    error
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use tonic_types::{ErrorDetails, StatusExt as _};

    use super::*;

    #[test]
    fn a_denial_names_the_rule_its_reason_and_what_to_do() {
        let metadata = HashMap::from([("rule".to_owned(), "no-push".to_owned())]);
        let details = ErrorDetails::with_error_info("POLICY_DENIED", "provost", metadata);
        let status = Status::with_error_details(Code::PermissionDenied, "pushing is for people", details);
        let error = not_started(&status);
        assert_eq!(
            error.message,
            "denied: pushing is for people (rule \"no-push\"); nothing was run. Advice: do it another way, or ask the user \
             to change the policy"
        );
        assert_eq!(
            (&error.data["reason"], &error.data["rule"]),
            (&"POLICY_DENIED".into(), &"no-push".into())
        );
    }

    #[test]
    fn a_gateway_that_is_away_is_told_apart_from_one_that_was_lost() {
        let mut away = Status::unavailable("x");
        away.set_source(std::sync::Arc::new(std::io::Error::from(std::io::ErrorKind::ConnectionRefused)));
        assert_eq!(not_started(&away).data["reason"], "GATEWAY_AWAY");
        let lost = Status::from_error(Box::new(std::io::Error::from(std::io::ErrorKind::BrokenPipe)));
        assert_eq!(not_started(&lost).data["reason"], "GATEWAY_LOST");
    }
}
