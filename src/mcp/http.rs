//! The Model Context Protocol over streamable HTTP, on a loopback address.
//!
//! A request must come from a process of this user, name this address in `Host`, come from no other origin, and bring the token.
//! All clients that do share one session of the gateway, which ends with this process. A page in a browser has neither the token nor
//! the origin; another user has neither the token nor the uid.

use std::{
    convert::Infallible,
    future::Future,
    io,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use http_body_util::{BodyExt, Full, combinators::BoxBody};
use hyper::{
    Request, Response, StatusCode,
    body::Incoming,
    header::{AUTHORIZATION, HeaderMap, HeaderValue, WWW_AUTHENTICATE},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use rmcp::transport::streamable_http_server::{
    StreamableHttpServerConfig, StreamableHttpService, session::local::LocalSessionManager,
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{sleep, timeout},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    CLOSE_TIMEOUT, FLUSH_TIMEOUT, LINE_MAX_BYTES, McpOptions, http_peer, server::McpServer, token::Token,
};
use crate::client::Client;

/// Connections at once. Further ones wait to be taken in.
pub const CONNECTIONS_MAX: usize = 64;
/// Sessions of the protocol at once, each until it is deleted or has been idle for 5 minutes.
pub const SESSIONS_MAX: usize = 64;
/// The path of the endpoint.
pub const PATH: &str = "/mcp";
/// How long the head of a request may take.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// The longest head of a request.
const HEAD_BYTES_MAX: usize = 32 << 10;
/// How long nobody is taken in after the system has refused a connection.
const ACCEPT_ERROR_PAUSE: Duration = Duration::from_millis(200);
/// The header with the session of the protocol.
const SESSION_HEADER: &str = "mcp-session-id";

type Body = BoxBody<Bytes, Infallible>;

/// Why there is no endpoint.
#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    /// The address is not on the loopback, so that others could reach it.
    #[error("{0} is not a loopback address")]
    NotLoopback(IpAddr),
    /// The address cannot be had.
    #[error("cannot listen on {address}")]
    Listen {
        /// Which one.
        address: SocketAddr,
        /// Why.
        #[source]
        source: io::Error,
    },
}

/// Bound, and not yet served.
#[derive(Debug)]
pub struct HttpEndpoint {
    listener: TcpListener,
    address: SocketAddr,
}

/// What every request is checked by and handed to.
struct Endpoint {
    token: Token,
    sessions: Arc<LocalSessionManager>,
    service: StreamableHttpService<McpServer, LocalSessionManager>,
}

impl HttpEndpoint {
    /// Takes the address, which must be on the loopback. Port 0: any that is free.
    ///
    /// # Errors
    /// [`HttpError`]: nothing listens.
    pub async fn bind(address: SocketAddr) -> Result<Self, HttpError> {
        if !address.ip().is_loopback() {
            return Err(HttpError::NotLoopback(address.ip()));
        }
        let bound = TcpListener::bind(address).await;
        let bound = bound.and_then(|listener| listener.local_addr().map(|address| (listener, address)));
        let (listener, address) = bound.map_err(|source| HttpError::Listen { address, source })?;
        Ok(Self { listener, address })
    }

    /// The URL that clients are to use.
    pub fn url(&self) -> String {
        format!("http://{}{PATH}", self.address)
    }

    /// Serves until `stopped` resolves. Returns when the session at the gateway is closed.
    pub async fn serve(
        self,
        client: Client,
        options: McpOptions,
        token: Token,
        stopped: impl Future<Output = ()>,
    ) {
        let server = McpServer::new(client, options);
        let ended = CancellationToken::new();
        let endpoint = Arc::new(Endpoint::new(server.clone(), self.address, token, ended.clone()));
        let connections = TaskTracker::new();
        tokio::select! {
            never = accept(&self.listener, self.address, endpoint, &connections) => match never {},
            () = stopped => {}
        }
        ended.cancel();
        connections.close();
        // What is not answered by then is cut off with this process.
        let _ = timeout(FLUSH_TIMEOUT, connections.wait()).await;
        if timeout(CLOSE_TIMEOUT, server.close()).await.is_err() {
            tracing::warn!("the gateway does not say that the session is closed: it ends with this process");
        }
    }
}

/// Takes connections of this user in. Never ends.
async fn accept(
    listener: &TcpListener,
    own: SocketAddr,
    endpoint: Arc<Endpoint>,
    connections: &TaskTracker,
) -> Infallible {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let place = places.clone().acquire_owned().await.expect("the semaphore is never closed");
        match listener.accept().await {
            Ok((stream, peer)) => match http_peer::is_same_user(own, peer) {
                Ok(true) => drop(connections.spawn(converse(stream, endpoint.clone(), place))),
                Ok(false) => tracing::warn!(%peer, "a connection of another user was refused"),
                Err(error) => {
                    tracing::warn!(%peer, %error, "a connection was refused: its user is not known")
                }
            },
            Err(error) => {
                tracing::warn!(%error, "a connection was not taken");
                sleep(ACCEPT_ERROR_PAUSE).await;
            }
        }
    }
}

/// Answers the requests of one connection.
async fn converse(stream: TcpStream, endpoint: Arc<Endpoint>, place: OwnedSemaphorePermit) {
    let answer = service_fn(move |request| {
        let endpoint = endpoint.clone();
        async move { Ok::<_, Infallible>(endpoint.answer(request).await) }
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(HEAD_BYTES_MAX)
        .serve_connection(TokioIo::new(stream), answer)
        .await;
    if let Err(error) = served {
        tracing::info!(%error, "a connection has failed");
    }
    drop(place);
}

impl Endpoint {
    fn new(server: McpServer, address: SocketAddr, token: Token, ended: CancellationToken) -> Self {
        let config = StreamableHttpServerConfig::default()
            .with_allowed_hosts([address.to_string(), format!("localhost:{}", address.port())])
            .with_allowed_origins([
                format!("http://{address}"),
                format!("http://localhost:{}", address.port()),
            ])
            .enforce_origin_validation()
            .with_max_request_body_bytes(LINE_MAX_BYTES)
            .with_cancellation_token(ended);
        let sessions = Arc::new(LocalSessionManager::default());
        let service = StreamableHttpService::new(move || Ok(server.clone()), sessions.clone(), config);
        Self { token, sessions, service }
    }

    async fn answer(&self, request: Request<Incoming>) -> Response<Body> {
        if !self.is_authorized(request.headers()) {
            let mut refused = text(StatusCode::UNAUTHORIZED, "the token is missing or wrong\n");
            refused.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            return refused;
        }
        if request.uri().path() != PATH {
            return text(StatusCode::NOT_FOUND, "the endpoint is /mcp\n");
        }
        let is_new = !request.headers().contains_key(SESSION_HEADER);
        if is_new && self.sessions.sessions.read().await.len() >= SESSIONS_MAX {
            return text(StatusCode::SERVICE_UNAVAILABLE, "too many sessions are open\n");
        }
        self.service.handle(request).await
    }

    fn is_authorized(&self, headers: &HeaderMap) -> bool {
        let given = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
        given.and_then(|value| value.split_once(' ')).is_some_and(|(scheme, token)| {
            scheme.eq_ignore_ascii_case("bearer") && self.token.is(token.trim())
        })
    }
}

fn text(status: StatusCode, message: &'static str) -> Response<Body> {
    let mut response = Response::new(Full::new(Bytes::from_static(message.as_bytes())).boxed());
    *response.status_mut() = status;
    response
}
