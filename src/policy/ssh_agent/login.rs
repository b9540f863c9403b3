//! Logins: which host a connection to an agent is for, and what a login to it would sign.
//!
//! A client binds its connection to the agent to a session with a server (`session-bind@openssh.com`, PROTOCOL.agent of OpenSSH): it shows
//! the server's host key and the server's signature of the session's identifier, which is in everything that a login of that session
//! signs. Only Ed25519 host keys are read.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use ed25519_dalek::{Signature, VerifyingKey};

use super::wire::Reader;

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

#[cfg(test)]
mod tests {
    use ed25519_dalek::{Signer as _, SigningKey};

    use super::*;
    use crate::ssh_agent::wire::put_string;

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
