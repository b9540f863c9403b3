//! JSON-RPC messages, read only as deeply as routing needs.
//!
//! A line is looked at once: which keys stand at its top, and what the id and the method are. Everything else stays
//! the text that it was. What two readers could take for two different messages is refused: a key given twice, or one
//! that differs from a key of the protocol in nothing but case. Nothing is written here.

use std::{borrow::Cow, fmt};

use serde::{
    Deserialize, Deserializer,
    de::{Error as _, IgnoredAny, MapAccess, Visitor},
};
use serde_json::value::RawValue;

use super::raw_object::JsonText;

/// Up to here whole numbers are exact in a reader that knows nothing but double precision: 2^53 - 1.
const EXACT_INTEGER_MAX: f64 = 9_007_199_254_740_991.0;
/// The keys that a message may have at its top. Others are carried and not looked at.
const KEYS: [&str; 6] = ["jsonrpc", "id", "method", "params", "result", "error"];

/// What one line holds.
#[derive(Debug)]
pub(in crate::acp) enum ParsedLine<'a> {
    /// One message.
    One(Message<'a>),
    /// An array of messages, each as the text that it was.
    Batch(Vec<&'a RawValue>),
}

/// One message.
#[derive(Debug)]
pub(in crate::acp) enum Message<'a> {
    /// Wants an answer.
    Request {
        /// As it was written.
        id: &'a RawValue,
        /// What is asked for.
        method: Cow<'a, str>,
        /// As they were written.
        params: Option<&'a RawValue>,
    },
    /// Wants none.
    Notification {
        /// What is told.
        method: Cow<'a, str>,
        /// As they were written.
        params: Option<&'a RawValue>,
    },
    /// An answer.
    Response {
        /// Of the request.
        id: &'a RawValue,
        /// The result; absent where it is an error.
        result: Option<&'a RawValue>,
    },
}

/// Why a line is no message.
#[derive(Debug, thiserror::Error)]
pub(in crate::acp) enum MessageError {
    /// Not UTF-8.
    #[error("a message must be UTF-8")]
    Utf8(#[from] std::str::Utf8Error),
    /// Not JSON, or a key twice.
    #[error("a message must be one JSON object on one line: {0}")]
    Json(#[from] serde_json::Error),
    /// JSON that is neither request nor notification nor answer.
    #[error("a message has a method or an id, and not a method and a result")]
    Shape {
        /// The id, where there is one that can be answered.
        id: Option<Box<RawValue>>,
    },
}

impl<'a> Message<'a> {
    /// The method; none of an answer.
    #[cfg(test)]
    pub(in crate::acp) fn method(&self) -> Option<&str> {
        match self {
            Self::Request { method, .. } | Self::Notification { method, .. } => Some(method),
            Self::Response { .. } => None,
        }
    }
}

/// Reads a line.
pub(in crate::acp) fn parse(line: &[u8]) -> Result<ParsedLine<'_>, MessageError> {
    let text = std::str::from_utf8(line)?;
    if text.trim_ascii_start().starts_with('[') {
        return Ok(ParsedLine::Batch(serde_json::from_str(text)?));
    }
    parse_one(text).map(ParsedLine::One)
}

/// Reads one message.
pub(in crate::acp) fn parse_one(text: &str) -> Result<Message<'_>, MessageError> {
    let Envelope { id, method, params, result, error } = serde_json::from_str(text)?;
    let id = id.filter(|id| is_id(id));
    match (id, method, result, error) {
        (Some(id), Some(method), None, None) => Ok(Message::Request { id, method, params }),
        (None, Some(method), None, None) => Ok(Message::Notification { method, params }),
        (Some(id), None, result, error) if result.is_some() || error.is_some() => {
            Ok(Message::Response { id, result: result.filter(|_| error.is_none()) })
        }
        // A result that is nothing, which some writers of JSON leave out.
        (Some(id), None, None, None) => Ok(Message::Response { id, result: Some(RawValue::NULL) }),
        (id, _, _, _) => Err(MessageError::Shape { id: id.map(ToOwned::to_owned) }),
    }
}

/// The id and the method of a message whose end is missing, as far as they stand in `beginning`.
pub(in crate::acp) fn peek_id(beginning: &[u8]) -> (Option<Box<RawValue>>, Option<String>) {
    let whole = match std::str::from_utf8(beginning) {
        Ok(text) => text,
        Err(error) => std::str::from_utf8(&beginning[..error.valid_up_to()]).unwrap_or_default(),
    };
    let mut seen = PeekVisitor::default();
    // That it ends early is known; what stood before the end is what counts.
    let _ = serde_json::Deserializer::from_str(whole).deserialize_map(&mut seen);
    (seen.id, seen.method)
}

/// What tells two ids apart: `1` and `"1"` are two, `"a"` and `"\u0061"` are one, and so are `1` and `1.0`. A number that
/// not every reader holds exactly is the text that it is.
pub(in crate::acp) fn id_key(id: &RawValue) -> String {
    match serde_json::from_str::<serde_json::Value>(id.get()) {
        Ok(serde_json::Value::Number(number)) => match number.as_f64() {
            #[expect(clippy::cast_possible_truncation, reason = "it is whole, and exact below the bound")]
            Some(whole) if whole.fract() == 0.0 && whole.abs() <= EXACT_INTEGER_MAX => {
                (whole as i64).to_string()
            }
            Some(_) | None => id.get().to_owned(),
        },
        Ok(id) => id.to_string(),
        Err(_) => id.get().to_owned(),
    }
}

/// Strings, numbers and null. An object as an id cannot be matched with anything.
fn is_id(id: &RawValue) -> bool {
    !matches!(id.get().as_bytes().first(), Some(b'{' | b'[' | b't' | b'f') | None)
}

struct Envelope<'a> {
    id: Option<&'a RawValue>,
    method: Option<Cow<'a, str>>,
    params: Option<&'a RawValue>,
    result: Option<&'a RawValue>,
    error: Option<&'a RawValue>,
}

impl<'de> Deserialize<'de> for Envelope<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(EnvelopeVisitor)
    }
}

struct EnvelopeVisitor;

impl<'de> Visitor<'de> for EnvelopeVisitor {
    type Value = Envelope<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON-RPC message")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Envelope<'de>, A::Error> {
        let mut envelope = Envelope { id: None, method: None, params: None, result: None, error: None };
        while let Some(JsonText(key)) = map.next_key()? {
            let raw = match key.as_ref() {
                "method" => {
                    let JsonText(method) = map.next_value()?;
                    if envelope.method.replace(method).is_some() {
                        return Err(A::Error::duplicate_field("method"));
                    }
                    continue;
                }
                "id" => &mut envelope.id,
                "params" => &mut envelope.params,
                "result" => &mut envelope.result,
                "error" => &mut envelope.error,
                other => {
                    if other != "jsonrpc" && KEYS.iter().any(|key| key.eq_ignore_ascii_case(other)) {
                        return Err(A::Error::custom(format!("the key {other:?} is not written like that")));
                    }
                    map.next_value::<IgnoredAny>()?;
                    continue;
                }
            };
            if raw.replace(map.next_value()?).is_some() {
                return Err(A::Error::custom(format!("the key {key:?} stands twice")));
            }
        }
        Ok(envelope)
    }
}

#[derive(Default)]
struct PeekVisitor {
    id: Option<Box<RawValue>>,
    method: Option<String>,
}

impl<'de> Visitor<'de> for &mut PeekVisitor {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON-RPC message")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(JsonText(key)) = map.next_key()? {
            match key.as_ref() {
                "id" => self.id = Some(map.next_value::<Box<RawValue>>()?).filter(|id| is_id(id)),
                "method" => self.method = Some(map.next_value()?),
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(text: &str) -> Message<'_> {
        parse_one(text).unwrap()
    }

    #[test]
    fn requests_notifications_and_answers_are_told_apart_by_their_keys() {
        assert!(matches!(one(r#"{"id":0,"method":"a"}"#), Message::Request { .. }));
        assert!(matches!(one(r#"{"id":null,"method":"a"}"#), Message::Request { .. }));
        assert!(matches!(one(r#"{"method":"a","params":[]}"#), Message::Notification { .. }));
        assert!(matches!(one(r#"{"id":"x","result":null}"#), Message::Response { result: Some(_), .. }));
        assert!(matches!(one(r#"{"id":1,"error":{}}"#), Message::Response { result: None, .. }));
        assert!(matches!(one(r#"{"jsonrpc":"2.0","id":1}"#), Message::Response { result: Some(_), .. }));
    }

    #[test]
    fn what_two_readers_could_read_differently_is_refused() {
        for text in [
            r#"{"id":1,"method":"a","method":"terminal/create"}"#,
            r#"{"id":1,"method":"a","METHOD":"terminal/create"}"#,
            r#"{"id":1,"method":"a","id":2}"#,
            r#"{"id":1,"method":"a","result":1}"#,
            r#"{"jsonrpc":"2.0"}"#,
            r#"{"id":1,"Result":1}"#,
            r#"{"id":{},"result":1}"#,
            r#"{"method":5}"#,
            "[1",
            "7",
            "",
        ] {
            assert!(parse_one(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_method_is_read_through_its_escapes() {
        let escaped = one(r#"{"id":1,"m\u0065thod":"terminal\/create"}"#);
        assert_eq!(escaped.method(), Some("terminal/create"));
    }

    #[test]
    fn depth_does_not_matter() {
        let deep = format!(r#"{{"method":"a","params":{}{}}}"#, "[".repeat(100_000), "]".repeat(100_000));
        assert!(matches!(one(&deep), Message::Notification { .. }));
    }

    #[test]
    fn ids_differ_by_type_and_not_by_spelling() {
        let key = |text: &str| id_key(&RawValue::from_string(text.to_owned()).unwrap());
        assert_ne!(key("1"), key("\"1\""));
        assert_eq!(key("\"a\""), key("\"\\u0061\""));
        assert_eq!((key("1"), key("-0")), (key("1.0"), key("0e5")));
        assert_ne!(key("123456789012345678901234567890"), key("123456789012345678901234567891"));
        assert_ne!(key("18446744073709551615"), key("18446744073709551614"));
        assert_ne!(key("1.5"), key("1"));
    }

    #[test]
    fn the_id_of_a_message_that_was_cut_off_is_found() {
        let (id, method) = peek_id(br#"{"jsonrpc":"2.0","id":"x","method":"m","params":{"a":"bbbb"#);
        assert_eq!(id.unwrap().get(), "\"x\"");
        assert_eq!(method.unwrap(), "m");
        assert!(peek_id(br#"{"params":"aaaa"#).0.is_none());
    }
}
