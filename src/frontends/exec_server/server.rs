//! The server at one connection: the handshake, and then the requests of the client to its session; and the one client on this process's
//! stdio, a message a line, whose session ends with it.

use std::{future::Future, io, sync::Arc};

use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::{
    CLOSE_TIMEOUT, ExecServerOptions, LINE_MAX_BYTES, QUEUE,
    errors::{ErrorCode, RpcError},
    message::{self, Incoming},
    open_session::Call,
    sessions::{Attachment, Detachment, Sessions},
};
use crate::{
    client::{Client, RetryingClient},
    json_rpc::{self, Disconnected, InputLine, LineReader, LineSender},
};

/// Serves one connection.
#[derive(Debug)]
pub(super) struct Server {
    sessions: Arc<Sessions>,
    to: LineSender,
    attachment: Option<Attachment>,
    is_initialized: bool,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct InitializeParams {
    #[serde(default)]
    client_name: String,
    #[serde(default)]
    resume_session_id: Option<String>,
}

impl Server {
    pub(super) fn new(sessions: Arc<Sessions>, to: LineSender) -> Self {
        Self { sessions, to, attachment: None, is_initialized: false }
    }

    /// Whether its client has a session.
    pub(super) fn has_session(&self) -> bool {
        self.attachment.is_some()
    }

    /// The connection has ended.
    pub(super) async fn disconnected(self) {
        if let Some(attachment) = self.attachment {
            self.sessions.detach(attachment).await;
        }
    }

    /// Takes a message of the client.
    pub(super) async fn take(&mut self, text: &[u8]) -> Result<(), Disconnected> {
        if text.iter().all(u8::is_ascii_whitespace) {
            return Ok(());
        }
        match message::parse(text) {
            Ok(Incoming::Request { id, method, params }) => {
                self.request(Call { id: id.to_owned(), method, params, bytes: text.len() }).await
            }
            Ok(Incoming::Notification { method }) if method == "initialized" => {
                self.is_initialized = self.attachment.is_some();
                Ok(())
            }
            Ok(Incoming::Notification { method }) => {
                self.to.send(message::answer_to_none(RpcError::unknown_method(&method))).await
            }
            Err(error) => self.to.send(message::answer_to_none(error)).await,
        }
    }

    /// Answers to a message that was too long to be read.
    pub(super) async fn refuse_message(&self) -> Result<(), Disconnected> {
        let problem = format!("a message has at most {} bytes", super::LINE_MAX_BYTES);
        let error = RpcError::new(ErrorCode::InvalidRequest, "MESSAGE_TOO_LONG", &problem);
        self.to.send(message::answer_to_none(error)).await
    }

    async fn request(&mut self, call: Call) -> Result<(), Disconnected> {
        if call.method == "initialize" {
            let answered = self.initialize(call.params).await;
            return self.to.send(message::answer(&call.id, answered)).await;
        }
        match &self.attachment {
            Some(attachment) if self.is_initialized => attachment.open.take(call, self.to.clone()).await,
            Some(_) | None => {
                let problem = "the client has not sent initialize and initialized";
                let error = RpcError::new(ErrorCode::InvalidRequest, "NOT_INITIALIZED", problem);
                self.to.send(message::answer(&call.id, Err(error))).await
            }
        }
    }

    async fn initialize(&mut self, params: Value) -> Result<Value, RpcError> {
        let params: InitializeParams = message::params(params)?;
        if self.attachment.is_some() {
            let problem = "initialize was sent before";
            return Err(RpcError::new(ErrorCode::InvalidRequest, "BAD_ARGUMENT", problem));
        }
        let attachment = match &params.resume_session_id {
            Some(id) => self.sessions.resume(id, self.to.clone())?,
            None => self.sessions.open(&params.client_name, self.to.clone()).await?,
        };
        let open = attachment.open.clone();
        match open.info().await {
            Ok(info) => {
                self.attachment = Some(attachment);
                Ok(json!({ "sessionId": open.id(), "environmentInfo": info }))
            }
            // A session in which nothing can start is no environment: the client learns why, and may try again.
            Err(error) => {
                match params.resume_session_id {
                    Some(_) => self.sessions.detach(attachment).await,
                    None => self.sessions.abandon(attachment).await,
                }
                Err(error)
            }
        }
    }
}

/// Serves the client on this process's stdio until it goes away or `stopped` resolves. Returns when its session is closed.
///
/// # Errors
/// If stdin cannot be read.
pub async fn run(
    client: Client,
    options: ExecServerOptions,
    stopped: impl Future<Output = ()>,
) -> io::Result<()> {
    let (sender, queue) = json_rpc::line_channel(QUEUE);
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
