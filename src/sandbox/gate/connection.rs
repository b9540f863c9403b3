//! A connection of the gate's event loop: its messages, which have no descriptors, and its bound.

use std::os::fd::OwnedFd;

use nix::{
    errno::Errno,
    fcntl::{FcntlArg, OFlag, fcntl},
    sys::epoll::Epoll,
};
use prost::Message;

use crate::sys::polled_connection::{Ended, PolledConnection};

/// A peer that leaves more than this unread is dropped. All kept reports fit.
pub(super) const MAX_QUEUED_BYTES: usize = 32 << 20;

#[derive(Debug)]
pub(super) struct Connection(PolledConnection);

impl Connection {
    /// Makes the socket non-blocking and adds it to the set.
    pub(super) fn new(socket: OwnedFd, epoll: &Epoll, token: u64) -> Result<Self, Errno> {
        fcntl(&socket, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        PolledConnection::new(socket, epoll, token, MAX_QUEUED_BYTES).map(Self)
    }

    /// One receive: the messages that are complete now.
    pub(super) fn receive<M: Message + Default>(&mut self) -> Result<Vec<M>, Ended> {
        Ok(self.0.receive()?.into_iter().map(|(message, _)| message).collect())
    }

    /// Queues a message and sends what the socket takes.
    pub(super) fn send(&mut self, epoll: &Epoll, message: &impl Message) -> Result<(), Ended> {
        self.0.send(epoll, message)
    }

    /// Sends what is queued.
    pub(super) fn flush(&mut self, epoll: &Epoll) -> Result<(), Ended> {
        self.0.flush(epoll)
    }
}
