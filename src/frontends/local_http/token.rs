//! The token of an HTTP endpoint. It is compared in the same time whatever it is compared with, and never shown.

use std::fmt;

use hyper::header::{AUTHORIZATION, HeaderMap};
use sha2::{Digest, Sha256};

use super::address::only;

/// The shortest token that is taken, in characters: 128 bits in base64.
pub const TOKEN_MIN_CHARACTERS: usize = 22;
/// The longest.
pub const TOKEN_MAX_CHARACTERS: usize = 512;

/// A secret that clients have to bring.
#[derive(Clone)]
pub struct Token([u8; 32]);

impl Token {
    /// From its text: letters, digits and `-._~+/=`, as RFC 6750 has them. `None`: it is another text, or too short or too long.
    pub fn parse(text: &str) -> Option<Self> {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~+/=".contains(&byte);
        let is_token = (TOKEN_MIN_CHARACTERS..=TOKEN_MAX_CHARACTERS).contains(&text.len());
        (is_token && text.bytes().all(is_plain)).then(|| Self(Sha256::digest(text).into()))
    }

    /// Whether this is it. The digests are compared: how far they agree says nothing of the token.
    pub fn is(&self, given: &str) -> bool {
        let given: [u8; 32] = Sha256::digest(given).into();
        given.iter().zip(&self.0).fold(0, |differs, (a, b)| differs | (a ^ b)) == 0
    }

    /// Whether these headers bring it, and nothing else in its place: `Authorization: Bearer TOKEN`.
    pub fn is_in(&self, headers: &HeaderMap) -> bool {
        only(headers, &AUTHORIZATION)
            .unwrap_or_default()
            .and_then(|value| value.split_once(' '))
            .is_some_and(|(scheme, token)| scheme.eq_ignore_ascii_case("bearer") && self.is(token.trim()))
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_only_itself() {
        let text = "abcdefghijklmnopqrstuvwxyz-012345";
        let token = Token::parse(text).unwrap();
        assert!(token.is(text) && !token.is(&text[1..]) && !token.is("") && !token.is(&text.to_uppercase()));
        assert!(Token::parse("short").is_none() && Token::parse(&text.replace('-', " ")).is_none());
        assert_eq!(format!("{token:?}"), "Token");
    }
}
