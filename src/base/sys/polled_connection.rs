//! A connection of an event loop on epoll: frames in and out, and whether epoll must say when more can be sent.

use std::os::fd::{AsFd, OwnedFd};

use nix::{
    errno::Errno,
    sys::epoll::{Epoll, EpollEvent, EpollFlags},
};
use prost::Message;

use super::fdpass::{Flushed, FrameReceiver, FrameSender, ReceiveStatus};
use crate::wire::encode;

/// A connection that cannot be used any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ended;

/// A connection. Dropping it closes the socket, which takes it out of the set.
#[derive(Debug)]
pub struct PolledConnection {
    socket: OwnedFd,
    token: u64,
    max_queued_bytes: usize,
    receiver: FrameReceiver,
    sender: FrameSender,
    watches_write: bool,
}

impl PolledConnection {
    /// Adds a non-blocking socket to the set. A peer that leaves more than `max_queued_bytes` unread is given up.
    ///
    /// # Errors
    /// The errno of epoll_ctl(2).
    pub fn new(socket: OwnedFd, epoll: &Epoll, token: u64, max_queued_bytes: usize) -> Result<Self, Errno> {
        epoll.add(&socket, EpollEvent::new(EpollFlags::EPOLLIN, token))?;
        let (receiver, sender) = (FrameReceiver::new(), FrameSender::new());
        Ok(Self { socket, token, max_queued_bytes, receiver, sender, watches_write: false })
    }

    /// One receive: the messages that are complete now, each with its descriptors.
    ///
    /// # Errors
    /// [`Ended`]: the peer has closed it, or its bytes are not such messages.
    pub fn receive<M: Message + Default>(&mut self) -> Result<Vec<(M, Vec<OwnedFd>)>, Ended> {
        match self.receiver.fill(self.socket.as_fd()) {
            Ok(ReceiveStatus::Bytes(_)) => {}
            Ok(ReceiveStatus::Nothing) => return Ok(Vec::new()),
            Ok(ReceiveStatus::End) | Err(_) => return Err(Ended),
        }
        let mut messages = Vec::new();
        while let Some(frame) = self.receiver.next_frame().map_err(|_| Ended)? {
            messages.push((M::decode(&frame.message[..]).map_err(|_| Ended)?, frame.descriptors));
        }
        Ok(messages)
    }

    /// Queues a message and sends what the socket takes.
    ///
    /// # Errors
    /// [`Ended`]: the peer is gone, or does not read.
    pub fn send(&mut self, epoll: &Epoll, message: &impl Message) -> Result<(), Ended> {
        let frame = encode(message, 0).map_err(|_| Ended)?;
        if self.sender.queued_bytes() + frame.len() > self.max_queued_bytes {
            return Err(Ended);
        }
        self.sender.push(frame, Vec::new());
        if self.watches_write { Ok(()) } else { self.flush(epoll) }
    }

    /// Sends what is queued.
    ///
    /// # Errors
    /// [`Ended`]: the peer is gone.
    pub fn flush(&mut self, epoll: &Epoll) -> Result<(), Ended> {
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
