//! The HTTP proxy: requests in absolute form, each judged by itself, and requests in a tunnel whose host is fixed.
//!
//! hyper reads and writes HTTP; nothing of a program's framing is passed on. In a tunnel of opened TLS it may be HTTP/2: each of its
//! requests is judged and makes a connection of its own, too.

use std::{convert::Infallible, sync::Arc};

use bytes::Bytes;
use http_body_util::{Either, Full};
use hyper::{
    Request, Response, StatusCode, Version,
    body::Incoming,
    header::{HeaderName, HeaderValue},
    server::conn,
};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::mpsc,
};

use super::{
    connector::{Connector, attempt},
    idle::Idle,
    limits::{FIRST_BYTES_TIMEOUT, IDLE_TIMEOUT, MAX_CONNECTION_STREAMS, MAX_HEAD_BYTES},
    outcome::Refusal,
    overrides,
    program::{ProgramEnd, Waiting},
    send::{self, Sending},
    target::{self, TargetError},
    tls::{self, HttpVersion},
    websocket::{self, Upgrade},
};
use crate::{
    network::{
        destination::{Destination, Host},
        http_request::{MAX_PATH_BYTES, Scheme},
    },
    proto::net::{Attempt, Protocol, ServerCertificate},
};

/// Has the rule that refused a request.
const RULE_HEADER: HeaderName = HeaderName::from_static("provost-rule");

pub(super) type Body = Either<Incoming, Full<Bytes>>;

/// A tunnel in which HTTP is spoken.
#[derive(Debug, Clone)]
pub(super) struct Tunnel {
    /// To whom.
    pub(super) destination: Destination,
    /// The protocol by which the tunnel was asked for.
    pub(super) protocol: Protocol,
    /// Whose it is.
    pub(super) program: ProgramEnd,
    /// What the gateway has given for an approval of the tunnel; it holds for its requests.
    pub(super) approval: String,
}

/// Where a request comes from.
#[derive(Debug, Clone)]
pub(super) struct Origin {
    pub(super) protocol: Protocol,
    pub(super) program: ProgramEnd,
    /// The approval of its tunnel, where it has one.
    pub(super) approval: String,
    /// Whether it is in TLS that was opened.
    pub(super) scheme: Scheme,
    /// Takes a connection that becomes a websocket.
    pub(super) upgrades: mpsc::Sender<Upgrade>,
}

/// Serves the requests of a program in a tunnel, until it ends. None is asked for without being judged.
pub(super) async fn serve_tunnel<S>(connector: &Arc<Connector>, stream: S, tunnel: Tunnel)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    serve_requests(connector, stream, tunnel, (Scheme::Http, HttpVersion::One)).await;
}

/// Ends the TLS of a program, and serves the requests in it likewise.
pub(super) async fn serve_opened<S>(
    connector: &Arc<Connector>,
    stream: S,
    tunnel: Tunnel,
    certificate: ServerCertificate,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let Host::Name(name) = &tunnel.destination.host else { return };
    // A program that does not trust the certificate ends its own connection.
    if let Ok((stream, version)) = tls::accept(stream, name, certificate).await {
        serve_requests(connector, stream, tunnel, (Scheme::Https, version)).await;
    }
}

async fn serve_requests<S>(
    connector: &Arc<Connector>,
    stream: S,
    tunnel: Tunnel,
    (scheme, version): (Scheme, HttpVersion),
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let Tunnel { destination, protocol, program, approval } = tunnel;
    let (upgrades, mut upgraded) = mpsc::channel(1);
    let origin = Origin { protocol, program, approval, scheme, upgrades };
    let service = hyper::service::service_fn(|request: Request<Incoming>| {
        let (connector, origin) = (connector.clone(), origin.clone());
        let target = target::in_tunnel(&request, &destination, scheme);
        async move { Ok::<_, Infallible>(forward(&connector, request, target, origin).await) }
    });
    // A program that breaks the protocol ends its own connection.
    match version {
        HttpVersion::One => {
            let _ = server().serve_connection(TokioIo::new(stream), &service).with_upgrades().await;
        }
        HttpVersion::Two => {
            let stream = Idle::new(stream);
            let last_bytes = stream.last_bytes.clone();
            let served = server_2().serve_connection(TokioIo::new(stream), &service);
            tokio::select! {
                _ = served => {}
                () = last_bytes.wait_idle(IDLE_TIMEOUT) => {}
            }
        }
    }
    drop(origin);
    // A websocket is part of the connection that has become one.
    if let Ok(upgrade) = upgraded.try_recv() {
        websocket::carry(upgrade).await;
    }
}

/// A server of HTTP/1 with the bounds of a proxy.
pub(super) fn server() -> conn::http1::Builder {
    let mut server = conn::http1::Builder::new();
    server.timer(TokioTimer::new()).header_read_timeout(FIRST_BYTES_TIMEOUT).max_buf_size(MAX_HEAD_BYTES);
    server
}

/// A server of HTTP/2 with the same bounds.
fn server_2() -> conn::http2::Builder<TokioExecutor> {
    let mut server = conn::http2::Builder::new(TokioExecutor::new());
    server
        .timer(TokioTimer::new())
        .max_concurrent_streams(MAX_CONNECTION_STREAMS)
        .max_header_list_size(u32::try_from(MAX_HEAD_BYTES).unwrap_or(u32::MAX));
    server
}

/// Judges a request, passes it on by a connection of its own, and answers with what comes back.
pub(super) async fn forward(
    connector: &Arc<Connector>,
    mut request: Request<Incoming>,
    target: Result<Destination, TargetError>,
    Origin { protocol, program, approval, scheme, upgrades }: Origin,
) -> Response<Body> {
    let in_opened_tls = scheme == Scheme::Https;
    let destination = match target {
        Ok(destination) => destination,
        Err(error) => {
            let (host, port) = target::named(&request, scheme);
            let asked = Attempt { in_opened_tls, ..attempt(&host, port, protocol, &program) };
            connector.refuse_request(&asked, error.to_string()).await;
            return error_response(StatusCode::BAD_REQUEST, "network.request", &error.to_string());
        }
    };
    let host = destination.host.to_string();
    let wanted = attempt(host.as_bytes(), destination.port, protocol, &program);
    let (method, path) = (request.method().to_string(), request.uri().path());
    // One that is longer is not judged, and refused where it would be.
    let path = path.get(..path.len().min(MAX_PATH_BYTES + 1)).unwrap_or_default().to_owned();
    let overridden_by = overrides::of_request(&request).unwrap_or_default();
    let wanted = Attempt { approval, method, path, in_opened_tls, overridden_by, ..wanted };
    let place = match request.version() {
        Version::HTTP_2 => connector.stream_place().await,
        _ => None,
    };
    // A program that goes away ends this.
    let upstream = match connector.connect(wanted, Waiting::Elsewhere).await {
        Ok(upstream) => upstream,
        Err(refusal) => return refused(&destination, &refusal),
    };
    let websocket = websocket::requested(&mut request);
    let sending = Sending { request, destination: &destination, scheme, websocket, place };
    match Box::pin(send::send(connector.tls(), upstream, sending)).await {
        Ok((response, None)) => response.map(Either::Left),
        // There is one place: a connection becomes a websocket once.
        Ok((response, Some(upgrade))) => match upgrades.try_send(upgrade) {
            Ok(()) => response.map(Either::Left),
            Err(_) => error_response(StatusCode::BAD_GATEWAY, "", "the connection has become a websocket"),
        },
        Err(error) => error_response(StatusCode::BAD_GATEWAY, "", &format!("{destination}: {error}")),
    }
}

/// The answer to a program whose connection there is not.
pub(super) fn refused(destination: &Destination, refusal: &Refusal) -> Response<Body> {
    match refusal {
        Refusal::Denied { rule, reason } => error_response(
            StatusCode::FORBIDDEN,
            rule,
            &format!("{destination} is denied by rule {rule:?}: {reason}"),
        ),
        Refusal::Failed(failure) => error_response(
            StatusCode::BAD_GATEWAY,
            "",
            &format!("{destination} cannot be reached: {failure}"),
        ),
    }
}

/// An answer of the proxy's own, as text.
pub(super) fn error_response(status: StatusCode, rule: &str, text: &str) -> Response<Body> {
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
