//! A connection of the gate's event loop: frames in and out, and whether epoll must say when more can be sent.

use std::os::fd::{AsFd, OwnedFd};

use nix::{
    errno::Errno,
    fcntl::{FcntlArg, OFlag, fcntl},
    sys::epoll::{Epoll, EpollEvent, EpollFlags},
};
use prost::Message;

use crate::{
    sys::fdpass::{Flushed, FrameReceiver, FrameSender, ReceiveStatus},
    wire::encode,
};

/// A peer that leaves more than this unread is dropped. All kept reports fit.
pub(super) const MAX_QUEUED_BYTES: usize = 32 << 20;

/// A connection that cannot be used any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ended;

#[derive(Debug)]
pub(super) struct Connection {
    socket: OwnedFd,
    token: u64,
    receiver: FrameReceiver,
    sender: FrameSender,
    watches_write: bool,
}

impl Connection {
    /// Adds the socket to the set.
    pub(super) fn new(socket: OwnedFd, epoll: &Epoll, token: u64) -> Result<Self, Errno> {
        fcntl(&socket, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        epoll.add(&socket, EpollEvent::new(EpollFlags::EPOLLIN, token))?;
        let (receiver, sender) = (FrameReceiver::new(), FrameSender::new());
        Ok(Self { socket, token, receiver, sender, watches_write: false })
    }

    /// One receive: the messages that are complete now.
    pub(super) fn receive<M: Message + Default>(&mut self) -> Result<Vec<M>, Ended> {
        match self.receiver.fill(self.socket.as_fd()) {
            Ok(ReceiveStatus::Bytes(_)) => {}
            Ok(ReceiveStatus::Nothing) => return Ok(Vec::new()),
            Ok(ReceiveStatus::End) | Err(_) => return Err(Ended),
        }
        let mut messages = Vec::new();
        while let Some(frame) = self.receiver.next_frame().map_err(|_| Ended)? {
            messages.push(M::decode(&frame.message[..]).map_err(|_| Ended)?);
        }
        Ok(messages)
    }

    /// Queues a message and sends what the socket takes.
    pub(super) fn send(&mut self, epoll: &Epoll, message: &impl Message) -> Result<(), Ended> {
        let frame = encode(message, 0).map_err(|_| Ended)?;
        if self.sender.queued_bytes() + frame.len() > MAX_QUEUED_BYTES {
            return Err(Ended);
        }
        self.sender.push(frame, Vec::new());
        if self.watches_write { Ok(()) } else { self.flush(epoll) }
    }

    /// Sends what is queued.
    pub(super) fn flush(&mut self, epoll: &Epoll) -> Result<(), Ended> {
        let flushed = self.sender.flush(self.socket.as_fd()).map_err(|_| Ended)?;
        let wants_write = flushed == Flushed::Blocked;
        if wants_write != self.watches_write {
            let mut flags = EpollFlags::EPOLLIN;
            flags.set(EpollFlags::EPOLLOUT, wants_write);
            epoll.modify(&self.socket, &mut EpollEvent::new(flags, self.token)).map_err(|_| Ended)?;
            self.watches_write = wants_write;
        }
        Ok(())
    }
}
