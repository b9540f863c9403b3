//! DNS messages, as far as a stub resolver needs them (RFC 1035): one question, and the addresses of its answer.
//!
//! An answer is believed by its number and its question. Which of its addresses may be dialled is decided elsewhere.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::name::HostName;

/// The most addresses that are taken from an answer.
pub const MAX_ADDRESSES: usize = 32;

/// Which addresses are asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordType {
    /// IPv4.
    A,
    /// IPv6.
    Aaaa,
}

impl RecordType {
    fn number(self) -> u16 {
        match self {
            Self::A => 1,
            Self::Aaaa => 28,
        }
    }
}

/// What a server answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// The addresses; none if the name has none of this type.
    Addresses(Vec<IpAddr>),
    /// There is no such name.
    NoSuchName,
    /// The answer is longer than a datagram: to be asked again by TCP.
    Truncated,
    /// The server cannot answer.
    Failed,
}

/// Bytes that are no answer to the question.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the bytes are no answer to the question")]
pub struct NotTheAnswer;

const CLASS_IN: u16 = 1;
const HEADER_BYTES: usize = 12;
/// Recursion desired.
const QUERY_FLAGS: u16 = 0x0100;
const FLAG_RESPONSE: u16 = 0x8000;
const FLAG_TRUNCATED: u16 = 0x0200;
const RESPONSE_CODE: u16 = 0x000f;
const CODE_NO_SUCH_NAME: u16 = 3;

/// The bytes of a question.
pub fn question(number: u16, name: &HostName, record: RecordType) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEADER_BYTES + name.as_str().len() + 6);
    for word in [number, QUERY_FLAGS, 1, 0, 0, 0] {
        bytes.extend_from_slice(&word.to_be_bytes());
    }
    for label in name.as_str().split('.') {
        bytes.push(label.len() as u8);
        bytes.extend_from_slice(label.as_bytes());
    }
    bytes.push(0);
    bytes.extend_from_slice(&record.number().to_be_bytes());
    bytes.extend_from_slice(&CLASS_IN.to_be_bytes());
    bytes
}

/// Reads the answer to a question that [`question`] made.
///
/// # Errors
/// [`NotTheAnswer`].
pub fn answer(asked: &[u8], bytes: &[u8], record: RecordType) -> Result<Answer, NotTheAnswer> {
    let word = |at: usize| Some(u16::from_be_bytes([*bytes.get(at)?, *bytes.get(at + 1)?]));
    let header = |at: usize| word(at).ok_or(NotTheAnswer);
    let flags = header(2)?;
    let is_same_question = bytes
        .get(HEADER_BYTES..asked.len())
        .zip(asked.get(HEADER_BYTES..))
        .is_some_and(|(theirs, ours)| theirs.eq_ignore_ascii_case(ours));
    let is_answer = bytes.get(..2) == asked.get(..2) && flags & FLAG_RESPONSE != 0 && header(4)? == 1;
    if !is_answer || !is_same_question {
        return Err(NotTheAnswer);
    }
    if flags & FLAG_TRUNCATED != 0 {
        return Ok(Answer::Truncated);
    }
    match flags & RESPONSE_CODE {
        0 => {}
        CODE_NO_SUCH_NAME => return Ok(Answer::NoSuchName),
        _ => return Ok(Answer::Failed),
    }
    let mut at = asked.len();
    let mut addresses = Vec::new();
    for _ in 0..header(6)? {
        at = skip_name(bytes, at).ok_or(NotTheAnswer)?;
        let kind = word(at).ok_or(NotTheAnswer)?;
        let length = usize::from(word(at + 8).ok_or(NotTheAnswer)?);
        let data = bytes.get(at + 10..at + 10 + length).ok_or(NotTheAnswer)?;
        at += 10 + length;
        let address = match (record, <[u8; 4]>::try_from(data), <[u8; 16]>::try_from(data)) {
            (RecordType::A, Ok(four), _) => Some(IpAddr::V4(Ipv4Addr::from(four))),
            (RecordType::Aaaa, _, Ok(six)) => Some(IpAddr::V6(Ipv6Addr::from(six))),
            _ => None,
        };
        if kind == record.number() && addresses.len() < MAX_ADDRESSES {
            addresses.extend(address);
        }
    }
    Ok(Answer::Addresses(addresses))
}

/// Behind a name, which may end with a pointer.
fn skip_name(bytes: &[u8], mut at: usize) -> Option<usize> {
    loop {
        let length = usize::from(*bytes.get(at)?);
        match length {
            0 => return Some(at + 1),
            1..=63 => at += 1 + length,
            0xc0.. => return Some(at + 2),
            _ => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn asked() -> Vec<u8> {
        question(7, &HostName::parse("registry.example.org").unwrap(), RecordType::A)
    }

    fn response(flags: u16, records: &[(u16, &[u8])]) -> Vec<u8> {
        let mut bytes = asked();
        bytes[2..4].copy_from_slice(&(0x8000 | flags).to_be_bytes());
        bytes[6..8].copy_from_slice(&(records.len() as u16).to_be_bytes());
        for (kind, data) in records {
            bytes.extend_from_slice(&[0xc0, 12]);
            bytes.extend_from_slice(&kind.to_be_bytes());
            bytes.extend_from_slice(&[0, 1, 0, 0, 0, 60]);
            bytes.extend_from_slice(&(data.len() as u16).to_be_bytes());
            bytes.extend_from_slice(data);
        }
        bytes
    }

    #[test]
    fn the_addresses_behind_an_alias_are_read() {
        let bytes =
            response(0, &[(5, &[1, b'x', 0]), (1, &[10, 0, 0, 1]), (28, &[0; 16]), (1, &[1, 2, 3, 4])]);
        let expected = ["10.0.0.1", "1.2.3.4"].map(|text| text.parse().unwrap());
        assert_eq!(answer(&asked(), &bytes, RecordType::A), Ok(Answer::Addresses(expected.to_vec())));
        assert_eq!(answer(&asked(), &response(3, &[]), RecordType::A), Ok(Answer::NoSuchName));
        assert_eq!(answer(&asked(), &response(2, &[]), RecordType::A), Ok(Answer::Failed));
        assert_eq!(answer(&asked(), &response(0x200, &[]), RecordType::A), Ok(Answer::Truncated));
    }

    #[test]
    fn an_answer_to_another_question_is_none() {
        let mut other = response(0, &[(1, &[10, 0, 0, 1])]);
        other[1] = 8;
        assert!(answer(&asked(), &other, RecordType::A).is_err());
        let mut other = response(0, &[(1, &[10, 0, 0, 1])]);
        other[14] = b'x';
        assert!(answer(&asked(), &other, RecordType::A).is_err());
        assert!(answer(&asked(), &asked(), RecordType::A).is_err());
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_fall(bytes in prop::collection::vec(any::<u8>(), 0..200), cut in 0usize..120) {
            let _ = answer(&asked(), &bytes, RecordType::A);
            let mut whole = response(0, &[(1, &[10, 0, 0, 1])]);
            whole.truncate(cut.max(12));
            whole.extend_from_slice(&bytes);
            let _ = answer(&asked(), &whole, RecordType::Aaaa);
        }
    }
}
