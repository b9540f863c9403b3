//! Masks the values of known secrets in bytes and texts, also when a value is split across writes.
//!
//! Every byte of every occurrence of a secret is masked, also where occurrences overlap. In a text each contiguous
//! run of such bytes becomes one [`MASK`]; in output each such byte becomes [`MASK_BYTE`], so that offsets do not
//! change. Only the values themselves are masked, not their base64 or another encoding. Pure: no I/O and no state; a
//! part of a stream is masked by the bytes around it.

mod prefix_matcher;

use std::{borrow::Cow, fmt, sync::Arc};

use aho_corasick::{AhoCorasick, AhoCorasickKind, BuildError, MatchKind};

use self::prefix_matcher::PrefixMatcher;

/// What stands in a secret's place in a text.
pub const MASK: &str = "***";
/// What stands in the place of each of its bytes in output.
pub const MASK_BYTE: u8 = b'*';
/// Shorter values are refused: they would take much out that is no secret.
pub const SECRET_MIN_BYTES: usize = 4;
/// Longer values are refused, so that what is held back of a stream is bounded.
pub const SECRET_MAX_BYTES: usize = 64 * 1024;
/// A line of a secret with several is masked by itself when it is as long as this.
const LINE_MIN_BYTES: usize = 8;
/// So many bytes of values are searched for by a table of every step. To make one of more takes memory, and of a value
/// that repeats itself time that grows with its square.
const DFA_MAX_BYTES: usize = 4 * 1024;

/// Masks a set of secrets. Cheap to clone.
#[derive(Clone, Default)]
pub struct Masker {
    search: Option<Arc<Search>>,
}

struct Search {
    automaton: AhoCorasick,
    values: Vec<SecretValue>,
    longest: usize,
}

struct SecretValue {
    /// For ends of a text that the value may go on from.
    forward: PrefixMatcher,
    /// The matcher of the value read backwards: for beginnings of a text that the value may come from.
    reversed: PrefixMatcher,
}

/// Whether what came before a part of a stream is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamStart {
    /// Nothing came before it, or nothing that matters.
    Whole,
    /// Something did, and it is lost: the part may begin within a secret.
    Truncated,
}

/// Whether something may follow a part of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamEnd {
    /// Nothing will, or nothing that matters.
    Whole,
    /// Something may: the part may end within a secret.
    MayContinue,
}

/// A secret cannot be masked. Says which one by its place, and nothing of its value.
#[derive(Debug, thiserror::Error)]
pub enum MaskError {
    /// Too short.
    #[error("secret {index} has {bytes} bytes: one of fewer than {SECRET_MIN_BYTES} cannot be masked")]
    TooShort {
        /// Which one of those given, 0-based.
        index: usize,
        /// Its length.
        bytes: usize,
    },
    /// Too long.
    #[error("secret {index} has {bytes} bytes: one of more than {SECRET_MAX_BYTES} cannot be masked")]
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
            if bytes < SECRET_MIN_BYTES {
                return Err(MaskError::TooShort { index, bytes });
            }
            if bytes > SECRET_MAX_BYTES {
                return Err(MaskError::TooLong { index, bytes });
            }
            values.push(secret.to_vec());
            let lines = secret.split(|byte| matches!(byte, b'\n' | b'\r'));
            values.extend(lines.filter(|line| line.len() >= LINE_MIN_BYTES).map(<[u8]>::to_vec));
        }
        values.sort();
        values.dedup();
        let Some(longest) = values.iter().map(Vec::len).max() else { return Ok(Self::NONE) };
        let kind = match values.iter().map(Vec::len).sum::<usize>() {
            0..=DFA_MAX_BYTES => AhoCorasickKind::DFA,
            _ => AhoCorasickKind::ContiguousNFA,
        };
        let automaton = AhoCorasick::builder()
            .match_kind(MatchKind::Standard)
            .kind(Some(kind))
            .build(&values)
            .map_err(MaskError::TooMany)?;
        let value = |bytes: Vec<u8>| SecretValue {
            reversed: PrefixMatcher::new(bytes.iter().rev().copied().collect()),
            forward: PrefixMatcher::new(bytes),
        };
        let values = values.into_iter().map(value).collect();
        Ok(Self { search: Some(Arc::new(Search { automaton, values, longest })) })
    }

    /// Masks this value, too.
    ///
    /// # Errors
    /// As of [`Masker::new`]; the index is the last one.
    pub fn with(&self, secret: &[u8]) -> Result<Self, MaskError> {
        let known = self.search.iter().flat_map(|search| &search.values);
        Self::new(known.map(|value| value.forward.value()).chain([secret]))
    }

    /// Whether it masks this value.
    pub fn has(&self, secret: &[u8]) -> bool {
        self.search.iter().flat_map(|search| &search.values).any(|value| value.forward.value() == secret)
    }

    /// How many values it masks, with the lines of those that have several.
    pub fn count(&self) -> usize {
        self.search.as_ref().map_or(0, |search| search.values.len())
    }

    /// How many bytes before and behind a byte say whether it is part of a secret. 0 when there is nothing to mask.
    pub fn context_bytes(&self) -> usize {
        self.search.as_ref().map_or(0, |search| search.longest - 1)
    }

    /// Masks bytes that are complete.
    pub fn mask<'a>(&self, bytes: &'a [u8]) -> Cow<'a, [u8]> {
        let Some(search) = &self.search else { return Cow::Borrowed(bytes) };
        let ranges = search.secret_ranges(bytes);
        if ranges.is_empty() {
            return Cow::Borrowed(bytes);
        }
        let mut masked = Vec::with_capacity(bytes.len());
        let mut at = 0;
        for (start, end) in ranges {
            masked.extend_from_slice(&bytes[at..start]);
            masked.extend_from_slice(MASK.as_bytes());
            at = end;
        }
        masked.extend_from_slice(&bytes[at..]);
        Cow::Owned(masked)
    }

    /// Masks a text that is complete.
    pub fn mask_text<'a>(&self, text: &'a str) -> Cow<'a, str> {
        match self.mask(text.as_bytes()) {
            Cow::Borrowed(_) => Cow::Borrowed(text),
            // A secret that is no UTF-8 can end in the middle of a character.
            Cow::Owned(masked) => Cow::Owned(String::from_utf8_lossy(&masked).into_owned()),
        }
    }

    /// Covers a part of a stream where it stands, and tells how many bytes from its start are certain: what is behind
    /// them may be the beginning of a secret, and is certain when more has come. They are at most [`Self::context_bytes`].
    ///
    /// With [`StreamStart::Truncated`], a beginning that a secret may end with is covered too. Where it is cut far enough before
    /// the bytes that are wanted ([`Self::context_bytes`]), those are covered exactly.
    pub fn mask_in_place(&self, part: &mut [u8], start: StreamStart, ends: StreamEnd) -> usize {
        let Some(search) = &self.search else { return part.len() };
        let decided = match ends {
            StreamEnd::Whole => part.len(),
            StreamEnd::MayContinue => part.len() - search.partial_secret_at_end(part),
        };
        let cut = match start {
            StreamStart::Whole => 0,
            StreamStart::Truncated => search.partial_secret_at_start(part),
        };
        for (start, end) in search.secret_ranges(part) {
            part[start..end].fill(MASK_BYTE);
        }
        part[..cut].fill(MASK_BYTE);
        decided
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
    fn secret_ranges(&self, bytes: &[u8]) -> Vec<(usize, usize)> {
        let mut ranges: Vec<(usize, usize)> = Vec::new();
        // Found in the order of their ends: one that begins earlier may swallow several runs.
        for found in self.automaton.find_overlapping_iter(bytes) {
            let (mut start, end) = (found.start(), found.end());
            while let Some(&(run_start, run_end)) = ranges.last()
                && start <= run_end
            {
                start = start.min(run_start);
                ranges.pop();
            }
            ranges.push((start, end));
        }
        ranges
    }

    /// The length of the longest end that a secret may go on from.
    fn partial_secret_at_end(&self, bytes: &[u8]) -> usize {
        let tail = &bytes[bytes.len().saturating_sub(self.longest - 1)..];
        self.values.iter().map(|value| value.forward.longest_prefix_at_end(tail.iter())).max().unwrap_or(0)
    }

    /// The length of the longest beginning that a secret may end with.
    fn partial_secret_at_start(&self, bytes: &[u8]) -> usize {
        let head = &bytes[..bytes.len().min(self.longest - 1)];
        self.values
            .iter()
            .map(|value| value.reversed.longest_prefix_at_end(head.iter().rev()))
            .max()
            .unwrap_or(0)
    }
}

#[cfg(test)]
mod tests;
