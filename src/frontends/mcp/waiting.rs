//! Waiting for a command's end: for so long, until the request is cancelled, with progress meanwhile for clients that ask for it: how long,
//! and how much output there is.

use std::time::Duration;

use rmcp::{
    Peer, RoleServer,
    model::{ProgressNotificationParam, ProgressToken},
};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tonic::Status;

use crate::{client::RetryingClient, proto::v1};

/// How often progress is told.
const INTERVAL: Duration = Duration::from_secs(2);
/// How long a client may take to read it.
const SEND_TIMEOUT: Duration = Duration::from_secs(1);

/// How a wait ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Waited {
    /// The command has ended.
    Ended,
    /// It goes on.
    Running,
    /// The request was cancelled.
    Cancelled,
}

/// Waits for a command's end.
pub(super) async fn wait(
    client: &RetryingClient,
    terminal: &v1::Terminal,
    time: Duration,
    progress: &Progress,
    cancelled: &CancellationToken,
) -> Result<Waited, Status> {
    let ending = client.wait_for_exit(&terminal.id, &terminal.session_id);
    let expired = tokio::time::sleep(time);
    tokio::pin!(ending, expired);
    loop {
        tokio::select! {
            biased;
            ended = &mut ending => return ended.map(|_| Waited::Ended),
            () = cancelled.cancelled() => return Ok(Waited::Cancelled),
            () = &mut expired => return Ok(Waited::Running),
            () = progress.due() => {
                let written = get(client, terminal).await.ok().and_then(|now| {
                    now.output.first().map(|position| position.next_offset)
                });
                progress.tell(written).await;
            }
        }
    }
}

/// A command as it is now.
pub(super) async fn get(client: &RetryingClient, terminal: &v1::Terminal) -> Result<v1::Terminal, Status> {
    let request =
        v1::GetTerminalRequest { terminal_id: terminal.id.clone(), session_id: terminal.session_id.clone() };
    let got = client.call_with_timeout(|client| {
        let request = request.clone();
        async move { client.terminals.clone().get_terminal(request).await }
    });
    Ok(got.await?.into_inner().terminal.unwrap_or_default())
}

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
    async fn due(&self) {
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
