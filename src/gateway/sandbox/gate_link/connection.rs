//! The connection to one gate: frames out in order, messages in.
//!
//! What is sent is written to the socket by the task that sends it, and what the socket does not take at once by the task of
//! the link, which also receives. A malformed message ends the connection.

use std::{
    os::fd::{AsFd, OwnedFd},
    path::Path,
    sync::{Mutex, MutexGuard},
};

use prost::Message as _;
use tokio::{
    io::{Interest, unix::AsyncFd},
    sync::Notify,
};

use super::{error::GateError, policy_frame::PolicyFrame};
use crate::{
    proto::gate::{FromGate, Hello, HelloResponse, ToGate, from_gate, to_gate::Message},
    sandbox::unix_socket,
    sys::{
        async_fd,
        fdpass::{Flushed, FrameReceiver, FrameSender, ReceiveStatus},
    },
    wire::{self, gate::VERSIONS},
};

/// Bytes that may be queued for a gate that does not read, before the last message. Two policies fit.
const MAX_QUEUED_BYTES: usize = 2 * wire::MAX_MESSAGE_BYTES;

/// A connection.
#[derive(Debug)]
pub(super) struct GateConnection {
    socket: AsyncFd<OwnedFd>,
    outgoing: Mutex<Outgoing>,
    /// Something waits to be written.
    blocked: Notify,
    /// Everything was written, or the connection has ended.
    drained: Notify,
}

#[derive(Debug, Default)]
struct Outgoing {
    sender: FrameSender,
    /// Of the last policy that was sent; 0: none was.
    policy_generation: u64,
    has_ended: bool,
}

impl GateConnection {
    /// Connects to a gate's socket, and greets it.
    pub(super) fn connect(socket: &Path) -> Result<Self, GateError> {
        let stream = unix_socket::connect_by_directory(socket).map_err(GateError::Connect)?;
        stream.set_nonblocking(true).map_err(GateError::Connect)?;
        let socket = async_fd::register(OwnedFd::from(stream), Interest::READABLE | Interest::WRITABLE)
            .map_err(|unwatched| GateError::Connect(unwatched.cause))?;
        let connection =
            Self { socket, outgoing: Mutex::default(), blocked: Notify::new(), drained: Notify::new() };
        let (lowest_version, highest_version) = VERSIONS;
        connection.send(Message::Hello(Hello { lowest_version, highest_version }))?;
        Ok(connection)
    }

    /// Sends a message. It is on its way, or queued, when this returns.
    pub(super) fn send(&self, message: Message) -> Result<Flushed, GateError> {
        let mut outgoing = self.lock();
        outgoing.push(message)?;
        Ok(self.flush(&mut outgoing))
    }

    /// Sends a policy, unless it was sent on this connection before.
    pub(super) fn send_policy(&self, policy: &PolicyFrame) -> Result<Flushed, GateError> {
        let mut outgoing = self.lock();
        outgoing.push_policy(policy)?;
        Ok(self.flush(&mut outgoing))
    }

    /// Sends a message that is to be read under this policy or a later one.
    pub(super) fn send_under(&self, policy: &PolicyFrame, message: Message) -> Result<Flushed, GateError> {
        let mut outgoing = self.lock();
        outgoing.push_policy(policy)?;
        outgoing.push(message)?;
        Ok(self.flush(&mut outgoing))
    }

    /// Waits until the socket has taken everything.
    pub(super) async fn wait_drained(&self) -> Result<(), GateError> {
        loop {
            let drained = self.drained.notified();
            {
                let outgoing = self.lock();
                if outgoing.has_ended {
                    return Err(GateError::Lost);
                }
                if outgoing.sender.queued_bytes() == 0 {
                    return Ok(());
                }
            }
            drained.await;
        }
    }

    /// The gate's answer to the greeting: its first message.
    pub(super) async fn hello(&self, receiver: &mut FrameReceiver) -> Result<HelloResponse, GateError> {
        let (lowest, highest) = VERSIONS;
        match self.next(receiver).await? {
            Some(from_gate::Message::Hello(answer)) if (lowest..=highest).contains(&answer.version) => {
                Ok(answer)
            }
            Some(from_gate::Message::Hello(_)) => Err(GateError::Version),
            Some(_) => Err(GateError::UnexpectedMessage),
            None => Err(GateError::Lost),
        }
    }

    /// The next message; `None` when the gate has closed the connection.
    pub(super) async fn next(
        &self,
        receiver: &mut FrameReceiver,
    ) -> Result<Option<from_gate::Message>, GateError> {
        loop {
            while let Some(frame) = receiver.next_frame()? {
                let message =
                    FromGate::decode(&frame.message[..]).map_err(|_| GateError::UnexpectedMessage)?;
                // A message of a newer gate is ignored.
                if let Some(message) = message.message {
                    return Ok(Some(message));
                }
            }
            let mut ready = self.socket.readable().await.map_err(|_| GateError::Lost)?;
            match receiver.fill(self.socket.as_fd())? {
                ReceiveStatus::Nothing => ready.clear_ready(),
                ReceiveStatus::Bytes(_) => {}
                ReceiveStatus::End => return Ok(None),
            }
        }
    }

    /// Writes what waits to be written, whenever the socket takes it. Ends with an error.
    pub(super) async fn keep_writing(&self) -> GateError {
        loop {
            if let Err(error) = self.write_blocked().await {
                return error;
            }
        }
    }

    /// Nothing is sent any more.
    pub(super) fn end(&self) {
        self.lock().has_ended = true;
        self.drained.notify_waiters();
    }

    /// Waits until something is queued, and the socket has taken some of it. Cancel-safe: the queue holds what is left.
    async fn write_blocked(&self) -> Result<(), GateError> {
        while self.lock().sender.queued_bytes() == 0 {
            self.blocked.notified().await;
        }
        let mut ready = self.socket.writable().await.map_err(|_| GateError::Lost)?;
        let flushed = self.lock().sender.flush(self.socket.as_fd());
        match flushed {
            Ok(Flushed::Blocked) => ready.clear_ready(),
            Ok(Flushed::All) => self.drained.notify_waiters(),
            Err(_) => return Err(GateError::Lost),
        }
        Ok(())
    }

    fn flush(&self, outgoing: &mut Outgoing) -> Flushed {
        match outgoing.sender.flush(self.socket.as_fd()) {
            Ok(Flushed::All) => Flushed::All,
            Ok(Flushed::Blocked) => {
                self.blocked.notify_one();
                Flushed::Blocked
            }
            // The receiving task sees the same error, and ends the connection.
            Err(_) => Flushed::Blocked,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Outgoing> {
        self.outgoing.lock().expect("no code panics while it holds what is sent to a gate")
    }
}

impl Outgoing {
    fn push(&mut self, message: Message) -> Result<(), GateError> {
        let frame = wire::encode(&ToGate { message: Some(message) }, 0).map_err(GateError::TooLong)?;
        self.push_frame(frame)
    }

    fn push_policy(&mut self, policy: &PolicyFrame) -> Result<(), GateError> {
        if policy.generation <= self.policy_generation {
            return Ok(());
        }
        self.push_frame(policy.bytes.to_vec())?;
        self.policy_generation = policy.generation;
        Ok(())
    }

    fn push_frame(&mut self, frame: Vec<u8>) -> Result<(), GateError> {
        if self.has_ended {
            return Err(GateError::Lost);
        }
        if self.sender.queued_bytes() > MAX_QUEUED_BYTES {
            return Err(GateError::TimedOut);
        }
        self.sender.push(frame, Vec::new());
        Ok(())
    }
}
