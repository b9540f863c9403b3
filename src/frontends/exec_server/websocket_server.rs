//! The exec-server protocol by websockets on a loopback address, for processes of this user that have the token.
//!
//! Each client has a session of its own. One whose connection breaks can resume its session, for a while; nobody else can, because
//! nobody else gets a connection.

use std::{future::Future, net::SocketAddr, sync::Arc, time::Duration};

use hyper::{Request, Response, StatusCode, body::Incoming, upgrade};
use tokio::{sync::Semaphore, time::timeout};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    CLOSE_TIMEOUT, ExecServerOptions, handshake,
    sessions::{Detachment, Sessions},
    websocket,
};
use crate::{
    client::{Client, RetryingClient},
    local_http::{self, Body, ListenError, LocalAddress, LocalListener, Token},
};

/// Websockets at once.
pub const CLIENTS_MAX: usize = 64;

/// Bound, and not yet served.
#[derive(Debug)]
pub struct WebSocketEndpoint(LocalListener);

/// What every request is checked by and handed to.
#[derive(Debug)]
struct Endpoint {
    address: LocalAddress,
    token: Token,
    sessions: Arc<Sessions>,
    places: Arc<Semaphore>,
    clients: TaskTracker,
    stopped: CancellationToken,
}

impl WebSocketEndpoint {
    /// Takes the address, which must be on the loopback. Port 0: any that is free.
    ///
    /// # Errors
    /// [`ListenError`]: nothing listens.
    pub async fn bind(address: SocketAddr) -> Result<Self, ListenError> {
        LocalListener::bind(address).await.map(Self)
    }

    /// The URL that clients are to use, without the token.
    pub fn url(&self) -> String {
        format!("ws://{}/", self.0.address().socket())
    }

    /// Serves until `stopped` resolves. Returns when all sessions are closed. A session without a connection is kept for `kept`.
    pub async fn serve(
        self,
        client: Client,
        options: ExecServerOptions,
        token: Token,
        kept: Duration,
        stopped: impl Future<Output = ()>,
    ) {
        let sessions = Sessions::new(RetryingClient::new(client), options, Detachment::Kept(kept));
        let endpoint = Arc::new(Endpoint {
            address: self.0.address(),
            token,
            sessions: Arc::new(sessions),
            places: Arc::new(Semaphore::new(CLIENTS_MAX)),
            clients: TaskTracker::new(),
            stopped: CancellationToken::new(),
        });
        let answer = {
            let endpoint = endpoint.clone();
            move |request| {
                let endpoint = endpoint.clone();
                async move { endpoint.answer(request) }
            }
        };
        let connections = TaskTracker::new();
        tokio::select! {
            never = self.0.serve(&connections, answer) => match never {},
            () = stopped => {}
        }
        endpoint.stopped.cancel();
        endpoint.clients.close();
        let closing = async {
            endpoint.clients.wait().await;
            endpoint.sessions.close_all().await;
        };
        if timeout(CLOSE_TIMEOUT, closing).await.is_err() {
            tracing::warn!(
                "the gateway does not say that the sessions are closed: they end with this process"
            );
        }
    }
}

impl Endpoint {
    /// Answers a request, and serves the websocket that it opens.
    fn answer(&self, mut request: Request<Incoming>) -> Response<Body> {
        let accepted = match handshake::answer(&request, self.address, &self.token) {
            Ok(accepted) => accepted,
            Err(refused) => return refused,
        };
        let Ok(place) = self.places.clone().try_acquire_owned() else {
            return local_http::text(StatusCode::SERVICE_UNAVAILABLE, "too many clients are connected\n");
        };
        let upgrading = upgrade::on(&mut request);
        let (sessions, stopped) = (self.sessions.clone(), self.stopped.clone());
        self.clients.spawn(async move {
            match upgrading.await {
                Ok(upgraded) => websocket::serve(upgraded, sessions, stopped).await,
                Err(error) => tracing::info!(%error, "a connection did not become a websocket"),
            }
            drop(place);
        });
        accepted
    }
}
