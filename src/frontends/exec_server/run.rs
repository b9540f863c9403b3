//! A run at the gateway and its events: each byte of output once and in order, also over a restart of the gateway.

use tonic::{Status, Streaming};

use crate::{
    client::{RetryingClient, RunStream, is_unanswered, may_have_been_received},
    proto::v1::{self, run_response::Event},
};

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
    /// Of the next bytes of stdout and stderr.
    offsets: [u64; 2],
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
        Ok(Self {
            client: client.clone(),
            terminal,
            offsets: [0; 2],
            stream: RunStream::Begun(stream),
            resumption,
        })
    }

    /// The next event, of this gateway or of one after it. The last one is `Finished`.
    pub(super) async fn next(&mut self) -> Result<Event, Status> {
        let mut attempts = self.client.attempts();
        loop {
            let lost = match self.stream.next().await {
                Ok(Some(event)) => {
                    attempts.succeeded();
                    if let Event::Chunk(chunk) = &event {
                        let place = usize::from(chunk.stream() == v1::OutputStream::Stderr);
                        self.offsets[place] = chunk.offset + chunk.data.len() as u64;
                    }
                    return Ok(event);
                }
                Ok(None) => ended_early(),
                Err(status) => status,
            };
            if self.resumption == Resumption::Never {
                return Err(lost);
            }
            self.stream = RunStream::Lost;
            attempts.failed(lost).await?;
            let request = v1::ResumeRunRequest {
                terminal_id: self.terminal.id.clone(),
                session_id: self.terminal.session_id.clone(),
                stdout_offset: self.offsets[0],
                stderr_offset: self.offsets[1],
            };
            match self.client.client().terminals.resume_run(request).await {
                Ok(resumed) => self.stream = RunStream::Resumed(resumed.into_inner()),
                Err(status) => attempts.failed(status).await?,
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
