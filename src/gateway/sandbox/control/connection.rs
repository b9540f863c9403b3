//! The control connection to one supervisor, from the gateway's side.
//!
//! A request is written to the socket by the task that makes it; one task reads, and wakes the requester. So a
//! request and its response cost one wake-up each way. They are matched by sequence number. A malformed message
//! ends the connection.

use std::{
    collections::HashMap,
    io,
    os::fd::{AsFd, OwnedFd},
    path::Path,
    sync::{Arc, Mutex},
};

use prost::Message as _;
use tokio::{
    io::{Interest, unix::AsyncFd},
    sync::{Notify, oneshot},
};

use crate::{
    failpoint::spoken_versions,
    proto::supervisor::{
        Exited, FromSupervisor, Hello, HelloResponse, Progress, ToSupervisor, from_supervisor::Message,
        to_supervisor::Request,
    },
    sandbox::unix_socket,
    sys::{
        async_fd,
        fdpass::{Flushed, FrameReceiver, FrameSender, ReceiveError, ReceiveStatus},
    },
    wire::{self, EncodeError},
};

/// Bytes that may be queued for a supervisor that does not read. Beyond this, requesters wait.
const MAX_QUEUED_BYTES: usize = 1 << 20;

/// Why a supervisor did not answer.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// The connection has ended.
    #[error("the sandbox is gone")]
    Lost,
    /// The supervisor has not answered in time.
    #[error("the sandbox does not answer")]
    TimedOut,
    /// The request does not fit into a frame.
    #[error("the request does not fit into a frame")]
    TooLarge(#[source] EncodeError),
    /// The response does not fit the request.
    #[error("the supervisor's answer does not fit the question")]
    UnexpectedMessage,
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum ControlConnectError {
    /// The socket cannot be connected.
    #[error("connect to the sandbox")]
    Connect(#[source] io::Error),
    /// The two sides have no protocol version in common.
    #[error("the supervisor speaks no version of the protocol from {} to {}", spoken_versions().0, spoken_versions().1)]
    Version,
    /// The supervisor ended before it answered.
    #[error("the sandbox did not answer")]
    Control(#[from] ControlError),
}

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
pub struct ControlConnection {
    socket: AsyncFd<OwnedFd>,
    state: Mutex<ControlState>,
    /// Bytes received before [`Self::serve`] runs, which takes the receiver.
    receiver: Mutex<FrameReceiver>,
    /// Something waits to be written.
    blocked: Notify,
    /// Something was written.
    drained: Notify,
}

#[derive(Debug, Default)]
struct ControlState {
    sender: FrameSender,
    sequence: u64,
    pending: HashMap<u64, oneshot::Sender<ControlResponse>>,
    ended: bool,
}

impl ControlConnection {
    /// Connects to the control socket in a sandbox's directory.
    pub fn connect(socket: &Path) -> Result<Self, ControlConnectError> {
        let stream = unix_socket::connect_by_directory(socket).map_err(ControlConnectError::Connect)?;
        stream.set_nonblocking(true).map_err(ControlConnectError::Connect)?;
        let socket = async_fd::register(OwnedFd::from(stream), Interest::READABLE | Interest::WRITABLE)
            .map_err(|unwatched| ControlConnectError::Connect(unwatched.cause))?;
        Ok(Self::resume(socket, FrameReceiver::new(), 0))
    }

    /// Continues a connection on which this many requests were answered.
    pub(crate) fn resume(socket: AsyncFd<OwnedFd>, receiver: FrameReceiver, sequence: u64) -> Self {
        Self {
            socket,
            state: Mutex::new(ControlState { sequence, ..ControlState::default() }),
            receiver: Mutex::new(receiver),
            blocked: Notify::new(),
            drained: Notify::new(),
        }
    }

    /// Agrees on a version. [`Self::serve`] must run meanwhile.
    pub async fn hello(&self) -> Result<HelloResponse, ControlConnectError> {
        check_hello(self.request(Request::Hello(hello_request())).await?.message)
    }

    /// Sends a request and waits for its answer.
    pub async fn request(&self, request: Request) -> Result<ControlResponse, ControlError> {
        self.request_with(request, &[]).await
    }

    /// As [`Self::request`], with descriptors.
    pub async fn request_with(
        &self,
        request: Request,
        descriptors: &[Arc<OwnedFd>],
    ) -> Result<ControlResponse, ControlError> {
        let receiver = self.send_with(request, descriptors).await?;
        receiver.await.map_err(|_| ControlError::Lost)
    }

    /// Sends a request. The caller may await the response or drop the receiver.
    pub async fn send(&self, request: Request) -> Result<oneshot::Receiver<ControlResponse>, ControlError> {
        self.send_with(request, &[]).await
    }

    /// As [`Self::send`], with descriptors.
    pub async fn send_with(
        &self,
        request: Request,
        descriptors: &[Arc<OwnedFd>],
    ) -> Result<oneshot::Receiver<ControlResponse>, ControlError> {
        let mut message = ToSupervisor { sequence: 0, request: Some(request) };
        loop {
            let drained = self.drained.notified();
            match self.try_send(&mut message, descriptors)? {
                SendAttempt::Sent(receiver) => return Ok(receiver),
                SendAttempt::Full => drained.await,
            }
        }
    }

    fn try_send(
        &self,
        message: &mut ToSupervisor,
        descriptors: &[Arc<OwnedFd>],
    ) -> Result<SendAttempt, ControlError> {
        let mut state = self.lock();
        if state.ended {
            return Err(ControlError::Lost);
        }
        if state.sender.queued_bytes() > MAX_QUEUED_BYTES {
            return Ok(SendAttempt::Full);
        }
        state.sequence += 1;
        message.sequence = state.sequence;
        let frame = wire::encode(message, descriptors.len()).map_err(ControlError::TooLarge)?;
        let (sender, receiver) = oneshot::channel();
        state.pending.insert(message.sequence, sender);
        state.sender.push(frame, descriptors.to_vec());
        // A socket error is also seen by the reader, which ends the connection.
        if matches!(state.sender.flush(self.socket.as_fd()), Ok(Flushed::Blocked)) {
            self.blocked.notify_one();
        }
        Ok(SendAttempt::Sent(receiver))
    }

    /// Reads until the connection ends. Responses go to their requesters, events to `on_event`, in order. Also
    /// writes what the socket did not take at once. Returns the error that ended the connection; `None` when the
    /// supervisor has closed it.
    pub async fn serve(&self, mut on_event: impl FnMut(SupervisorEvent)) -> Option<ReceiveError> {
        let mut receiver = std::mem::take(&mut *self.lock_receiver());
        let error = self.receive(&mut receiver, &mut on_event).await;
        let mut state = self.lock();
        state.ended = true;
        state.pending.clear();
        drop(state);
        self.drained.notify_waiters();
        error
    }

    async fn receive(
        &self,
        receiver: &mut FrameReceiver,
        on_event: &mut impl FnMut(SupervisorEvent),
    ) -> Option<ReceiveError> {
        match self.deliver(receiver, on_event) {
            Ok(Delivery::Delivered) => {}
            Ok(Delivery::Malformed) => return None,
            Err(error) => return Some(error),
        }
        loop {
            tokio::select! {
                biased;
                readable = self.socket.readable() => match readable {
                    Ok(mut ready) => match self.read(receiver, on_event) {
                        Ok(ReceiveStatus::Nothing) => ready.clear_ready(),
                        Ok(ReceiveStatus::Bytes(_)) => {}
                        Ok(ReceiveStatus::End) => return None,
                        Err(error) => return Some(error),
                    },
                    Err(_) => return None,
                },
                flushed = self.write_blocked() => if flushed.is_err() { return None },
            }
        }
    }

    fn read(
        &self,
        receiver: &mut FrameReceiver,
        on_event: &mut impl FnMut(SupervisorEvent),
    ) -> Result<ReceiveStatus, ReceiveError> {
        let received = receiver.fill(self.socket.as_fd())?;
        match self.deliver(receiver, on_event)? {
            Delivery::Delivered => Ok(received),
            Delivery::Malformed => Ok(ReceiveStatus::End),
        }
    }

    /// Delivers the complete frames that were received.
    fn deliver(
        &self,
        receiver: &mut FrameReceiver,
        on_event: &mut impl FnMut(SupervisorEvent),
    ) -> Result<Delivery, ReceiveError> {
        while let Some(frame) = receiver.next_frame()? {
            let Ok(message) = FromSupervisor::decode(&frame.message[..]) else {
                return Ok(Delivery::Malformed);
            };
            match message.message {
                Some(Message::Progress(progress)) => on_event(SupervisorEvent::Progress(progress)),
                Some(Message::Exited(exited)) => on_event(SupervisorEvent::Exited(exited)),
                Some(Message::GateLost(_)) => on_event(SupervisorEvent::GateLost),
                Some(answer) => {
                    let asker = self.lock().pending.remove(&message.sequence);
                    if let Some(asker) = asker {
                        // The requester may have given up; then the response is dropped.
                        let _ =
                            asker.send(ControlResponse { message: answer, descriptors: frame.descriptors });
                    }
                }
                // An unknown event of a newer supervisor is ignored.
                None => {}
            }
        }
        Ok(Delivery::Delivered)
    }

    /// Waits until something is queued and the socket has taken some of it. Cancel-safe: the queue holds what is
    /// left to write.
    async fn write_blocked(&self) -> io::Result<()> {
        while self.lock().sender.queued_bytes() == 0 {
            self.blocked.notified().await;
        }
        let mut ready = self.socket.writable().await?;
        let flushed = self.lock().sender.flush(self.socket.as_fd());
        match flushed {
            Ok(Flushed::Blocked) => ready.clear_ready(),
            Ok(Flushed::All) => self.drained.notify_waiters(),
            Err(errno) => return Err(errno.into()),
        }
        Ok(())
    }

    fn lock_receiver(&self) -> std::sync::MutexGuard<'_, FrameReceiver> {
        self.receiver.lock().expect("no code panics while it holds the receiver")
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, ControlState> {
        self.state.lock().expect("no code panics while it holds the control connection's state")
    }
}

/// The first request of every connection.
pub(crate) fn hello_request() -> Hello {
    let (lowest_version, highest_version) = spoken_versions();
    Hello { lowest_version, highest_version }
}

/// The answer to it, when a version was agreed on.
pub(crate) fn check_hello(answer: Message) -> Result<HelloResponse, ControlConnectError> {
    let (lowest, highest) = spoken_versions();
    match answer {
        Message::Hello(answer) if (lowest..=highest).contains(&answer.version) => Ok(answer),
        Message::Hello(_) => Err(ControlConnectError::Version),
        _ => Err(ControlConnectError::Control(ControlError::UnexpectedMessage)),
    }
}

/// Whether the received frames were valid messages.
enum Delivery {
    Delivered,
    Malformed,
}

enum SendAttempt {
    Sent(oneshot::Receiver<ControlResponse>),
    Full,
}
