//! One record as one line: the envelope, the hash, and the chain.
//!
//! A line is `{"v":2,"seq":..,"time":..,"boot":..,"mono_ns":..,"prev":..,"record":{..},"hash":".."}` and a newline.
//! The hash is SHA-256 over the line's bytes up to `,"hash":`, which contain the hash of the line before: so every
//! byte of the line is either hashed or has only one value that it can have. Pure: no I/O.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use sha2::{Digest as _, Sha256};

use super::{clock::Moment, record::Record};

/// The version that is written. Version 1 wrote a command's text in each of its records.
pub const FORMAT_VERSION: u32 = 2;
/// The earliest version that is read.
pub(super) const MIN_FORMAT_VERSION: u32 = 1;
/// The longest line, newline included. A longer record is refused.
pub const MAX_LINE_BYTES: usize = 1024 * 1024;
/// No record has a higher number, so that counting on never overflows.
pub(super) const MAX_SEQUENCE: u64 = u64::MAX / 2;
/// What the envelope adds to a record at most.
const MAX_ENVELOPE_BYTES: usize = 512;
/// The longest record in JSON.
pub const MAX_RECORD_BYTES: usize = MAX_LINE_BYTES - MAX_ENVELOPE_BYTES;

const HASH_KEY: &[u8] = b",\"hash\":\"";
const LINE_END: &[u8] = b"\"}";
const SUFFIX_BYTES: usize = HASH_KEY.len() + 64 + LINE_END.len();

/// SHA-256 of a line.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Hash(pub [u8; 32]);

impl Hash {
    /// What the first record of a journal continues.
    pub const ZERO: Self = Self([0; 32]);

    fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    fn parse(hex: &[u8]) -> Option<Self> {
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

/// Where a chain stands: its last record.
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
    pub(super) fn extend(&mut self, lines: &mut Vec<u8>, moment: &Moment, boot_id: &str, body: &[u8]) {
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

/// A line that was read, and whose hash is that of its bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JournalLine {
    /// Its number.
    pub sequence: u64,
    /// Wall time, as written: RFC 3339, UTC, nine digits after the point, so that text order is time order.
    pub time: String,
    /// The boot that `mono_ns` belongs to.
    pub boot_id: String,
    /// Nanoseconds since boot.
    pub boot_ns: u64,
    /// The hash of the line before.
    pub previous: Hash,
    /// Its own hash.
    pub hash: Hash,
    /// The event.
    pub record: Record,
}

impl JournalLine {
    /// The chain at this line.
    pub fn chain_head(&self) -> ChainHead {
        ChainHead { sequence: self.sequence, hash: self.hash }
    }

    /// Reads a line without its newline.
    pub fn parse(bytes: &[u8]) -> Result<Self, LineError> {
        let (hashed, stated) = split(bytes)?;
        if Hash::of(hashed) != stated {
            return Err(LineError::WrongHash);
        }
        let envelope: LineEnvelope = serde_json::from_slice(bytes).map_err(|_| LineError::NotARecord)?;
        if !(MIN_FORMAT_VERSION..=FORMAT_VERSION).contains(&envelope.v) {
            return Err(LineError::UnknownVersion(envelope.v));
        }
        if envelope.seq > MAX_SEQUENCE {
            return Err(LineError::NotARecord);
        }
        Ok(Self {
            sequence: envelope.seq,
            time: envelope.time,
            boot_id: envelope.boot,
            boot_ns: envelope.mono_ns,
            previous: envelope.prev,
            hash: stated,
            record: envelope.record,
        })
    }
}

/// The hash that a line says it has, whatever its bytes are: how reading goes on behind a changed line.
pub(super) fn stated_hash(bytes: &[u8]) -> Option<Hash> {
    split(bytes).ok().map(|(_, stated)| stated)
}

/// Into what is hashed, and the hash that the line says it has.
fn split(bytes: &[u8]) -> Result<(&[u8], Hash), LineError> {
    let at = bytes.len().checked_sub(SUFFIX_BYTES).ok_or(LineError::NotARecord)?;
    let (hashed, suffix) = bytes.split_at(at);
    let hex = suffix.strip_prefix(HASH_KEY).and_then(|rest| rest.strip_suffix(LINE_END));
    let stated = hex.and_then(Hash::parse).ok_or(LineError::NotARecord)?;
    Ok((hashed, stated))
}

#[derive(Deserialize)]
struct LineEnvelope {
    v: u32,
    seq: u64,
    time: String,
    boot: String,
    mono_ns: u64,
    prev: Hash,
    record: Record,
}

/// Why a line is no record of a journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LineError {
    /// Its bytes are not those that its hash was made of.
    #[error("its hash is not that of its bytes")]
    WrongHash,
    /// It has not the form of a record.
    #[error("it has not the form of a record")]
    NotARecord,
    /// It is of a later version.
    #[error(
        "it has version {0}, and this program knows none after {FORMAT_VERSION}: use the version of provost that wrote it, or a later one"
    )]
    UnknownVersion(u32),
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::journal::record::{GatewayStopped, SessionClosed};

    fn line(record: &Record) -> Vec<u8> {
        let mut bytes = Vec::new();
        let moment = Moment { wall_ns: 1_763_720_787_123_456_789, boot_ns: 42 };
        let body = serde_json::to_vec(record).unwrap();
        let mut link = ChainHead::START;
        link.extend(&mut bytes, &moment, "8c0e", &body);
        bytes
    }

    #[test]
    fn a_line_has_the_form_that_the_page_shows() {
        let record =
            Record::GatewayStopped(GatewayStopped { cause: "drained".to_owned(), live_terminals: 0 });
        let text = String::from_utf8(line(&record)).unwrap();
        let zeros = "0".repeat(64);
        assert!(text.starts_with(&format!(
            "{{\"v\":2,\"seq\":1,\"time\":\"2025-11-21T10:26:27.123456789Z\",\"boot\":\"8c0e\",\"mono_ns\":42,\
             \"prev\":\"{zeros}\",\"record\":{{\"kind\":\"gateway_stopped\",\"cause\":\"drained\",\
             \"live_terminals\":0}},\"hash\":\""
        )));
        assert!(text.ends_with("\"}\n"));
    }

    #[test]
    fn a_record_of_the_longest_kind_fits_its_line() {
        let mut bytes = Vec::new();
        let moment = Moment { wall_ns: u64::MAX, boot_ns: u64::MAX };
        let mut link = ChainHead { sequence: u64::MAX - 1, hash: Hash::ZERO };
        link.extend(&mut bytes, &moment, &"b".repeat(36), &vec![b'x'; MAX_RECORD_BYTES]);
        assert!(bytes.len() <= MAX_LINE_BYTES, "{}", bytes.len());
    }

    /// serde_json keeps the order of keys in maps or sorts them, as the features of the whole program have it. Records are
    /// structures, and go through no map.
    #[test]
    fn the_order_of_keys_is_that_of_the_record_and_is_hashed_as_it_stands() {
        let chained = |body: &str| {
            let (mut bytes, mut link) = (Vec::new(), ChainHead::START);
            link.extend(&mut bytes, &Moment { wall_ns: 1, boot_ns: 1 }, "8c0e", body.as_bytes());
            (String::from_utf8(bytes).unwrap(), link.hash)
        };
        let record =
            Record::GatewayStopped(GatewayStopped { cause: "drained".to_owned(), live_terminals: 0 });
        // Neither sorted nor anybody's idea of an order but the structure's.
        let written = r#"{"kind":"gateway_stopped","cause":"drained","live_terminals":0}"#;
        assert_eq!(serde_json::to_string(&record).unwrap(), written);
        let reordered = r#"{"live_terminals":0,"cause":"drained","kind":"gateway_stopped"}"#;
        let ((one, hash), (other, hash_of_other)) = (chained(written), chained(reordered));
        assert_ne!(hash, hash_of_other, "the bytes are hashed, not the content");
        for line in [one, other] {
            let read = JournalLine::parse(line.trim_end().as_bytes()).unwrap();
            assert_eq!(read.record, record, "whatever order a later version writes");
        }
    }

    proptest! {
        #[test]
        fn what_was_written_is_what_is_read(session in ".*", cause in ".*") {
            let record = Record::SessionClosed(SessionClosed { session, principal: "uid:0".to_owned(), cause });
            let bytes = line(&record);
            let read = JournalLine::parse(bytes.strip_suffix(b"\n").unwrap()).unwrap();
            prop_assert_eq!(read.record, record);
            prop_assert_eq!((read.sequence, read.previous), (1, Hash::ZERO));
            prop_assert!(!bytes[..bytes.len() - 1].contains(&b'\n'));
        }

        #[test]
        fn no_changed_byte_goes_unseen(cause in ".{0,40}", at in any::<prop::sample::Index>(), bit in 0..8_u32) {
            let record = Record::SessionClosed(SessionClosed { session: "s".to_owned(), principal: "uid:0".to_owned(), cause });
            let mut bytes = line(&record);
            bytes.pop();
            let at = at.index(bytes.len());
            bytes[at] ^= 1_u8 << bit;
            prop_assert!(JournalLine::parse(&bytes).is_err());
        }

        #[test]
        fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            let _ = JournalLine::parse(&bytes);
        }
    }
}
