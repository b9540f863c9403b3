//! The protocol of SSH agents (draft-ietf-sshm-ssh-agent), as far as a signature for git needs it. Pure.
//!
//! Requests come from hostile commands, answers from the caller's agent. What is not understood whole is no request and no answer. What may
//! be signed is decided elsewhere.
//!
//! A text that is signed with ssh-keygen(1) names a namespace (PROTOCOL.sshsig of OpenSSH); all else that an agent signs is a login or
//! unknown. A client binds its connection to the agent to a session with a server (`session-bind@openssh.com`, PROTOCOL.agent of OpenSSH):
//! it shows the server's host key and the server's signature of the session's identifier, which is in everything that a login of that
//! session signs. Only Ed25519 host keys are read.

#![forbid(unsafe_code)]

use base64::{
    Engine as _,
    engine::general_purpose::{STANDARD, STANDARD_NO_PAD},
};
use ed25519_dalek::{Signature, VerifyingKey};
use sha2::{Digest as _, Sha256};

/// A public key as people compare it: `SHA256:...`, as ssh-keygen(1) prints it.
#[must_use]
pub fn fingerprint(key: &[u8]) -> String {
    format!("SHA256:{}", STANDARD_NO_PAD.encode(Sha256::digest(key)))
}

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

/// What every such text begins with. A login begins with the length of a session's identifier, of which this is no possible value.
const MAGIC: &[u8] = b"SSHSIG";
const NAMESPACE_MAX_BYTES: usize = 64;

/// What is to be signed is no text of a namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("it is no signature of a text in a namespace: a login, for example")]
pub struct NotSigned;

/// The namespace of a text that is to be signed: letters, digits, "-", "_", "." and "@".
///
/// # Errors
/// [`NotSigned`].
pub fn namespace(data: &[u8]) -> Result<String, NotSigned> {
    read(data).ok_or(NotSigned)
}

fn read(data: &[u8]) -> Option<String> {
    let mut rest = Reader(data.strip_prefix(MAGIC)?);
    let (namespace, reserved) = (rest.string()?, rest.string()?);
    let (algorithm, hash) = (rest.string()?, rest.string()?);
    rest.end()?;
    let hash_bytes = match algorithm {
        b"sha256" => 32,
        b"sha512" => 64,
        _ => return None,
    };
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'@');
    let is_name = (1..=NAMESPACE_MAX_BYTES).contains(&namespace.len()) && namespace.iter().all(is_plain);
    if !is_name || !reserved.is_empty() || hash.len() != hash_bytes {
        return None;
    }
    String::from_utf8(namespace.to_vec()).ok()
}

/// The only type of host key.
const ED25519: &[u8] = b"ssh-ed25519";
const EXTENSION: u8 = 27;
const SESSION_BIND: &[u8] = b"session-bind@openssh.com";
/// The message of RFC 4252 that asks for a login.
const USERAUTH_REQUEST: u8 = 50;
const USER_MAX_BYTES: usize = 64;
/// A session's identifier is a hash.
const SESSION_BYTES: std::ops::RangeInclusive<usize> = 20..=64;

/// A host key as the protocol has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostKey(Vec<u8>);

/// A session with a server that has signed for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Binding {
    /// The server's.
    pub host_key: HostKey,
    session: Vec<u8>,
}

/// A message that binds nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotBound {
    /// It is not of this form, or for another type of host key.
    #[error("it names no session with an Ed25519 host key")]
    Form,
    /// Another host would use the keys.
    #[error("the agent is forwarded to a host")]
    Forwarded,
    /// The host has not signed for the session.
    #[error("the host key's signature of the session is wrong")]
    Signature,
}

/// What is to be signed is no login in the session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("it is no login in the session with the host")]
pub struct NotTheLogin;

impl HostKey {
    /// Reads `ssh-ed25519 BASE64`, as ssh-keyscan(1) and known_hosts files have it. `None` if it is anything else.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut words = text.split_ascii_whitespace();
        if words.next()?.as_bytes() != ED25519 {
            return None;
        }
        let blob = STANDARD.decode(words.next()?).ok()?;
        verifying_key(&blob)?;
        Some(Self(blob))
    }
}

fn verifying_key(blob: &[u8]) -> Option<VerifyingKey> {
    let mut rest = Reader(blob);
    let (kind, key) = (rest.string()?, rest.string()?);
    rest.end()?;
    if kind != ED25519 {
        return None;
    }
    VerifyingKey::from_bytes(key.try_into().ok()?).ok()
}

/// Whether a message asks to bind the connection.
#[must_use]
pub fn is_binding(message: &[u8]) -> bool {
    let mut rest = Reader(message);
    rest.byte() == Some(EXTENSION) && rest.string() == Some(SESSION_BIND)
}

/// Reads such a message, and proves it.
///
/// # Errors
/// [`NotBound`].
pub fn binding(message: &[u8]) -> Result<Binding, NotBound> {
    let BindMessage { host_key, session, signature, is_forwarded } = parts(message).ok_or(NotBound::Form)?;
    if is_forwarded {
        return Err(NotBound::Forwarded);
    }
    let key = verifying_key(host_key).ok_or(NotBound::Form)?;
    let mut rest = Reader(signature);
    let signature = match (rest.string(), rest.string(), rest.end()) {
        (Some(ED25519), Some(signature), Some(())) => Signature::from_slice(signature).ok(),
        _ => None,
    };
    let signature = signature.ok_or(NotBound::Signature)?;
    key.verify_strict(session, &signature).map_err(|_| NotBound::Signature)?;
    Ok(Binding { host_key: HostKey(host_key.to_vec()), session: session.to_vec() })
}

/// What such a message says, unproven.
struct BindMessage<'a> {
    host_key: &'a [u8],
    session: &'a [u8],
    signature: &'a [u8],
    is_forwarded: bool,
}

fn parts(message: &[u8]) -> Option<BindMessage<'_>> {
    let mut rest = Reader(message);
    if rest.byte()? != EXTENSION || rest.string()? != SESSION_BIND {
        return None;
    }
    let (host_key, session, signature) = (rest.string()?, rest.string()?, rest.string()?);
    let is_forwarded = rest.byte()? != 0;
    rest.end()?;
    let is_hash = SESSION_BYTES.contains(&session.len());
    is_hash.then_some(BindMessage { host_key, session, signature, is_forwarded })
}

impl Binding {
    /// The user of a login with this public key in the bound session, from what is to be signed for it (RFC 4252, section 7, and
    /// `publickey-hostbound-v00@openssh.com`).
    ///
    /// # Errors
    /// [`NotTheLogin`].
    pub fn login(&self, data: &[u8], key: &[u8]) -> Result<String, NotTheLogin> {
        self.user(data, key).ok_or(NotTheLogin)
    }

    fn user(&self, data: &[u8], key: &[u8]) -> Option<String> {
        let mut rest = Reader(data);
        if rest.string()? != self.session || rest.byte()? != USERAUTH_REQUEST {
            return None;
        }
        let user = rest.string()?;
        if rest.string()? != b"ssh-connection" {
            return None;
        }
        let method = rest.string()?;
        let (is_signed, _algorithm, of_login) = (rest.byte()?, rest.string()?, rest.string()?);
        let is_host_bound = match method {
            b"publickey" => false,
            b"publickey-hostbound-v00@openssh.com" => true,
            _ => return None,
        };
        if is_signed != 1 || of_login != key || (is_host_bound && rest.string()? != self.host_key.0) {
            return None;
        }
        rest.end()?;
        let is_plain =
            |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'@' | b'+');
        let is_name = (1..=USER_MAX_BYTES).contains(&user.len()) && user.iter().all(is_plain);
        is_name.then(|| String::from_utf8(user.to_vec()).ok()).flatten()
    }
}

/// The longest message, in bytes: as OpenSSH has it.
pub const MAX_MESSAGE_BYTES: usize = 256 << 10;

/// A message with its length before it.
#[must_use]
pub fn frame(message: &[u8]) -> Vec<u8> {
    let mut bytes = u32::try_from(message.len()).unwrap_or(u32::MAX).to_be_bytes().to_vec();
    bytes.extend_from_slice(message);
    bytes
}

/// Reads strings and numbers (RFC 4251, section 5) from the front of some bytes.
#[derive(Debug, Clone, Copy)]
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    fn number(&mut self) -> Option<u32> {
        let (word, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u32::from_be_bytes(*word))
    }

    fn string(&mut self) -> Option<&'a [u8]> {
        let length = self.number()? as usize;
        let (string, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(string)
    }

    /// Nothing is left.
    fn end(self) -> Option<()> {
        self.0.is_empty().then_some(())
    }
}

fn put_string(bytes: &mut Vec<u8>, string: &[u8]) {
    bytes.extend(frame(string));
}

#[cfg(test)]
mod tests {
    use ed25519_dalek::{Signer as _, SigningKey};
    use proptest::prelude::*;

    use super::*;
    use crate::ssh_agent::put_string;

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

    fn text(namespace: &[u8], reserved: &[u8], algorithm: &[u8], hash: &[u8]) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        for part in [namespace, reserved, algorithm, hash] {
            put_string(&mut bytes, part);
        }
        bytes
    }

    #[test]
    fn a_namespace_is_read_only_from_a_text_that_is_whole() {
        let whole = text(b"git", b"", b"sha512", &[7; 64]);
        assert_eq!(namespace(&whole).unwrap(), "git");
        assert_eq!(namespace(&text(b"file", b"", b"sha256", &[7; 32])).unwrap(), "file");
        for end in 0..whole.len() {
            assert_eq!(namespace(&whole[..end]), Err(NotSigned), "{end} bytes");
        }
        let login = [&32_u32.to_be_bytes()[..], &[1; 32], &[50], &[0, 0, 0, 3], b"git"].concat();
        for other in [
            login,
            [&whole[..], b"x"].concat(),
            text(b"git", b"x", b"sha512", &[7; 64]),
            text(b"git", b"", b"sha1", &[7; 20]),
            text(b"git", b"", b"sha512", &[7; 32]),
            text(b"", b"", b"sha512", &[7; 64]),
            text(b"git\0", b"", b"sha512", &[7; 64]),
            text(b" git", b"", b"sha512", &[7; 64]),
            text(&[b'g'; 65], b"", b"sha512", &[7; 64]),
        ] {
            assert_eq!(namespace(&other), Err(NotSigned), "{other:?}");
        }
    }

    fn strings(parts: &[&[u8]]) -> Vec<u8> {
        let mut bytes = Vec::new();
        parts.iter().for_each(|part| put_string(&mut bytes, part));
        bytes
    }

    fn host(seed: u8) -> (SigningKey, Vec<u8>) {
        let key = SigningKey::from_bytes(&[seed; 32]);
        let blob = strings(&[ED25519, key.verifying_key().as_bytes()]);
        (key, blob)
    }

    fn bind(shown: &[u8], signer: &SigningKey, session: &[u8], forwarded: u8) -> Vec<u8> {
        let signature = strings(&[ED25519, &signer.sign(session).to_bytes()]);
        let parts = strings(&[SESSION_BIND, shown, session, &signature]);
        [&[EXTENSION][..], &parts, &[forwarded]].concat()
    }

    #[test]
    fn a_session_is_bound_by_the_signature_of_its_host() {
        let ((key, blob), (other, _)) = (host(1), host(2));
        let session = [7; 32];
        let bound = binding(&bind(&blob, &key, &session, 0)).unwrap();
        let text = format!("ssh-ed25519 {}", STANDARD.encode(&blob));
        assert_eq!(Some(bound.host_key), HostKey::parse(&text));
        assert_eq!(binding(&bind(&blob, &other, &session, 0)), Err(NotBound::Signature));
        assert_eq!(binding(&bind(&blob, &key, &session, 1)), Err(NotBound::Forwarded));
        assert_eq!(binding(&bind(b"key", &key, &session, 0)), Err(NotBound::Form));
        assert_eq!(binding(&bind(&blob, &key, &[7; 3], 0)), Err(NotBound::Form));
        let whole = bind(&blob, &key, &session, 0);
        for end in 0..whole.len() {
            assert!(binding(&whole[..end]).is_err(), "{end} bytes");
        }
        for text in ["", "ssh-ed25519", "ssh-rsa AAAA", "ssh-ed25519 AAAA", "ssh-ed25519 ?"] {
            assert_eq!(HostKey::parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_login_is_of_the_bound_session_and_by_the_same_key() {
        let ((key, blob), (_, foreign)) = (host(1), host(2));
        let session = [7; 32];
        let bound = binding(&bind(&blob, &key, &session, 0)).unwrap();
        let login = |session: &[u8], user: &[u8], method: &[u8], own: &[u8], host: Option<&[u8]>| {
            let head =
                [strings(&[session]), vec![USERAUTH_REQUEST], strings(&[user, b"ssh-connection", method])];
            let tail =
                [vec![1], strings(&[ED25519, own]), host.map_or_else(Vec::new, |host| strings(&[host]))];
            [head.concat(), tail.concat()].concat()
        };
        let (plain, host_bound) = (&b"publickey"[..], &b"publickey-hostbound-v00@openssh.com"[..]);
        assert_eq!(bound.login(&login(&session, b"git", plain, b"own", None), b"own").unwrap(), "git");
        assert!(bound.login(&login(&session, b"git", host_bound, b"own", Some(&blob)), b"own").is_ok());
        for wrong in [
            login(&[8; 32], b"git", plain, b"own", None),
            login(&session, b"g\nt", plain, b"own", None),
            login(&session, b"", plain, b"own", None),
            login(&session, b"git", b"password", b"own", None),
            login(&session, b"git", plain, b"other", None),
            login(&session, b"git", plain, b"own", Some(&blob)),
            login(&session, b"git", host_bound, b"own", Some(&foreign)),
            login(&session, b"git", host_bound, b"own", None),
            b"SSHSIG".to_vec(),
        ] {
            assert_eq!(bound.login(&wrong, b"own"), Err(NotTheLogin), "{wrong:?}");
        }
    }
}
