//! What a tool answers when it could not do what it was asked: a sentence for the model, and the gateway's reason for
//! programs.
//!
//! Tells errors apart by the gateway's code and reason, never by the text of a message.
//!
//! Requests whose parameters the library cannot read it hands on as requests of methods that it does not know: these are told apart here.

use rmcp::{
    ErrorData,
    model::{
        CallToolRequestParams, CallToolResult, CancelTaskParams, ContentBlock, CustomRequest, ErrorCode,
        GetTaskParams, InitializeRequestParams, MetaObject, PaginatedRequestParams, UpdateTaskParams,
    },
};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use tonic::{Code, Status};

use crate::{
    client::{
        advice_when_denied, advice_when_not_started, details_of, is_unanswered, may_have_been_received,
        message_with_bad_field, message_with_rule, reason_or_code_of,
    },
    printable,
};

/// The longest sentence, in bytes.
const MESSAGE_MAX_BYTES: usize = 2_048;
/// The member of `_meta` that is Provost's.
pub(super) const META: &str = "provost";
/// The longest problem of parameters that is told, in bytes.
const PROBLEM_MAX_BYTES: usize = 512;

/// Why a tool did not do what it was asked.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ToolError {
    /// For the model.
    pub(super) message: String,
    /// The gateway's reason, such as POLICY_DENIED, or one of this front end.
    pub(super) reason: String,
    /// Rule, approval, path, errno: whatever the gateway said.
    pub(super) details: Map<String, Value>,
}

impl ToolError {
    fn new(reason: &str, message: &str) -> Self {
        let message = printable::bounded(message, MESSAGE_MAX_BYTES).into_owned();
        Self { message, reason: reason.to_owned(), details: Map::new() }
    }

    /// An argument that cannot be used.
    pub(super) fn bad_argument(problem: &str) -> Self {
        Self::new("BAD_ARGUMENT", &format!("The arguments cannot be used: {problem}."))
    }

    /// The client has cancelled its request.
    pub(super) fn cancelled() -> Self {
        Self::new("CANCELLED", "The request was cancelled.")
    }

    /// More than the server does at once.
    pub(super) fn too_many(what: &str, limit: usize, advice: &str) -> Self {
        Self::new("LIMIT_REACHED", &format!("Too many {what}: at most {limit} at once. {advice}"))
    }

    /// No directory to work in.
    pub(super) fn no_root(message: &str) -> Self {
        Self::new("NO_ROOT", message)
    }

    /// There is no such command, or not in this session.
    pub(super) fn unknown_command(id: &str) -> Self {
        let id = printable::bounded_line(id, 80);
        Self::new(
            "UNKNOWN_COMMAND",
            &format!(
                "There is no command {id:?} in this session. It may have been removed: see list_commands."
            ),
        )
    }

    /// What the gateway says to a command that is to be started.
    pub(super) fn not_started(status: &Status) -> Self {
        if may_have_been_received(status) {
            return Self::new(
                "GATEWAY_LOST",
                "The gateway was lost before it said whether the command was started. If it was, it ends with this \
                 session. See list_commands, and try again later.",
            );
        }
        if is_unanswered(status) {
            return Self::new(
                "GATEWAY_AWAY",
                "The gateway does not answer. Nothing was run, here or elsewhere. Try again later, or ask the user to \
                 start it.",
            );
        }
        let reason = reason_or_code_of(status);
        let text = status.message().trim_end_matches('.');
        let message = match status.code() {
            Code::PermissionDenied => {
                let text = message_with_rule(status);
                format!("Denied: {text}. Nothing was run. Advice: {}.", advice_when_denied(&reason))
            }
            Code::InvalidArgument => {
                format!("The arguments cannot be used: {}.", message_with_bad_field(status))
            }
            Code::ResourceExhausted => {
                format!(
                    "The command was not started: {text}. End commands that are not needed, and try again."
                )
            }
            _ => match advice_when_not_started(&reason) {
                "" => format!("The command was not started: {text}."),
                advice => format!("The command was not started: {text}. Advice: {advice}."),
            },
        };
        Self { details: details(status), ..Self::new(&reason, &message) }
    }

    /// What the gateway says to a call about a command.
    pub(super) fn of_command(id: &str, status: &Status) -> Self {
        if is_unanswered(status) {
            return Self::new(
                "GATEWAY_AWAY",
                "The gateway does not answer. The command may go on; ask again later.",
            );
        }
        match status.code() {
            Code::NotFound => Self::unknown_command(id),
            Code::InvalidArgument => Self::bad_argument(&message_with_bad_field(status)),
            _ => {
                let text = status.message().trim_end_matches('.');
                let message = format!("The gateway could not do this: {text}.");
                Self { details: details(status), ..Self::new(&reason_or_code_of(status), &message) }
            }
        }
    }

    /// Another call writes to the command.
    pub(super) fn input_busy() -> Self {
        Self::new(
            "INPUT_BUSY",
            "Another call is writing to the command's standard input. Nothing of this one was written: try again when \
             that one has ended.",
        )
    }

    /// What a write has written before it failed.
    pub(super) fn after_writing(self, written: u64, length: u64) -> Self {
        if written == 0 {
            return self;
        }
        Self {
            message: format!("{} Before that, {written} of {length} bytes were written.", self.message),
            ..self
        }
    }

    /// The input that a command was to be given.
    pub(super) fn input_not_written(written: u64, length: u64, status: &Status) -> Self {
        let (reason, text) = match is_unanswered(status) {
            true => ("GATEWAY_AWAY".to_owned(), "the gateway does not answer"),
            false => (reason_or_code_of(status), status.message().trim_end_matches('.')),
        };
        let message = format!(
            "The standard input could not be written: {text}. {written} of {length} bytes were written, and the \
             command was stopped."
        );
        Self { details: details(status), ..Self::new(&reason, &message) }
    }

    /// As programs read it.
    pub(super) fn details_with_reason(&self) -> Map<String, Value> {
        let mut details = self.details.clone();
        details.insert("reason".to_owned(), self.reason.as_str().into());
        details
    }

    /// As the protocol's result.
    pub(super) fn into_result(self) -> CallToolResult {
        let mut meta = MetaObject::new();
        meta.insert(META.to_owned(), json!({ "error": self.details_with_reason() }));
        CallToolResult::error(vec![ContentBlock::text(self.message)]).with_meta(Some(meta))
    }
}

fn details(status: &Status) -> Map<String, Value> {
    details_of(status).into_iter().map(|(name, value)| (name, value.into())).collect()
}

/// What such a request is answered with: that its parameters are wrong if the method is one of this server's.
pub(super) fn of_parameters(request: &CustomRequest) -> ErrorData {
    let problem = match request.method.as_str() {
        "initialize" => problem::<InitializeRequestParams>(request),
        "tools/call" => problem::<CallToolRequestParams>(request),
        "tools/list" => problem::<PaginatedRequestParams>(request),
        "tasks/get" => problem::<GetTaskParams>(request),
        "tasks/update" => problem::<UpdateTaskParams>(request),
        "tasks/cancel" => problem::<CancelTaskParams>(request),
        unknown => {
            let unknown = printable::bounded_line(unknown, PROBLEM_MAX_BYTES).into_owned();
            return ErrorData::new(ErrorCode::METHOD_NOT_FOUND, unknown, None);
        }
    };
    let message = format!("the parameters of {} cannot be read: {problem}", request.method);
    ErrorData::invalid_params(printable::bounded_line(&message, PROBLEM_MAX_BYTES).into_owned(), None)
}

fn problem<T: DeserializeOwned>(request: &CustomRequest) -> String {
    match request.params_as::<T>() {
        Err(error) => error.to_string(),
        Ok(None) => "they are missing".to_owned(),
        // It is what stands around them.
        Ok(Some(_)) => "they are malformed".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use serde_json::json;
    use tonic_types::{ErrorDetails, StatusExt as _};

    use super::*;

    fn denied(reason: &str, message: &str) -> Status {
        let metadata = HashMap::from([("rule".to_owned(), "no-push".to_owned())]);
        let details = ErrorDetails::with_error_info(reason, "provost", metadata);
        Status::with_error_details(Code::PermissionDenied, message, details)
    }

    #[test]
    fn a_refusal_names_the_rule_its_reason_and_what_to_do() {
        let error = ToolError::not_started(&denied("POLICY_DENIED", "pushing is for people"));
        assert_eq!(
            error.message,
            "Denied: pushing is for people (rule \"no-push\"). Nothing was run. Advice: do it another way, or ask \
             the user to change the policy."
        );
        let result = error.into_result();
        assert_eq!(result.is_error, Some(true));
        let meta = result.meta.unwrap();
        assert_eq!(meta[META]["error"]["reason"], "POLICY_DENIED");
        assert_eq!(meta[META]["error"]["rule"], "no-push");
    }

    #[test]
    fn a_gateway_that_is_away_is_told_apart_from_one_that_was_lost() {
        let mut away = Status::unavailable("x");
        away.set_source(std::sync::Arc::new(std::io::Error::from(std::io::ErrorKind::ConnectionRefused)));
        assert_eq!(ToolError::not_started(&away).reason, "GATEWAY_AWAY");
        let lost = Status::from_error(Box::new(std::io::Error::from(std::io::ErrorKind::BrokenPipe)));
        assert_eq!(ToolError::not_started(&lost).reason, "GATEWAY_LOST");
    }

    #[test]
    fn parameters_that_are_wrong_are_told_apart_from_a_method_that_is_not_there() {
        for (method, params, code, said) in [
            ("tools/call", Some(json!({ "name": 5 })), ErrorCode::INVALID_PARAMS, "invalid type"),
            (
                "tools/call",
                Some(json!({ "name": "x", "arguments": [] })),
                ErrorCode::INVALID_PARAMS,
                "invalid type",
            ),
            ("tools/call", Some(json!({})), ErrorCode::INVALID_PARAMS, "missing field `name`"),
            ("tools/call", None, ErrorCode::INVALID_PARAMS, "they are missing"),
            ("tasks/get", None, ErrorCode::INVALID_PARAMS, "they are missing"),
            ("prompts/get", None, ErrorCode::METHOD_NOT_FOUND, "prompts/get"),
        ] {
            let answer = of_parameters(&CustomRequest::new(method, params.clone()));
            assert_eq!(answer.code, code, "{method} {params:?}: {answer:?}");
            assert!(answer.message.contains(said), "{method} {params:?}: {answer:?}");
        }
    }
}
