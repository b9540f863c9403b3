//! Lines that are made or changed here: messages of our own, and those of others of which some fields are changed and the rest stays the text
//! that it was, in the order that it had.
//!
//! Numbers keep their digits, strings their escapes; ids and results are JSON already and are written as they are. What a field means is not
//! known here.

use std::{borrow::Cow, fmt};

use agent_client_protocol_schema::v1::Error;
use serde::{
    Deserialize, Deserializer, Serialize,
    de::{MapAccess, Visitor},
    ser::SerializeMap,
};
use serde_json::value::RawValue;

use crate::{
    json_rpc::{JsonText, OutgoingLine},
    printable,
};

/// The line that answers `id` with a result, which is JSON already.
pub(super) fn result_line(id: &RawValue, result: &str) -> Vec<u8> {
    OutgoingLine::new().with("id", id).with_json("result", result).end()
}

/// The line that answers `id`, or nobody in particular, with an error.
pub(super) fn error_line(id: Option<&RawValue>, error: &Error) -> Vec<u8> {
    printable::json_bytes(OutgoingLine::new().with("id", &id).with("error", error).end())
}

/// The line of a request of our own.
pub(super) fn request_line(id: &str, method: &str, params: &impl Serialize) -> Vec<u8> {
    let line = OutgoingLine::new().with("id", id).with("method", method).with("params", params);
    printable::json_bytes(line.end())
}

/// The line of a notification of our own.
pub(super) fn notification_line(method: &str, params: &impl Serialize) -> Vec<u8> {
    printable::json_bytes(OutgoingLine::new().with("method", method).with("params", params).end())
}

/// A whole message with other params; none where it is no object.
pub(super) fn with_params(line: &[u8], params: &RawObject<'_>) -> Option<Vec<u8>> {
    let mut message: RawObject<'_> = serde_json::from_slice(line).ok()?;
    message.set("params", params);
    let mut line = serde_json::to_vec(&message).expect("raw JSON is always JSON");
    line.push(b'\n');
    Some(line)
}

/// An object whose fields keep their order and their text, so that some can be changed and the rest stays.
#[derive(Debug, Clone, Default)]
pub(super) struct RawObject<'a>(Vec<(Cow<'a, str>, Cow<'a, RawValue>)>);

impl<'a> RawObject<'a> {
    /// The fields of a raw value; none where it is no object.
    pub(super) fn parse(raw: &'a RawValue) -> Option<Self> {
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
    pub(super) fn unescaped_text(&self, key: &str) -> Option<&str> {
        serde_json::from_str(self.get(key)?.get()).ok()
    }

    /// A field that is a string.
    pub(super) fn text(&self, key: &str) -> Option<String> {
        serde_json::from_str(self.get(key)?.get()).ok()
    }

    /// A field that is an object.
    pub(super) fn object(&self, key: &str) -> Option<RawObject<'_>> {
        RawObject::parse(self.get(key)?)
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
    pub(super) fn merge(&mut self, newer: &RawObject<'a>) {
        for (key, value) in &newer.0 {
            match self.0.iter_mut().find(|(name, _)| name == key) {
                Some((_, old)) => *old = value.clone(),
                None => self.0.push((key.clone(), value.clone())),
            }
        }
    }

    /// The same, borrowing nothing.
    pub(super) fn into_owned(self) -> RawObject<'static> {
        let owned = |(key, value): (Cow<'_, str>, Cow<'_, RawValue>)| {
            (Cow::Owned(key.into_owned()), Cow::Owned(value.into_owned()))
        };
        RawObject(self.0.into_iter().map(owned).collect())
    }

    /// The same without a field.
    pub(super) fn without(mut self, key: &str) -> Self {
        self.0.retain(|(name, _)| name != key);
        self
    }

    /// Drops what does not fit any more, and those behind it.
    pub(super) fn truncate_to(&mut self, limit_bytes: usize) {
        let mut left = limit_bytes;
        let fits = |(key, value): &(Cow<'_, str>, Cow<'_, RawValue>)| {
            let length = key.len() + value.get().len();
            let fits = length <= left;
            left = left.saturating_sub(length);
            fits
        };
        self.0.retain(fits);
    }

    fn remove_all_but_first(&mut self, key: &str) {
        let mut seen = false;
        self.0.retain(|(name, _)| name != key || !std::mem::replace(&mut seen, true));
    }
}

impl<'de> Deserialize<'de> for RawObject<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct FieldsVisitor;
        impl<'de> Visitor<'de> for FieldsVisitor {
            type Value = RawObject<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<RawObject<'de>, A::Error> {
                let mut fields = Vec::new();
                while let Some(JsonText(key)) = map.next_key()? {
                    fields.push((key, Cow::Borrowed(map.next_value::<&RawValue>()?)));
                }
                Ok(RawObject(fields))
            }
        }
        deserializer.deserialize_map(FieldsVisitor)
    }
}

impl Serialize for RawObject<'_> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (key, value) in &self.0 {
            map.serialize_entry(key, value)?;
        }
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_keep_their_order_and_their_text() {
        let raw = RawValue::from_string(r#"{"b":1.00,"a":{"z": 1e999},"c":3}"#.to_owned()).unwrap();
        let mut fields = RawObject::parse(&raw).unwrap();
        fields.set("c", &true);
        fields.set("d", &"x");
        assert_eq!(
            serde_json::to_string(&fields).unwrap(),
            r#"{"b":1.00,"a":{"z": 1e999},"c":true,"d":"x"}"#
        );
    }
}
