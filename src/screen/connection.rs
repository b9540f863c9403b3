//! A connection of the screen process's event loop: frames with descriptors in, frames out.

use std::os::fd::{AsFd, OwnedFd};

use nix::sys::epoll::{Epoll, EpollEvent, EpollFlags};
use prost::Message as _;

use crate::{
    proto::screen::{FromScreen, ToScreen, from_screen::Message},
    sys::fdpass::{Flushed, FrameReceiver, FrameSender, ReceiveStatus},
    wire::{MAX_MESSAGE_BYTES, encode},
};

/// A gateway that leaves more than this unread is dropped. Two of the longest messages fit.
const MAX_QUEUED_BYTES: usize = 2 * MAX_MESSAGE_BYTES;

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
    /// Adds a non-blocking socket to the set.
    pub(super) fn new(socket: OwnedFd, epoll: &Epoll, token: u64) -> Result<Self, Ended> {
        epoll.add(&socket, EpollEvent::new(EpollFlags::EPOLLIN, token)).map_err(|_| Ended)?;
        let (receiver, sender) = (FrameReceiver::new(), FrameSender::new());
        Ok(Self { socket, token, receiver, sender, watches_write: false })
    }

    /// One receive: the requests that are complete now.
    pub(super) fn receive(&mut self) -> Result<Vec<(ToScreen, Vec<OwnedFd>)>, Ended> {
        match self.receiver.fill(self.socket.as_fd()) {
            Ok(ReceiveStatus::Bytes(_)) => {}
            Ok(ReceiveStatus::Nothing) => return Ok(Vec::new()),
            Ok(ReceiveStatus::End) | Err(_) => return Err(Ended),
        }
        let mut requests = Vec::new();
        while let Some(frame) = self.receiver.next_frame().map_err(|_| Ended)? {
            requests.push((ToScreen::decode(&frame.message[..]).map_err(|_| Ended)?, frame.descriptors));
        }
        Ok(requests)
    }

    /// Queues a message and sends what the socket takes.
    pub(super) fn send(&mut self, epoll: &Epoll, sequence: u64, message: Message) -> Result<(), Ended> {
        let frame = encode(&FromScreen { sequence, message: Some(message) }, 0).map_err(|_| Ended)?;
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
