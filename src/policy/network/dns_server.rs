//! DNS messages, as the resolver of a sandbox needs them (RFC 1035): reads a question, and writes its answer.
//!
//! There is one answer with something in it, an IPv4 address. Every other type of record is refused.

use std::{fmt::Write as _, net::Ipv4Addr};

/// How long a program may keep an answer, in seconds.
pub const TTL_S: u32 = 10;

/// What a question is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QuestionType {
    /// IPv4 addresses.
    A,
    /// IPv6 addresses.
    Aaaa,
    /// Anything else, or another class than the internet's.
    Other,
}

/// A question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NameQuestion {
    /// The header's number and flags, and the question as it was written.
    number: u16,
    flags: u16,
    section: Vec<u8>,
    /// The name as text. A byte that names do not have is written as `\DDD`, and the text is then no name.
    pub name: String,
    /// What for.
    pub kind: QuestionType,
}

/// Bytes that are no question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum QuestionError {
    /// Not even the header of one. There is no answer to it.
    NoQuestion,
    /// The answer says that it cannot be read, or asks for what resolvers do not do.
    Unreadable(Vec<u8>),
}

/// An answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reply {
    /// The name has this address.
    Address(Ipv4Addr),
    /// The name has nothing of this type.
    Nothing,
    /// There is no such name.
    NoSuchName,
    /// This type is not answered.
    Refused,
    /// It cannot be answered now.
    Failed,
}

const HEADER_BYTES: usize = 12;
const MAX_NAME_BYTES: usize = 255;
const CLASS_IN: u16 = 1;
const TYPE_A: u16 = 1;
const TYPE_AAAA: u16 = 28;

const FLAG_RESPONSE: u16 = 0x8000;
const OPCODE: u16 = 0x7800;
const FLAG_RECURSION_DESIRED: u16 = 0x0100;
const FLAG_RECURSION_AVAILABLE: u16 = 0x0080;

const CODE_FORMAT_ERROR: u16 = 1;
const CODE_SERVER_FAILURE: u16 = 2;
const CODE_NO_SUCH_NAME: u16 = 3;
const CODE_NOT_IMPLEMENTED: u16 = 4;
const CODE_REFUSED: u16 = 5;

/// A pointer to the name of the question, as the name of an answer.
const POINTER_TO_NAME: u16 = 0xc000 | HEADER_BYTES as u16;

/// Reads a question. What follows the question itself, as EDNS does, is not looked at.
///
/// # Errors
/// [`QuestionError`].
pub fn read(bytes: &[u8]) -> Result<NameQuestion, QuestionError> {
    let word = |at: usize| Some(u16::from_be_bytes([*bytes.get(at)?, *bytes.get(at + 1)?]));
    let (Some(number), Some(flags), Some(questions), Some(_)) = (word(0), word(2), word(4), word(10)) else {
        return Err(QuestionError::NoQuestion);
    };
    if flags & FLAG_RESPONSE != 0 {
        return Err(QuestionError::NoQuestion);
    }
    let unreadable = |code| QuestionError::Unreadable(message(number, flags, code, &[], None));
    if flags & OPCODE != 0 {
        return Err(unreadable(CODE_NOT_IMPLEMENTED));
    }
    let (name, end) =
        read_name(bytes).filter(|_| questions == 1).ok_or_else(|| unreadable(CODE_FORMAT_ERROR))?;
    let (Some(kind), Some(class)) = (word(end), word(end + 2)) else {
        return Err(unreadable(CODE_FORMAT_ERROR));
    };
    let kind = match (class, kind) {
        (CLASS_IN, TYPE_A) => QuestionType::A,
        (CLASS_IN, TYPE_AAAA) => QuestionType::Aaaa,
        _ => QuestionType::Other,
    };
    let section = bytes.get(HEADER_BYTES..end + 4).unwrap_or_default().to_vec();
    Ok(NameQuestion { number, flags, section, name, kind })
}

/// The text of the name behind the header, and where it ends. A question has no pointers.
fn read_name(bytes: &[u8]) -> Option<(String, usize)> {
    let mut text = String::new();
    let mut at = HEADER_BYTES;
    loop {
        let length = usize::from(*bytes.get(at)?);
        at += 1;
        if length == 0 {
            return Some((text, at));
        }
        if length > 63 || at + length - HEADER_BYTES > MAX_NAME_BYTES {
            return None;
        }
        if !text.is_empty() {
            text.push('.');
        }
        for byte in bytes.get(at..at + length)? {
            match byte {
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' => text.push(char::from(*byte)),
                _ => write!(text, "\\{byte:03}").ok()?,
            }
        }
        at += length;
    }
}

impl NameQuestion {
    /// The bytes of its answer.
    pub fn reply(&self, reply: Reply) -> Vec<u8> {
        let (code, address) = match reply {
            Reply::Address(address) => (0, Some(address)),
            Reply::Nothing => (0, None),
            Reply::NoSuchName => (CODE_NO_SUCH_NAME, None),
            Reply::Refused => (CODE_REFUSED, None),
            Reply::Failed => (CODE_SERVER_FAILURE, None),
        };
        message(self.number, self.flags, code, &self.section, address)
    }
}

fn message(number: u16, asked: u16, code: u16, section: &[u8], address: Option<Ipv4Addr>) -> Vec<u8> {
    let flags = FLAG_RESPONSE | asked & (OPCODE | FLAG_RECURSION_DESIRED) | FLAG_RECURSION_AVAILABLE | code;
    let questions = u16::from(!section.is_empty());
    let mut bytes = Vec::with_capacity(HEADER_BYTES + section.len() + 16);
    for word in [number, flags, questions, u16::from(address.is_some()), 0, 0] {
        bytes.extend_from_slice(&word.to_be_bytes());
    }
    bytes.extend_from_slice(section);
    if let Some(address) = address {
        for word in [POINTER_TO_NAME, TYPE_A, CLASS_IN] {
            bytes.extend_from_slice(&word.to_be_bytes());
        }
        bytes.extend_from_slice(&TTL_S.to_be_bytes());
        bytes.extend_from_slice(&4_u16.to_be_bytes());
        bytes.extend_from_slice(&address.octets());
    }
    bytes
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use proptest::prelude::*;

    use super::*;
    use crate::network::{
        dns::{self, Answer, RecordType},
        name::HostName,
    };

    fn asked(record: RecordType) -> Vec<u8> {
        dns::question(7, &HostName::parse("registry.example.org").unwrap(), record)
    }

    #[test]
    fn a_question_is_answered_as_a_stub_resolver_reads_it() {
        let bytes = asked(RecordType::A);
        let question = read(&bytes).unwrap();
        assert_eq!((question.name.as_str(), question.kind), ("registry.example.org", QuestionType::A));
        let address = Ipv4Addr::new(198, 18, 1, 2);
        for (reply, expected) in [
            (Reply::Address(address), Answer::Addresses(vec![IpAddr::V4(address)])),
            (Reply::Nothing, Answer::Addresses(vec![])),
            (Reply::NoSuchName, Answer::NoSuchName),
            (Reply::Refused, Answer::Failed),
            (Reply::Failed, Answer::Failed),
        ] {
            assert_eq!(dns::answer(&bytes, &question.reply(reply), RecordType::A), Ok(expected), "{reply:?}");
        }
        assert_eq!(read(&asked(RecordType::Aaaa)).unwrap().kind, QuestionType::Aaaa);
    }

    #[test]
    fn what_is_no_plain_question_for_one_name_is_not_answered_as_one() {
        let with = |at: usize, value: u8| {
            let mut bytes = asked(RecordType::A);
            bytes[at] = value;
            bytes
        };
        let code = |error| match error {
            Err(QuestionError::Unreadable(bytes)) => Some(bytes[3] & 15),
            Err(QuestionError::NoQuestion) | Ok(_) => None,
        };
        assert_eq!(read(&with(2, 0x81)), Err(QuestionError::NoQuestion), "an answer");
        assert_eq!(read(&[0; 11]), Err(QuestionError::NoQuestion));
        assert_eq!(code(read(&with(2, 0x29))), Some(4), "an update");
        assert_eq!(code(read(&with(5, 2))), Some(1), "two questions");
        assert_eq!(code(read(&with(12, 0xc0))), Some(1), "a pointer");
        assert_eq!(code(read(&asked(RecordType::A)[..20])), Some(1), "cut off");
        // TXT, and class CHAOS.
        let end = asked(RecordType::A).len();
        assert_eq!(read(&with(end - 3, 16)).unwrap().kind, QuestionType::Other);
        assert_eq!(read(&with(end - 1, 3)).unwrap().kind, QuestionType::Other);
        for byte in [0, b'.', b' ', b'\\', 0xe9] {
            let name = read(&with(13, byte)).unwrap().name;
            assert!(HostName::parse(&name).is_err(), "{name:?}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_fall(bytes in prop::collection::vec(any::<u8>(), 0..300), cut in 0usize..60) {
            let _ = read(&bytes);
            let mut whole = asked(RecordType::A);
            whole.truncate(cut.max(12));
            whole.extend_from_slice(&bytes);
            if let Ok(question) = read(&whole) {
                prop_assert!(question.reply(Reply::Failed).len() <= 12 + 255 + 4 + 16);
            }
        }
    }
}
