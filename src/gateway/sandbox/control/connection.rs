//! The control connection to one supervisor, from the gateway's side.
//!
//! A request is written to the socket by the task that makes it; one task reads, and wakes the requester. So a
//! request and its response cost one wake-up each way. They are matched by sequence number. A malformed message
//! ends the connection.

use std::{
    io,
    os::{fd::OwnedFd, unix::net::UnixStream},
    path::Path,
    sync::{Arc, Mutex, PoisonError},
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

/// Events that may come before an answer that is waited for with [`ControlConnection::exchange`]. A supervisor has fewer commands.
const MAX_EARLY_EVENTS: usize = 1 << 16;

/// A response, and the descriptors that came with it.
#[derive(Debug)]
pub(crate) struct ControlResponse {
    /// The message.
    pub message: Message,
    /// In the order that the message defines.
    pub descriptors: Vec<OwnedFd>,
}

/// An event that the supervisor reports on its own.
#[derive(Debug)]
pub(crate) enum SupervisorEvent {
    /// A ring that was armed has changed.
    Progress(Progress),
    /// A command has ended.
    Exited(Exited),
    /// The gate has ended: no further exec in the sandbox succeeds.
    GateLost,
}

impl SupervisorEvent {
    /// What is reported, or the message that is none.
    fn of(message: Message) -> Result<Self, Message> {
        match message {
            Message::Progress(progress) => Ok(Self::Progress(progress)),
            Message::Exited(exited) => Ok(Self::Exited(exited)),
            Message::GateLost(_) => Ok(Self::GateLost),
            other => Err(other),
        }
    }
}

/// A connection.
#[derive(Debug)]
pub(crate) struct ControlConnection {
    connection: Connection<ToSupervisor, FromSupervisor>,
    /// Events that came while nobody served the connection, for who does.
    early: Mutex<Vec<SupervisorEvent>>,
}

impl ControlConnection {
    /// Connects to the control socket in a sandbox's directory.
    pub(crate) fn connect(socket: &Path) -> Result<Self, LinkError> {
        process_links::connect(Peer::Supervisor, socket, MAX_QUEUED_BYTES).map(Self::new)
    }

    /// Takes over a socket that is connected.
    pub(crate) fn over(socket: UnixStream) -> io::Result<Self> {
        Connection::new(Peer::Supervisor, socket, MAX_QUEUED_BYTES).map(Self::new)
    }

    fn new(connection: Connection<ToSupervisor, FromSupervisor>) -> Self {
        Self { connection, early: Mutex::default() }
    }

    /// Agrees on a version. [`Self::serve`] must run meanwhile.
    pub(crate) async fn hello(&self) -> Result<HelloResponse, LinkError> {
        check_hello(self.request(Request::Hello(hello_request())).await?).map(|(answer, _)| answer)
    }

    /// Agrees on a version where nobody serves the connection yet. With the answer comes a pidfd of the supervisor.
    pub(crate) async fn exchange_hello(&self) -> Result<(HelloResponse, Vec<OwnedFd>), LinkError> {
        check_hello(self.exchange(Request::Hello(hello_request())).await?)
    }

    /// Sends a request and waits for its answer.
    pub(crate) async fn request(&self, request: Request) -> Result<ControlResponse, LinkError> {
        self.send_with(request, &[]).await?.await
    }

    /// As [`Self::request`] with descriptors, and for no longer than a supervisor may take for what it answers at once.
    pub(crate) async fn request_in_time(
        &self,
        request: Request,
        descriptors: &[Arc<OwnedFd>],
    ) -> Result<ControlResponse, LinkError> {
        let answer = async { self.send_with(request, descriptors).await?.await };
        Peer::Supervisor.within(ANSWER_TIMEOUT, answer).await
    }

    /// Sends a request. The caller may await the response or drop it.
    pub(crate) async fn send(
        &self,
        request: Request,
    ) -> Result<impl Future<Output = Result<ControlResponse, LinkError>>, LinkError> {
        self.send_with(request, &[]).await
    }

    /// As [`Self::send`], with descriptors.
    pub(crate) async fn send_with(
        &self,
        request: Request,
        descriptors: &[Arc<OwnedFd>],
    ) -> Result<impl Future<Output = Result<ControlResponse, LinkError>>, LinkError> {
        let sequence = self.connection.next_sequence();
        let message = ToSupervisor { sequence, request: Some(request) };
        let answer = loop {
            match self.connection.ask(sequence, &message, descriptors) {
                // It does not read: there is no room.
                Err(LinkError::TimedOut(_)) => self.connection.wait_drained().await?,
                asked => break asked?,
            }
        };
        Ok(async move { response(answer.await.map_err(|_| LinkError::Lost(Peer::Supervisor))?) })
    }

    /// Sends a request and waits for its answer in time, where nobody serves the connection yet and no other request waits.
    /// Events that come before the answer are kept for [`Self::serve`], which reads those behind it.
    pub(crate) async fn exchange(&self, request: Request) -> Result<ControlResponse, LinkError> {
        let sequence = self.connection.next_sequence();
        self.connection.send(&ToSupervisor { sequence, request: Some(request) }, &[])?;
        let answer = async {
            loop {
                match self.connection.next().await? {
                    Some((FromSupervisor { sequence: of, message: Some(message) }, descriptors))
                        if of == sequence =>
                    {
                        return Ok(ControlResponse { message, descriptors });
                    }
                    Some((FromSupervisor { message: Some(message), .. }, _)) => self.keep_early(message)?,
                    // An unknown event of a newer supervisor is ignored.
                    Some(_) => {}
                    None => return Err(LinkError::Lost(Peer::Supervisor)),
                }
            }
        };
        Peer::Supervisor.within(ANSWER_TIMEOUT, answer).await
    }

    /// What a list of several pages has said of a command may have changed before the last of them.
    fn keep_early(&self, message: Message) -> Result<(), LinkError> {
        let Ok(event) = SupervisorEvent::of(message) else { return Ok(()) };
        let mut early = self.early.lock().unwrap_or_else(PoisonError::into_inner);
        if early.len() == MAX_EARLY_EVENTS {
            return Err(LinkError::UnexpectedMessage(Peer::Supervisor));
        }
        early.push(event);
        Ok(())
    }

    /// Reads until the connection ends. Responses go to their requesters, events to `on_event`, in order. Also
    /// writes what the socket did not take at once. Returns the error that ended the connection; `None` when the
    /// supervisor has closed it.
    pub(crate) async fn serve(&self, mut on_event: impl FnMut(SupervisorEvent)) -> Option<LinkError> {
        let early = std::mem::take(&mut *self.early.lock().unwrap_or_else(PoisonError::into_inner));
        early.into_iter().for_each(&mut on_event);
        let receive = async {
            while let Some(received) = self.connection.next().await? {
                self.deliver(received, &mut on_event);
            }
            Ok(())
        };
        let ended = tokio::select! {
            biased;
            ended = receive => ended.err(),
            // It reads no more.
            _ = self.connection.keep_writing() => None,
        };
        self.connection.end();
        ended
    }

    fn deliver(
        &self,
        (message, descriptors): Received<FromSupervisor>,
        on_event: &mut impl FnMut(SupervisorEvent),
    ) {
        // An unknown event of a newer supervisor is ignored.
        let Some(content) = message.message else { return };
        match SupervisorEvent::of(content) {
            Ok(event) => on_event(event),
            Err(answer) => {
                let sequence = message.sequence;
                self.connection
                    .answered(sequence, (FromSupervisor { message: Some(answer), ..message }, descriptors));
            }
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

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;
    use crate::{proto::supervisor::TerminalList, wire};

    #[tokio::test]
    async fn an_event_that_comes_before_an_answer_goes_to_who_serves_the_connection() {
        let (socket, mut supervisor) = UnixStream::pair().expect("a pair of sockets");
        let control = ControlConnection::over(socket).expect("it can be watched");
        let exited = Message::Exited(Exited { terminal_id: "first".to_owned(), exit: None });
        let answer = Message::TerminalList(TerminalList::default());
        for (sequence, message) in [(0, exited), (1, answer)] {
            let frame = wire::encode(&FromSupervisor { sequence, message: Some(message) }, 0);
            supervisor.write_all(&frame.expect("it is short")).expect("it has room");
        }
        let listed = control.exchange(Request::ListTerminals(Default::default())).await;
        assert!(matches!(listed.map(|answer| answer.message), Ok(Message::TerminalList(_))));
        drop(supervisor);
        let mut events = Vec::new();
        let end = control.serve(|event| events.push(event)).await;
        assert!(
            matches!(events.as_slice(), [SupervisorEvent::Exited(exited)] if exited.terminal_id == "first")
        );
        assert!(end.is_none_or(|end| end.is_end()), "nothing else has come");
    }
}
