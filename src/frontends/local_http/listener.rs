//! A listener on a loopback address that takes in connections of this user alone, as many at once as it has places.

use std::{
    convert::Infallible,
    future::Future,
    io,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use hyper::{Request, Response, body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore},
    time::sleep,
};
use tokio_util::task::TaskTracker;

use super::{Body, LocalAddress, peer};

/// Connections at once that speak HTTP. Further ones wait to be taken in.
pub const CONNECTIONS_MAX: usize = 64;
/// How long the head of a request may take.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// The longest head of a request.
const HEAD_BYTES_MAX: usize = 32 << 10;
/// How long nobody is taken in after the system has refused a connection.
const ACCEPT_ERROR_PAUSE: Duration = Duration::from_millis(200);

/// Why nothing listens.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
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
pub struct LocalListener {
    listener: TcpListener,
    address: LocalAddress,
}

impl LocalListener {
    /// Takes the address, which must be on the loopback. Port 0: any that is free.
    ///
    /// # Errors
    /// [`ListenError`]: nothing listens.
    pub async fn bind(address: SocketAddr) -> Result<Self, ListenError> {
        if !address.ip().is_loopback() {
            return Err(ListenError::NotLoopback(address.ip()));
        }
        let bound = TcpListener::bind(address).await;
        let bound = bound.and_then(|listener| listener.local_addr().map(|address| (listener, address)));
        let (listener, address) = bound.map_err(|source| ListenError::Listen { address, source })?;
        Ok(Self { listener, address: LocalAddress(address) })
    }

    /// Where it listens.
    pub fn address(&self) -> LocalAddress {
        self.address
    }

    /// Answers the requests of this user's connections, each connection in a task of `connections`. Never ends.
    pub async fn serve<F, R>(&self, connections: &TaskTracker, answer: F) -> Infallible
    where
        F: Fn(Request<Incoming>) -> R + Clone + Send + 'static,
        R: Future<Output = Response<Body>> + Send + 'static,
    {
        let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        loop {
            let place = places.clone().acquire_owned().await.expect("the semaphore is never closed");
            match self.listener.accept().await {
                Ok((stream, peer)) => match peer::is_same_user(self.address.0, peer) {
                    Ok(true) => drop(connections.spawn(converse(stream, answer.clone(), place))),
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
}

/// Answers the requests of one connection, until it ends or becomes another protocol's.
async fn converse<F, R>(stream: TcpStream, answer: F, place: OwnedSemaphorePermit)
where
    F: Fn(Request<Incoming>) -> R + Send + 'static,
    R: Future<Output = Response<Body>> + Send + 'static,
{
    let answer = service_fn(move |request| {
        let answered = answer(request);
        async move { Ok::<_, Infallible>(answered.await) }
    });
    // An answer and the ping behind it are two small pieces: the second one would wait for the client's kernel.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::info!(%error, "what is sent may come late");
    }
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(HEAD_BYTES_MAX)
        .serve_connection(TokioIo::new(stream), answer)
        .with_upgrades()
        .await;
    if let Err(error) = served {
        tracing::info!(%error, "a connection has failed");
    }
    drop(place);
}
