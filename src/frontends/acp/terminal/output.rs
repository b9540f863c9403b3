//! A command's output as text: bytes in, characters out, the tail kept; and what is known of its end.
//!
//! Decodes once, as the bytes come, and never takes back what it has given: until the limit is reached, every text is
//! the beginning of the next. A character that is not whole yet is held back; bytes that are none become U+FFFD, and
//! so does a character that the command did not finish. The limit counts the text's bytes, not the command's.

use std::sync::Arc;

use agent_client_protocol_schema::v1::TerminalExitStatus;
use tokio::sync::OnceCell;

use super::exit;
use crate::{
    client,
    proto::v1::{self, TerminalState},
};

/// The longest UTF-8 sequence, in bytes.
const UTF8_MAX_BYTES: usize = 4;

/// The retained text of one stream.
#[derive(Debug)]
pub(super) struct Tail {
    text: String,
    /// The text begins here; what is before goes with the next clearing.
    start: usize,
    /// The beginning of a character.
    partial: Vec<u8>,
    limit_bytes: usize,
    dropped: Dropped,
    /// Bytes of text that were ever produced.
    produced: u64,
    /// Bytes before this were taken in, or missed.
    next_offset: u64,
}

/// Whether anything was dropped. Never goes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Dropped {
    Nothing,
    Something,
}

impl Tail {
    /// Nothing yet, at most `limit_bytes` of text.
    pub(in crate::acp) fn new(limit_bytes: usize) -> Self {
        Self {
            text: String::new(),
            start: 0,
            partial: Vec::new(),
            limit_bytes,
            dropped: Dropped::Nothing,
            produced: 0,
            next_offset: 0,
        }
    }

    /// Takes in the bytes at `offset`; what lies between and the last ones was missed. Bytes that are in already are
    /// not taken in twice.
    pub(in crate::acp) fn push(&mut self, offset: u64, bytes: &[u8]) {
        let known = usize::try_from(self.next_offset.saturating_sub(offset)).unwrap_or(usize::MAX);
        let Some(bytes) = bytes.get(known..) else { return };
        let offset = offset + known as u64;
        let next_offset = offset + bytes.len() as u64;
        let rest = if offset > self.next_offset {
            self.skip(offset);
            continuation_length(bytes)
        } else {
            0
        };
        self.next_offset = next_offset;
        self.decode(&bytes[rest..]);
    }

    /// The bytes before `offset` will never come.
    pub(super) fn skip(&mut self, offset: u64) {
        if offset <= self.next_offset {
            return;
        }
        self.next_offset = offset;
        // What follows is not what these were followed by: the tail begins again.
        self.partial.clear();
        self.text.clear();
        self.start = 0;
        self.dropped = Dropped::Something;
    }

    /// No more will come: a character that is not whole never will be.
    pub(super) fn finish(&mut self) {
        if !std::mem::take(&mut self.partial).is_empty() {
            self.append("\u{fffd}");
        }
    }

    /// Adds lines of the gateway's own behind the command's last output.
    pub(super) fn add_notices(&mut self, lines: impl Iterator<Item = String>) {
        for line in lines {
            if !self.text().is_empty() && !self.text().ends_with('\n') {
                self.append("\n");
            }
            self.append(&format!("provost: {line}\n"));
        }
    }

    /// Keeps only the last `limit_bytes` from now on, and gives the rest of the memory back.
    pub(super) fn shrink_to(&mut self, limit_bytes: usize) {
        self.limit_bytes = self.limit_bytes.min(limit_bytes);
        let mut from = self.text().len().saturating_sub(self.limit_bytes);
        while !self.text().is_char_boundary(from) {
            from += 1;
        }
        if from > 0 {
            self.dropped = Dropped::Something;
        }
        self.text = self.text()[from..].to_owned();
        self.start = 0;
    }

    /// The text.
    pub(in crate::acp) fn text(&self) -> &str {
        &self.text[self.start..]
    }

    /// Whether any of it was dropped, ever.
    pub(super) fn is_truncated(&self) -> bool {
        self.dropped == Dropped::Something
    }

    /// Where to go on reading.
    pub(super) fn next_offset(&self) -> u64 {
        self.next_offset
    }

    /// Bytes of text that were ever produced: changes exactly when the text does.
    pub(in crate::acp) fn produced(&self) -> u64 {
        self.produced
    }

    /// What was produced after the first `produced` bytes, as far as it is retained.
    pub(in crate::acp) fn since(&self, produced: u64) -> &str {
        let text = self.text();
        let new = usize::try_from(self.produced - produced.min(self.produced)).unwrap_or(usize::MAX);
        let mut from = text.len().saturating_sub(new);
        while !text.is_char_boundary(from) {
            from += 1;
        }
        &text[from..]
    }

    fn decode(&mut self, mut bytes: &[u8]) {
        // A partial character is at most three bytes: one byte more at a time, until it is whole or none.
        while !self.partial.is_empty() && !bytes.is_empty() {
            self.partial.push(bytes[0]);
            bytes = &bytes[1..];
            let held = std::mem::take(&mut self.partial);
            self.decode_run(&held);
        }
        self.decode_run(bytes);
    }

    fn decode_run(&mut self, bytes: &[u8]) {
        let mut chunks = bytes.utf8_chunks().peekable();
        while let Some(chunk) = chunks.next() {
            self.append(chunk.valid());
            let invalid = chunk.invalid();
            if chunks.peek().is_none() && is_beginning(invalid) {
                self.partial = invalid.to_vec();
            } else if !invalid.is_empty() {
                self.append("\u{fffd}");
            }
        }
    }

    fn append(&mut self, text: &str) {
        self.produced += text.len() as u64;
        // Only the end of a text longer than the limit can stay.
        let mut from = text.len().saturating_sub(self.limit_bytes);
        while !text.is_char_boundary(from) {
            from += 1;
        }
        if from > 0 {
            self.dropped = Dropped::Something;
            self.text.clear();
            self.start = 0;
        }
        self.text.push_str(&text[from..]);
        let excess = self.text().len().saturating_sub(self.limit_bytes);
        if excess > 0 {
            self.dropped = Dropped::Something;
            self.start += excess;
            while !self.text.is_char_boundary(self.start) {
                self.start += 1;
            }
        }
        // Moving the text costs its length: only when as much is dead as may be alive.
        if self.start > self.limit_bytes.max(4096) {
            self.text.drain(..self.start);
            self.start = 0;
        }
    }
}

/// How many bytes at the start can be the rest of a character that began before.
fn continuation_length(bytes: &[u8]) -> usize {
    let rest =
        bytes.iter().take(UTF8_MAX_BYTES).take_while(|byte| **byte & 0b1100_0000 == 0b1000_0000).count();
    if rest < UTF8_MAX_BYTES { rest } else { 0 }
}

/// Whether these bytes, which are no character, may become one.
fn is_beginning(bytes: &[u8]) -> bool {
    !bytes.is_empty() && std::str::from_utf8(bytes).is_err_and(|error| error.error_len().is_none())
}

/// What is known of the output.
#[derive(Debug)]
pub(super) struct OutputSnapshot {
    pub(super) tail: Tail,
    pub(super) completeness: Completeness,
    /// The text as a JSON string, and what was produced when it was made.
    pub(super) encoded: Option<(u64, Arc<str>)>,
    /// What was produced at the last look.
    pub(super) looked_at: u64,
}

/// Whether that is all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Completeness {
    MoreMayCome,
    Complete,
}

/// What comes of a line's output.
#[derive(Debug, Clone, Copy)]
pub(super) enum LineOutput<'a> {
    /// Bytes, with ends of lines as a program writes them.
    Text(&'a [u8]),
    /// Some was overwritten before it was read.
    Gap,
}

/// What an agent uses for a process that is to go on.
const INSTEAD: &str = "what is to go on needs a terminal of its own, in the foreground";

impl OutputSnapshot {
    pub(in crate::acp) fn new(limit_bytes: usize) -> Self {
        Self {
            tail: Tail::new(limit_bytes),
            completeness: Completeness::MoreMayCome,
            encoded: None,
            looked_at: 0,
        }
    }

    /// Whether there is more than at the last look, or everything.
    pub(super) fn is_changed(&self) -> bool {
        self.completeness == Completeness::Complete || self.tail.produced() != self.looked_at
    }

    /// The gateway has given everything that is there.
    pub(in crate::acp) fn end(&mut self, end: &v1::OutputEnd, exit: &OnceCell<TerminalExitStatus>) {
        match end.state() {
            TerminalState::Finished | TerminalState::Released => {
                self.tail.finish();
                // Most agents show their model the output and the code, and nothing else.
                self.tail
                    .add_notices(end.outcome.iter().flat_map(|outcome| client::end_lines(outcome, INSTEAD)));
                self.completeness = Completeness::Complete;
                if let Some(ended) = &end.outcome {
                    // A waiter may have been faster, with the same.
                    let _ = exit.set(exit::status_of(ended));
                }
            }
            TerminalState::Unspecified | TerminalState::Created | TerminalState::Running => {}
        }
    }

    pub(super) fn encoded(&mut self) -> Arc<str> {
        let produced = self.tail.produced();
        match &self.encoded {
            Some((then, encoded)) if *then == produced => encoded.clone(),
            Some(_) | None => {
                let encoded: Arc<str> =
                    serde_json::to_string(self.tail.text()).expect("a text is always JSON").into();
                self.encoded = Some((produced, encoded.clone()));
                encoded
            }
        }
    }
}

/// The end of a text, at most `limit_bytes` of it, cut between characters.
pub(super) fn tail_of(text: &str, limit_bytes: usize) -> &str {
    let mut from = text.len().saturating_sub(limit_bytes);
    while !text.is_char_boundary(from) {
        from += 1;
    }
    &text[from..]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn fed(limit: usize, pieces: &[&[u8]]) -> Tail {
        let mut tail = Tail::new(limit);
        let mut offset = 0;
        for piece in pieces {
            tail.push(offset, piece);
            offset += piece.len() as u64;
        }
        tail
    }

    #[test]
    fn a_character_is_shown_when_it_is_whole() {
        let mut tail = fed(100, &[b"a\xe2", b"\x82"]);
        assert_eq!(tail.text(), "a");
        tail.push(3, b"\xacb");
        assert_eq!(tail.text(), "a€b");
        assert_eq!(fed(100, &[b"\xe2\x82", b"x"]).text(), "\u{fffd}x");
        let mut unfinished = fed(100, &[b"a\xf0\x9f"]);
        unfinished.finish();
        assert_eq!(unfinished.text(), "a\u{fffd}");
    }

    #[test]
    fn a_limit_of_nothing_retains_nothing_and_says_so() {
        assert!(!fed(0, &[]).is_truncated());
        let tail = fed(0, &[b"x"]);
        assert_eq!((tail.text(), tail.is_truncated()), ("", true));
    }

    #[test]
    fn the_end_is_kept_and_cut_between_characters() {
        let tail = fed(4, &["aé€".as_bytes()]);
        assert_eq!((tail.text(), tail.is_truncated()), ("€", true));
        let exact = fed(6, &["aé€".as_bytes()]);
        assert_eq!((exact.text(), exact.is_truncated()), ("aé€", false));
    }

    #[test]
    fn what_was_missed_is_a_truncation_and_the_rest_of_a_character_is_not_shown() {
        let mut tail = fed(100, &[b"abc"]);
        tail.push(10, b"\x82\xacdef");
        assert_eq!((tail.text(), tail.is_truncated(), tail.next_offset()), ("def", true, 15));
    }

    #[test]
    fn bytes_are_taken_in_once() {
        let mut tail = fed(100, &[b"abc"]);
        tail.push(0, b"abcd");
        tail.push(1, b"bc");
        assert_eq!((tail.text(), tail.next_offset()), ("abcd", 4));
    }

    #[test]
    fn what_is_new_since_a_moment_is_given_as_far_as_it_is_kept() {
        let mut tail = fed(5, &[b"abc"]);
        let seen = tail.produced();
        tail.push(3, b"de");
        assert_eq!(tail.since(seen), "de");
        tail.push(5, b"fghijklm");
        assert_eq!(tail.since(seen), "ijklm");
        assert_eq!(tail.since(tail.produced()), "");
    }

    proptest! {
        #[test]
        fn pieces_do_not_matter(bytes in proptest::collection::vec(any::<u8>(), 0..200), cuts in proptest::collection::vec(0usize..200, 0..6)) {
            let mut tail = Tail::new(10_000);
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
            cuts.push(bytes.len());
            cuts.sort_unstable();
            let (mut from, mut last) = (0, String::new());
            for cut in cuts {
                tail.push(from as u64, &bytes[from..cut]);
                prop_assert!(tail.text().starts_with(&last));
                last = tail.text().to_owned();
                from = cut;
            }
            tail.finish();
            let expected = String::from_utf8_lossy(&bytes);
            prop_assert_eq!(tail.text(), expected.as_ref());
            prop_assert!(!tail.is_truncated());
        }

        #[test]
        fn the_text_is_never_longer_than_the_limit(pieces in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..50), 0..20), limit in 0usize..60) {
            let mut tail = Tail::new(limit);
            let (mut offset, mut was_truncated) = (0, false);
            for piece in &pieces {
                tail.push(offset, piece);
                offset += piece.len() as u64;
                prop_assert!(tail.text().len() <= limit);
                prop_assert!(tail.is_truncated() || !was_truncated);
                was_truncated = tail.is_truncated();
            }
        }
    }
}
