//! The control connection to one supervisor, from the gateway's side.
//!
//! Asking writes straight to the socket, on the asker's own task; one task reads, and wakes who is answered. So
//! a question and its answer cost one wake-up each way. Requests and answers are matched by sequence number.
//! What is not understood ends the connection: a supervisor that speaks nonsense is as good as dead.

use std::{
    collections::HashMap,
    io,
    os::fd::{AsFd, OwnedFd},
    path::Path,
    sync::Mutex,
};

use prost::Message as _;
use tokio::{
    io::{Interest, unix::AsyncFd},
    sync::{Notify, oneshot},
};

use crate::{
    failpoint::spoken_versions,
    proto::supervisor::{
        Exited, FromSupervisor, Hello, HelloAnswer, Progress, ToSupervisor, from_supervisor::Message,
        to_supervisor::Request,
    },
    sys::{
        fdpass::{Flushed, FrameReceiver, FrameSender, ReceiveError, Received},
        watched,
    },
    wire::{self, EncodeError},
};

/// Bytes that may wait for a supervisor that does not read. At the bound, askers wait.
const MAX_QUEUED_BYTES: usize = 1 << 20;

/// Why a supervisor did not answer.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// The connection has ended.
    #[error("the sandbox is gone")]
    Lost,
    /// It has not answered in time.
    #[error("the sandbox does not answer")]
    Silent,
    /// The request does not fit into a frame.
    #[error("the request does not fit into a frame")]
    TooLarge(#[source] EncodeError),
    /// The answer is of another kind than the question.
    #[error("the supervisor's answer does not fit the question")]
    Nonsense,
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The socket cannot be connected.
    #[error("connect to the sandbox")]
    Connect(#[source] io::Error),
    /// No version of the protocol is spoken by both.
    #[error("the supervisor speaks no version of the protocol from {} to {}", spoken_versions().0, spoken_versions().1)]
    Version,
    /// The supervisor ended before it answered.
    #[error("the sandbox did not answer")]
    Control(#[from] ControlError),
}

/// An answer, with the descriptors that came with it.
#[derive(Debug)]
pub struct Answer {
    /// What was answered.
    pub message: Message,
    /// In the order that the message says.
    pub descriptors: Vec<OwnedFd>,
}

/// What a supervisor reports without being asked.
#[derive(Debug)]
pub enum Event {
    /// A ring that was armed has changed.
    Progress(Progress),
    /// A command has ended.
    Exited(Exited),
}

/// A connection.
#[derive(Debug)]
pub struct Control {
    socket: AsyncFd<OwnedFd>,
    state: Mutex<State>,
    /// Until [`Self::serve`] takes it: what came in before.
    receiver: Mutex<FrameReceiver>,
    /// Something waits to be written.
    blocked: Notify,
    /// Something was written.
    drained: Notify,
}

#[derive(Debug, Default)]
struct State {
    sender: FrameSender,
    sequence: u64,
    pending: HashMap<u64, oneshot::Sender<Answer>>,
    ended: bool,
}

impl Control {
    /// Connects to the socket in a sandbox's folder of the state folder. The path goes by the folder's
    /// descriptor, because it may be longer than an address (108 bytes, unix(7)).
    pub fn connect(socket: &Path) -> Result<Self, ConnectError> {
        let stream = connect_by_folder(socket).map_err(ConnectError::Connect)?;
        stream.set_nonblocking(true).map_err(ConnectError::Connect)?;
        let socket = watched::watch(OwnedFd::from(stream), Interest::READABLE | Interest::WRITABLE)
            .map_err(|unwatched| ConnectError::Connect(unwatched.cause))?;
        Ok(Self::over(socket, FrameReceiver::new(), 0))
    }

    /// Goes on with a connection on which so many requests were sent and answered.
    pub(super) fn over(socket: AsyncFd<OwnedFd>, receiver: FrameReceiver, sequence: u64) -> Self {
        Self {
            socket,
            state: Mutex::new(State { sequence, ..State::default() }),
            receiver: Mutex::new(receiver),
            blocked: Notify::new(),
            drained: Notify::new(),
        }
    }

    /// Agrees on a version. [`Self::serve`] must run meanwhile.
    pub async fn hello(&self) -> Result<HelloAnswer, ConnectError> {
        agreed(self.ask(Request::Hello(greeting())).await?.message)
    }

    /// Sends a request and waits for its answer.
    pub async fn ask(&self, request: Request) -> Result<Answer, ControlError> {
        let receiver = self.send(request).await?;
        receiver.await.map_err(|_| ControlError::Lost)
    }

    /// Sends a request; its answer may be waited for, or not.
    pub async fn send(&self, request: Request) -> Result<oneshot::Receiver<Answer>, ControlError> {
        let mut message = ToSupervisor { sequence: 0, request: Some(request) };
        loop {
            let drained = self.drained.notified();
            match self.try_send(&mut message)? {
                Sent::Now(receiver) => return Ok(receiver),
                Sent::Full => drained.await,
            }
        }
    }

    fn try_send(&self, message: &mut ToSupervisor) -> Result<Sent, ControlError> {
        let mut state = self.lock();
        if state.ended {
            return Err(ControlError::Lost);
        }
        if state.sender.queued_bytes() > MAX_QUEUED_BYTES {
            return Ok(Sent::Full);
        }
        state.sequence += 1;
        message.sequence = state.sequence;
        let frame = wire::encode(message, 0).map_err(ControlError::TooLarge)?;
        let (sender, receiver) = oneshot::channel();
        state.pending.insert(message.sequence, sender);
        state.sender.push(frame, Vec::new());
        // An error of the socket is the reader's to find: it sees the end too.
        if matches!(state.sender.flush(self.socket.as_fd()), Ok(Flushed::Blocked)) {
            self.blocked.notify_one();
        }
        Ok(Sent::Now(receiver))
    }

    /// Reads until the connection ends: answers go to who asked, events to `on_event`, in order. Also writes what
    /// the socket did not take at once. Returns why it ended; `None`: the supervisor has closed.
    pub async fn serve(&self, mut on_event: impl FnMut(Event)) -> Option<ReceiveError> {
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
        on_event: &mut impl FnMut(Event),
    ) -> Option<ReceiveError> {
        match self.deliver(receiver, on_event) {
            Ok(Sense::Made) => {}
            Ok(Sense::None) => return None,
            Err(error) => return Some(error),
        }
        loop {
            tokio::select! {
                biased;
                readable = self.socket.readable() => match readable {
                    Ok(mut ready) => match self.read(receiver, on_event) {
                        Ok(Received::Nothing) => ready.clear_ready(),
                        Ok(Received::Bytes(_)) => {}
                        Ok(Received::End) => return None,
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
        on_event: &mut impl FnMut(Event),
    ) -> Result<Received, ReceiveError> {
        let received = receiver.fill(self.socket.as_fd())?;
        match self.deliver(receiver, on_event)? {
            Sense::Made => Ok(received),
            Sense::None => Ok(Received::End),
        }
    }

    /// Hands out the frames that have come in.
    fn deliver(
        &self,
        receiver: &mut FrameReceiver,
        on_event: &mut impl FnMut(Event),
    ) -> Result<Sense, ReceiveError> {
        while let Some(frame) = receiver.next_frame()? {
            let Ok(message) = FromSupervisor::decode(&frame.message[..]) else {
                return Ok(Sense::None);
            };
            match message.message {
                Some(Message::Progress(progress)) => on_event(Event::Progress(progress)),
                Some(Message::Exited(exited)) => on_event(Event::Exited(exited)),
                Some(answer) => {
                    let asker = self.lock().pending.remove(&message.sequence);
                    if let Some(asker) = asker {
                        // Who asked may have gone; then nobody wants the answer.
                        let _ = asker.send(Answer { message: answer, descriptors: frame.descriptors });
                    }
                }
                // Of a newer supervisor; nothing that we asked for.
                None => {}
            }
        }
        Ok(Sense::Made)
    }

    /// Waits until something is queued and the socket has taken it. May be dropped at any time: what is queued
    /// says what is left to do.
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

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().expect("no code panics while it holds the control connection's state")
    }
}

/// The first request of every connection.
pub(super) fn greeting() -> Hello {
    let (lowest_version, highest_version) = spoken_versions();
    Hello { lowest_version, highest_version }
}

/// The answer to it, when a version was agreed on.
pub(super) fn agreed(answer: Message) -> Result<HelloAnswer, ConnectError> {
    let (lowest, highest) = spoken_versions();
    match answer {
        Message::Hello(answer) if (lowest..=highest).contains(&answer.version) => Ok(answer),
        Message::Hello(_) => Err(ConnectError::Version),
        _ => Err(ConnectError::Control(ControlError::Nonsense)),
    }
}

/// Whether what came could be understood.
enum Sense {
    Made,
    None,
}

enum Sent {
    Now(oneshot::Receiver<Answer>),
    Full,
}

fn connect_by_folder(socket: &Path) -> io::Result<std::os::unix::net::UnixStream> {
    use std::os::fd::AsRawFd;
    let (Some(folder), Some(name)) = (socket.parent(), socket.file_name()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let folder = std::fs::File::open(folder)?;
    let by_descriptor = format!("/proc/self/fd/{}", folder.as_raw_fd());
    std::os::unix::net::UnixStream::connect(Path::new(&by_descriptor).join(name))
}
