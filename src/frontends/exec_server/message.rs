//! The protocol's messages: JSON-RPC without its version member, one message a line.
//!
//! Pure: it reads and writes text, and knows no method.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use crate::printable;

/// The longest sentence of an error, in bytes.
pub(super) const MESSAGE_MAX_BYTES: usize = 2_048;
/// What is shown of the name of a method, in bytes.
const METHOD_SHOWN_MAX_BYTES: usize = 80;
/// The id of an answer to what has none that can be read.
const NO_ID: i64 = -1;

/// What a client has sent.
#[derive(Debug, PartialEq)]
pub(super) enum Incoming {
    /// It expects an answer.
    Request {
        /// A number or a text.
        id: Value,
        method: String,
        params: Value,
    },
    /// It expects none.
    Notification { method: String },
}

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

    /// The connection ends, or the request's process was told to stop before it was started.
    pub(super) fn cancelled() -> Self {
        Self::new(ErrorCode::Refused, "CANCELLED", "the request was cancelled")
    }
}

/// Reads a line.
pub(super) fn parse(line: &[u8]) -> Result<Incoming, RpcError> {
    let invalid = |problem: &str| RpcError::new(ErrorCode::InvalidRequest, "BAD_MESSAGE", problem);
    let Ok(Value::Object(mut message)) = serde_json::from_slice::<Value>(line) else {
        return Err(invalid("the message is no JSON object; batches are not taken"));
    };
    let Some(Value::String(method)) = message.remove("method") else {
        return Err(invalid("the message has no method: this server asks the client nothing"));
    };
    match message.remove("id") {
        None => Ok(Incoming::Notification { method }),
        Some(id @ (Value::Number(_) | Value::String(_))) => {
            let params = message.remove("params").unwrap_or(Value::Null);
            Ok(Incoming::Request { id, method, params })
        }
        Some(_) => Err(invalid("an id is a number or a text")),
    }
}

/// The parameters of a method. Whether members that it does not know are left alone is for the type to say.
pub(super) fn params<T: DeserializeOwned>(given: Value) -> Result<T, RpcError> {
    serde_json::from_value(given).map_err(|error| RpcError::bad_params(&error.to_string()))
}

/// An answer as a line, without its end.
pub(super) fn answer(id: Value, answered: Result<Value, RpcError>) -> String {
    let message = match answered {
        Ok(result) => json!({ "id": id, "result": result }),
        Err(error) => json!({ "id": id, "error": {
            "code": error.code.number(), "message": error.message, "data": error.data,
        } }),
    };
    message.to_string()
}

/// The answer to a line that is no message.
pub(super) fn answer_to_none(error: RpcError) -> String {
    answer(NO_ID.into(), Err(error))
}

/// A notification as a line, without its end.
pub(super) fn notification(method: &str, params: &Value) -> String {
    json!({ "method": method, "params": params }).to_string()
}

/// Bytes as the protocol carries them.
pub(super) fn encode_bytes(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// Bytes that a client has sent.
pub(super) fn decode_bytes(text: &str, field: &str) -> Result<Vec<u8>, RpcError> {
    STANDARD.decode(text).map_err(|_| RpcError::bad_params(&format!("{field}: it is no base64")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_and_notifications_are_told_apart_by_their_id() {
        let request = parse(br#"{"id":1,"method":"initialize","params":{"clientName":"x"},"trace":null}"#);
        let expected = Incoming::Request {
            id: 1.into(),
            method: "initialize".to_owned(),
            params: json!({ "clientName": "x" }),
        };
        assert_eq!(request, Ok(expected));
        let notification = parse(br#"{"jsonrpc":"2.0","method":"initialized"}"#);
        assert_eq!(notification, Ok(Incoming::Notification { method: "initialized".to_owned() }));
    }

    #[test]
    fn what_is_no_message_is_an_error() {
        for line in ["", "[]", "{}", "{\"id\":1,\"result\":{}}", "{\"id\":null,\"method\":\"x\"}", "\u{0}"] {
            assert_eq!(parse(line.as_bytes()).unwrap_err().code, ErrorCode::InvalidRequest, "{line}");
        }
    }

    #[test]
    fn an_error_has_a_number_a_sentence_and_a_reason() {
        let line = answer(Value::from("a"), Err(RpcError::too_many("processes", 64)));
        let message: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(message["error"]["code"], -32_000);
        assert_eq!(message["error"]["data"]["reason"], "LIMIT_REACHED");
        assert!(decode_bytes("no base64!", "chunk").unwrap_err().message.starts_with("chunk: "));
    }
}
