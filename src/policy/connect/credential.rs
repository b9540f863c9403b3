//! Checks the secrets that requests are given: in which header, and in which form.

use super::source::{Credential, SECRET_PLACE};

/// Headers that say where a request goes, where it ends, or that are between a program and its proxy.
const REFUSED_HEADERS: [&str; 12] = [
    "host",
    "content-length",
    "transfer-encoding",
    "connection",
    "keep-alive",
    "upgrade",
    "te",
    "trailer",
    "expect",
    "proxy-authorization",
    "proxy-authenticate",
    "proxy-connection",
];

/// The longest format, in bytes.
const MAX_FORMAT_BYTES: usize = 1_024;

/// What is wrong with a credential.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CredentialError {
    /// No name of a header, or one of another meaning.
    #[error("header: {0:?} is no name of a header that a secret can be in")]
    Header(String),
    /// No place for the secret, two, or a character that no header has.
    #[error(
        "format: {0:?} must be text of at most {MAX_FORMAT_BYTES} bytes with one \"{{}}\", where the secret is put"
    )]
    Format(String),
}

/// Checks one. Whether there is such a secret is checked where all secrets are known.
pub(super) fn check(credential: &Credential) -> Result<(), CredentialError> {
    let header = &credential.header;
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    let is_refused = REFUSED_HEADERS.iter().any(|one| one.eq_ignore_ascii_case(header));
    if header.is_empty() || !header.bytes().all(is_token) || is_refused {
        return Err(CredentialError::Header(header.clone()));
    }
    let format = &credential.format;
    let is_text = format.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic());
    if !is_text || format.len() > MAX_FORMAT_BYTES || format.matches(SECRET_PLACE).count() != 1 {
        return Err(CredentialError::Format(format.clone()));
    }
    Ok(())
}
