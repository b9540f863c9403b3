//! Sends a request that was allowed, by a connection of its own, and reads the answer.
//!
//! Nothing of a program's framing is passed on, and no header between it and its proxy. In opened TLS the headers with secrets are set
//! here, behind everything that judges, and into TLS whose server is verified.

use std::io;

use hyper::{
    Request, Response, StatusCode, Uri, Version,
    body::Incoming,
    client::conn,
    header::{CONNECTION, HOST, HeaderMap, HeaderName, HeaderValue, TE},
    http::uri::PathAndQuery,
    upgrade::OnUpgrade,
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::OwnedSemaphorePermit,
};

use super::{
    limits::MAX_HEAD_BYTES,
    outcome::Upstream,
    overrides::{self, SentBody},
    tls::{HttpVersion, ServerTls},
    websocket::{self, Upgrade},
};
use crate::{
    network::{
        destination::{Destination, Host},
        http_request::Scheme,
    },
    proto::net::Header,
};

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

/// Why there is no answer. For the program.
#[derive(Debug, thiserror::Error)]
pub(super) enum SendError {
    #[error(transparent)]
    Http(#[from] hyper::Error),
    #[error("TLS to the server: {0}")]
    Tls(io::Error),
    #[error("TLS is for a name")]
    NoName,
    #[error("the server has changed to a protocol that was not asked for")]
    UnaskedProtocol,
}

/// A request that was allowed, and how it is sent.
pub(super) struct Sending<'a> {
    pub(super) request: Request<Incoming>,
    pub(super) destination: &'a Destination,
    pub(super) scheme: Scheme,
    /// The program's end, where it wants a websocket.
    pub(super) websocket: Option<OnUpgrade>,
    /// Held while its connection is open.
    pub(super) place: Option<OwnedSemaphorePermit>,
}

/// Sends a request and reads the head of its answer; the connection ends with the answer's body, or when the program goes away.
pub(super) async fn send(
    tls: &ServerTls,
    mut upstream: Upstream,
    sending: Sending<'_>,
) -> Result<(Response<Incoming>, Option<Upgrade>), SendError> {
    let Sending { mut request, destination, scheme, websocket, place } = sending;
    let secret_headers = std::mem::take(&mut upstream.tls.headers);
    let wants_trailers = request.headers().get(TE).is_some_and(|te| te.as_bytes() == b"trailers");
    let offered = match request.version() {
        Version::HTTP_2 => HttpVersion::Two,
        _ => HttpVersion::One,
    };
    remove_hop_headers(request.headers_mut());
    let mut request = overrides::watched(request, upstream.allowed.requests_only);
    let (mut response, websocket) = match (scheme, &destination.host) {
        (Scheme::Http, _) => by_http_1(upstream, request, (destination, scheme), websocket, place).await?,
        (Scheme::Https, Host::Address(_)) => return Err(SendError::NoName),
        (Scheme::Https, Host::Name(name)) => {
            let roots = std::mem::take(&mut upstream.tls.trusted_roots);
            let (stream, version) =
                tls.connect(upstream, name, offered, &roots).await.map_err(SendError::Tls)?;
            set(request.headers_mut(), secret_headers);
            match version {
                HttpVersion::One => {
                    by_http_1(stream, request, (destination, scheme), websocket, place).await?
                }
                HttpVersion::Two => {
                    if wants_trailers {
                        request.headers_mut().insert(TE, HeaderValue::from_static("trailers"));
                    }
                    (by_http_2(stream, request, (destination, scheme), place).await?, None)
                }
            }
        }
    };
    let upgrade = websocket::answered(websocket, &mut response);
    // What follows would be no answer to this request.
    if upgrade.is_none() && response.status() == StatusCode::SWITCHING_PROTOCOLS {
        return Err(SendError::UnaskedProtocol);
    }
    remove_hop_headers(response.headers_mut());
    if upgrade.is_some() {
        websocket::set_headers(response.headers_mut());
    }
    Ok((response, upgrade))
}

async fn by_http_1<S>(
    stream: S,
    mut request: Request<SentBody>,
    (destination, scheme): (&Destination, Scheme),
    websocket: Option<OnUpgrade>,
    place: Option<OwnedSemaphorePermit>,
) -> Result<(Response<Incoming>, Option<OnUpgrade>), SendError>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (mut sender, connection) =
        conn::http1::Builder::new().max_buf_size(MAX_HEAD_BYTES).handshake(TokioIo::new(stream)).await?;
    tokio::spawn(async move {
        let _ = connection.with_upgrades().await;
        drop(place);
    });
    *request.uri_mut() = Uri::from(path(request.uri()));
    *request.version_mut() = Version::HTTP_11;
    if let Ok(name) = HeaderValue::from_str(&authority(destination, scheme)) {
        request.headers_mut().insert(HOST, name);
    }
    if websocket.is_some() {
        websocket::set_headers(request.headers_mut());
    }
    Ok((sender.send_request(request).await?, websocket))
}

async fn by_http_2<S>(
    stream: S,
    mut request: Request<SentBody>,
    (destination, scheme): (&Destination, Scheme),
    place: Option<OwnedSemaphorePermit>,
) -> Result<Response<Incoming>, SendError>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (mut sender, connection) = conn::http2::Builder::new(TokioExecutor::new())
        .max_header_list_size(u32::try_from(MAX_HEAD_BYTES).unwrap_or(u32::MAX))
        .handshake(TokioIo::new(stream))
        .await?;
    tokio::spawn(async move {
        let _ = connection.await;
        drop(place);
    });
    let target = Uri::builder().scheme(scheme.name()).authority(authority(destination, scheme));
    if let Ok(target) = target.path_and_query(path(request.uri())).build() {
        *request.uri_mut() = target;
    }
    *request.version_mut() = Version::HTTP_2;
    request.headers_mut().remove(HOST);
    Ok(sender.send_request(request).await?)
}

fn path(uri: &Uri) -> PathAndQuery {
    uri.path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/"))
}

/// As a request names its host: without the port that its scheme means.
fn authority(destination: &Destination, scheme: Scheme) -> String {
    match &destination.host {
        Host::Name(name) if destination.port == scheme.port() => name.to_string(),
        Host::Name(_) | Host::Address(_) => destination.to_string(),
    }
}

/// Sets headers with secrets; all that the program has sent under their names are gone.
fn set(headers: &mut HeaderMap, secret: Vec<Header>) {
    for Header { name, value } in secret {
        let Ok(name) = HeaderName::from_bytes(name.as_bytes()) else { continue };
        headers.remove(&name);
        if let Ok(mut value) = HeaderValue::from_maybe_shared(value) {
            value.set_sensitive(true);
            headers.insert(name, value);
        }
    }
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

#[cfg(test)]
mod tests {
    use super::*;

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

    #[test]
    fn a_header_with_a_secret_takes_the_place_of_all_that_the_program_has_sent() {
        let mut headers = HeaderMap::new();
        for value in ["one", "two"] {
            headers.append("authorization", HeaderValue::from_static(value));
        }
        let secret = |name: &str, value: &'static str| Header { name: name.to_owned(), value: value.into() };
        set(&mut headers, vec![secret("authorization", "Bearer s3cret"), secret("x-key", "a")]);
        let all: Vec<_> = headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
        assert_eq!(all, [("authorization", &b"Bearer s3cret"[..]), ("x-key", b"a")]);
    }
}
