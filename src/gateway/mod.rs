//! The gateway: composition, listening, drain.
//!
//! [`serve`] is `provost serve`; [`embed`] is a private gateway inside another command, which leaves nothing
//! behind. Nothing here knows of commands or output: it puts the parts together and takes them apart.

#![forbid(unsafe_code)]

mod config;
mod listen;

use std::{io, path::PathBuf};

pub use config::{Config, ConfigError, DieWithGateway, IdRange, PolicySource, default_listen, parse_listen};
pub use listen::ListenError;
use tokio_util::sync::CancellationToken;

/// Why a gateway did not start, or ended.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The configuration or the policy cannot be used.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The socket cannot be had.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// The state folder cannot be used.
    #[error("cannot use the state folder {}", path.display())]
    State {
        /// The folder.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// Another gateway has it.
    #[error("the state folder {} belongs to a gateway that runs", .0.display())]
    StateInUse(PathBuf),
    /// Signals cannot be watched.
    #[error("cannot watch for signals")]
    Signals(#[source] io::Error),
    /// The server failed.
    #[error("the server failed")]
    Transport(#[from] tonic::transport::Error),
}

/// The runtime that a gateway is made for: two workers serve thousands of terminals, because no byte of output
/// passes through here unless someone reads it.
pub fn runtime() -> io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .max_blocking_threads(16)
        .thread_name("provost")
        .enable_all()
        .build()
}

/// Serves until SIGTERM or SIGINT, then drains.
pub async fn serve(config: Config) -> Result<(), ServeError> {
    let listening = listen::bind(&config.listen, config.socket_mode)?;
    run(listening, CancellationToken::new()).await
}

/// A gateway inside this process, for one command.
#[derive(Debug)]
pub struct Embedded {
    uri: String,
    stop: CancellationToken,
    serving: tokio::task::JoinHandle<Result<(), ServeError>>,
}

/// Starts a gateway of this process's own.
pub async fn embed(config: Config) -> Result<Embedded, ServeError> {
    let uri = format!("unix:{}", config.listen.display());
    let listening = listen::bind(&config.listen, config.socket_mode)?;
    let stop = CancellationToken::new();
    Ok(Embedded { uri, stop: stop.clone(), serving: tokio::spawn(run(listening, stop)) })
}

impl Embedded {
    /// Where it listens, for [`client::connect`](crate::client::connect).
    pub fn uri(&self) -> &str {
        &self.uri
    }

    /// Stops everything and takes everything away. Returns when nothing is left.
    pub async fn close(self) -> Result<(), ServeError> {
        self.stop.cancel();
        self.serving.await.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()))
    }
}

async fn run(listening: listen::Listening, stop: CancellationToken) -> Result<(), ServeError> {
    let (_, health) = tonic_health::server::health_reporter();
    tonic::transport::Server::builder()
        .add_service(health)
        .serve_with_incoming_shutdown(listening, stop.cancelled_owned())
        .await?;
    Ok(())
}
