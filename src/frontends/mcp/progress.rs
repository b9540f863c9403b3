//! Progress of a call that waits, for clients that ask for it: how long, and how much output there is.

use std::time::Duration;

use rmcp::{
    Peer, RoleServer,
    model::{ProgressNotificationParam, ProgressToken},
};
use tokio::time::Instant;

/// How often progress is told.
const INTERVAL: Duration = Duration::from_secs(2);
/// How long a client may take to read it.
const SEND_TIMEOUT: Duration = Duration::from_secs(1);

/// Whom to tell, and since when there is something to tell.
pub(super) struct Progress {
    peer: Peer<RoleServer>,
    token: Option<ProgressToken>,
    since: Instant,
}

impl Progress {
    /// Begins now. Without a token nothing is told.
    pub(super) fn new(peer: Peer<RoleServer>, token: Option<ProgressToken>) -> Self {
        Self { peer, token, since: Instant::now() }
    }

    /// When the next word is due; never, without a token.
    pub(super) async fn due(&self) {
        match self.token {
            Some(_) => tokio::time::sleep(INTERVAL).await,
            None => std::future::pending().await,
        }
    }

    /// Tells how far the command is. A client that does not read misses it.
    pub(super) async fn tell(&self, written: Option<u64>) {
        let Some(token) = &self.token else { return };
        let elapsed = self.since.elapsed().as_secs_f64();
        let output = written.map(|bytes| format!(", {bytes} bytes of output")).unwrap_or_default();
        let message = format!("running for {elapsed:.0} s{output}");
        let param = ProgressNotificationParam::new(token.clone(), elapsed).with_message(message);
        let _ = tokio::time::timeout(SEND_TIMEOUT, self.peer.notify_progress(param)).await;
    }
}
