//! Delta encoding of a text against another text of the same record, so that a caller's text is in the journal once.
//!
//! Pure. Decoding returns the original text for all texts, in time linear in their length.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

/// A text, or what it is made of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub(super) enum DeltaText {
    /// It has nothing of the other one.
    Plain(String),
    /// One after the other.
    Pieces(Vec<Piece>),
}

/// A part of a text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub(super) enum Piece {
    /// Of its own.
    Literal(String),
    /// Of the other text: the first byte, and how many.
    Copy(usize, usize),
}

/// What is shorter is not worth its place's numbers.
const MIN_COPY_BYTES: usize = 8;

impl DeltaText {
    /// Whether the text is empty.
    pub(super) fn is_empty(&self) -> bool {
        matches!(self, Self::Plain(text) if text.is_empty())
    }

    /// The text.
    pub(super) fn decode(self, of: &str) -> String {
        match self {
            Self::Plain(text) => text,
            Self::Pieces(pieces) => pieces.into_iter().map(|piece| piece.decode(of)).collect(),
        }
    }
}

impl Piece {
    fn decode(self, of: &str) -> String {
        match self {
            Self::Literal(text) => text,
            // A place that is not there is in no record that this program wrote.
            Self::Copy(at, bytes) => {
                at.checked_add(bytes).and_then(|end| of.get(at..end)).unwrap_or("\u{fffd}").to_owned()
            }
        }
    }
}

/// Encodes texts as deltas of another one.
pub(super) struct DeltaEncoder<'a> {
    of: &'a str,
    /// Where each run of the shortest length first stands. Made for the first text that is not one piece.
    first_positions: Option<HashMap<&'a [u8], usize>>,
}

impl<'a> DeltaEncoder<'a> {
    pub(super) fn into(of: &'a str) -> Self {
        Self { of, first_positions: None }
    }

    pub(super) fn encode(&mut self, text: &str) -> DeltaText {
        if text.len() < MIN_COPY_BYTES || self.of.len() < MIN_COPY_BYTES {
            return match self.of.find(text) {
                Some(at) if !text.is_empty() && self.of == text => {
                    DeltaText::Pieces(vec![Piece::Copy(at, text.len())])
                }
                _ => DeltaText::Plain(text.to_owned()),
            };
        }
        if let Some(at) = self.of.find(text) {
            return DeltaText::Pieces(vec![Piece::Copy(at, text.len())]);
        }
        let pieces = self.pieces(text);
        match &pieces[..] {
            [Piece::Literal(_)] => DeltaText::Plain(text.to_owned()),
            _ => DeltaText::Pieces(pieces),
        }
    }

    fn pieces(&mut self, text: &str) -> Vec<Piece> {
        let of = self.of.as_bytes();
        let places = self.first_positions.get_or_insert_with(|| {
            let mut places = HashMap::with_capacity(of.len());
            for (at, run) in of.windows(MIN_COPY_BYTES).enumerate() {
                places.entry(run).or_insert(at);
            }
            places
        });
        let bytes = text.as_bytes();
        let (mut pieces, mut own, mut at) = (Vec::new(), 0, 0);
        while at + MIN_COPY_BYTES <= bytes.len() {
            let found =
                text.is_char_boundary(at).then(|| places.get(&bytes[at..at + MIN_COPY_BYTES])).flatten();
            let mut length = found.map_or(0, |place| shared_prefix_bytes(&of[*place..], &bytes[at..]));
            while length > 0 && !text.is_char_boundary(at + length) {
                length -= 1;
            }
            match found {
                Some(place) if length > 0 => {
                    if own < at {
                        pieces.push(Piece::Literal(text[own..at].to_owned()));
                    }
                    pieces.push(Piece::Copy(*place, length));
                    at += length;
                    own = at;
                }
                _ => at += 1,
            }
        }
        if own < text.len() {
            pieces.push(Piece::Literal(text[own..].to_owned()));
        }
        pieces
    }
}

/// How many bytes two texts have in common at their beginning.
fn shared_prefix_bytes(one: &[u8], other: &[u8]) -> usize {
    one.iter().zip(other).take_while(|(a, b)| a == b).count()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_repeated_is_not_written_again() {
        let of = "sh -c echo 'MARKER_12345' \"$x\"; ls -la /usr/share";
        let mut encoder = DeltaEncoder::into(of);
        assert_eq!(encoder.encode(of), DeltaText::Pieces(vec![Piece::Copy(0, of.len())]));
        let encoded = encoder.encode("echo MARKER_12345 MARKER_12345");
        let text = serde_json::to_string(&encoded).unwrap();
        assert_eq!(text, r#"["echo ",[12,12]," ",[12,12]]"#);
        assert_eq!(encoder.encode("another text"), DeltaText::Plain("another text".to_owned()));
        assert_eq!(encoder.encode("ls"), DeltaText::Plain("ls".to_owned()));
        assert_eq!(serde_json::from_str::<DeltaText>(&text).unwrap(), encoded);
        assert_eq!(DeltaText::Pieces(vec![Piece::Copy(usize::MAX, 2)]).decode(of), "\u{fffd}");
    }

    proptest! {
        #[test]
        fn what_is_encoded_comes_back(of in "[ab漢é ]{0,60}", text in "[ab漢é ]{0,60}") {
            let encoded = DeltaEncoder::into(&of).encode(&text);
            let written = serde_json::to_string(&encoded).unwrap();
            let read: DeltaText = serde_json::from_str(&written).unwrap();
            prop_assert_eq!(read.decode(&of), text);
        }
    }
}
