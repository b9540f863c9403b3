//! Greets the supervisor of a sandbox that an earlier gateway has started, and lists the terminals that it holds.

use std::{
    os::fd::{AsFd, OwnedFd},
    time::Duration,
};

use bytes::Bytes;
use prost::Message as _;
use tokio::{
    io::{Interest, unix::AsyncFd},
    time::timeout,
};

use super::adopt_error::{ANSWER_TIMEOUT, SandboxAdoptError};
use crate::{
    policy::PtySize,
    proto::supervisor::{
        Exit, FromSupervisor, HeldTerminal, HelloResponse, ListTerminals, Started, ToSupervisor,
        from_supervisor::Message, to_supervisor::Request,
    },
    sandbox::control::connection::{self, ControlConnectError, ControlConnection, ControlError},
    sys::{
        async_fd,
        fdpass::{self, FrameReceiver, ReceiveError, ReceiveStatus, ReceivedFrame},
        ring,
    },
    wire,
};

/// A terminal that a supervisor holds.
#[derive(Debug)]
pub struct DiscoveredTerminal {
    /// Its id.
    pub id: String,
    /// The metadata that the gateway stored when it spawned the terminal.
    pub metadata: Bytes,
    /// As the supervisor saw it.
    pub started: Started,
    /// The ring of stdout, or of the merged output.
    pub stdout: ring::RingReader,
    /// The ring of stderr, when it is separate.
    pub stderr: Option<ring::RingReader>,
    /// The present size of its pseudo-terminal, when it has one.
    pub pty: Option<PtySize>,
    /// How it ended and how long ago, when it has.
    pub ended: Option<(Box<Exit>, Duration)>,
}

/// Why a request has no response.
pub(super) enum HandshakeError {
    /// The supervisor has closed the connection: it has ended.
    Ended,
    /// Anything else.
    Failed(SandboxAdoptError),
}

impl From<HandshakeError> for SandboxAdoptError {
    fn from(error: HandshakeError) -> Self {
        match error {
            HandshakeError::Ended => ControlConnectError::Control(ControlError::Lost).into(),
            HandshakeError::Failed(error) => error,
        }
    }
}

/// A connection with one request at a time. Events that arrive in between are already part of the lists requested
/// later; events after the last response are kept for the control connection.
#[derive(Debug)]
pub(super) struct HandshakeClient {
    socket: AsyncFd<OwnedFd>,
    receiver: FrameReceiver,
    sequence: u64,
}

impl HandshakeClient {
    pub(super) fn new(socket: OwnedFd) -> Result<Self, SandboxAdoptError> {
        let stream = std::os::unix::net::UnixStream::from(socket);
        stream.set_nonblocking(true).map_err(SandboxAdoptError::Descriptors)?;
        let socket = async_fd::register(stream.into(), Interest::READABLE | Interest::WRITABLE)
            .map_err(|unwatched| SandboxAdoptError::Descriptors(unwatched.cause))?;
        Ok(Self { socket, receiver: FrameReceiver::new(), sequence: 0 })
    }

    pub(super) fn into_control(self) -> ControlConnection {
        ControlConnection::resume(self.socket, self.receiver, self.sequence)
    }

    pub(super) async fn hello(&mut self) -> Result<(HelloResponse, Vec<OwnedFd>), HandshakeError> {
        let (answer, descriptors) = self.request(Request::Hello(connection::hello_request())).await?;
        let answer = connection::check_hello(answer).map_err(|error| HandshakeError::Failed(error.into()))?;
        Ok((answer, descriptors))
    }

    pub(super) async fn list(&mut self) -> Result<Vec<DiscoveredTerminal>, HandshakeError> {
        let (mut held, mut from) = (Vec::new(), 0);
        loop {
            let (answer, descriptors) = self.request(Request::ListTerminals(ListTerminals { from })).await?;
            let Message::TerminalList(list) = answer else { return Err(unexpected_message()) };
            let mut descriptors = descriptors.into_iter();
            for terminal in list.terminals {
                held.push(open_terminal(terminal, &mut descriptors).map_err(HandshakeError::Failed)?);
            }
            if list.next == 0 {
                return Ok(held);
            }
            if list.next <= from {
                return Err(unexpected_message());
            }
            from = list.next;
        }
    }

    async fn request(&mut self, request: Request) -> Result<(Message, Vec<OwnedFd>), HandshakeError> {
        match timeout(ANSWER_TIMEOUT, self.exchange(request)).await {
            Ok(answered) => answered,
            Err(_) => Err(HandshakeError::Failed(SandboxAdoptError::TimedOut)),
        }
    }

    async fn exchange(&mut self, request: Request) -> Result<(Message, Vec<OwnedFd>), HandshakeError> {
        self.sequence += 1;
        let message = ToSupervisor { sequence: self.sequence, request: Some(request) };
        let frame = wire::encode(&message, 0).expect("a greeting and a list's request are some bytes long");
        // The socket's buffer is empty: the previous request was answered.
        if fdpass::send(self.socket.as_fd(), &frame, &[]).is_err() {
            return Err(HandshakeError::Ended);
        }
        loop {
            while let Some(ReceivedFrame { message, descriptors }) = self.next_frame()? {
                let Ok(message) = FromSupervisor::decode(&message[..]) else {
                    return Err(unexpected_message());
                };
                match message.message {
                    Some(answer) if message.sequence == self.sequence => return Ok((answer, descriptors)),
                    Some(_) | None => {}
                }
            }
            self.fill().await?;
        }
    }

    fn next_frame(&mut self) -> Result<Option<ReceivedFrame>, HandshakeError> {
        self.receiver.next_frame().map_err(|error| HandshakeError::Failed(error.into()))
    }

    async fn fill(&mut self) -> Result<(), HandshakeError> {
        loop {
            let Ok(mut ready) = self.socket.readable().await else { return Err(HandshakeError::Ended) };
            match self.receiver.fill(self.socket.as_fd()) {
                Ok(ReceiveStatus::Bytes(_)) => return Ok(()),
                Ok(ReceiveStatus::Nothing) => ready.clear_ready(),
                Ok(ReceiveStatus::End) | Err(ReceiveError::Receive(_) | ReceiveError::Truncated) => {
                    return Err(HandshakeError::Ended);
                }
                Err(error) => return Err(HandshakeError::Failed(error.into())),
            }
        }
    }
}

fn unexpected_message() -> HandshakeError {
    HandshakeError::Failed(ControlConnectError::Control(ControlError::UnexpectedMessage).into())
}

fn open_terminal(
    terminal: HeldTerminal,
    descriptors: &mut impl Iterator<Item = OwnedFd>,
) -> Result<DiscoveredTerminal, SandboxAdoptError> {
    let id = terminal.terminal_id;
    let mut rings = Vec::with_capacity(2);
    for descriptor in descriptors.by_ref().take(terminal.rings as usize) {
        rings.push(
            ring::RingReader::open(descriptor).map_err(|error| SandboxAdoptError::Ring(id.clone(), error))?,
        );
    }
    let mut rings = rings.into_iter();
    let (Some(stdout), Some(started)) = (rings.next(), terminal.started) else {
        return Err(ControlConnectError::Control(ControlError::UnexpectedMessage).into());
    };
    let ended = terminal.exit.map(|exit| (Box::new(exit), Duration::from_millis(terminal.ended_ms_ago)));
    Ok(DiscoveredTerminal {
        id,
        metadata: terminal.metadata,
        started,
        stdout,
        stderr: rings.next(),
        // Its supervisor has only sizes that a gateway gave it.
        pty: terminal.pty.and_then(|size| PtySize::new(size.columns, size.rows).ok()),
        ended,
    })
}
