//! The HTTP proxy: requests in absolute form, each judged by itself, and requests in a tunnel whose host is fixed.
//!
//! hyper reads and writes HTTP; nothing of a program's framing is passed on. A request has one host: that of its target, of its Host
//! line and of its tunnel, or it is refused.

use std::{convert::Infallible, sync::Arc};

use bytes::Bytes;
use http_body_util::{Either, Full};
use hyper::{
    Request, Response, StatusCode, Uri, Version,
    body::Incoming,
    header::{CONNECTION, HOST, HeaderMap, HeaderName, HeaderValue},
    http::uri::PathAndQuery,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};

use super::{
    connector::{Connector, attempt},
    limits::{FIRST_BYTES_TIMEOUT, MAX_HEAD_BYTES},
    outcome::Refusal,
};
use crate::{
    network::{
        destination::{Destination, Host},
        http_request::MAX_PATH_BYTES,
    },
    proto::net::{Attempt, Protocol},
};

const HTTP_PORT: u16 = 80;
/// Has the rule that refused a request.
const RULE_HEADER: HeaderName = HeaderName::from_static("provost-rule");

/// Headers between a program and its proxy, or about one connection (RFC 9110, 7.6.1).
const HOP_HEADERS: [&str; 9] = [
    "connection",
    "proxy-connection",
    "keep-alive",
    "proxy-authorization",
    "proxy-authenticate",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

pub(super) type Body = Either<Incoming, Full<Bytes>>;

/// A tunnel in which HTTP is spoken.
#[derive(Debug, Clone)]
pub(super) struct Tunnel {
    /// To whom.
    pub(super) destination: Destination,
    /// The protocol by which the tunnel was asked for.
    pub(super) protocol: Protocol,
    /// The terminal that the program says it belongs to.
    pub(super) terminal_id: String,
    /// What the gateway has given for an approval of the tunnel; it holds for its requests.
    pub(super) approval: String,
}

/// Where a request comes from.
#[derive(Debug)]
pub(super) struct Origin {
    pub(super) protocol: Protocol,
    pub(super) terminal_id: String,
    /// Of its tunnel, where it has one.
    pub(super) approval: String,
}

/// Serves the requests of a program in a tunnel, until it ends. None is asked for without being judged.
pub(super) async fn serve_tunnel<S>(connector: &Arc<Connector>, stream: S, tunnel: Tunnel)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let service = hyper::service::service_fn(|request: Request<Incoming>| {
        let (connector, tunnel) = (connector.clone(), tunnel.clone());
        async move {
            let target = target_in_tunnel(&request, &tunnel.destination);
            let Tunnel { protocol, terminal_id, approval, .. } = tunnel;
            let origin = Origin { protocol, terminal_id, approval };
            Ok::<_, Infallible>(forward(&connector, request, target, origin).await)
        }
    });
    // A program that breaks the protocol ends its own connection.
    let _ = server().serve_connection(TokioIo::new(stream), service).await;
}

/// A server of HTTP/1 with the bounds of a proxy.
pub(super) fn server() -> hyper::server::conn::http1::Builder {
    let mut server = hyper::server::conn::http1::Builder::new();
    server.timer(TokioTimer::new()).header_read_timeout(FIRST_BYTES_TIMEOUT).max_buf_size(MAX_HEAD_BYTES);
    server
}

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
}

/// The host of a request to the proxy itself: its target and its Host line agree.
pub(super) fn target_of_proxied(request: &Request<Incoming>) -> Result<Destination, TargetError> {
    if request.uri().scheme_str() != Some("http") {
        return Err(TargetError::NotAbsolute);
    }
    let target = authority(request.uri())?;
    check_headers(request, &target)?;
    Ok(target)
}

/// The host of a request in a tunnel: the tunnel's.
fn target_in_tunnel(request: &Request<Incoming>, fixed: &Destination) -> Result<Destination, TargetError> {
    if request.uri().authority().is_some() && authority(request.uri())? != *fixed {
        return Err(TargetError::Host);
    }
    if request.headers().get(HOST).is_none() && request.uri().authority().is_none() {
        return Err(TargetError::Host);
    }
    check_headers(request, fixed)?;
    Ok(fixed.clone())
}

fn authority(uri: &Uri) -> Result<Destination, TargetError> {
    let authority = uri.authority().ok_or(TargetError::NotAbsolute)?;
    parse_authority(authority.as_str()).ok_or(TargetError::Authority)
}

/// `HOST` or `HOST:PORT`, without a user.
fn parse_authority(text: &str) -> Option<Destination> {
    let has_port = text.rsplit_once(':').is_some_and(|(_, port)| !port.ends_with(']'));
    match has_port {
        true => Destination::parse(text).ok(),
        false => Some(Destination { host: Host::parse(text).ok()?, port: HTTP_PORT }),
    }
}

/// The host that a request names, in its target or else in its first Host line, as far as it can be read. For the record.
fn named_host(request: &Request<Incoming>) -> (Vec<u8>, u16) {
    let in_target = request.uri().authority().map(|authority| authority.as_str().as_bytes());
    let text = in_target.or_else(|| request.headers().get(HOST).map(HeaderValue::as_bytes));
    let text = text.unwrap_or_default();
    let read = std::str::from_utf8(text).ok().and_then(parse_authority);
    read.map_or_else(|| (text.to_vec(), 0), |read| (read.host.to_string().into_bytes(), read.port))
}

fn check_headers(request: &Request<Incoming>, target: &Destination) -> Result<(), TargetError> {
    let headers = request.headers();
    if headers.contains_key("transfer-encoding") && headers.contains_key("content-length") {
        return Err(TargetError::Framing);
    }
    let mut hosts = headers.get_all(HOST).iter();
    match (hosts.next(), hosts.next()) {
        (None, _) if request.version() == Version::HTTP_10 => Ok(()),
        (Some(host), None) => {
            let named = host.to_str().ok().and_then(parse_authority);
            if named.as_ref() == Some(target) { Ok(()) } else { Err(TargetError::Host) }
        }
        (None, _) | (Some(_), Some(_)) => Err(TargetError::Host),
    }
}

/// Judges a request, passes it on by a connection of its own, and answers with what comes back.
pub(super) async fn forward(
    connector: &Arc<Connector>,
    request: Request<Incoming>,
    target: Result<Destination, TargetError>,
    Origin { protocol, terminal_id, approval }: Origin,
) -> Response<Body> {
    let destination = match target {
        Ok(destination) => destination,
        Err(error) => {
            let (host, port) = named_host(&request);
            let asked = attempt(&host, port, protocol, &terminal_id);
            connector.refuse_request(&asked, error.to_string()).await;
            return told(StatusCode::BAD_REQUEST, "network.request", &error.to_string());
        }
    };
    let host = destination.host.to_string();
    let wanted = attempt(host.as_bytes(), destination.port, protocol, &terminal_id);
    let (method, path) = (request.method().to_string(), request.uri().path());
    // One that is longer is not judged, and refused where it would be.
    let path = path.get(..path.len().min(MAX_PATH_BYTES + 1)).unwrap_or_default().to_owned();
    let wanted = Attempt { approval, method, path, ..wanted };
    // A program that goes away ends this.
    let upstream = match connector.connect(wanted, None).await {
        Ok(upstream) => upstream,
        Err(refusal) => return refused(&destination, &refusal),
    };
    match pass_on(request, &destination, upstream).await {
        Ok(response) => response.map(Either::Left),
        Err(error) => told(StatusCode::BAD_GATEWAY, "", &format!("{destination}: {error}")),
    }
}

async fn pass_on(
    request: Request<Incoming>,
    destination: &Destination,
    upstream: super::outcome::Upstream,
) -> Result<Response<Incoming>, hyper::Error> {
    let (mut sender, connection) = hyper::client::conn::http1::Builder::new()
        .max_buf_size(MAX_HEAD_BYTES)
        .handshake(TokioIo::new(upstream))
        .await?;
    // Ends with the answer's body, or when the program goes away.
    tokio::spawn(connection);
    let (mut head, body) = request.into_parts();
    let path = head.uri.path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/"));
    head.uri = Uri::from(path);
    head.version = Version::HTTP_11;
    remove_hop_headers(&mut head.headers);
    let name = match (&destination.host, destination.port) {
        (Host::Name(name), HTTP_PORT) => name.to_string(),
        _ => destination.to_string(),
    };
    if let Ok(name) = HeaderValue::from_str(&name) {
        head.headers.insert(HOST, name);
    }
    let mut response = sender.send_request(Request::from_parts(head, body)).await?;
    remove_hop_headers(response.headers_mut());
    Ok(response)
}

fn remove_hop_headers(headers: &mut HeaderMap) {
    let named: Vec<String> = headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(',').map(|name| name.trim().to_ascii_lowercase()))
        .collect();
    for name in named.iter().map(String::as_str).chain(HOP_HEADERS) {
        headers.remove(name);
    }
}

/// The answer to a program whose connection there is not.
pub(super) fn refused(destination: &Destination, refusal: &Refusal) -> Response<Body> {
    match refusal {
        Refusal::Denied { rule, reason } => {
            told(StatusCode::FORBIDDEN, rule, &format!("{destination} is denied by rule {rule:?}: {reason}"))
        }
        Refusal::Failed(failure) => {
            told(StatusCode::BAD_GATEWAY, "", &format!("{destination} cannot be reached: {failure}"))
        }
    }
}

/// An answer of the proxy's own, as text.
pub(super) fn told(status: StatusCode, rule: &str, text: &str) -> Response<Body> {
    let body = Full::new(Bytes::from(format!("provost: {text}\n")));
    let mut response = Response::new(Either::Right(body));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert("content-type", HeaderValue::from_static("text/plain; charset=utf-8"));
    if let Ok(rule) = HeaderValue::from_str(rule)
        && !rule.is_empty()
    {
        headers.insert(RULE_HEADER, rule);
    }
    response
}

/// Nothing, as the body of an answer.
pub(super) fn empty() -> Body {
    Either::Right(Full::default())
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
            assert_eq!(parse_authority(text).map(|read| read.to_string()).as_deref(), read, "{text:?}");
        }
    }

    #[test]
    fn headers_of_the_hop_are_not_passed_on() {
        let mut headers = HeaderMap::new();
        for (name, value) in
            [("connection", "close, X-Own"), ("x-own", "1"), ("proxy-authorization", "x"), ("accept", "*/*")]
        {
            headers.append(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        remove_hop_headers(&mut headers);
        assert_eq!(headers.keys().map(HeaderName::as_str).collect::<Vec<_>>(), ["accept"]);
    }
}
