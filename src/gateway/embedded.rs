//! A gateway inside another command, for that command alone. It leaves nothing behind.

use std::path::PathBuf;

use super::{
    composition::Gateway, config::Config, embedded_directory, error::ServeError, shutdown::ShutdownSignal,
    socket,
};

/// A gateway inside this process, for one command. Its directory is private, and goes with it.
#[derive(Debug)]
pub struct Embedded {
    uri: String,
    directory: PathBuf,
    shutdown: ShutdownSignal,
    serving: tokio::task::JoinHandle<Result<(), ServeError>>,
}

/// Starts a gateway of this process's own. The configuration's socket and state directory are not looked at: both are
/// made again, for this process only.
pub async fn embed(mut config: Config) -> Result<Embedded, ServeError> {
    let directory = embedded_directory::create()?;
    config.listen = directory.join("provost.sock");
    config.state = directory.join("state");
    let started = Gateway::open(&config)
        .and_then(|gateway| Ok((gateway, socket::bind(&config.listen, config.socket_mode)?)));
    let (gateway, listening) = match started {
        Ok(started) => started,
        Err(error) => {
            embedded_directory::remove(&directory);
            return Err(error);
        }
    };
    let uri = format!("unix:{}", config.listen.display());
    let shutdown = ShutdownSignal::default();
    let gateway_shutdown = shutdown.clone();
    let serving = tokio::spawn(async move { gateway.serve(listening, &gateway_shutdown, None).await });
    Ok(Embedded { uri, directory, shutdown, serving })
}

impl Embedded {
    /// Where it listens, as clients take it.
    pub fn uri(&self) -> &str {
        &self.uri
    }

    /// Stops everything and takes everything away. Returns when nothing is left.
    pub async fn close(self) -> Result<(), ServeError> {
        self.shutdown.stop_all();
        let served = self.serving.await;
        embedded_directory::remove(&self.directory);
        served.unwrap_or_else(|failed| std::panic::resume_unwind(failed.into_panic()))
    }
}
