//! The opening of a websocket (RFC 6455, section 4.2): which request is one, whether it may, and what it is answered.
//!
//! It needs the token, which the client brings in a header or, where it can send none, as the path of the URL.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use hyper::{
    Method, Request, Response, StatusCode, Version,
    header::{
        AUTHORIZATION, CONNECTION, CONTENT_LENGTH, HeaderMap, HeaderName, HeaderValue, SEC_WEBSOCKET_ACCEPT,
        SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_VERSION, TRANSFER_ENCODING, UPGRADE,
    },
};
use ring::digest;

use crate::local_http::{self, Body, LocalAddress, Token, only};

/// What the protocol appends to a key.
const ACCEPT_SUFFIX: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
/// The bytes of a key.
const KEY_BYTES: usize = 16;

/// What a request is answered.
pub(super) fn answer<B>(
    request: &Request<B>,
    address: LocalAddress,
    token: &Token,
) -> Result<Response<Body>, Response<Body>> {
    let headers = request.headers();
    address.admits(headers).map_err(|(status, message)| local_http::text(status, message))?;
    if !is_authorized(request, token) {
        return Err(local_http::unauthorized());
    }
    let is_upgrade = request.method() == Method::GET
        && request.version() == Version::HTTP_11
        && has_word(headers, &CONNECTION, "upgrade")
        && has_word(headers, &UPGRADE, "websocket");
    let is_known = only(headers, &SEC_WEBSOCKET_VERSION) == Ok(Some("13"));
    if !is_upgrade || !is_known {
        let mut refused = local_http::text(StatusCode::UPGRADE_REQUIRED, "this is for websockets\n");
        refused.headers_mut().insert(UPGRADE, HeaderValue::from_static("websocket"));
        refused.headers_mut().insert(SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13"));
        return Err(refused);
    }
    // What follows an opening is the websocket's: with a body it would be open to argument where that begins.
    if headers.contains_key(CONTENT_LENGTH) || headers.contains_key(TRANSFER_ENCODING) {
        return Err(local_http::text(StatusCode::BAD_REQUEST, "an opening has no body\n"));
    }
    let key = only(headers, &SEC_WEBSOCKET_KEY).unwrap_or_default().unwrap_or_default();
    let is_key = STANDARD.decode(key).is_ok_and(|bytes| bytes.len() == KEY_BYTES);
    let accept =
        is_key.then(|| accept_of(key.as_bytes())).and_then(|accept| HeaderValue::from_str(&accept).ok());
    let Some(accept) = accept else {
        return Err(local_http::text(StatusCode::BAD_REQUEST, "the websocket's key is missing or wrong\n"));
    };
    let mut accepted = local_http::text(StatusCode::SWITCHING_PROTOCOLS, "");
    let added = accepted.headers_mut();
    added.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    added.insert(UPGRADE, HeaderValue::from_static("websocket"));
    added.insert(SEC_WEBSOCKET_ACCEPT, accept);
    Ok(accepted)
}

/// The token as a header, which then must be right, or else as the path.
fn is_authorized<B>(request: &Request<B>, token: &Token) -> bool {
    match request.headers().contains_key(AUTHORIZATION) {
        true => token.is_in(request.headers()),
        false => request.uri().path().strip_prefix('/').is_some_and(|given| token.is(given)),
    }
}

/// Whether a list of words in a header has this one.
fn has_word(headers: &HeaderMap, name: &HeaderName, wanted: &str) -> bool {
    let values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|word| word.trim().eq_ignore_ascii_case(wanted))
}

/// SHA-1 is the protocol's, and protects nothing: it shows that the server speaks it.
fn accept_of(key: &[u8]) -> String {
    let mut context = digest::Context::new(&digest::SHA1_FOR_LEGACY_USE_ONLY);
    context.update(key);
    context.update(ACCEPT_SUFFIX.as_bytes());
    STANDARD.encode(context.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_accepted_as_the_rfc_shows() {
        assert_eq!(accept_of(b"dGhlIHNhbXBsZSBub25jZQ=="), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    }
}
