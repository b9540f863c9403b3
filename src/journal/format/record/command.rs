//! Texts from a caller: cut to what a record holds, and encoded against another text of the same record, so that a caller's text is in the
//! journal once.
//!
//! Their length is bounded here; the code that makes a record redacts secret values first. Decoding returns the original text for all
//! texts, in time linear in their length.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use crate::byte_text;

/// The most bytes of a command that a record holds; the request's digest covers all of it.
pub(super) const MAX_COMMAND_BYTES: usize = 32 * 1024;

/// A command, as far as it fits.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedCommand {
    /// Program and arguments. Bytes that are no UTF-8 are `\\xNN`; the last one may be cut.
    pub argv: Vec<String>,
    /// Bytes that were left out, and one for each argument of which nothing is left.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cut_bytes: u64,
}

/// Where the text of a command stands that is written once, and meant by several records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum CommandLocation {
    /// In the record before this one.
    Preceding(PrecedingRecord),
    /// In the record of this number.
    Record(u64),
}

/// As `"before"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PrecedingRecord {
    /// The only word.
    Before,
}

impl CommandLocation {
    /// In the record before this one.
    pub const PRECEDING: Self = Self::Preceding(PrecedingRecord::Before);

    /// The number of the record, where this one's is known.
    pub fn sequence(self, of_this: u64) -> u64 {
        match self {
            Self::Preceding(PrecedingRecord::Before) => of_this.saturating_sub(1),
            Self::Record(sequence) => sequence,
        }
    }
}

impl RecordedCommand {
    /// Whether there is none here.
    pub fn is_empty(&self) -> bool {
        self.argv.is_empty() && self.cut_bytes == 0
    }

    /// Keeps the first [`MAX_COMMAND_BYTES`] of the arguments.
    pub fn new(argv: impl IntoIterator<Item = impl AsRef<[u8]>>) -> Self {
        let (argv, cut_bytes) = truncate_all(argv);
        Self { argv, cut_bytes }
    }
}

/// The commands that a request would run, as far as they could be seen and fit: each in its normal form.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JudgedCommands {
    /// One text for each, in the order in which they stand.
    pub commands: Vec<String>,
    /// Bytes that were left out, and one for each command of which nothing is left.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cut_bytes: u64,
}

impl JudgedCommands {
    /// Keeps the first [`MAX_COMMAND_BYTES`] of the commands.
    pub fn new(commands: impl IntoIterator<Item = impl AsRef<[u8]>>) -> Self {
        let (commands, cut_bytes) = truncate_all(commands);
        Self { commands, cut_bytes }
    }

    /// Whether nothing was judged: the request was refused before.
    pub fn is_empty(&self) -> bool {
        self.commands.is_empty() && self.cut_bytes == 0
    }
}

/// The first [`MAX_COMMAND_BYTES`] of the texts, and how many bytes that leaves out.
fn truncate_all(texts: impl IntoIterator<Item = impl AsRef<[u8]>>) -> (Vec<String>, u64) {
    let (mut all, mut cut_bytes) = (Vec::new(), 0);
    let mut room = MAX_COMMAND_BYTES;
    for text in texts {
        let text = text.as_ref();
        let mut kept = text.len().min(room);
        // Not in the middle of a character: continuation bytes begin with 0b10.
        while kept > 0 && kept < text.len() && text[kept] & 0xC0 == 0x80 {
            kept -= 1;
        }
        cut_bytes += (text.len() - kept) as u64;
        if kept > 0 || text.is_empty() && room > 0 {
            all.push(byte_text::shown(&byte_text::from_bytes(&text[..kept])).into_owned());
        } else {
            cut_bytes += 1;
        }
        // A text costs something even when it is empty.
        room = if kept < text.len() { 0 } else { room.saturating_sub(kept + 1) };
    }
    (all, cut_bytes)
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

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
    /// A text of its own.
    Literal(String),
    /// A part of the other text: the first byte, and how many.
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
    fn a_command_is_bounded_and_says_what_it_left_out() {
        let whole = RecordedCommand::new(["git", "", "status"]);
        assert_eq!((whole.argv.join("|").as_str(), whole.cut_bytes), ("git||status", 0));
        let long = "é".repeat(MAX_COMMAND_BYTES);
        let cut = RecordedCommand::new(["echo", &long, "more"]);
        assert_eq!(cut.argv.len(), 2);
        assert!(cut.argv[1].split("é").all(str::is_empty));
        let kept: usize = cut.argv.iter().map(String::len).sum();
        assert_eq!(kept as u64 + cut.cut_bytes, (4 + long.len() + 5) as u64);
        assert!(RecordedCommand::new(vec![""; 1_000_000]).argv.len() <= MAX_COMMAND_BYTES);
    }

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
