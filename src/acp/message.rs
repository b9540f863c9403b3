//! JSON-RPC messages, read only as deeply as routing needs.
//!
//! A line is looked at once: which keys stand at its top, and what the id and the method are. Everything else stays
//! the text that it was. What two readers could take for two different messages is refused: a key given twice, or one
//! that differs from a key of the protocol in nothing but case.

use std::{borrow::Cow, fmt};

use agent_client_protocol_schema::v1::Error;
use serde::{
    Deserialize, Deserializer, Serialize,
    de::{Error as _, IgnoredAny, MapAccess, Visitor},
    ser::SerializeMap,
};
use serde_json::value::RawValue;

/// The keys that a message may have at its top. Others are carried and not looked at.
const KEYS: [&str; 6] = ["jsonrpc", "id", "method", "params", "result", "error"];

/// What one line holds.
#[derive(Debug)]
pub(super) enum Parsed<'a> {
    /// One message.
    One(Message<'a>),
    /// An array of messages, each as the text that it was.
    Batch(Vec<&'a RawValue>),
}

/// One message.
#[derive(Debug)]
pub(super) enum Message<'a> {
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
pub(super) enum Unreadable {
    /// Not UTF-8.
    #[error("a message must be UTF-8")]
    Utf8(#[from] std::str::Utf8Error),
    /// Not JSON, or a key twice.
    #[error("a message must be one JSON object on one line: {0}")]
    Json(#[from] serde_json::Error),
    /// JSON that is neither request nor notification nor answer.
    #[error("a message has a method, or an id with a result or an error")]
    Shape {
        /// The id, where there is one that can be answered.
        id: Option<Box<RawValue>>,
    },
}

impl<'a> Message<'a> {
    /// The method; none of an answer.
    #[cfg(test)]
    pub(super) fn method(&self) -> Option<&str> {
        match self {
            Self::Request { method, .. } | Self::Notification { method, .. } => Some(method),
            Self::Response { .. } => None,
        }
    }
}

/// Reads a line.
pub(super) fn parse(line: &[u8]) -> Result<Parsed<'_>, Unreadable> {
    let text = std::str::from_utf8(line)?;
    if text.trim_ascii_start().starts_with('[') {
        return Ok(Parsed::Batch(serde_json::from_str(text)?));
    }
    parse_one(text).map(Parsed::One)
}

/// Reads one message.
pub(super) fn parse_one(text: &str) -> Result<Message<'_>, Unreadable> {
    let Envelope { id, method, params, result, error } = serde_json::from_str(text)?;
    let id = id.filter(|id| is_id(id));
    match (id, method, result, error) {
        (Some(id), Some(method), None, None) => Ok(Message::Request { id, method, params }),
        (None, Some(method), None, None) => Ok(Message::Notification { method, params }),
        (Some(id), None, result, error) if result.is_some() || error.is_some() => {
            Ok(Message::Response { id, result: result.filter(|_| error.is_none()) })
        }
        (id, _, _, _) => Err(Unreadable::Shape { id: id.map(ToOwned::to_owned) }),
    }
}

/// The id and the method of a message whose end is missing, as far as they stand in `beginning`.
pub(super) fn glance(beginning: &[u8]) -> (Option<Box<RawValue>>, Option<String>) {
    let whole = match std::str::from_utf8(beginning) {
        Ok(text) => text,
        Err(error) => std::str::from_utf8(&beginning[..error.valid_up_to()]).unwrap_or_default(),
    };
    let mut seen = Glance::default();
    // That it ends early is known; what stood before the end is what counts.
    let _ = serde_json::Deserializer::from_str(whole).deserialize_map(&mut seen);
    (seen.id, seen.method)
}

/// What tells two ids apart: `1` and `"1"` are two, `"a"` and `"\u0061"` are one.
pub(super) fn key_of(id: &RawValue) -> String {
    serde_json::from_str::<serde_json::Value>(id.get())
        .map_or_else(|_| id.get().to_owned(), |id| id.to_string())
}

/// The line that answers `id` with a result, which is JSON already.
pub(super) fn result_line(id: &RawValue, result: &str) -> Vec<u8> {
    let mut line = Vec::with_capacity(result.len() + id.get().len() + 40);
    line.extend_from_slice(b"{\"jsonrpc\":\"2.0\",\"id\":");
    line.extend_from_slice(id.get().as_bytes());
    line.extend_from_slice(b",\"result\":");
    line.extend_from_slice(result.as_bytes());
    line.extend_from_slice(b"}\n");
    line
}

/// The line that answers `id`, or nobody in particular, with an error.
pub(super) fn error_line(id: Option<&RawValue>, error: &Error) -> Vec<u8> {
    #[derive(Serialize)]
    struct Line<'a> {
        jsonrpc: &'a str,
        id: Option<&'a RawValue>,
        error: &'a Error,
    }
    to_line(&Line { jsonrpc: "2.0", id, error })
}

/// The line of a request of our own.
pub(super) fn request_line(id: &str, method: &str, params: &impl Serialize) -> Vec<u8> {
    #[derive(Serialize)]
    struct Line<'a, P> {
        jsonrpc: &'a str,
        id: &'a str,
        method: &'a str,
        params: &'a P,
    }
    to_line(&Line { jsonrpc: "2.0", id, method, params })
}

/// The line of a notification of our own.
pub(super) fn notification_line(method: &str, params: &impl Serialize) -> Vec<u8> {
    #[derive(Serialize)]
    struct Line<'a, P> {
        jsonrpc: &'a str,
        method: &'a str,
        params: &'a P,
    }
    to_line(&Line { jsonrpc: "2.0", method, params })
}

fn to_line(message: &impl Serialize) -> Vec<u8> {
    let mut line = serde_json::to_vec(message).expect("the protocol's types and raw JSON are always JSON");
    line.push(b'\n');
    line
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
        while let Some(Text(key)) = map.next_key()? {
            let raw = match key.as_ref() {
                "method" => {
                    let Text(method) = map.next_value()?;
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
struct Glance {
    id: Option<Box<RawValue>>,
    method: Option<String>,
}

impl<'de> Visitor<'de> for &mut Glance {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON-RPC message")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(Text(key)) = map.next_key()? {
            match key.as_ref() {
                "id" => self.id = Some(map.next_value::<Box<RawValue>>()?).filter(|id| is_id(id)),
                "method" => self.method = Some(map.next_value()?),
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }
}

/// A text, borrowed where it holds no escapes.
struct Text<'a>(Cow<'a, str>);

impl<'de> Deserialize<'de> for Text<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextVisitor;
        impl<'de> Visitor<'de> for TextVisitor {
            type Value = Text<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }
            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Text<'de>, E> {
                Ok(Text(Cow::Borrowed(text)))
            }
            fn visit_str<E>(self, text: &str) -> Result<Text<'de>, E> {
                Ok(Text(Cow::Owned(text.to_owned())))
            }
        }
        deserializer.deserialize_str(TextVisitor)
    }
}

/// An object whose fields keep their order and their text, so that some can be changed and the rest stays.
#[derive(Debug, Clone, Default)]
pub(super) struct Fields<'a>(Vec<(Cow<'a, str>, Cow<'a, RawValue>)>);

impl<'a> Fields<'a> {
    /// Of a raw value that is an object; none where it is none.
    pub(super) fn of(raw: &'a RawValue) -> Option<Self> {
        serde_json::from_str(raw.get()).ok()
    }

    /// A field's text.
    pub(super) fn get(&self, key: &str) -> Option<&RawValue> {
        self.0.iter().find(|(name, _)| name == key).map(|(_, value)| value.as_ref())
    }

    /// A field's text, for as long as what it was read from; none where it was set since.
    pub(super) fn borrowed(&self, key: &str) -> Option<&'a RawValue> {
        self.0.iter().find(|(name, _)| name == key).and_then(|(_, value)| match value {
            Cow::Borrowed(raw) => Some(*raw),
            Cow::Owned(_) => None,
        })
    }

    /// A field that is a string without escapes: a word of the protocol.
    pub(super) fn plain_text(&self, key: &str) -> Option<&str> {
        serde_json::from_str(self.get(key)?.get()).ok()
    }

    /// A field that is a string.
    pub(super) fn text(&self, key: &str) -> Option<String> {
        serde_json::from_str(self.get(key)?.get()).ok()
    }

    /// A field that is an object.
    pub(super) fn object(&self, key: &str) -> Option<Fields<'_>> {
        Fields::of(self.get(key)?)
    }

    /// Sets a field where it stands, or at the end.
    pub(super) fn set(&mut self, key: &'static str, value: &impl Serialize) {
        let value = serde_json::value::to_raw_value(value)
            .expect("the protocol's types, plain values and raw JSON are always JSON");
        self.remove_all_but_first(key);
        match self.0.iter_mut().find(|(name, _)| name == key) {
            Some((_, old)) => *old = Cow::Owned(value),
            None => self.0.push((Cow::Borrowed(key), Cow::Owned(value))),
        }
    }

    /// Takes over every field of `newer`.
    pub(super) fn merge(&mut self, newer: &Fields<'a>) {
        for (key, value) in &newer.0 {
            match self.0.iter_mut().find(|(name, _)| name == key) {
                Some((_, old)) => *old = value.clone(),
                None => self.0.push((key.clone(), value.clone())),
            }
        }
    }

    /// The same, borrowing nothing.
    pub(super) fn into_owned(self) -> Fields<'static> {
        let owned = |(key, value): (Cow<'_, str>, Cow<'_, RawValue>)| {
            (Cow::Owned(key.into_owned()), Cow::Owned(value.into_owned()))
        };
        Fields(self.0.into_iter().map(owned).collect())
    }

    /// The same without a field.
    pub(super) fn without(mut self, key: &str) -> Self {
        self.0.retain(|(name, _)| name != key);
        self
    }

    /// The same without fields whose text is longer.
    pub(super) fn no_longer_than(mut self, limit_bytes: usize) -> Self {
        self.0.retain(|(_, value)| value.get().len() <= limit_bytes);
        self
    }

    fn remove_all_but_first(&mut self, key: &str) {
        let mut seen = false;
        self.0.retain(|(name, _)| name != key || !std::mem::replace(&mut seen, true));
    }
}

impl<'de> Deserialize<'de> for Fields<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct FieldsVisitor;
        impl<'de> Visitor<'de> for FieldsVisitor {
            type Value = Fields<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields<'de>, A::Error> {
                let mut fields = Vec::new();
                while let Some(Text(key)) = map.next_key()? {
                    fields.push((key, Cow::Borrowed(map.next_value::<&RawValue>()?)));
                }
                Ok(Fields(fields))
            }
        }
        deserializer.deserialize_map(FieldsVisitor)
    }
}

impl Serialize for Fields<'_> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (key, value) in &self.0 {
            map.serialize_entry(key, value)?;
        }
        map.end()
    }
}

/// A whole message with other params.
pub(super) fn with_params(line: &[u8], params: &Fields<'_>) -> Option<Vec<u8>> {
    let mut message: Fields<'_> = serde_json::from_slice(line).ok()?;
    message.set("params", params);
    Some(to_line(&message))
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
    }

    #[test]
    fn what_two_readers_could_read_differently_is_refused() {
        for text in [
            r#"{"id":1,"method":"a","method":"terminal/create"}"#,
            r#"{"id":1,"method":"a","METHOD":"terminal/create"}"#,
            r#"{"id":1,"method":"a","id":2}"#,
            r#"{"id":1,"method":"a","result":1}"#,
            r#"{"id":1}"#,
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
        let key = |text: &str| key_of(&RawValue::from_string(text.to_owned()).unwrap());
        assert_ne!(key("1"), key("\"1\""));
        assert_eq!(key("\"a\""), key("\"\\u0061\""));
    }

    #[test]
    fn the_id_of_a_message_that_was_cut_off_is_found() {
        let (id, method) = glance(br#"{"jsonrpc":"2.0","id":"x","method":"m","params":{"a":"bbbb"#);
        assert_eq!(id.unwrap().get(), "\"x\"");
        assert_eq!(method.unwrap(), "m");
        assert!(glance(br#"{"params":"aaaa"#).0.is_none());
    }

    #[test]
    fn fields_keep_their_order_and_their_text() {
        let raw = RawValue::from_string(r#"{"b":1.00,"a":{"z": 1e999},"c":3}"#.to_owned()).unwrap();
        let mut fields = Fields::of(&raw).unwrap();
        fields.set("c", &true);
        fields.set("d", &"x");
        assert_eq!(
            serde_json::to_string(&fields).unwrap(),
            r#"{"b":1.00,"a":{"z": 1e999},"c":true,"d":"x"}"#
        );
    }
}
