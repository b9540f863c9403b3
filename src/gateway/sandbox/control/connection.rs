//! The control connection to one supervisor, from the gateway's side.
//!
//! A request is written to the socket by the task that makes it; one task reads, and wakes the requester. So a
//! request and its response cost one wake-up each way. They are matched by sequence number. A malformed message
//! ends the connection.

use std::{
    io,
    os::{fd::OwnedFd, unix::net::UnixStream},
    path::Path,
    sync::Arc,
};

use crate::{
    failpoint::spoken_versions,
    link::{Connection, LinkError, Peer, Received},
    proto::supervisor::{
        Exited, FromSupervisor, Hello, HelloResponse, Progress, ToSupervisor, from_supervisor::Message,
        to_supervisor::Request,
    },
    sandbox::process_links::{self, ANSWER_TIMEOUT},
};

/// Bytes that may be queued for a supervisor that does not read. Beyond this, requesters wait.
const MAX_QUEUED_BYTES: usize = 1 << 20;

/// A response, and the descriptors that came with it.
#[derive(Debug)]
pub struct ControlResponse {
    /// The message.
    pub message: Message,
    /// In the order that the message defines.
    pub descriptors: Vec<OwnedFd>,
}

/// An event that the supervisor reports on its own.
#[derive(Debug)]
pub enum SupervisorEvent {
    /// A ring that was armed has changed.
    Progress(Progress),
    /// A command has ended.
    Exited(Exited),
    /// The gate has ended: no further exec in the sandbox succeeds.
    GateLost,
}

/// A connection.
#[derive(Debug)]
pub struct ControlConnection(Connection<ToSupervisor, FromSupervisor>);

impl ControlConnection {
    /// Connects to the control socket in a sandbox's directory.
    pub fn connect(socket: &Path) -> Result<Self, LinkError> {
        process_links::connect(Peer::Supervisor, socket, MAX_QUEUED_BYTES).map(Self)
    }

    /// Takes over a socket that is connected.
    pub(crate) fn over(socket: UnixStream) -> io::Result<Self> {
        Connection::new(Peer::Supervisor, socket, MAX_QUEUED_BYTES).map(Self)
    }

    /// Agrees on a version. [`Self::serve`] must run meanwhile.
    pub async fn hello(&self) -> Result<HelloResponse, LinkError> {
        check_hello(self.request(Request::Hello(hello_request())).await?).map(|(answer, _)| answer)
    }

    /// Agrees on a version where nobody serves the connection yet. With the answer comes a pidfd of the supervisor.
    pub(crate) async fn exchange_hello(&self) -> Result<(HelloResponse, Vec<OwnedFd>), LinkError> {
        check_hello(self.exchange(Request::Hello(hello_request())).await?)
    }

    /// Sends a request and waits for its answer.
    pub async fn request(&self, request: Request) -> Result<ControlResponse, LinkError> {
        self.send_with(request, &[]).await?.await
    }

    /// As [`Self::request`] with descriptors, and for no longer than a supervisor may take for what it answers at once.
    pub async fn request_in_time(
        &self,
        request: Request,
        descriptors: &[Arc<OwnedFd>],
    ) -> Result<ControlResponse, LinkError> {
        let answer = async { self.send_with(request, descriptors).await?.await };
        Peer::Supervisor.within(ANSWER_TIMEOUT, answer).await
    }

    /// Sends a request. The caller may await the response or drop it.
    pub async fn send(
        &self,
        request: Request,
    ) -> Result<impl Future<Output = Result<ControlResponse, LinkError>>, LinkError> {
        self.send_with(request, &[]).await
    }

    /// As [`Self::send`], with descriptors.
    pub async fn send_with(
        &self,
        request: Request,
        descriptors: &[Arc<OwnedFd>],
    ) -> Result<impl Future<Output = Result<ControlResponse, LinkError>>, LinkError> {
        let sequence = self.0.next_sequence();
        let message = ToSupervisor { sequence, request: Some(request) };
        let answer = loop {
            match self.0.ask(sequence, &message, descriptors) {
                // It does not read: there is no room.
                Err(LinkError::TimedOut(_)) => self.0.wait_drained().await?,
                asked => break asked?,
            }
        };
        Ok(async move { response(answer.await.map_err(|_| LinkError::Lost(Peer::Supervisor))?) })
    }

    /// Sends a request and waits for its answer in time, where nobody serves the connection yet and no other request waits. Events that come
    /// before the answer are dropped.
    pub(crate) async fn exchange(&self, request: Request) -> Result<ControlResponse, LinkError> {
        let sequence = self.0.next_sequence();
        self.0.send(&ToSupervisor { sequence, request: Some(request) }, &[])?;
        let answer = async {
            loop {
                match self.0.next().await? {
                    Some((FromSupervisor { sequence: of, message: Some(message) }, descriptors))
                        if of == sequence =>
                    {
                        return Ok(ControlResponse { message, descriptors });
                    }
                    Some(_) => {}
                    None => return Err(LinkError::Lost(Peer::Supervisor)),
                }
            }
        };
        Peer::Supervisor.within(ANSWER_TIMEOUT, answer).await
    }

    /// Reads until the connection ends. Responses go to their requesters, events to `on_event`, in order. Also
    /// writes what the socket did not take at once. Returns the error that ended the connection; `None` when the
    /// supervisor has closed it.
    pub async fn serve(&self, mut on_event: impl FnMut(SupervisorEvent)) -> Option<LinkError> {
        let receive = async {
            while let Some(received) = self.0.next().await? {
                self.deliver(received, &mut on_event);
            }
            Ok(())
        };
        let ended = tokio::select! {
            biased;
            ended = receive => ended.err(),
            // It reads no more.
            _ = self.0.keep_writing() => None,
        };
        self.0.end();
        ended
    }

    fn deliver(
        &self,
        (message, descriptors): Received<FromSupervisor>,
        on_event: &mut impl FnMut(SupervisorEvent),
    ) {
        match message.message {
            Some(Message::Progress(progress)) => on_event(SupervisorEvent::Progress(progress)),
            Some(Message::Exited(exited)) => on_event(SupervisorEvent::Exited(exited)),
            Some(Message::GateLost(_)) => on_event(SupervisorEvent::GateLost),
            Some(_) => self.0.answered(message.sequence, (message, descriptors)),
            // An unknown event of a newer supervisor is ignored.
            None => {}
        }
    }
}

fn response((answer, descriptors): Received<FromSupervisor>) -> Result<ControlResponse, LinkError> {
    let message = answer.message.ok_or(LinkError::UnexpectedMessage(Peer::Supervisor))?;
    Ok(ControlResponse { message, descriptors })
}

/// The first request of every connection.
pub(crate) fn hello_request() -> Hello {
    let (lowest_version, highest_version) = spoken_versions();
    Hello { lowest_version, highest_version }
}

/// The answer to it, when a version was agreed on.
fn check_hello(answer: ControlResponse) -> Result<(HelloResponse, Vec<OwnedFd>), LinkError> {
    let Message::Hello(hello) = answer.message else {
        return Err(LinkError::UnexpectedMessage(Peer::Supervisor));
    };
    Peer::Supervisor.check_version(spoken_versions(), hello.version)?;
    Ok((hello, answer.descriptors))
}
