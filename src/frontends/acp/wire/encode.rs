//! Messages of our own, each as the line that is sent.
//!
//! Ids and results are JSON already and are written as they are. Nothing is read here but what is to be changed.

use agent_client_protocol_schema::v1::Error;
use serde::Serialize;
use serde_json::value::RawValue;

use super::raw_object::RawObject;
use crate::printable;

/// The line that answers `id` with a result, which is JSON already.
pub(in crate::acp) fn result_line(id: &RawValue, result: &str) -> Vec<u8> {
    let mut line = Vec::with_capacity(result.len() + id.get().len() + 40);
    line.extend_from_slice(b"{\"jsonrpc\":\"2.0\",\"id\":");
    line.extend_from_slice(id.get().as_bytes());
    line.extend_from_slice(b",\"result\":");
    line.extend_from_slice(result.as_bytes());
    line.extend_from_slice(b"}\n");
    line
}

/// The line that answers `id`, or nobody in particular, with an error.
pub(in crate::acp) fn error_line(id: Option<&RawValue>, error: &Error) -> Vec<u8> {
    #[derive(Serialize)]
    struct Line<'a> {
        jsonrpc: &'a str,
        id: Option<&'a RawValue>,
        error: &'a Error,
    }
    printable::json_bytes(to_line(&Line { jsonrpc: "2.0", id, error }))
}

/// The line of a request of our own.
pub(in crate::acp) fn request_line(id: &str, method: &str, params: &impl Serialize) -> Vec<u8> {
    #[derive(Serialize)]
    struct Line<'a, P> {
        jsonrpc: &'a str,
        id: &'a str,
        method: &'a str,
        params: &'a P,
    }
    printable::json_bytes(to_line(&Line { jsonrpc: "2.0", id, method, params }))
}

/// The line of a notification of our own.
pub(in crate::acp) fn notification_line(method: &str, params: &impl Serialize) -> Vec<u8> {
    #[derive(Serialize)]
    struct Line<'a, P> {
        jsonrpc: &'a str,
        method: &'a str,
        params: &'a P,
    }
    printable::json_bytes(to_line(&Line { jsonrpc: "2.0", method, params }))
}

fn to_line(message: &impl Serialize) -> Vec<u8> {
    let mut line = serde_json::to_vec(message).expect("the protocol's types and raw JSON are always JSON");
    line.push(b'\n');
    line
}

/// A whole message with other params; none where it is no object.
pub(in crate::acp) fn with_params(line: &[u8], params: &RawObject<'_>) -> Option<Vec<u8>> {
    let mut message: RawObject<'_> = serde_json::from_slice(line).ok()?;
    message.set("params", params);
    Some(to_line(&message))
}
