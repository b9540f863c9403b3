//! A text that repeats another text of its record, written as the places of that text: what a caller wrote stands in the
//! journal once.
//!
//! Pure; what is folded comes back as it was, whatever the texts are. Costs as much time as the texts are long.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

/// A text, or what it is made of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub(super) enum Folded {
    /// It has nothing of the other one.
    Whole(String),
    /// One after the other.
    Pieces(Vec<Piece>),
}

/// A part of a text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub(super) enum Piece {
    /// Of its own.
    Own(String),
    /// Of the other text: the first byte, and how many.
    Of(usize, usize),
}

/// What is shorter is not worth its place's numbers.
const SHORTEST: usize = 8;

impl Folded {
    /// Whether the text is empty.
    pub(super) fn is_empty(&self) -> bool {
        matches!(self, Self::Whole(text) if text.is_empty())
    }

    /// The text.
    pub(super) fn unfold(self, of: &str) -> String {
        match self {
            Self::Whole(text) => text,
            Self::Pieces(pieces) => pieces.into_iter().map(|piece| piece.unfold(of)).collect(),
        }
    }
}

impl Piece {
    fn unfold(self, of: &str) -> String {
        match self {
            Self::Own(text) => text,
            // A place that is not there is in no record that this program wrote.
            Self::Of(at, bytes) => {
                at.checked_add(bytes).and_then(|end| of.get(at..end)).unwrap_or("\u{fffd}").to_owned()
            }
        }
    }
}

/// Folds texts into another one.
pub(super) struct Fold<'a> {
    of: &'a str,
    /// Where each run of the shortest length first stands. Made for the first text that is not one piece.
    places: Option<HashMap<&'a [u8], usize>>,
}

impl<'a> Fold<'a> {
    pub(super) fn into(of: &'a str) -> Self {
        Self { of, places: None }
    }

    pub(super) fn fold(&mut self, text: &str) -> Folded {
        if text.len() < SHORTEST || self.of.len() < SHORTEST {
            return match self.of.find(text) {
                Some(at) if !text.is_empty() && self.of == text => {
                    Folded::Pieces(vec![Piece::Of(at, text.len())])
                }
                _ => Folded::Whole(text.to_owned()),
            };
        }
        if let Some(at) = self.of.find(text) {
            return Folded::Pieces(vec![Piece::Of(at, text.len())]);
        }
        let pieces = self.pieces(text);
        match &pieces[..] {
            [Piece::Own(_)] => Folded::Whole(text.to_owned()),
            _ => Folded::Pieces(pieces),
        }
    }

    fn pieces(&mut self, text: &str) -> Vec<Piece> {
        let of = self.of.as_bytes();
        let places = self.places.get_or_insert_with(|| {
            let mut places = HashMap::with_capacity(of.len());
            for (at, run) in of.windows(SHORTEST).enumerate() {
                places.entry(run).or_insert(at);
            }
            places
        });
        let bytes = text.as_bytes();
        let (mut pieces, mut own, mut at) = (Vec::new(), 0, 0);
        while at + SHORTEST <= bytes.len() {
            let found = text.is_char_boundary(at).then(|| places.get(&bytes[at..at + SHORTEST])).flatten();
            let mut length = found.map_or(0, |place| same_bytes(&of[*place..], &bytes[at..]));
            while length > 0 && !text.is_char_boundary(at + length) {
                length -= 1;
            }
            match found {
                Some(place) if length > 0 => {
                    if own < at {
                        pieces.push(Piece::Own(text[own..at].to_owned()));
                    }
                    pieces.push(Piece::Of(*place, length));
                    at += length;
                    own = at;
                }
                _ => at += 1,
            }
        }
        if own < text.len() {
            pieces.push(Piece::Own(text[own..].to_owned()));
        }
        pieces
    }
}

/// How many bytes two texts have in common at their beginning.
fn same_bytes(one: &[u8], other: &[u8]) -> usize {
    one.iter().zip(other).take_while(|(a, b)| a == b).count()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_repeated_is_not_written_again() {
        let of = "sh -c echo 'MARKER_12345' \"$x\"; ls -la /usr/share";
        let mut fold = Fold::into(of);
        assert_eq!(fold.fold(of), Folded::Pieces(vec![Piece::Of(0, of.len())]));
        let folded = fold.fold("echo MARKER_12345 MARKER_12345");
        let text = serde_json::to_string(&folded).unwrap();
        assert_eq!(text, r#"["echo ",[12,12]," ",[12,12]]"#);
        assert_eq!(fold.fold("another text"), Folded::Whole("another text".to_owned()));
        assert_eq!(fold.fold("ls"), Folded::Whole("ls".to_owned()));
        assert_eq!(serde_json::from_str::<Folded>(&text).unwrap(), folded);
        assert_eq!(Folded::Pieces(vec![Piece::Of(usize::MAX, 2)]).unfold(of), "\u{fffd}");
    }

    proptest! {
        #[test]
        fn what_is_folded_comes_back(of in "[ab漢é ]{0,60}", text in "[ab漢é ]{0,60}") {
            let folded = Fold::into(&of).fold(&text);
            let written = serde_json::to_string(&folded).unwrap();
            let read: Folded = serde_json::from_str(&written).unwrap();
            prop_assert_eq!(read.unfold(&of), text);
        }
    }
}
