//! DNS messages (RFC 1035), as far as a stub resolver and the resolver of a sandbox need them.
//!
//! The stub resolver asks one question and reads the addresses of its answer, which is believed by its number and its question. Which of
//! its addresses may be dialled is decided elsewhere. The resolver of a sandbox reads a question and writes its answer: there is one answer
//! with something in it, an IPv4 address, and every other type of record is refused.

use std::{
    fmt::Write as _,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

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
            Self::A => TYPE_A,
            Self::Aaaa => TYPE_AAAA,
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

const HEADER_BYTES: usize = 12;
const MAX_NAME_BYTES: usize = 255;
const CLASS_IN: u16 = 1;
const TYPE_A: u16 = 1;
const TYPE_AAAA: u16 = 28;

const FLAG_RESPONSE: u16 = 0x8000;
const OPCODE: u16 = 0x7800;
const FLAG_TRUNCATED: u16 = 0x0200;
const FLAG_RECURSION_DESIRED: u16 = 0x0100;
const FLAG_RECURSION_AVAILABLE: u16 = 0x0080;

const RESPONSE_CODE: u16 = 0x000f;
const CODE_FORMAT_ERROR: u16 = 1;
const CODE_SERVER_FAILURE: u16 = 2;
const CODE_NO_SUCH_NAME: u16 = 3;
const CODE_NOT_IMPLEMENTED: u16 = 4;
const CODE_REFUSED: u16 = 5;

/// The bytes of a question.
pub fn question(number: u16, name: &HostName, record: RecordType) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEADER_BYTES + name.as_str().len() + 6);
    for word in [number, FLAG_RECURSION_DESIRED, 1, 0, 0, 0] {
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

/// A pointer to the name of the question, as the name of an answer.
const POINTER_TO_NAME: u16 = 0xc000 | HEADER_BYTES as u16;

/// Reads a question. What follows the question itself, as EDNS does, is not looked at.
///
/// # Errors
/// [`QuestionError`].
pub fn read_question(bytes: &[u8]) -> Result<NameQuestion, QuestionError> {
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

fn message(number: u16, asked_for: u16, code: u16, section: &[u8], address: Option<Ipv4Addr>) -> Vec<u8> {
    let flags =
        FLAG_RESPONSE | asked_for & (OPCODE | FLAG_RECURSION_DESIRED) | FLAG_RECURSION_AVAILABLE | code;
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

    fn asked() -> Vec<u8> {
        asked_for(RecordType::A)
    }

    fn asked_for(record: RecordType) -> Vec<u8> {
        question(7, &HostName::parse("registry.example.org").unwrap(), record)
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

    #[test]
    fn a_question_is_answered_as_a_stub_resolver_reads_it() {
        let bytes = asked();
        let question = read_question(&bytes).unwrap();
        assert_eq!((question.name.as_str(), question.kind), ("registry.example.org", QuestionType::A));
        let address = Ipv4Addr::new(198, 18, 1, 2);
        for (reply, expected) in [
            (Reply::Address(address), Answer::Addresses(vec![IpAddr::V4(address)])),
            (Reply::Nothing, Answer::Addresses(vec![])),
            (Reply::NoSuchName, Answer::NoSuchName),
            (Reply::Refused, Answer::Failed),
            (Reply::Failed, Answer::Failed),
        ] {
            assert_eq!(answer(&bytes, &question.reply(reply), RecordType::A), Ok(expected), "{reply:?}");
        }
        assert_eq!(read_question(&asked_for(RecordType::Aaaa)).unwrap().kind, QuestionType::Aaaa);
    }

    #[test]
    fn what_is_no_plain_question_for_one_name_is_not_answered_as_one() {
        let with = |at: usize, value: u8| {
            let mut bytes = asked();
            bytes[at] = value;
            bytes
        };
        let code = |error| match error {
            Err(QuestionError::Unreadable(bytes)) => Some(bytes[3] & 15),
            Err(QuestionError::NoQuestion) | Ok(_) => None,
        };
        assert_eq!(read_question(&with(2, 0x81)), Err(QuestionError::NoQuestion), "an answer");
        assert_eq!(read_question(&[0; 11]), Err(QuestionError::NoQuestion));
        assert_eq!(code(read_question(&with(2, 0x29))), Some(4), "an update");
        assert_eq!(code(read_question(&with(5, 2))), Some(1), "two questions");
        assert_eq!(code(read_question(&with(12, 0xc0))), Some(1), "a pointer");
        assert_eq!(code(read_question(&asked()[..20])), Some(1), "cut off");
        // TXT, and class CHAOS.
        let end = asked().len();
        assert_eq!(read_question(&with(end - 3, 16)).unwrap().kind, QuestionType::Other);
        assert_eq!(read_question(&with(end - 1, 3)).unwrap().kind, QuestionType::Other);
        for byte in [0, b'.', b' ', b'\\', 0xe9] {
            let name = read_question(&with(13, byte)).unwrap().name;
            assert!(HostName::parse(&name).is_err(), "{name:?}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_that_are_no_question_make_it_fall(bytes in prop::collection::vec(any::<u8>(), 0..300), cut in 0usize..60) {
            let _ = read_question(&bytes);
            let mut whole = asked();
            whole.truncate(cut.max(12));
            whole.extend_from_slice(&bytes);
            if let Ok(question) = read_question(&whole) {
                prop_assert!(question.reply(Reply::Failed).len() <= 12 + 255 + 4 + 16);
            }
        }
    }
}
