//! Which host a request is for: the one of its target, of its Host line and of its tunnel, or it is refused.

use hyper::{
    Method, Request, Uri, Version,
    body::Incoming,
    header::{HOST, HeaderValue},
};

use crate::network::{
    destination::{Destination, Host},
    http_request::Scheme,
};

/// Why a request has no target. For the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum TargetError {
    #[error("a request to a proxy names http://HOST in its target")]
    NotAbsolute,
    #[error("the target has a user, a password or no readable host")]
    Authority,
    #[error("a request has one Host line, which names the host of its target")]
    Host,
    #[error("a request has either Transfer-Encoding or Content-Length")]
    Framing,
    #[error("there is no tunnel in a tunnel")]
    Tunnel,
    #[error("the scheme of the target is another one than that of the connection")]
    Scheme,
}

/// The host of a request to the proxy itself: its target and its Host line agree.
pub(super) fn of_proxied(request: &Request<Incoming>) -> Result<Destination, TargetError> {
    if request.uri().scheme_str() != Some(Scheme::Http.name()) {
        return Err(TargetError::NotAbsolute);
    }
    let target = authority(request.uri(), Scheme::Http)?;
    check_headers(request, &target, Scheme::Http)?;
    Ok(target)
}

/// The host of a request in a tunnel: the tunnel's. `scheme`: whether it is in TLS.
pub(super) fn in_tunnel(
    request: &Request<Incoming>,
    fixed: &Destination,
    scheme: Scheme,
) -> Result<Destination, TargetError> {
    if request.method() == Method::CONNECT {
        return Err(TargetError::Tunnel);
    }
    if request.uri().scheme_str().is_some_and(|named| named != scheme.name()) {
        return Err(TargetError::Scheme);
    }
    if request.uri().authority().is_some() && authority(request.uri(), scheme)? != *fixed {
        return Err(TargetError::Host);
    }
    if request.headers().get(HOST).is_none() && request.uri().authority().is_none() {
        return Err(TargetError::Host);
    }
    check_headers(request, fixed, scheme)?;
    Ok(fixed.clone())
}

fn authority(uri: &Uri, scheme: Scheme) -> Result<Destination, TargetError> {
    let authority = uri.authority().ok_or(TargetError::NotAbsolute)?;
    parse_authority(authority.as_str(), scheme).ok_or(TargetError::Authority)
}

/// `HOST` or `HOST:PORT`, without a user.
fn parse_authority(text: &str, scheme: Scheme) -> Option<Destination> {
    let has_port = text.rsplit_once(':').is_some_and(|(_, port)| !port.ends_with(']'));
    match has_port {
        true => Destination::parse(text).ok(),
        false => Some(Destination { host: Host::parse(text).ok()?, port: scheme.port() }),
    }
}

/// The host that a request names, in its target or else in its first Host line, as far as it can be read. For the record.
pub(super) fn named(request: &Request<Incoming>, scheme: Scheme) -> (Vec<u8>, u16) {
    let in_target = request.uri().authority().map(|authority| authority.as_str().as_bytes());
    let text = in_target.or_else(|| request.headers().get(HOST).map(HeaderValue::as_bytes));
    let text = text.unwrap_or_default();
    let read = std::str::from_utf8(text).ok().and_then(|text| parse_authority(text, scheme));
    read.map_or_else(|| (text.to_vec(), 0), |read| (read.host.to_string().into_bytes(), read.port))
}

fn check_headers(
    request: &Request<Incoming>,
    target: &Destination,
    scheme: Scheme,
) -> Result<(), TargetError> {
    let headers = request.headers();
    if headers.contains_key("transfer-encoding") && headers.contains_key("content-length") {
        return Err(TargetError::Framing);
    }
    let mut hosts = headers.get_all(HOST).iter();
    match (hosts.next(), hosts.next()) {
        (None, _) if request.version() == Version::HTTP_10 => Ok(()),
        // It names the host in its target (RFC 9113, 8.3.1).
        (None, _) if request.version() == Version::HTTP_2 && request.uri().authority().is_some() => Ok(()),
        (Some(host), None) => {
            let named = host.to_str().ok().and_then(|text| parse_authority(text, scheme));
            if named.as_ref() == Some(target) { Ok(()) } else { Err(TargetError::Host) }
        }
        (None, _) | (Some(_), Some(_)) => Err(TargetError::Host),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_authority_is_a_host_with_one_port() {
        for (text, read) in [
            ("A.example", Some("a.example:80")),
            ("a.example.:8080", Some("a.example:8080")),
            ("[::1]", Some("[::1]:80")),
            ("[::1]:81", Some("[::1]:81")),
            ("user@a.example", None),
            ("a.example:", None),
            ("::1", None),
            ("", None),
        ] {
            assert_eq!(
                parse_authority(text, Scheme::Http).map(|read| read.to_string()).as_deref(),
                read,
                "{text:?}"
            );
        }
        let secure = parse_authority("a.example", Scheme::Https).map(|read| read.to_string());
        assert_eq!(secure.as_deref(), Some("a.example:443"));
    }
}
