//! The metrics' endpoint: HTTP/1.1, `GET /metrics`, one answer for each connection.
//!
//! Clients are not trusted. A connection has a bounded time from its first byte to the last of its answer, its
//! request's head is bounded, and of more connections than are served at once the oldest is dropped: one that is slow
//! on purpose makes room for one that is not.

use std::{
    collections::VecDeque,
    convert::Infallible,
    io,
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use http_body_util::Full;
use hyper::{
    Method, Request, Response, StatusCode,
    body::Incoming,
    header::{ALLOW, CONTENT_TYPE, HeaderValue},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpListener,
    time::{sleep, timeout},
};
use tokio_util::task::AbortOnDropHandle;

use super::{
    super::{
        config::MetricsAddress,
        socket::{self, BoundSocket, ListenError},
        state_directory::{RELEASE_POLL_INTERVAL, RELEASE_TIMEOUT},
    },
    exposition::Exposition,
};

/// Connections that are served at once; the next one takes the place of the oldest.
const CONNECTIONS: usize = 32;
/// How long a connection may take, from its first byte to the last of its answer.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(10);
/// The longest head of a request.
const HEAD_BYTES_MAX: usize = 16 << 10;
/// The most lines of it.
const HEAD_LINES_MAX: usize = 64;
/// How long nobody is taken in after the system has refused a connection, for want of descriptors as a rule.
const ACCEPT_ERROR_PAUSE: Duration = Duration::from_millis(200);

/// What the answer is written in: OpenMetrics, which Prometheus reads.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Why there is no endpoint.
#[derive(Debug, thiserror::Error)]
pub enum MetricsError {
    /// The address cannot be had.
    #[error("cannot serve metrics at {address}")]
    Tcp {
        /// Which one.
        address: SocketAddr,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The socket cannot be had.
    #[error("cannot serve metrics")]
    Unix(#[source] ListenError),
}

/// Bound, and not yet served.
#[derive(Debug)]
pub(crate) struct Endpoint(Socket);

#[derive(Debug)]
enum Socket {
    Tcp(TcpListener),
    Unix(BoundSocket),
}

impl Endpoint {
    /// Takes the address.
    pub(crate) async fn bind(address: &MetricsAddress) -> Result<Self, MetricsError> {
        match address {
            MetricsAddress::Unix { path, mode } => {
                socket::bind(path, *mode).map(Socket::Unix).map(Self).map_err(MetricsError::Unix)
            }
            MetricsAddress::Tcp(address) => {
                let bound = bind_tcp(*address).await;
                let listener = bound.map_err(|source| MetricsError::Tcp { address: *address, source })?;
                if let Ok(address) = listener.local_addr() {
                    tracing::info!(metrics.listen = %address, "serving metrics");
                }
                Ok(Self(Socket::Tcp(listener)))
            }
        }
    }

    /// Answers everybody who connects. Never ends.
    pub(crate) async fn serve(self, exposition: Exposition) -> Infallible {
        let page = Arc::new(exposition);
        let mut connections = MetricsConnections::default();
        let socket = self.0;
        loop {
            let accepted = match &socket {
                Socket::Tcp(listener) => match listener.accept().await {
                    Ok((stream, _)) => {
                        connections.spawn(stream, &page);
                        Ok(())
                    }
                    Err(error) => Err(error),
                },
                Socket::Unix(listening) => match listening.accept().await {
                    Ok(stream) => {
                        connections.spawn(stream, &page);
                        Ok(())
                    }
                    Err(error) => Err(error),
                },
            };
            if let Err(error) = accepted {
                tracing::warn!(error = %error, "a connection for metrics was not taken");
                sleep(ACCEPT_ERROR_PAUSE).await;
            }
        }
    }
}

/// What a process holds that a killed gateway was starting is free in a moment.
async fn bind_tcp(address: SocketAddr) -> io::Result<TcpListener> {
    let deadline = Instant::now() + RELEASE_TIMEOUT;
    loop {
        match TcpListener::bind(address).await {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && Instant::now() < deadline => {
                sleep(RELEASE_POLL_INTERVAL).await;
            }
            bound => return bound,
        }
    }
}

/// Those that are being answered, oldest first. Dropped, a connection ends.
#[derive(Debug, Default)]
struct MetricsConnections(VecDeque<AbortOnDropHandle<()>>);

impl MetricsConnections {
    fn spawn(
        &mut self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        page: &Arc<Exposition>,
    ) {
        self.0.retain(|connection| !connection.is_finished());
        if self.0.len() >= CONNECTIONS {
            self.0.pop_front();
        }
        let page = page.clone();
        self.0.push_back(AbortOnDropHandle::new(tokio::spawn(async move {
            // Who is too slow, goes away or does not speak HTTP is a stranger's concern.
            let _ = timeout(CONNECTION_TIMEOUT, serve_connection(stream, page)).await;
        })));
    }
}

async fn serve_connection(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    page: Arc<Exposition>,
) -> hyper::Result<()> {
    let service = service_fn(move |request| {
        let response = respond(&request, &page);
        async move { Ok::<_, Infallible>(response) }
    });
    http1::Builder::new()
        .keep_alive(false)
        .max_buf_size(HEAD_BYTES_MAX)
        .max_headers(HEAD_LINES_MAX)
        .header_read_timeout(None)
        .serve_connection(TokioIo::new(stream), service)
        .await
}

/// The page is read-only and has one address; a body is not read.
fn respond(request: &Request<Incoming>, page: &Exposition) -> Response<Full<Bytes>> {
    let is_read_method = matches!(*request.method(), Method::GET | Method::HEAD);
    match (request.uri().path(), is_read_method) {
        ("/metrics", true) => match page.text() {
            Ok(text) => {
                let mut response = Response::new(Full::new(text.into()));
                response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(OPEN_METRICS));
                response
            }
            Err(std::fmt::Error) => refusal(StatusCode::INTERNAL_SERVER_ERROR),
        },
        ("/metrics", false) => {
            let mut response = refusal(StatusCode::METHOD_NOT_ALLOWED);
            response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
            response
        }
        _ => refusal(StatusCode::NOT_FOUND),
    }
}

fn refusal(status: StatusCode) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::new()));
    *response.status_mut() = status;
    response
}
