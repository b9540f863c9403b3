//! What a gateway's refusal is in the protocol: a sentence that names rule and reason, and the gateway's reason for programs.
//!
//! Tells errors apart by the gateway's code and reason, never by the text of a message.

use serde_json::Value;
use tonic::{Code, Status};
use tonic_types::StatusExt;

use super::message::{ErrorCode, RpcError};
use crate::client::{advice_when_denied, advice_when_not_started, is_unanswered, may_have_been_received};

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
    let reason = reason_of(status);
    let text = status.message().trim_end_matches('.');
    let (code, message) = match status.code() {
        Code::PermissionDenied => {
            // The gateway's sentence often names it already.
            let rule = detail(status, "rule").map(|rule| format!("rule {rule:?}"));
            let rule = rule.filter(|rule| !text.contains(rule.as_str()));
            let rule = rule.map(|rule| format!(" ({rule})")).unwrap_or_default();
            let advice = advice_when_denied(&reason);
            (ErrorCode::Refused, format!("denied: {text}{rule}; nothing was run. Advice: {advice}"))
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
        RpcError::new(ErrorCode::Refused, &reason_of(status), &with_field(status))
    };
    with_details(error, status)
}

/// The gateway's reason, or else the code's name.
fn reason_of(status: &Status) -> String {
    let info = status.get_details_error_info().filter(|info| !info.reason.is_empty());
    info.map_or_else(|| format!("{:?}", status.code()).to_ascii_uppercase(), |info| info.reason)
}

fn detail(status: &Status, name: &str) -> Option<String> {
    status.get_details_error_info()?.metadata.remove(name)
}

fn with_details(mut error: RpcError, status: &Status) -> RpcError {
    let metadata = status.get_details_error_info().map(|info| info.metadata).unwrap_or_default();
    for (name, value) in metadata {
        error.data.entry(name).or_insert_with(|| Value::from(value));
    }
    error
}

fn with_field(status: &Status) -> String {
    let violations = status.get_details_bad_request().map(|bad| bad.field_violations).unwrap_or_default();
    match violations.into_iter().next().map(|violation| violation.field) {
        Some(field) if !status.message().contains(&field) => format!("{field}: {}", status.message()),
        _ => status.message().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use tonic_types::ErrorDetails;

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
