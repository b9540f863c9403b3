//! HTTP on a loopback address, for processes of this user: what `provost mcp --http` and `provost exec-server --listen` have in common.
//!
//! A listener takes in connections of this user's processes alone. A token and the names of the address tell what a request may do;
//! each front end asks them, because each has its own place for a token.

#![forbid(unsafe_code)]

mod address;
mod listener;
mod peer;
mod token;

use std::convert::Infallible;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, combinators::BoxBody};
use hyper::{
    Response, StatusCode,
    header::{HeaderValue, WWW_AUTHENTICATE},
};

pub use address::LocalAddress;
pub(crate) use address::only;
pub use listener::{CONNECTIONS_MAX, ListenError, LocalListener};
pub use token::{TOKEN_MAX_CHARACTERS, TOKEN_MIN_CHARACTERS, Token};

/// The body of an answer.
pub type Body = BoxBody<Bytes, Infallible>;

/// An answer that is a sentence.
pub fn text(status: StatusCode, message: &'static str) -> Response<Body> {
    let mut response = Response::new(Full::new(Bytes::from_static(message.as_bytes())).boxed());
    *response.status_mut() = status;
    response
}

/// The answer to a request without the token.
pub fn unauthorized() -> Response<Body> {
    let mut refused = text(StatusCode::UNAUTHORIZED, "the token is missing or wrong\n");
    refused.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    refused
}
