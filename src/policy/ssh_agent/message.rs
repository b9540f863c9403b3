//! Requests to an agent and its answers.

use super::wire::{Reader, put_string};

const FAILURE: u8 = 5;
const SUCCESS: u8 = 6;
const REQUEST_IDENTITIES: u8 = 11;
const IDENTITIES_ANSWER: u8 = 12;
const SIGN_REQUEST: u8 = 13;
const SIGN_RESPONSE: u8 = 14;

/// The most keys that are listed.
const MAX_KEYS: usize = 256;

/// What a command wants of an agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// The public keys.
    Identities,
    /// A signature.
    Sign(SignRequest),
    /// Anything else, by its number, or what is no request: to add, remove or lock keys, extensions.
    Other(u8),
}

/// Asks for a signature.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignRequest {
    /// The public key, as the protocol has it.
    pub key: Vec<u8>,
    /// What is to be signed.
    pub data: Vec<u8>,
    /// Which hash an RSA key takes.
    pub flags: u32,
}

/// Reads a message without its length. One that is not whole is [`Request::Other`].
#[must_use]
pub fn read_request(message: &[u8]) -> Request {
    let kind = message.first().copied().unwrap_or_default();
    let rest = Reader(message.get(1..).unwrap_or_default());
    match kind {
        REQUEST_IDENTITIES if rest.end().is_some() => Request::Identities,
        SIGN_REQUEST => sign_request(rest).map_or(Request::Other(kind), Request::Sign),
        other => Request::Other(other),
    }
}

fn sign_request(mut rest: Reader<'_>) -> Option<SignRequest> {
    let (key, data, flags) = (rest.string()?.to_vec(), rest.string()?.to_vec(), rest.number()?);
    rest.end()?;
    Some(SignRequest { key, data, flags })
}

impl SignRequest {
    /// The message, written again: nothing that was not understood is passed on.
    #[must_use]
    pub fn message(&self) -> Vec<u8> {
        let mut bytes = vec![SIGN_REQUEST];
        put_string(&mut bytes, &self.key);
        put_string(&mut bytes, &self.data);
        bytes.extend(self.flags.to_be_bytes());
        bytes
    }
}

/// The message that asks for the public keys.
#[must_use]
pub fn list_keys() -> Vec<u8> {
    vec![REQUEST_IDENTITIES]
}

/// The message that says yes to what has no other answer.
#[must_use]
pub fn success() -> Vec<u8> {
    vec![SUCCESS]
}

/// The message that says no.
#[must_use]
pub fn failure() -> Vec<u8> {
    vec![FAILURE]
}

/// An agent's list of keys, written again without the comments, which are paths and addresses of people. `None` if it is no such list.
#[must_use]
pub fn identities(answer: &[u8]) -> Option<Vec<u8>> {
    let mut rest = Reader(answer);
    if rest.byte()? != IDENTITIES_ANSWER {
        return None;
    }
    let count = rest.number()? as usize;
    if count > MAX_KEYS {
        return None;
    }
    let mut bytes = vec![IDENTITIES_ANSWER];
    bytes.extend(u32::try_from(count).ok()?.to_be_bytes());
    for _ in 0..count {
        let (key, _comment) = (rest.string()?, rest.string()?);
        put_string(&mut bytes, key);
        put_string(&mut bytes, b"");
    }
    rest.end()?;
    Some(bytes)
}

/// Whether an agent's answer is a signature and nothing else.
#[must_use]
pub fn is_signature(answer: &[u8]) -> bool {
    let mut rest = Reader(answer);
    rest.byte() == Some(SIGN_RESPONSE) && rest.string().is_some() && rest.end().is_some()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_request_is_read_whole_or_not_at_all() {
        let request = SignRequest { key: b"key".to_vec(), data: b"data".to_vec(), flags: 4 };
        let bytes = request.message();
        assert_eq!(read_request(&bytes), Request::Sign(request));
        for end in 1..bytes.len() {
            assert_eq!(read_request(&bytes[..end]), Request::Other(SIGN_REQUEST), "{end} bytes");
        }
        assert_eq!(read_request(&[&bytes[..], b"x"].concat()), Request::Other(SIGN_REQUEST));
        assert_eq!(read_request(&list_keys()), Request::Identities);
        assert_eq!(read_request(&[REQUEST_IDENTITIES, 0]), Request::Other(REQUEST_IDENTITIES));
        // Add a key, remove all, lock, extension.
        for kind in [17, 19, 22, 27, 0, 255] {
            assert_eq!(read_request(&[kind]), Request::Other(kind));
        }
        assert_eq!(read_request(&[]), Request::Other(0));
    }

    #[test]
    fn keys_are_listed_without_their_comments() {
        let mut answer = vec![IDENTITIES_ANSWER, 0, 0, 0, 1];
        put_string(&mut answer, b"key");
        put_string(&mut answer, b"/home/me/.ssh/id");
        let mut expected = vec![IDENTITIES_ANSWER, 0, 0, 0, 1];
        put_string(&mut expected, b"key");
        put_string(&mut expected, b"");
        assert_eq!(identities(&answer), Some(expected));
        assert_eq!(identities(&answer[..answer.len() - 1]), None);
        assert_eq!(identities(&[IDENTITIES_ANSWER, 255, 255, 255, 255]), None);
        assert_eq!(identities(&[FAILURE]), None);
    }

    #[test]
    fn only_a_signature_is_one() {
        let mut answer = vec![SIGN_RESPONSE];
        put_string(&mut answer, b"signature");
        assert!(is_signature(&answer));
        assert!(
            !is_signature(&answer[..answer.len() - 1]) && !is_signature(&[FAILURE]) && !is_signature(&[])
        );
    }

    proptest! {
        #[test]
        fn any_bytes_can_be_read(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = (read_request(&bytes), identities(&bytes), is_signature(&bytes));
        }
    }
}
