//! The Model Context Protocol over streamable HTTP, on a loopback address.
//!
//! A request must come from a process of this user, name this address in `Host`, come from no other origin, and bring the token.
//! All clients that do share one session of the gateway, which ends with this process. A page in a browser has neither the token nor
//! the origin; another user has neither the token nor the uid.

use std::{future::Future, net::SocketAddr, sync::Arc};

use hyper::{Request, Response, StatusCode, body::Incoming};
use rmcp::transport::streamable_http_server::{
    StreamableHttpServerConfig, StreamableHttpService, session::local::LocalSessionManager,
};
use tokio::time::timeout;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{CLOSE_TIMEOUT, FLUSH_TIMEOUT, LINE_MAX_BYTES, McpOptions, server::McpServer};
use crate::{
    client::Client,
    local_http::{self, Body, ListenError, LocalAddress, LocalListener, Token},
};

/// Sessions of the protocol at once, each until it is deleted or has been idle for 5 minutes.
pub(super) const SESSIONS_MAX: usize = 64;
/// The path of the endpoint.
pub(super) const PATH: &str = "/mcp";
/// The header with the session of the protocol.
const SESSION_HEADER: &str = "mcp-session-id";

/// Bound, and not yet served.
#[derive(Debug)]
pub struct HttpEndpoint(LocalListener);

/// What every request is checked by and handed to.
struct Endpoint {
    address: LocalAddress,
    token: Token,
    sessions: Arc<LocalSessionManager>,
    service: StreamableHttpService<McpServer, LocalSessionManager>,
}

impl HttpEndpoint {
    /// Takes the address, which must be on the loopback. Port 0: any that is free.
    ///
    /// # Errors
    /// [`ListenError`]: nothing listens.
    pub async fn bind(address: SocketAddr) -> Result<Self, ListenError> {
        LocalListener::bind(address).await.map(Self)
    }

    /// The URL that clients are to use.
    pub fn url(&self) -> String {
        format!("http://{}{PATH}", self.0.address().socket())
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
        let endpoint = Arc::new(Endpoint::new(server.clone(), self.0.address(), token, ended.clone()));
        let answer = move |request| {
            let endpoint = endpoint.clone();
            async move { endpoint.answer(request).await }
        };
        let connections = TaskTracker::new();
        tokio::select! {
            never = self.0.serve(&connections, answer) => match never {},
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

impl Endpoint {
    fn new(server: McpServer, address: LocalAddress, token: Token, ended: CancellationToken) -> Self {
        let config = StreamableHttpServerConfig::default()
            .with_allowed_hosts(address.hosts())
            .with_allowed_origins(address.origins())
            .enforce_origin_validation()
            .with_max_request_body_bytes(LINE_MAX_BYTES)
            .with_cancellation_token(ended);
        let sessions = Arc::new(LocalSessionManager::default());
        let service = StreamableHttpService::new(move || Ok(server.clone()), sessions.clone(), config);
        Self { address, token, sessions, service }
    }

    async fn answer(&self, request: Request<Incoming>) -> Response<Body> {
        if let Err((status, message)) = self.address.admits(request.headers()) {
            return local_http::text(status, message);
        }
        if !self.token.is_in(request.headers()) {
            return local_http::unauthorized();
        }
        if request.uri().path() != PATH {
            return local_http::text(StatusCode::NOT_FOUND, "the endpoint is /mcp\n");
        }
        let is_new = !request.headers().contains_key(SESSION_HEADER);
        if is_new && self.sessions.sessions.read().await.len() >= SESSIONS_MAX {
            return local_http::text(StatusCode::SERVICE_UNAVAILABLE, "too many sessions are open\n");
        }
        self.service.handle(request).await
    }
}
