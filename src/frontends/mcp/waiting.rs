//! Waiting for a command's end: for so long, until the request is cancelled, with progress meanwhile.

use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tonic::Status;

use super::progress::Progress;
use crate::{client::RetryingClient, proto::v1};

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
    let request =
        v1::WaitForExitRequest { terminal_id: terminal.id.clone(), session_id: terminal.session_id.clone() };
    let ending = client.call(|client| {
        let request = request.clone();
        async move { client.terminals.clone().wait_for_exit(request).await }
    });
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
