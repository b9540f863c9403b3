//! One client on this process's stdio, a message a line. Its session ends with it.

use std::{future::Future, io, sync::Arc};

use tokio::time::timeout;

use super::{
    CLOSE_TIMEOUT, ExecServerOptions, LINE_MAX_BYTES, lines,
    server::Server,
    sessions::{Detachment, Sessions},
};
use crate::{
    client::{Client, RetryingClient},
    line_reader::{InputLine, LineReader},
};

/// Serves the client on this process's stdio until it goes away or `stopped` resolves. Returns when its session is closed.
///
/// # Errors
/// If stdin cannot be read.
pub async fn run(
    client: Client,
    options: ExecServerOptions,
    stopped: impl Future<Output = ()>,
) -> io::Result<()> {
    let (sender, queue) = lines::line_channel();
    let mut writing = tokio::spawn(queue.write_to(crate::stdio::stdout()));
    let sessions = Arc::new(Sessions::new(RetryingClient::new(client), options, Detachment::Ended));
    let mut server = Server::new(sessions, sender);
    let mut lines = LineReader::new(crate::stdio::stdin(), LINE_MAX_BYTES);
    tokio::pin!(stopped);
    let read = loop {
        let line = tokio::select! {
            line = lines.next() => line,
            () = &mut stopped => break Ok(()),
        };
        let line = match line {
            Ok(Some(line)) => line,
            Ok(None) => break Ok(()),
            Err(error) => break Err(error),
        };
        let taking = async {
            match &line {
                InputLine::Complete(line) => server.take(line).await,
                InputLine::TooLong { .. } => server.refuse_message().await,
                // What has no end is no message.
                InputLine::Unfinished(_) => Ok(()),
            }
        };
        // An answer waits for a client that does not read.
        let taken = tokio::select! {
            taken = taking => taken,
            () = &mut stopped => break Ok(()),
        };
        if taken.is_err() {
            break Ok(());
        }
    };
    if timeout(CLOSE_TIMEOUT, server.disconnected()).await.is_err() {
        tracing::warn!("the gateway does not say that the session is closed: it ends with this process");
    }
    // What was answered last is still on its way to the client.
    if timeout(CLOSE_TIMEOUT, &mut writing).await.is_err() {
        writing.abort();
    }
    read
}
