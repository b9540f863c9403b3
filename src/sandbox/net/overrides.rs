//! What in a request makes some servers take another method, address or host than those of its first line: headers, parameters of the query,
//! fields of a form.
//!
//! Rules judge the first line. Where they are about requests to a host, one that says something else as well is refused. A form is
//! read while it is sent: before such a field would be, the connection ends, and the server has half a request.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use hyper::{
    Method, Request,
    body::{Body, Frame, Incoming, SizeHint},
    header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderMap},
};

/// Names by which parameters and fields say another method (of Rails, Laravel, Symfony, Spring, ASP.NET and Jersey).
const METHOD_NAMES: [&[u8]; 5] =
    [b"_method", b"x-http-method-override", b"x-http-method", b"x-method-override", b"http-method-override"];

/// Bytes before a piece of a form that are looked at again: the longest name, with every character encoded, and what stands around it.
const KEPT_BYTES: usize = 128;

/// What in a request may change its meaning, for people; `None`: nothing.
pub(super) fn of_request<B>(request: &Request<B>) -> Option<String> {
    let of_header = request.headers().keys().map(hyper::header::HeaderName::as_str);
    if let Some(name) = of_header.into_iter().find(|name| is_overriding(name)) {
        return Some(format!("the header {name:?}"));
    }
    if is_form(request.headers()) && request.headers().contains_key(CONTENT_ENCODING) {
        return Some("a form in another encoding".to_owned());
    }
    let query = request.uri().query()?;
    says_method(query.as_bytes(), FormKind::Encoded).then(|| "a parameter for the method".to_owned())
}

/// Whether some servers take method, address or host of a request from this header, however they write its name: to CGI and its kind
/// `X_Original-Url` is `X-Original-URL`.
fn is_overriding(name: &str) -> bool {
    let name = name.replace('_', "-");
    let Some(own) = name.strip_prefix("x-") else {
        // RFC 7239; RFC 4918, 10.3; and what is written without `X-`.
        let known = ["forwarded", "destination", "http-method-override", "method-override", "original-url"];
        return known.contains(&name.as_str());
    };
    let has = |parts: &[&str]| own.split('-').any(|part| parts.contains(&part));
    let says_instead =
        has(&["original", "rewrite", "rewritten", "override", "forwarded", "envoy", "unencoded"]);
    let is_target = has(&["url", "uri", "path", "host", "prefix", "server", "method", "query", "authority"]);
    has(&["method"])
        || (says_instead && is_target)
        || matches!(own, "host" | "http-destinationurl" | "http-host-override" | "middleware-subrequest")
}

/// How a form is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FormKind {
    /// As a query.
    Encoded,
    /// In parts (RFC 7578).
    Parts,
}

fn form_kind(headers: &HeaderMap) -> Option<FormKind> {
    let types = headers.get_all(CONTENT_TYPE).iter().filter_map(|value| value.to_str().ok());
    let types: Vec<String> = types.map(str::to_ascii_lowercase).collect();
    let has = |part: &str| types.iter().any(|one| one.contains(part));
    match (has("multipart/"), has("urlencoded")) {
        (true, _) => Some(FormKind::Parts),
        (false, true) => Some(FormKind::Encoded),
        (false, false) => None,
    }
}

fn is_form(headers: &HeaderMap) -> bool {
    form_kind(headers).is_some()
}

/// Whether a field for the method begins in this text.
fn says_method(text: &[u8], kind: FormKind) -> bool {
    let text = match kind {
        FormKind::Encoded => decoded(text),
        FormKind::Parts => text.to_ascii_lowercase(),
    };
    METHOD_NAMES.iter().any(|name| {
        text.windows(name.len()).enumerate().filter(|(_, window)| window == name).any(|(at, _)| {
            let (before, after) = (&text[..at], &text[at + name.len()..]);
            match kind {
                FormKind::Encoded => {
                    matches!(before.trim_ascii_end().last(), None | Some(b'&' | b';' | b'?'))
                        && matches!(after.first(), None | Some(b'=' | b'&' | b';' | b'['))
                }
                FormKind::Parts => {
                    let quoted = |byte: &u8| b"\"'=* \t".contains(byte);
                    let end = before.iter().rposition(|byte| !quoted(byte)).map_or(0, |last| last + 1);
                    end < before.len() && before[..end].ends_with(b"name")
                }
            }
        })
    })
}

/// Percent-encoding undone, and all letters small.
fn decoded(text: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((first, behind)) = rest.split_first() {
        let digits = behind.get(..2).and_then(|two| std::str::from_utf8(two).ok());
        match digits.and_then(|two| u8::from_str_radix(two, 16).ok()).filter(|_| *first == b'%') {
            Some(byte) => {
                plain.push(byte.to_ascii_lowercase());
                rest = &behind[2..];
            }
            None => {
                plain.push(if *first == b'+' { b' ' } else { first.to_ascii_lowercase() });
                rest = behind;
            }
        }
    }
    plain
}

/// The body of a request that is sent.
#[derive(Debug)]
pub(super) struct SentBody {
    body: Incoming,
    form: Option<SentForm>,
}

#[derive(Debug)]
struct SentForm {
    kind: FormKind,
    /// The last of what was sent.
    before: Vec<u8>,
}

/// Why a body ends.
#[derive(Debug, thiserror::Error)]
pub(super) enum BodyError {
    #[error(transparent)]
    Http(#[from] hyper::Error),
    #[error("a field of the form is for the method, and rules are about requests to this host")]
    Override,
}

/// A request whose body is looked at while it is sent, if it is a form and rules are about requests to its host.
pub(super) fn watched(request: Request<Incoming>, is_judged: bool) -> Request<SentBody> {
    let kind = form_kind(request.headers()).filter(|_| is_judged && request.method() != Method::GET);
    let form = kind.map(|kind| SentForm { kind, before: Vec::new() });
    request.map(|body| SentBody { body, form })
}

impl SentForm {
    fn may_send(&mut self, data: &Bytes) -> bool {
        let mut text = std::mem::take(&mut self.before);
        text.extend_from_slice(data);
        let says = says_method(&text, self.kind);
        self.before = text.split_off(text.len().saturating_sub(KEPT_BYTES));
        !says
    }
}

impl Body for SentBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let Poll::Ready(next) = Pin::new(&mut self.body).poll_frame(context) else { return Poll::Pending };
        Poll::Ready(match next {
            Some(Ok(frame)) => {
                let may_send = match (frame.data_ref(), &mut self.form) {
                    (Some(data), Some(form)) => form.may_send(data),
                    _ => true,
                };
                Some(if may_send { Ok(frame) } else { Err(BodyError::Override) })
            }
            Some(Err(error)) => Some(Err(error.into())),
            None => None,
        })
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_that_say_another_request_are_known_in_each_spelling() {
        for name in [
            "x-http-method-override",
            "x_http_method_override",
            "x-http-method",
            "x-method-override",
            "x-original-method",
            "x-original-url",
            "x_original-url",
            "x-rewrite-url",
            "x-original-uri",
            "x-override-url",
            "x-envoy-original-path",
            "x-forwarded-host",
            "x-forwarded-prefix",
            "x-forwarded-uri",
            "x-forwarded-method",
            "x-host",
            "forwarded",
            "destination",
        ] {
            assert!(is_overriding(name), "{name}");
        }
        for name in [
            "host",
            "accept",
            "x-requested-with",
            "x-forwarded-for",
            "x-forwarded-proto",
            "x-amz-date",
            "x-goog-api-client",
            "x-goog-upload-protocol",
            "access-control-request-method",
            "x-hub-signature",
            "x-original-content-length",
        ] {
            assert!(!is_overriding(name), "{name}");
        }
    }

    #[test]
    fn a_parameter_for_the_method_is_found_however_it_is_encoded() {
        for query in [
            "_method=DELETE",
            "a=b&_method=put",
            "a;%5FMETHOD=x",
            "a&%5f%6d%65thod",
            "X-HTTP-Method-Override=PUT",
            "_method[]=x",
        ] {
            assert!(says_method(query.as_bytes(), FormKind::Encoded), "{query}");
        }
        for query in ["", "a=_method", "method=x", "my_method=x", "_methods=x", "q=%26amp"] {
            assert!(!says_method(query.as_bytes(), FormKind::Encoded), "{query}");
        }
        for part in [
            "Content-Disposition: form-data; name=\"_method\"\r\n",
            "form-data; NAME = _Method;",
            "name*='_method'",
        ] {
            assert!(says_method(part.as_bytes(), FormKind::Parts), "{part}");
        }
        for part in ["name=\"file\"; filename=\"a_method\"", "_method", "def _method(self): pass"] {
            assert!(!says_method(part.as_bytes(), FormKind::Parts), "{part}");
        }
    }

    #[test]
    fn a_field_is_found_wherever_a_form_is_cut() {
        let form = b"first=1&second=2&%5Fmethod=DELETE&last=3";
        for cut in 0..form.len() {
            let mut sent = SentForm { kind: FormKind::Encoded, before: Vec::new() };
            let (first, second) = form.split_at(cut);
            let pieces = [Bytes::copy_from_slice(first), Bytes::copy_from_slice(second)];
            assert!(!pieces.iter().all(|piece| sent.may_send(piece)), "{cut}");
        }
        let mut sent = SentForm { kind: FormKind::Encoded, before: Vec::new() };
        assert!((0..9).all(|_| sent.may_send(&Bytes::from_static(b"a=1&method=2&"))));
    }
}
