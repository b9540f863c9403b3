//! Reads the name (SNI) out of the first message of a TLS connection, without being a party to it.
//!
//! Only whole and well-formed messages count: what a server might read in another way is [`HelloError::Malformed`].

use super::name::HostName;

/// The most bytes of a first message that are collected. Those of today have 300 to 2,000.
pub const MAX_HELLO_BYTES: usize = 16 << 10;

/// The first byte of a TLS connection: a handshake record.
pub const HANDSHAKE_RECORD: u8 = 22;

/// What the first message says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientHello {
    /// The name that the client asks for.
    pub server_name: Option<HostName>,
    /// It offers to hide another name (Encrypted Client Hello).
    pub has_ech: bool,
}

/// How far the reading has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HelloProgress {
    /// More bytes are needed.
    Incomplete,
    /// It is whole.
    Complete(ClientHello),
}

/// Why there is no message to be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HelloError {
    /// These are not the bytes of a first message of TLS.
    #[error("the first bytes are no TLS")]
    NotTls,
    /// It is longer than any that is known.
    #[error("the first message of TLS has more than {MAX_HELLO_BYTES} bytes")]
    TooLong,
    /// It breaks the format, or has something twice.
    #[error("the first message of TLS cannot be read")]
    Malformed,
    /// Its name is no name.
    #[error("the name in the first message of TLS is no name")]
    Name,
}

const CLIENT_HELLO: u8 = 1;
const EXTENSION_SERVER_NAME: u16 = 0;
const EXTENSION_ECH: u16 = 0xfe0d;
const NAME_TYPE_HOST: u8 = 0;
const RECORD_HEADER_BYTES: usize = 5;
/// RFC 8446, 5.1.
const MAX_RECORD_BYTES: usize = 1 << 14;

/// Reads what has come of a connection so far.
///
/// # Errors
/// [`HelloError`].
pub fn read(bytes: &[u8]) -> Result<HelloProgress, HelloError> {
    let mut handshake = Vec::new();
    let mut rest = bytes;
    loop {
        let Some(header) = rest.get(..RECORD_HEADER_BYTES) else {
            // What is there already must not contradict TLS.
            return match rest {
                [] | [HANDSHAKE_RECORD] | [HANDSHAKE_RECORD, 3, ..] => incomplete(bytes),
                _ => Err(HelloError::NotTls),
            };
        };
        let length = usize::from(u16::from_be_bytes([header[3], header[4]]));
        if header[0] != HANDSHAKE_RECORD || header[1] != 3 {
            return Err(HelloError::NotTls);
        }
        if length == 0 || length > MAX_RECORD_BYTES {
            return Err(HelloError::Malformed);
        }
        let part = rest.get(RECORD_HEADER_BYTES..).unwrap_or_default();
        handshake.extend_from_slice(&part[..part.len().min(length)]);
        if let Some(message) = whole_message(&handshake)? {
            return parse(message).map(HelloProgress::Complete);
        }
        match part.get(length..) {
            Some(next) => rest = next,
            None => return incomplete(bytes),
        }
    }
}

fn incomplete(bytes: &[u8]) -> Result<HelloProgress, HelloError> {
    if bytes.len() >= MAX_HELLO_BYTES { Err(HelloError::TooLong) } else { Ok(HelloProgress::Incomplete) }
}

fn whole_message(handshake: &[u8]) -> Result<Option<&[u8]>, HelloError> {
    let [kind, a, b, c, body @ ..] = handshake else { return Ok(None) };
    if *kind != CLIENT_HELLO {
        return Err(HelloError::Malformed);
    }
    let length = usize::from(*a) << 16 | usize::from(*b) << 8 | usize::from(*c);
    if length > MAX_HELLO_BYTES {
        return Err(HelloError::TooLong);
    }
    Ok(body.get(..length))
}

fn parse(message: &[u8]) -> Result<ClientHello, HelloError> {
    let mut fields = Fields(message);
    fields.take(2 + 32)?;
    fields.vector(1)?;
    fields.vector(2)?;
    fields.vector(1)?;
    let mut hello = ClientHello { server_name: None, has_ech: false };
    if fields.0.is_empty() {
        return Ok(hello);
    }
    let mut extensions = Fields(fields.vector(2)?);
    if !fields.0.is_empty() {
        return Err(HelloError::Malformed);
    }
    let mut seen = Vec::new();
    while !extensions.0.is_empty() {
        let kind = extensions.number(2)? as u16;
        let value = extensions.vector(2)?;
        // Where an extension stands twice, client and server may read different ones.
        if seen.contains(&kind) {
            return Err(HelloError::Malformed);
        }
        seen.push(kind);
        match kind {
            EXTENSION_SERVER_NAME => hello.server_name = Some(server_name(value)?),
            EXTENSION_ECH => hello.has_ech = true,
            _ => {}
        }
    }
    Ok(hello)
}

fn server_name(value: &[u8]) -> Result<HostName, HelloError> {
    let mut extension = Fields(value);
    let mut list = Fields(extension.vector(2)?);
    let kind = list.number(1)?;
    let name = list.vector(2)?;
    if kind != usize::from(NAME_TYPE_HOST) || !list.0.is_empty() || !extension.0.is_empty() {
        return Err(HelloError::Malformed);
    }
    let name = std::str::from_utf8(name).map_err(|_| HelloError::Name)?;
    HostName::parse(name).map_err(|_| HelloError::Name)
}

/// The rest of a message.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], HelloError> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(HelloError::Malformed)?;
        self.0 = rest;
        Ok(taken)
    }

    /// A number of so many bytes, at most 2.
    fn number(&mut self, bytes: usize) -> Result<usize, HelloError> {
        Ok(self.take(bytes)?.iter().fold(0, |number, byte| number << 8 | usize::from(*byte)))
    }

    /// A vector whose length is a number of so many bytes.
    fn vector(&mut self, length_bytes: usize) -> Result<&'a [u8], HelloError> {
        let length = self.number(length_bytes)?;
        self.take(length)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn vector(length_bytes: usize, content: &[u8]) -> Vec<u8> {
        let mut bytes = (content.len() as u32).to_be_bytes()[4 - length_bytes..].to_vec();
        bytes.extend_from_slice(content);
        bytes
    }

    fn extension(kind: u16, value: &[u8]) -> Vec<u8> {
        [kind.to_be_bytes().to_vec(), vector(2, value)].concat()
    }

    fn sni(name: &[u8]) -> Vec<u8> {
        extension(0, &vector(2, &[vec![0], vector(2, name)].concat()))
    }

    fn message(extensions: &[u8]) -> Vec<u8> {
        let body = [
            vec![3, 3],
            vec![7; 32],
            vector(1, &[9; 32]),
            vector(2, &[0x13, 1]),
            vector(1, &[0]),
            vector(2, extensions),
        ]
        .concat();
        [vec![1], vector(3, &body)].concat()
    }

    fn records(message: &[u8], size: usize) -> Vec<u8> {
        message.chunks(size).flat_map(|part| [vec![22, 3, 1], vector(2, part)].concat()).collect()
    }

    #[test]
    fn the_name_is_read_from_one_record_or_many() {
        let message =
            message(&[extension(10, &[0; 4]), sni(b"Registry.Example.org"), extension(16, b"x")].concat());
        for size in [1, 7, 100, 4_000] {
            let bytes = records(&message, size);
            let Ok(HelloProgress::Complete(hello)) = read(&bytes) else { panic!("{size}") };
            assert_eq!(hello.server_name.unwrap().as_str(), "registry.example.org");
            assert!(!hello.has_ech);
            for end in 0..bytes.len() - 5 {
                assert_eq!(read(&bytes[..end]), Ok(HelloProgress::Incomplete), "{end} of {}", bytes.len());
            }
        }
    }

    #[test]
    fn what_could_be_read_in_two_ways_is_malformed() {
        let double = [sni(b"a.example"), sni(b"b.example")].concat();
        let two_names = extension(
            0,
            &vector(2, &[vec![0], vector(2, b"a.example"), vec![0], vector(2, b"b.example")].concat()),
        );
        for extensions in
            [double, two_names, extension(0, &[]), vec![0, 0, 0], sni(b"a.example")[..9].to_vec()]
        {
            assert_eq!(read(&records(&message(&extensions), 4_000)), Err(HelloError::Malformed));
        }
        for name in [&b"a\0.example"[..], b"1.2.3.4", b"", b"\xff.org"] {
            assert_eq!(read(&records(&message(&sni(name)), 4_000)), Err(HelloError::Name));
        }
    }

    #[test]
    fn a_hidden_name_and_no_name_are_told_apart() {
        let hello = |extensions: &[u8]| match read(&records(&message(extensions), 4_000)) {
            Ok(HelloProgress::Complete(hello)) => hello,
            other => panic!("{other:?}"),
        };
        assert_eq!(hello(&[]), ClientHello { server_name: None, has_ech: false });
        assert!(hello(&[sni(b"a.example"), extension(0xfe0d, &[1, 2])].concat()).has_ech);
    }

    #[test]
    fn other_protocols_are_not_tls() {
        for bytes in [&b"GET / HTTP/1.1\r\n"[..], b"SSH-2.0-x\r\n", &[0x80, 0x2e, 1, 3, 1], &[22, 4, 1, 0, 5]]
        {
            assert_eq!(read(bytes), Err(HelloError::NotTls));
        }
        assert_eq!(read(&[22, 3, 1, 0, 0]), Err(HelloError::Malformed));
        assert_eq!(read(&[22, 3, 1, 0, 5, 1, 0xff, 0xff, 0xff, 0]), Err(HelloError::TooLong));
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_fall(bytes in prop::collection::vec(any::<u8>(), 0..300), cut in 0usize..300) {
            let _ = read(&bytes);
            let mut whole = records(&message(&sni(b"a.example")), 50);
            let at = cut % whole.len();
            whole[at] = whole[at].wrapping_add(bytes.first().copied().unwrap_or(1));
            let _ = read(&whole);
        }
    }
}
