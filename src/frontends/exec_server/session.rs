//! The client's session at the gateway, opened with the handshake, closed when the client goes away, and ended by the gateway in any
//! case when this process ends; and a run in it with its events: each byte of output once and in order, also over a restart of the gateway.

use tonic::{Status, Streaming};

use super::{
    ExecServerOptions,
    errors::{self, RpcError},
};
use crate::{
    client::{FrontEnd, RetryingClient, RunStream, client_label, is_unanswered, may_have_been_received},
    proto::v1::{self, run_response::Event},
};

/// The label with the client's name, as it says itself.
const CLIENT_LABEL: &str = "exec_server.client";

/// An open session.
#[derive(Debug)]
pub(super) struct ExecSession {
    pub(super) client: RetryingClient,
    /// The gateway's id.
    pub(super) id: String,
    /// Where commands start that name no directory: the first root, as the user names it.
    pub(super) directory: String,
    /// The directories in which commands may write, without links.
    pub(super) roots: Vec<String>,
    /// Those that links lead to, by the user's name and without links.
    pub(super) linked: Vec<(String, String)>,
}

impl ExecSession {
    /// Opens the session of a client.
    pub(super) async fn open(
        client: RetryingClient,
        options: &ExecServerOptions,
        client_name: &str,
    ) -> Result<Self, RpcError> {
        let named: Vec<String> =
            options.roots.iter().map(|root| root.to_string_lossy().into_owned()).collect();
        let request = FrontEnd::ExecServer.sign(v1::CreateSessionRequest {
            roots: named.clone(),
            labels: client_label(CLIENT_LABEL, client_name).into_iter().collect(),
            profile: options.profile.clone().unwrap_or_default(),
            lifetime: v1::Lifetime::OwnerProcess.into(),
            request_id: ulid::Ulid::generate().to_string(),
            ..Default::default()
        });
        let opened = client.open_session(request).await;
        let session = opened.map_err(|status| errors::not_started(&status))?;
        tracing::info!(gateway.session = session.id, roots = ?session.roots, "session opened at the gateway");
        let directory = named.first().cloned().unwrap_or_default();
        // The gateway answers in the order of the request.
        let pairs = named.into_iter().zip(session.roots.iter().cloned());
        let linked = pairs.filter(|(name, real)| name != real).collect();
        Ok(Self { client, id: session.id, directory, roots: session.roots, linked })
    }

    /// Stops and releases everything of the session.
    pub(super) async fn close(&self) {
        if let Err(status) = self.client.client().close_session(&self.id).await {
            tracing::warn!(error = %status, "cannot close the session: it ends with this process");
        }
    }
}

/// Whether a run goes on at the next gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Resumption {
    /// It goes on, and is released by its caller.
    Resumed,
    /// It ends with its gateway. Released by the gateway at its end.
    Never,
}

/// A run under way. Dropped before its end, it stops its command.
#[derive(Debug)]
pub(super) struct Run {
    client: RetryingClient,
    /// As it was when it started.
    pub(super) terminal: v1::Terminal,
    stream: RunStream,
    resumption: Resumption,
}

impl Run {
    /// Starts a command. A request that may have reached the gateway is not sent again.
    pub(super) async fn start(
        client: RetryingClient,
        create: v1::CreateTerminalRequest,
        resumption: Resumption,
    ) -> Result<Self, Status> {
        let request = v1::RunRequest { create: Some(create), resumable: resumption == Resumption::Resumed };
        let mut attempts = client.attempts();
        let (first, stream) = loop {
            match begin(client.client(), request.clone()).await {
                Err(status) if is_unanswered(&status) && !may_have_been_received(&status) => {
                    attempts.failed(status).await?;
                }
                begun => break begun?,
            }
        };
        attempts.succeeded();
        let Some(Event::Started(terminal)) = first.and_then(|first| first.event) else {
            return Err(Status::internal("the gateway ended the call before the command had started"));
        };
        let stream = RunStream::new(terminal.id.clone(), terminal.session_id.clone(), stream);
        Ok(Self { client: client.clone(), terminal, stream, resumption })
    }

    /// The next event, of this gateway or of one after it. The last one is `Finished`.
    pub(super) async fn next(&mut self) -> Result<Event, Status> {
        let mut attempts = self.client.attempts();
        loop {
            let lost = match self.stream.next().await {
                Ok(Some(event)) => {
                    attempts.succeeded();
                    return Ok(event);
                }
                Ok(None) => ended_early(),
                Err(status) => status,
            };
            if self.resumption == Resumption::Never {
                return Err(lost);
            }
            attempts.failed(lost).await?;
            if let Err(status) = self.stream.resume(&mut self.client.client().terminals).await {
                attempts.failed(status).await?;
            }
        }
    }
}

async fn begin(
    mut client: crate::client::Client,
    request: v1::RunRequest,
) -> Result<(Option<v1::RunResponse>, Streaming<v1::RunResponse>), Status> {
    let mut stream = client.terminals.run(request).await?.into_inner();
    let first = stream.message().await?;
    Ok((first, stream))
}

/// A gateway that ends closes its streams: the next one goes on.
fn ended_early() -> Status {
    Status::from_error(Box::new(std::io::Error::from(std::io::ErrorKind::UnexpectedEof)))
}
