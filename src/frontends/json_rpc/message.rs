//! JSON-RPC messages, read only as deeply as routing needs.
//!
//! A line is looked at once: which keys stand at its top, and what the id and the method are. Everything else stays
//! the text that it was. What two readers could take for two different messages is refused: a key given twice, or one
//! that differs from a key of the protocol in nothing but case. A message of our own is made as the line that is sent; ids and results that
//! are JSON already are written as they are.

use std::{borrow::Cow, fmt};

use serde::{
    Deserialize, Deserializer, Serialize,
    de::{Error as _, IgnoredAny, MapAccess, Visitor},
};
use serde_json::value::RawValue;

/// Up to here whole numbers are exact in a reader that knows nothing but double precision: 2^53 - 1.
const EXACT_INTEGER_MAX: f64 = 9_007_199_254_740_991.0;
/// The keys that a message may have at its top. Others are carried and not looked at.
const KEYS: [&str; 6] = ["jsonrpc", "id", "method", "params", "result", "error"];

/// What one line holds.
#[derive(Debug)]
pub(crate) enum ParsedLine<'a> {
    /// One message.
    One(Message<'a>),
    /// An array of messages, each as the text that it was.
    Batch(Vec<&'a RawValue>),
}

/// One message.
#[derive(Debug)]
pub(crate) enum Message<'a> {
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
        /// That of the request.
        id: &'a RawValue,
        /// The result; absent where it is an error.
        result: Option<&'a RawValue>,
    },
}

/// Why a line is no message.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MessageError {
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
    pub(crate) fn method(&self) -> Option<&str> {
        match self {
            Self::Request { method, .. } | Self::Notification { method, .. } => Some(method),
            Self::Response { .. } => None,
        }
    }
}

/// Reads a line.
pub(crate) fn parse(line: &[u8]) -> Result<ParsedLine<'_>, MessageError> {
    let text = std::str::from_utf8(line)?;
    if text.trim_ascii_start().starts_with('[') {
        return Ok(ParsedLine::Batch(serde_json::from_str(text)?));
    }
    parse_one(text).map(ParsedLine::One)
}

/// Reads one message.
pub(crate) fn parse_one(text: &str) -> Result<Message<'_>, MessageError> {
    let Envelope { id, method, params, result, error } = Envelope::read(text, Ambiguity::Refused)?;
    let id = id.filter(|id| is_id(id));
    let method = method.map(|raw| serde_json::from_str(raw.get())).transpose()?.map(|JsonText(text)| text);
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

/// What tells two ids apart: `1` and `"1"` are two, `"a"` and `"\u0061"` are one, and so are `1` and `1.0`. A number that
/// not every reader holds exactly is the text that it is.
pub(crate) fn id_key(id: &RawValue) -> String {
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

/// Whether an answer can have it: strings, numbers and null. An object as an id cannot be matched with anything.
pub(crate) fn is_id(id: &RawValue) -> bool {
    !matches!(id.get().as_bytes().first(), Some(b'{' | b'[' | b't' | b'f') | None)
}

/// What becomes of a message that two readers could take for two different ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ambiguity {
    /// It is none.
    Refused,
    /// If a key stands twice the last one counts, and other spellings are other keys.
    LastCounts,
}

/// The members of a message that the protocol knows, as they were written.
#[derive(Debug)]
pub(crate) struct Envelope<'a> {
    pub(crate) id: Option<&'a RawValue>,
    pub(crate) method: Option<&'a RawValue>,
    pub(crate) params: Option<&'a RawValue>,
    pub(crate) result: Option<&'a RawValue>,
    pub(crate) error: Option<&'a RawValue>,
}

impl<'a> Envelope<'a> {
    /// Reads one object.
    pub(crate) fn read(text: &'a str, ambiguity: Ambiguity) -> Result<Self, serde_json::Error> {
        let mut from = serde_json::Deserializer::from_str(text);
        let envelope = from.deserialize_map(EnvelopeVisitor(ambiguity))?;
        from.end()?;
        Ok(envelope)
    }
}

struct EnvelopeVisitor(Ambiguity);

impl<'de> Visitor<'de> for EnvelopeVisitor {
    type Value = Envelope<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON-RPC message")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Envelope<'de>, A::Error> {
        let mut envelope = Envelope { id: None, method: None, params: None, result: None, error: None };
        let refuses = self.0 == Ambiguity::Refused;
        while let Some(JsonText(key)) = map.next_key()? {
            let member = match key.as_ref() {
                "id" => &mut envelope.id,
                "method" => &mut envelope.method,
                "params" => &mut envelope.params,
                "result" => &mut envelope.result,
                "error" => &mut envelope.error,
                other => {
                    let is_spelled_otherwise =
                        other != "jsonrpc" && KEYS.iter().any(|key| key.eq_ignore_ascii_case(other));
                    if refuses && is_spelled_otherwise {
                        return Err(A::Error::custom(format!("the key {other:?} is not written like that")));
                    }
                    map.next_value::<IgnoredAny>()?;
                    continue;
                }
            };
            if member.replace(map.next_value()?).is_some() && refuses {
                return Err(A::Error::custom(format!("the key {key:?} stands twice")));
            }
        }
        Ok(envelope)
    }
}

/// What stands at the top of a message that breaks off, or that cannot be read.
#[derive(Debug, Default)]
pub(crate) struct Peeked<'a> {
    pub(crate) id: Option<&'a RawValue>,
    pub(crate) method: Option<&'a RawValue>,
}

impl<'a> Peeked<'a> {
    /// As far as it stands in `beginning`. A number with nothing behind it may be the beginning of a longer one, and is no id.
    pub(crate) fn of(beginning: &'a [u8]) -> Self {
        let text = match std::str::from_utf8(beginning) {
            Ok(text) => text,
            Err(error) => std::str::from_utf8(&beginning[..error.valid_up_to()]).unwrap_or_default(),
        };
        let mut seen = Self::default();
        // That it ends early is known; what stood before the end is what counts.
        let _ = serde_json::Deserializer::from_str(text).deserialize_map(&mut seen);
        let is_last =
            |id: &RawValue| id.get().as_bytes().as_ptr_range().end == text.as_bytes().as_ptr_range().end;
        seen.id = seen.id.filter(|id| id.get().starts_with('"') || !is_last(id));
        seen
    }

    /// The name of its method.
    pub(crate) fn method_name(&self) -> Option<String> {
        serde_json::from_str(self.method?.get()).ok()
    }
}

impl<'de> Visitor<'de> for &mut Peeked<'de> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON-RPC message")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(JsonText(key)) = map.next_key()? {
            match key.as_ref() {
                "id" => self.id = Some(map.next_value()?),
                "method" => self.method = Some(map.next_value()?),
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }
}

/// A text, borrowed where it holds no escapes.
pub(crate) struct JsonText<'a>(pub(crate) Cow<'a, str>);

impl<'de> Deserialize<'de> for JsonText<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextVisitor;
        impl<'de> Visitor<'de> for TextVisitor {
            type Value = JsonText<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }
            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<JsonText<'de>, E> {
                Ok(JsonText(Cow::Borrowed(text)))
            }
            fn visit_str<E>(self, text: &str) -> Result<JsonText<'de>, E> {
                Ok(JsonText(Cow::Owned(text.to_owned())))
            }
        }
        deserializer.deserialize_str(TextVisitor)
    }
}

/// A message of our own, member by member.
#[derive(Debug)]
pub(crate) struct OutgoingLine(Vec<u8>);

impl OutgoingLine {
    /// One that names its version.
    pub(crate) fn new() -> Self {
        Self(b"{\"jsonrpc\":\"2.0\"".to_vec())
    }

    /// One of a protocol that leaves the version out.
    pub(crate) fn without_version() -> Self {
        Self(b"{".to_vec())
    }

    /// Adds a member.
    pub(crate) fn with(mut self, name: &str, value: &(impl Serialize + ?Sized)) -> Self {
        self.push_name(name);
        serde_json::to_writer(&mut self.0, value).expect("a protocol's types and raw JSON are always JSON");
        self
    }

    /// Adds a member that is JSON already, and may be large.
    pub(crate) fn with_json(mut self, name: &str, json: &str) -> Self {
        self.0.reserve(name.len() + json.len() + 8);
        self.push_name(name);
        self.0.extend_from_slice(json.as_bytes());
        self
    }

    /// The line, with its end.
    pub(crate) fn end(mut self) -> Vec<u8> {
        self.0.extend_from_slice(b"}\n");
        self.0
    }

    fn push_name(&mut self, name: &str) {
        let separator: &[u8] = if self.0.len() == 1 { b"\"" } else { b",\"" };
        for part in [separator, name.as_bytes(), b"\":"] {
            self.0.extend_from_slice(part);
        }
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
    fn a_server_may_take_what_a_relay_refuses() {
        let text = r#"{"id":1,"method":"a","id":1.0,"ID":2}"#;
        let envelope = Envelope::read(text, Ambiguity::LastCounts).unwrap();
        assert_eq!(envelope.id.unwrap().get(), "1.0");
        assert!(Envelope::read(text, Ambiguity::Refused).is_err());
    }

    #[test]
    fn the_id_of_a_message_that_was_cut_off_is_found() {
        let seen = Peeked::of(br#"{"jsonrpc":"2.0","id":"x","method":"m","params":{"a":"bbbb"#);
        assert_eq!((seen.id.unwrap().get(), seen.method_name().unwrap().as_str()), ("\"x\"", "m"));
        assert!(Peeked::of(br#"{"params":"aaaa"#).id.is_none());
        assert!(Peeked::of(br#"{"id":1"#).id.is_none() && Peeked::of(br#"{"id":1,"x"#).id.is_some());
    }

    #[test]
    fn a_line_has_its_members_in_order_and_ids_as_they_were_written() {
        let id = RawValue::from_string("1.0e2".to_owned()).unwrap();
        let line = OutgoingLine::new().with("id", &id).with_json("result", "[1]").end();
        assert_eq!(line, b"{\"jsonrpc\":\"2.0\",\"id\":1.0e2,\"result\":[1]}\n");
        assert_eq!(OutgoingLine::without_version().with("id", &-1).end(), b"{\"id\":-1}\n");
    }
}
