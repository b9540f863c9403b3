//! The hash chain: each line contains the hash of the line before it.
//!
//! The hash is SHA-256 over the line's bytes up to `,"hash":`, which contain the hash of the line before. So every byte
//! of a line is either hashed or can have one value only. Pure: no I/O.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use sha2::{Digest as _, Sha256};

use super::clock::Moment;

/// The one version that is written and read. Journals of the builds before the first release, of versions 1 and 2, are
/// refused with their version.
pub const FORMAT_VERSION: u32 = 3;
const HASH_KEY: &[u8] = b",\"hash\":\"";
const LINE_END: &[u8] = b"\"}";
const SUFFIX_BYTES: usize = HASH_KEY.len() + 64 + LINE_END.len();

/// SHA-256 of a line.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Hash(pub [u8; 32]);

impl Hash {
    /// Stands for the line before the first one.
    pub const ZERO: Self = Self([0; 32]);

    pub(crate) fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    pub(crate) fn parse(hex: &[u8]) -> Option<Self> {
        let mut bytes = [0; 32];
        parse_hex(hex, &mut bytes).then_some(Self(bytes))
    }
}

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex(&self.0))
    }
}

impl fmt::Debug for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Hash({self})")
    }
}

impl Serialize for Hash {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Hash {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let hex = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
        Self::parse(hex.as_bytes()).ok_or_else(|| D::Error::custom("not 64 lower-case hexadecimal digits"))
    }
}

/// Lower-case hexadecimal.
pub(super) fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        text.push(char::from(DIGITS[usize::from(byte >> 4)]));
        text.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
    text
}

/// Fills `bytes` from exactly as many lower-case digits.
pub(super) fn parse_hex(hex: &[u8], bytes: &mut [u8]) -> bool {
    let digit = |c: u8| match c {
        b'0'..=b'9' => Some(c - b'0'),
        b'a'..=b'f' => Some(c - b'a' + 10),
        _ => None,
    };
    if hex.len() != bytes.len() * 2 {
        return false;
    }
    for (byte, pair) in bytes.iter_mut().zip(hex.chunks_exact(2)) {
        let (Some(high), Some(low)) = (digit(pair[0]), digit(pair[1])) else { return false };
        *byte = high << 4 | low;
    }
    true
}

/// The last record of a chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChainHead {
    /// The last record's number; 0 before the first.
    pub sequence: u64,
    /// Its hash.
    pub hash: Hash,
}

impl ChainHead {
    /// Before the first record.
    pub const START: Self = Self { sequence: 0, hash: Hash::ZERO };

    /// Appends the line of the next record to `lines`, and moves on to it.
    pub(crate) fn extend(&mut self, lines: &mut Vec<u8>, moment: &Moment, boot_id: &str, body: &[u8]) {
        let start = lines.len();
        let sequence = self.sequence + 1;
        let Moment { boot_ns, .. } = moment;
        let envelope = format!(
            "{{\"v\":{FORMAT_VERSION},\"seq\":{sequence},\"time\":\"{}\",\"boot\":\"{boot_id}\",\"mono_ns\":{boot_ns},\
             \"prev\":\"{}\",\"record\":",
            moment.rfc3339(),
            self.hash,
        );
        lines.extend_from_slice(envelope.as_bytes());
        lines.extend_from_slice(body);
        let hash = Hash::of(&lines[start..]);
        lines.extend_from_slice(HASH_KEY);
        lines.extend_from_slice(hex(&hash.0).as_bytes());
        lines.extend_from_slice(LINE_END);
        lines.push(b'\n');
        *self = Self { sequence, hash };
    }
}

/// Splits a line into the bytes that are hashed and the hash that it states; `None` for what is no line of a journal.
pub(super) fn split(bytes: &[u8]) -> Option<(&[u8], Hash)> {
    let at = bytes.len().checked_sub(SUFFIX_BYTES)?;
    let (hashed, suffix) = bytes.split_at(at);
    let hex = suffix.strip_prefix(HASH_KEY).and_then(|rest| rest.strip_suffix(LINE_END));
    Some((hashed, hex.and_then(Hash::parse)?))
}

/// The hash that a line states, whatever its bytes are: verifying goes on with it behind a changed line.
pub(crate) fn stated_hash(bytes: &[u8]) -> Option<Hash> {
    split(bytes).map(|(_, stated)| stated)
}
