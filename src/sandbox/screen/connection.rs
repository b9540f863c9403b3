//! A connection of the screen process's event loop: its requests with their descriptors, its answers, and its bound.

use std::os::fd::OwnedFd;

use nix::{errno::Errno, sys::epoll::Epoll};

use crate::{
    proto::screen::{FromScreen, ToScreen, from_screen::Message},
    sys::polled_connection::{Ended, PolledConnection},
    wire::MAX_MESSAGE_BYTES,
};

/// A gateway that leaves more than this unread is dropped. Two of the longest messages fit.
const MAX_QUEUED_BYTES: usize = 2 * MAX_MESSAGE_BYTES;

#[derive(Debug)]
pub(super) struct Connection(PolledConnection);

impl Connection {
    /// Adds the socket to the set.
    pub(super) fn new(socket: OwnedFd, epoll: &Epoll, token: u64) -> Result<Self, Errno> {
        PolledConnection::new(socket, epoll, token, MAX_QUEUED_BYTES).map(Self)
    }

    /// One receive: the requests that are complete now.
    pub(super) fn receive(&mut self) -> Result<Vec<(ToScreen, Vec<OwnedFd>)>, Ended> {
        self.0.receive()
    }

    /// Queues a message and sends what the socket takes.
    pub(super) fn send(&mut self, epoll: &Epoll, sequence: u64, message: Message) -> Result<(), Ended> {
        self.0.send(epoll, &FromScreen { sequence, message: Some(message) })
    }

    /// Sends what is queued.
    pub(super) fn flush(&mut self, epoll: &Epoll) -> Result<(), Ended> {
        self.0.flush(epoll)
    }
}
