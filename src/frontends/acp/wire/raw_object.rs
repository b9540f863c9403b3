//! JSON objects, of which some fields are changed and the rest stays the text that it was, in the order that it had.
//!
//! Numbers keep their digits, strings their escapes. What a field means is not known here.

use std::{borrow::Cow, fmt};

use serde::{
    Deserialize, Deserializer, Serialize,
    de::{MapAccess, Visitor},
    ser::SerializeMap,
};
use serde_json::value::RawValue;

/// An object whose fields keep their order and their text, so that some can be changed and the rest stays.
#[derive(Debug, Clone, Default)]
pub(in crate::acp) struct RawObject<'a>(Vec<(Cow<'a, str>, Cow<'a, RawValue>)>);

impl<'a> RawObject<'a> {
    /// Of a raw value that is an object; none where it is none.
    pub(in crate::acp) fn parse(raw: &'a RawValue) -> Option<Self> {
        serde_json::from_str(raw.get()).ok()
    }

    /// A field's text.
    pub(in crate::acp) fn get(&self, key: &str) -> Option<&RawValue> {
        self.0.iter().find(|(name, _)| name == key).map(|(_, value)| value.as_ref())
    }

    /// A field's text, for as long as what it was read from; none where it was set since.
    pub(in crate::acp) fn borrowed(&self, key: &str) -> Option<&'a RawValue> {
        self.0.iter().find(|(name, _)| name == key).and_then(|(_, value)| match value {
            Cow::Borrowed(raw) => Some(*raw),
            Cow::Owned(_) => None,
        })
    }

    /// A field that is a string without escapes: a word of the protocol.
    pub(in crate::acp) fn unescaped_text(&self, key: &str) -> Option<&str> {
        serde_json::from_str(self.get(key)?.get()).ok()
    }

    /// A field that is a string.
    pub(in crate::acp) fn text(&self, key: &str) -> Option<String> {
        serde_json::from_str(self.get(key)?.get()).ok()
    }

    /// A field that is an object.
    pub(super) fn object(&self, key: &str) -> Option<RawObject<'_>> {
        RawObject::parse(self.get(key)?)
    }

    /// Sets a field where it stands, or at the end.
    pub(in crate::acp) fn set(&mut self, key: &'static str, value: &impl Serialize) {
        let value = serde_json::value::to_raw_value(value)
            .expect("the protocol's types, plain values and raw JSON are always JSON");
        self.remove_all_but_first(key);
        match self.0.iter_mut().find(|(name, _)| name == key) {
            Some((_, old)) => *old = Cow::Owned(value),
            None => self.0.push((Cow::Borrowed(key), Cow::Owned(value))),
        }
    }

    /// Takes over every field of `newer`.
    pub(in crate::acp) fn merge(&mut self, newer: &RawObject<'a>) {
        for (key, value) in &newer.0 {
            match self.0.iter_mut().find(|(name, _)| name == key) {
                Some((_, old)) => *old = value.clone(),
                None => self.0.push((key.clone(), value.clone())),
            }
        }
    }

    /// The same, borrowing nothing.
    pub(in crate::acp) fn into_owned(self) -> RawObject<'static> {
        let owned = |(key, value): (Cow<'_, str>, Cow<'_, RawValue>)| {
            (Cow::Owned(key.into_owned()), Cow::Owned(value.into_owned()))
        };
        RawObject(self.0.into_iter().map(owned).collect())
    }

    /// The same without a field.
    pub(in crate::acp) fn without(mut self, key: &str) -> Self {
        self.0.retain(|(name, _)| name != key);
        self
    }

    /// Drops what does not fit any more, and those behind it.
    pub(in crate::acp) fn truncate_to(&mut self, limit_bytes: usize) {
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

/// A text, borrowed where it holds no escapes.
pub(super) struct JsonText<'a>(pub(super) Cow<'a, str>);

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
