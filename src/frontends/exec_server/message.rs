//! The protocol's messages: JSON-RPC without its version member, one message a line.
//!
//! Pure: it reads and writes text, and knows no method.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde::de::DeserializeOwned;
use serde_json::{Value, value::RawValue};

use super::errors::{ErrorCode, RpcError};
use crate::{
    file_uri,
    json_rpc::{Ambiguity, Envelope, OutgoingLine},
};

/// The id of an answer to what has none that can be read.
const NO_ID: i64 = -1;

/// What a client has sent.
#[derive(Debug)]
pub(super) enum Incoming<'a> {
    /// It expects an answer.
    Request {
        /// A number or a text, as it was written.
        id: &'a RawValue,
        method: String,
        params: Value,
    },
    /// It expects none.
    Notification { method: String },
}

/// Reads a line.
pub(super) fn parse(line: &[u8]) -> Result<Incoming<'_>, RpcError> {
    let invalid = |problem: &str| RpcError::new(ErrorCode::InvalidRequest, "BAD_MESSAGE", problem);
    let no_object = || invalid("the message is no JSON object; batches are not taken");
    let text = std::str::from_utf8(line).map_err(|_| no_object())?;
    let message = Envelope::read(text, Ambiguity::LastCounts).map_err(|_| no_object())?;
    let Some(method) = message.method.and_then(|method| serde_json::from_str(method.get()).ok()) else {
        return Err(invalid("the message has no method: this server asks the client nothing"));
    };
    let Some(id) = message.id else { return Ok(Incoming::Notification { method }) };
    if !matches!(id.get().as_bytes(), [b'"' | b'-' | b'0'..=b'9', ..]) {
        return Err(invalid("an id is a number or a text"));
    }
    let params = message.params.map_or(Ok(Value::Null), |params| serde_json::from_str(params.get()));
    Ok(Incoming::Request { id, method, params: params.map_err(|_| no_object())? })
}

/// The parameters of a method. Whether members that it does not know are left alone is for the type to say.
pub(super) fn params<T: DeserializeOwned>(given: Value) -> Result<T, RpcError> {
    serde_json::from_value(given).map_err(|error| RpcError::bad_params(&error.to_string()))
}

/// An answer as a line.
pub(super) fn answer(id: &RawValue, answered: Result<Value, RpcError>) -> Vec<u8> {
    let line = OutgoingLine::without_version().with("id", id);
    match answered {
        Ok(result) => line.with("result", &result),
        Err(error) => line.with("error", &error.into_value()),
    }
    .end()
}

/// The answer to a line that is no message.
pub(super) fn answer_to_none(error: RpcError) -> Vec<u8> {
    OutgoingLine::without_version().with("id", &NO_ID).with("error", &error.into_value()).end()
}

/// A notification as a line.
pub(super) fn notification(method: &str, params: &Value) -> Vec<u8> {
    OutgoingLine::without_version().with("method", method).with("params", params).end()
}

/// The path of a `file:` URI. `field` names it in the error.
pub(super) fn path_of(uri: &str, field: &str) -> Result<String, RpcError> {
    file_uri::path_of(uri).map_err(|problem| RpcError::bad_params(&format!("{field}: {problem}")))
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
    use serde_json::json;

    use super::*;

    #[test]
    fn requests_and_notifications_are_told_apart_by_their_id() {
        let request = br#"{"id":1.0,"method":"initialize","params":{"clientName":"x"},"trace":null}"#;
        let Ok(Incoming::Request { id, method, params }) = parse(request) else { panic!("it is a request") };
        assert_eq!((id.get(), method.as_str()), ("1.0", "initialize"));
        assert_eq!(params, json!({ "clientName": "x" }));
        let notification = parse(br#"{"jsonrpc":"2.0","method":"initialized"}"#);
        assert!(matches!(notification, Ok(Incoming::Notification { method }) if method == "initialized"));
    }

    #[test]
    fn what_is_no_message_is_an_error() {
        for line in [
            "",
            "[]",
            "{}",
            "{\"id\":1,\"result\":{}}",
            "{\"id\":null,\"method\":\"x\"}",
            "{\"method\":5}",
            "\u{0}",
        ] {
            assert_eq!(parse(line.as_bytes()).unwrap_err().code, ErrorCode::InvalidRequest, "{line}");
        }
    }

    #[test]
    fn an_error_has_a_number_a_sentence_and_a_reason() {
        let id = RawValue::from_string("\"a\"".to_owned()).unwrap();
        let line = answer(&id, Err(RpcError::too_many("processes", 64)));
        let message: Value = serde_json::from_slice(&line).unwrap();
        assert_eq!(message["id"], "a");
        assert_eq!(message["error"]["code"], -32_000);
        assert_eq!(message["error"]["data"]["reason"], "LIMIT_REACHED");
        assert!(decode_bytes("no base64!", "chunk").unwrap_err().message.starts_with("chunk: "));
        assert!(path_of("/a", "cwd").unwrap_err().message.starts_with("cwd: "));
    }
}
