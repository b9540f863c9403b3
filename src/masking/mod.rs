//! Takes the values of known secrets out of bytes and texts, also when a value is split across writes.
//!
//! Every byte that is part of any occurrence of any secret is taken out, also where occurrences overlap; each
//! uninterrupted run of such bytes becomes one [`MASK`]. A stream holds back only what may still be the beginning of
//! a secret, and so never more than the longest secret. Knows values only as they are: not their base64, nor one
//! that a command spells backwards. Pure: no I/O.

use std::{borrow::Cow, fmt, sync::Arc};

use aho_corasick::{AhoCorasick, BuildError, MatchKind};

/// What stands in a secret's place.
pub const MASK: &str = "***";
/// Shorter values are refused: they would take much out that is no secret.
pub const SHORTEST_SECRET_BYTES: usize = 4;
/// Longer values are refused, so that what a stream holds back is bounded.
pub const LONGEST_SECRET_BYTES: usize = 64 * 1024;
/// A line of a secret with several is masked by itself when it is as long as this.
const SHORTEST_LINE_BYTES: usize = 8;

/// Masks a set of secrets. Cheap to clone.
#[derive(Clone)]
pub struct Masker {
    search: Option<Arc<Search>>,
}

struct Search {
    automaton: AhoCorasick,
    /// Sorted, for finding those that begin with something.
    values: Vec<Vec<u8>>,
    longest: usize,
}

/// Why a secret cannot be masked. Says which one by its place, and nothing of its value.
#[derive(Debug, thiserror::Error)]
pub enum MaskError {
    /// Too short.
    #[error("secret {index} has {bytes} bytes: one of fewer than {SHORTEST_SECRET_BYTES} cannot be masked")]
    TooShort {
        /// Which one of those given, 0-based.
        index: usize,
        /// Its length.
        bytes: usize,
    },
    /// Too long.
    #[error("secret {index} has {bytes} bytes: one of more than {LONGEST_SECRET_BYTES} cannot be masked")]
    TooLong {
        /// Which one of those given, 0-based.
        index: usize,
        /// Its length.
        bytes: usize,
    },
    /// All together are more than can be searched for.
    #[error("there are more secrets than can be searched for")]
    TooMany(#[source] BuildError),
}

impl Masker {
    /// Masks nothing.
    pub const NONE: Self = Self { search: None };

    /// Masks these values, and each longer line of those that have several: a terminal changes line ends.
    pub fn new(secrets: impl IntoIterator<Item = impl AsRef<[u8]>>) -> Result<Self, MaskError> {
        let mut values = Vec::new();
        for (index, secret) in secrets.into_iter().enumerate() {
            let secret = secret.as_ref();
            let bytes = secret.len();
            if bytes < SHORTEST_SECRET_BYTES {
                return Err(MaskError::TooShort { index, bytes });
            }
            if bytes > LONGEST_SECRET_BYTES {
                return Err(MaskError::TooLong { index, bytes });
            }
            values.push(secret.to_vec());
            let lines = secret.split(|byte| matches!(byte, b'\n' | b'\r'));
            values.extend(lines.filter(|line| line.len() >= SHORTEST_LINE_BYTES).map(<[u8]>::to_vec));
        }
        values.sort();
        values.dedup();
        let Some(longest) = values.iter().map(Vec::len).max() else { return Ok(Self::NONE) };
        let automaton = AhoCorasick::builder()
            .match_kind(MatchKind::Standard)
            .build(&values)
            .map_err(MaskError::TooMany)?;
        Ok(Self { search: Some(Arc::new(Search { automaton, values, longest })) })
    }

    /// Masks bytes that are complete.
    pub fn mask<'a>(&self, bytes: &'a [u8]) -> Cow<'a, [u8]> {
        match &self.search {
            Some(search) if search.automaton.is_match(bytes) => {
                let mut stream = self.stream();
                let mut masked = stream.feed(bytes);
                masked.extend(stream.finish());
                Cow::Owned(masked)
            }
            Some(_) | None => Cow::Borrowed(bytes),
        }
    }

    /// Masks a text that is complete.
    pub fn mask_text<'a>(&self, text: &'a str) -> Cow<'a, str> {
        match self.mask(text.as_bytes()) {
            Cow::Borrowed(_) => Cow::Borrowed(text),
            // A secret that is no UTF-8 can end in the middle of a character.
            Cow::Owned(masked) => Cow::Owned(String::from_utf8_lossy(&masked).into_owned()),
        }
    }

    /// Masks bytes that come piece by piece.
    pub fn stream(&self) -> MaskStream {
        MaskStream { masker: self.clone(), held: Vec::new(), masked_in_held: 0, ends_in_mask: false }
    }
}

impl fmt::Debug for Masker {
    /// Says how many values there are, and none of them.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.search.as_ref().map_or(0, |search| search.values.len());
        f.debug_struct("Masker").field("values", &count).finish()
    }
}

impl Search {
    /// The ranges that are part of a secret, in order, none touching the next.
    fn covered(&self, bytes: &[u8], masked_at_start: usize) -> Vec<(usize, usize)> {
        let mut runs: Vec<(usize, usize)> = Vec::new();
        if masked_at_start > 0 {
            runs.push((0, masked_at_start));
        }
        // Found in the order of their ends: one that begins earlier may swallow several runs.
        for found in self.automaton.find_overlapping_iter(bytes) {
            let (mut start, end) = (found.start(), found.end());
            let mut furthest = end;
            while let Some(&(run_start, run_end)) = runs.last()
                && start <= run_end
            {
                start = start.min(run_start);
                furthest = furthest.max(run_end);
                runs.pop();
            }
            runs.push((start, furthest));
        }
        runs
    }

    /// Where the longest end of `bytes` begins that a secret may go on from.
    fn hold_from(&self, bytes: &[u8]) -> usize {
        let earliest = bytes.len().saturating_sub(self.longest - 1);
        (earliest..bytes.len()).find(|start| self.is_beginning(&bytes[*start..])).unwrap_or(bytes.len())
    }

    /// Whether a longer secret begins with `end`.
    fn is_beginning(&self, end: &[u8]) -> bool {
        // In sorted order those that begin with it stand together, right behind it.
        let at = self.values.partition_point(|value| value.as_slice() <= end);
        self.values.get(at).is_some_and(|value| value.starts_with(end))
    }
}

/// A stream being masked.
#[derive(Debug)]
pub struct MaskStream {
    masker: Masker,
    /// What may be the beginning of a secret.
    held: Vec<u8>,
    /// How much of it is part of a secret in any case.
    masked_in_held: usize,
    /// The last byte that was given out was part of a secret.
    ends_in_mask: bool,
}

impl MaskStream {
    /// Takes the next bytes and gives out what is certain by now.
    pub fn feed(&mut self, bytes: &[u8]) -> Vec<u8> {
        let Some(search) = self.masker.search.clone() else { return bytes.to_vec() };
        self.held.extend_from_slice(bytes);
        let hold_from = search.hold_from(&self.held);
        self.give_out(&search, hold_from)
    }

    /// Gives out the rest: no more will come.
    pub fn finish(&mut self) -> Vec<u8> {
        let Some(search) = self.masker.search.clone() else { return Vec::new() };
        self.give_out(&search, self.held.len())
    }

    /// How many bytes are held back.
    pub fn held_bytes(&self) -> usize {
        self.held.len()
    }

    fn give_out(&mut self, search: &Search, end: usize) -> Vec<u8> {
        let runs = search.covered(&self.held, self.masked_in_held);
        let mut out = Vec::with_capacity(end);
        let mut at = 0;
        self.masked_in_held = 0;
        for (run_start, run_end) in runs {
            if run_start >= end {
                // Nothing was given out, and what is known of the beginning stays known.
                self.masked_in_held = if run_start == end { run_end - end } else { 0 };
                break;
            }
            if run_start > at {
                out.extend_from_slice(&self.held[at..run_start]);
                self.ends_in_mask = false;
            }
            if !self.ends_in_mask {
                out.extend_from_slice(MASK.as_bytes());
                self.ends_in_mask = true;
            }
            at = run_end.min(end);
            self.masked_in_held = run_end - at;
        }
        if at < end {
            out.extend_from_slice(&self.held[at..end]);
            self.ends_in_mask = false;
        }
        self.held.drain(..end);
        out
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn masked(secrets: &[&str], pieces: &[&str]) -> String {
        let mut stream = Masker::new(secrets).unwrap().stream();
        let mut out: Vec<u8> = pieces.iter().flat_map(|piece| stream.feed(piece.as_bytes())).collect();
        out.extend(stream.finish());
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_value_is_masked_wherever_it_is_split() {
        assert_eq!(masked(&["hunter2"], &["pass hunter2!"]), "pass ***!");
        assert_eq!(masked(&["hunter2"], &["pass hun", "ter2!"]), "pass ***!");
        assert_eq!(masked(&["hunter2"], &["h", "u", "n", "t", "e", "r", "2"]), "***");
        assert_eq!(masked(&["hunter2"], &["hunter", "1"]), "hunter1");
    }

    #[test]
    fn overlapping_values_leave_nothing_of_either() {
        assert_eq!(masked(&["abcd", "cdef"], &["xabcdefx"]), "x***x");
        assert_eq!(masked(&["abcd", "cdefgh"], &["xabcd", "efx"]), "x***efx");
        assert_eq!(masked(&["abcd", "cdefgh"], &["xabcdef", "ghx"]), "x***x");
        assert_eq!(masked(&["abcd", "zabcdz"], &["zabcd", "y"]), "z***y");
    }

    #[test]
    fn only_what_may_be_a_beginning_is_held_back() {
        let mut stream = Masker::new(["hunter2"]).unwrap().stream();
        assert_eq!(stream.feed(b"all of this and hun"), b"all of this and ");
        assert_eq!(stream.held_bytes(), 3);
        assert_eq!(stream.feed(b"t"), b"");
        assert_eq!(stream.feed(b"?"), b"hunt?");
    }

    #[test]
    fn each_line_of_a_key_is_masked_by_itself() {
        let key = "-----BEGIN KEY-----\nabcdefghijkl\n-----END KEY-----\n";
        assert_eq!(masked(&[key], &["it is abcdefghijkl\r\n"]), "it is ***\r\n");
    }

    #[test]
    fn values_that_cannot_be_masked_are_refused_without_being_named() {
        let error = Masker::new(["long enough", "abc"]).unwrap_err();
        assert!(matches!(error, MaskError::TooShort { index: 1, bytes: 3 }));
        assert!(!error.to_string().contains("abc"));
        assert!(!format!("{:?}", Masker::new(["hunter2"]).unwrap()).contains("hunter2"));
        assert!(matches!(Masker::new([vec![0; 65537]]), Err(MaskError::TooLong { index: 0, .. })));
    }

    #[test]
    fn without_secrets_nothing_is_changed_or_held() {
        let mut stream = Masker::new(Vec::<&str>::new()).unwrap().stream();
        assert_eq!(stream.feed(b"text"), b"text");
        assert!(matches!(Masker::NONE.mask_text("text"), Cow::Borrowed("text")));
    }

    /// Byte by byte, by the definition.
    fn reference(secrets: &[Vec<u8>], text: &[u8]) -> Vec<u8> {
        let mut is_secret = vec![false; text.len()];
        for secret in secrets {
            for start in 0..(text.len() + 1).saturating_sub(secret.len()) {
                if text[start..].starts_with(secret) {
                    is_secret[start..start + secret.len()].fill(true);
                }
            }
        }
        let mut out = Vec::new();
        for (at, byte) in text.iter().enumerate() {
            match (is_secret[at], at > 0 && is_secret[at - 1]) {
                (false, _) => out.push(*byte),
                (true, false) => out.extend_from_slice(MASK.as_bytes()),
                (true, true) => {}
            }
        }
        out
    }

    fn few_letters(length: std::ops::Range<usize>) -> impl Strategy<Value = Vec<u8>> {
        prop::collection::vec(prop::sample::select(b"ab".to_vec()), length)
    }

    proptest! {
        #[test]
        fn any_split_gives_what_the_definition_gives(
            secrets in prop::collection::vec(few_letters(4..9), 1..4),
            pieces in prop::collection::vec(few_letters(0..12), 0..12),
        ) {
            let mut stream = Masker::new(&secrets).unwrap().stream();
            let mut out = Vec::new();
            let longest = secrets.iter().map(Vec::len).max().unwrap_or(0);
            for piece in &pieces {
                out.extend(stream.feed(piece));
                prop_assert!(stream.held_bytes() < longest);
            }
            out.extend(stream.finish());
            prop_assert_eq!(out, reference(&secrets, &pieces.concat()));
        }
    }
}
