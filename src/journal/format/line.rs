//! One record as one line: its envelope, how it is parsed, and how a file is read line by line, in bounded memory.
//!
//! A line is `{"v":3,"seq":..,"time":..,"boot":..,"mono_ns":..,"prev":..,"record":{..},"hash":".."}` and a newline. The hash is checked
//! when the line is parsed, which does no I/O.

use std::io::{self, BufRead, BufReader, Read};

use serde::Deserialize;

use super::{
    chain::{ChainHead, FORMAT_VERSION, Hash, split},
    record::Record,
};

/// The longest line, newline included. A longer record is refused.
pub const MAX_LINE_BYTES: usize = 1024 * 1024;
/// No record has a higher number, so that counting on never overflows.
pub(super) const MAX_SEQUENCE: u64 = u64::MAX / 2;
/// What the envelope adds to a record at most.
const MAX_ENVELOPE_BYTES: usize = 512;
/// The longest record in JSON.
pub const MAX_RECORD_BYTES: usize = MAX_LINE_BYTES - MAX_ENVELOPE_BYTES;

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
        let (hashed, stated) = split(bytes).ok_or(LineError::NotARecord)?;
        if Hash::of(hashed) != stated {
            return Err(LineError::WrongHash);
        }
        let envelope: LineEnvelope = serde_json::from_slice(bytes).map_err(|_| LineError::NotARecord)?;
        if envelope.v != FORMAT_VERSION {
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
    /// It is of another version.
    #[error(
        "it has version {0}, and this program reads version {FORMAT_VERSION}: use the version of provost that wrote it, or move the journal's directory away"
    )]
    UnknownVersion(u32),
}

/// How a line ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LineEnd {
    /// With a newline.
    Newline,
    /// With the file.
    EndOfFile,
    /// The line is longer than any line of a journal; its rest was skipped.
    TooLong,
}

/// A line as it stands in the file.
#[derive(Debug)]
pub(crate) struct RawLine<'a> {
    /// 1-based.
    pub number: u64,
    /// Where it begins.
    pub offset: u64,
    /// Without its newline.
    pub bytes: &'a [u8],
    /// How it ends.
    pub ending: LineEnd,
}

/// Reads lines.
#[derive(Debug)]
pub(crate) struct LineReader<R> {
    source: BufReader<R>,
    buffer: Vec<u8>,
    number: u64,
    offset: u64,
}

impl<R: Read> LineReader<R> {
    pub(crate) fn new(source: R) -> Self {
        Self::at(source, 0, 0)
    }

    /// A reader of a source that has been moved to `offset`, behind `number` lines.
    pub(crate) fn at(source: R, offset: u64, number: u64) -> Self {
        Self { source: BufReader::with_capacity(128 * 1024, source), buffer: Vec::new(), number, offset }
    }

    /// The next line; `None` at the end of the file.
    pub(crate) fn next(&mut self) -> io::Result<Option<RawLine<'_>>> {
        self.buffer.clear();
        let limit = MAX_LINE_BYTES as u64;
        let taken = self.source.by_ref().take(limit).read_until(b'\n', &mut self.buffer)?;
        if taken == 0 {
            return Ok(None);
        }
        let offset = self.offset;
        self.number += 1;
        self.offset += taken as u64;
        let ending = if self.buffer.last() == Some(&b'\n') {
            self.buffer.pop();
            LineEnd::Newline
        } else if taken < MAX_LINE_BYTES {
            LineEnd::EndOfFile
        } else {
            self.skip_line()?;
            LineEnd::TooLong
        };
        Ok(Some(RawLine { number: self.number, offset, bytes: &self.buffer, ending }))
    }

    fn skip_line(&mut self) -> io::Result<()> {
        loop {
            let available = self.source.fill_buf()?;
            if available.is_empty() {
                return Ok(());
            }
            let end = available.iter().position(|byte| *byte == b'\n').map(|at| at + 1);
            let passed = end.unwrap_or(available.len());
            self.source.consume(passed);
            self.offset += passed as u64;
            if end.is_some() {
                return Ok(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::format::{
        clock::Moment,
        record::{GatewayStopped, SessionClosed},
    };

    fn line(record: &Record) -> Vec<u8> {
        let mut bytes = Vec::new();
        let moment = Moment { wall_ns: 1_763_720_787_123_456_789, boot_ns: 42 };
        let body = serde_json::to_vec(record).unwrap();
        let mut chain_head = ChainHead::START;
        chain_head.extend(&mut bytes, &moment, "8c0e", &body);
        bytes
    }

    #[test]
    fn a_line_has_the_form_that_the_page_shows() {
        let record =
            Record::GatewayStopped(GatewayStopped { cause: "drained".to_owned(), live_terminals: 0 });
        let text = String::from_utf8(line(&record)).unwrap();
        let zeros = "0".repeat(64);
        assert!(text.starts_with(&format!(
            "{{\"v\":3,\"seq\":1,\"time\":\"2025-11-21T10:26:27.123456789Z\",\"boot\":\"8c0e\",\"mono_ns\":42,\
             \"prev\":\"{zeros}\",\"record\":{{\"kind\":\"gateway_stopped\",\"cause\":\"drained\",\
             \"live_terminals\":0}},\"hash\":\""
        )));
        assert!(text.ends_with("\"}\n"));
    }

    #[test]
    fn a_record_of_the_longest_kind_fits_its_line() {
        let mut bytes = Vec::new();
        let moment = Moment { wall_ns: u64::MAX, boot_ns: u64::MAX };
        let mut chain_head = ChainHead { sequence: u64::MAX - 1, hash: Hash::ZERO };
        chain_head.extend(&mut bytes, &moment, &"b".repeat(36), &vec![b'x'; MAX_RECORD_BYTES]);
        assert!(bytes.len() <= MAX_LINE_BYTES, "{}", bytes.len());
    }

    /// serde_json keeps the order of keys in maps or sorts them, as the features of the whole program have it. Records are
    /// structures, and go through no map.
    #[test]
    fn the_order_of_keys_is_that_of_the_record_and_is_hashed_as_it_stands() {
        let chained = |body: &str| {
            let (mut bytes, mut chain_head) = (Vec::new(), ChainHead::START);
            chain_head.extend(&mut bytes, &Moment { wall_ns: 1, boot_ns: 1 }, "8c0e", body.as_bytes());
            (String::from_utf8(bytes).unwrap(), chain_head.hash)
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

    #[test]
    fn lines_have_numbers_offsets_and_endings() {
        let long = vec![b'x'; MAX_LINE_BYTES + 5];
        let text = [b"one\n\n".as_slice(), &long, b"\nend"].concat();
        let mut reader = LineReader::new(text.as_slice());
        let mut seen = Vec::new();
        while let Some(line) = reader.next().unwrap() {
            seen.push((line.number, line.offset, line.bytes.len(), line.ending));
        }
        let after = 5 + long.len() as u64 + 1;
        assert_eq!(
            seen,
            [
                (1, 0, 3, LineEnd::Newline),
                (2, 4, 0, LineEnd::Newline),
                (3, 5, MAX_LINE_BYTES, LineEnd::TooLong),
                (4, after, 3, LineEnd::EndOfFile),
            ]
        );
    }
}
