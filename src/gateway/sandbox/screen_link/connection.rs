//! The connection to one screen process: requests and their answers, and events. A malformed message ends it.

use std::{
    collections::HashMap,
    os::fd::{AsFd, OwnedFd},
    path::Path,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use prost::Message as _;
use tokio::{
    io::{Interest, unix::AsyncFd},
    sync::{Notify, oneshot},
    time::timeout,
};

use super::error::ScreenError;
use crate::{
    proto::screen::{FromScreen, Hello, ToScreen, from_screen::Message, to_screen::Request},
    sandbox::unix_socket,
    sys::{
        async_fd,
        fdpass::{Flushed, FrameReceiver, FrameSender, ReceiveStatus},
    },
    wire::{self, screen::VERSIONS},
};

/// Bytes that may be queued for a process that does not read.
const MAX_QUEUED_BYTES: usize = 1 << 20;
/// Requests that may wait for their answers.
const MAX_WAITING: usize = 4096;
/// How long an answer may take.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(super) struct ScreenConnection {
    socket: AsyncFd<OwnedFd>,
    outgoing: Mutex<Outgoing>,
    /// Something waits to be written.
    blocked: Notify,
}

#[derive(Debug, Default)]
struct Outgoing {
    sender: FrameSender,
    sequence: u64,
    waiting: HashMap<u64, oneshot::Sender<Message>>,
    has_ended: bool,
}

impl ScreenConnection {
    pub(super) fn connect(socket: &Path) -> Result<Self, ScreenError> {
        let stream = unix_socket::connect_by_directory(socket).map_err(ScreenError::Connect)?;
        stream.set_nonblocking(true).map_err(ScreenError::Connect)?;
        let socket = async_fd::register(OwnedFd::from(stream), Interest::READABLE | Interest::WRITABLE)
            .map_err(|unwatched| ScreenError::Connect(unwatched.cause))?;
        Ok(Self { socket, outgoing: Mutex::default(), blocked: Notify::new() })
    }

    /// Agrees on a version. [`Self::serve`] must run meanwhile.
    pub(super) async fn hello(&self, sandbox_id: &str) -> Result<(), ScreenError> {
        let (lowest_version, highest_version) = VERSIONS;
        let hello = Request::Hello(Hello { lowest_version, highest_version });
        match self.request(hello, Vec::new()).await? {
            Message::Hello(answer) if !(lowest_version..=highest_version).contains(&answer.version) => {
                Err(ScreenError::Version)
            }
            Message::Hello(answer) if answer.sandbox_id != sandbox_id => Err(ScreenError::WrongSandbox),
            Message::Hello(_) => Ok(()),
            _ => Err(ScreenError::UnexpectedMessage),
        }
    }

    /// Sends a request and waits for its answer.
    pub(super) async fn request(
        &self,
        request: Request,
        descriptors: Vec<Arc<OwnedFd>>,
    ) -> Result<Message, ScreenError> {
        let (sender, receiver) = oneshot::channel();
        let sequence = self.send(request, descriptors, Some(sender))?;
        match timeout(ANSWER_TIMEOUT, receiver).await {
            Ok(answer) => answer.map_err(|_| ScreenError::Lost),
            Err(_) => {
                self.lock().waiting.remove(&sequence);
                Err(ScreenError::TimedOut)
            }
        }
    }

    /// Sends a request that has no answer.
    pub(super) fn notify(&self, request: Request) -> Result<(), ScreenError> {
        self.send(request, Vec::new(), None).map(drop)
    }

    fn send(
        &self,
        request: Request,
        descriptors: Vec<Arc<OwnedFd>>,
        answer: Option<oneshot::Sender<Message>>,
    ) -> Result<u64, ScreenError> {
        let mut outgoing = self.lock();
        if outgoing.has_ended {
            return Err(ScreenError::Lost);
        }
        if outgoing.sender.queued_bytes() > MAX_QUEUED_BYTES || outgoing.waiting.len() >= MAX_WAITING {
            return Err(ScreenError::TimedOut);
        }
        outgoing.sequence += 1;
        let sequence = outgoing.sequence;
        let frame = wire::encode(&ToScreen { sequence, request: Some(request) }, descriptors.len())?;
        if let Some(answer) = answer {
            outgoing.waiting.insert(sequence, answer);
        }
        outgoing.sender.push(frame, descriptors);
        // The receiving task sees an error, too, and ends the connection.
        if !matches!(outgoing.sender.flush(self.socket.as_fd()), Ok(Flushed::All)) {
            self.blocked.notify_one();
        }
        Ok(sequence)
    }

    /// Reads until the connection ends. Answers go to those who wait for them, events and all pictures to `on_event`, in order.
    pub(super) async fn serve(&self, mut on_event: impl FnMut(&Message)) -> ScreenError {
        let mut receiver = FrameReceiver::new();
        let error = loop {
            let done = tokio::select! {
                read = self.read(&mut receiver, &mut on_event) => read,
                written = self.write_blocked() => written,
            };
            if let Err(error) = done {
                break error;
            }
        };
        let mut outgoing = self.lock();
        outgoing.has_ended = true;
        outgoing.waiting.clear();
        error
    }

    async fn read(
        &self,
        receiver: &mut FrameReceiver,
        on_event: &mut impl FnMut(&Message),
    ) -> Result<(), ScreenError> {
        let mut ready = self.socket.readable().await.map_err(|_| ScreenError::Lost)?;
        match receiver.fill(self.socket.as_fd())? {
            ReceiveStatus::Nothing => ready.clear_ready(),
            ReceiveStatus::Bytes(_) => {}
            ReceiveStatus::End => return Err(ScreenError::Lost),
        }
        while let Some(frame) = receiver.next_frame()? {
            let message =
                FromScreen::decode(&frame.message[..]).map_err(|_| ScreenError::UnexpectedMessage)?;
            // A message of a newer process is ignored.
            let Some(content) = message.message else { continue };
            // A picture is news for all, also when the one who asked for it has given up.
            if message.sequence == 0 || matches!(content, Message::Published(_)) {
                on_event(&content);
            }
            if let Some(waiting) = self.lock().waiting.remove(&message.sequence) {
                // The asker may have given up.
                let _ = waiting.send(content);
            }
        }
        Ok(())
    }

    /// Waits until something is queued and the socket has taken some of it. Cancel-safe: the queue holds what is left.
    async fn write_blocked(&self) -> Result<(), ScreenError> {
        while self.lock().sender.queued_bytes() == 0 {
            self.blocked.notified().await;
        }
        let mut ready = self.socket.writable().await.map_err(|_| ScreenError::Lost)?;
        let flushed = self.lock().sender.flush(self.socket.as_fd());
        match flushed {
            Ok(Flushed::Blocked) => ready.clear_ready(),
            Ok(Flushed::All) => {}
            Err(_) => return Err(ScreenError::Lost),
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Outgoing> {
        self.outgoing.lock().expect("no code panics while it holds what is sent to a screen process")
    }
}
