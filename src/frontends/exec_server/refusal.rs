//! What a gateway's refusal is in the protocol: a sentence that names rule and reason, and the gateway's reason for programs.
//!
//! Tells errors apart by the gateway's code and reason, never by the text of a message.

use serde_json::Value;
use tonic::{Code, Status};

use super::message::{ErrorCode, RpcError};
use crate::client::{
    advice_when_denied, advice_when_not_started, bad_field_of, details_of, is_unanswered,
    may_have_been_received, message_with_field, message_with_rule, reason_or_code_of,
};

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
        Code::InvalidArgument => (ErrorCode::InvalidParams, with_field(status)),
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
        RpcError::new(ErrorCode::Refused, &reason_or_code_of(status), &with_field(status))
    };
    with_details(error, status)
}

fn with_details(mut error: RpcError, status: &Status) -> RpcError {
    for (name, value) in details_of(status) {
        error.data.entry(name).or_insert_with(|| Value::from(value));
    }
    error
}

fn with_field(status: &Status) -> String {
    message_with_field(status, bad_field_of(status).as_deref())
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
