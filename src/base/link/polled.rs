//! A connection of an event loop on epoll: frames in and out, and whether epoll must say when more can be sent.
//!
//! Nothing here waits. A message that the socket does not take is queued, also in part; the caller says how much may lie unread.

use std::{
    marker::PhantomData,
    os::fd::{AsFd as _, OwnedFd},
    sync::Arc,
};

use nix::{
    errno::Errno,
    sys::epoll::{Epoll, EpollEvent, EpollFlags},
};
use prost::Message;

use super::Received;
use crate::{
    sys::fdpass::{Flushed, FrameReceiver, FrameSender, ReceiveStatus},
    wire::encode,
};

/// A connection that cannot be used any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ended;

/// A connection over which `Out` is sent and `In` comes. Dropping it closes the socket, which takes it out of the set.
#[derive(Debug)]
pub struct PolledConnection<Out, In> {
    socket: OwnedFd,
    token: u64,
    receiver: FrameReceiver,
    sender: FrameSender,
    /// The socket is full, and epoll reports when it takes more.
    watches_write: bool,
    messages: PhantomData<fn(Out) -> In>,
}

impl<Out: Message, In: Message + Default> PolledConnection<Out, In> {
    /// Adds a non-blocking socket to the set.
    ///
    /// # Errors
    /// The errno of epoll_ctl(2).
    pub fn new(socket: OwnedFd, epoll: &Epoll, token: u64) -> Result<Self, Errno> {
        epoll.add(&socket, EpollEvent::new(EpollFlags::EPOLLIN, token))?;
        let (receiver, sender) = (FrameReceiver::new(), FrameSender::new());
        Ok(Self { socket, token, receiver, sender, watches_write: false, messages: PhantomData })
    }

    /// What epoll says can be done: sends what is queued, and receives once. The messages that are complete then.
    ///
    /// # Errors
    /// [`Ended`], as of [`Self::flush`] and [`Self::receive`].
    pub fn ready(&mut self, epoll: &Epoll, flags: EpollFlags) -> Result<Vec<Received<In>>, Ended> {
        if flags.contains(EpollFlags::EPOLLOUT) {
            self.flush(epoll)?;
        }
        match flags.intersects(EpollFlags::EPOLLIN | EpollFlags::EPOLLHUP | EpollFlags::EPOLLERR) {
            true => self.receive(),
            false => Ok(Vec::new()),
        }
    }

    /// One receive: the messages that are complete now.
    ///
    /// # Errors
    /// [`Ended`]: the peer has closed it, or its bytes are not such messages.
    pub fn receive(&mut self) -> Result<Vec<Received<In>>, Ended> {
        let mut messages = Vec::new();
        if self.fill()? {
            while let Some(message) = self.next_message()? {
                messages.push(message);
            }
        }
        Ok(messages)
    }

    /// One receive: whether bytes came. Their messages are to be taken with [`Self::next_message`].
    ///
    /// # Errors
    /// [`Ended`]: the peer has closed it.
    pub fn fill(&mut self) -> Result<bool, Ended> {
        match self.receiver.fill(self.socket.as_fd()) {
            Ok(ReceiveStatus::Bytes(_)) => Ok(true),
            Ok(ReceiveStatus::Nothing) => Ok(false),
            Ok(ReceiveStatus::End) | Err(_) => Err(Ended),
        }
    }

    /// The next complete message of what was received.
    ///
    /// # Errors
    /// [`Ended`]: the bytes are not such messages.
    pub fn next_message(&mut self) -> Result<Option<Received<In>>, Ended> {
        let Some(frame) = self.receiver.next_frame().map_err(|_| Ended)? else { return Ok(None) };
        let message = In::decode(frame.message.as_slice()).map_err(|_| Ended)?;
        Ok(Some((message, frame.descriptors)))
    }

    /// Queues a message, and sends what the socket takes. A peer that leaves more than `max_queued_bytes` unread, this message among them, is
    /// given up.
    ///
    /// # Errors
    /// [`Ended`]: the peer is gone, or does not read.
    pub fn send(&mut self, epoll: &Epoll, message: &Out, max_queued_bytes: usize) -> Result<(), Ended> {
        let frame = encode(message, 0).map_err(|_| Ended)?;
        if self.sender.queued_bytes() + frame.len() > max_queued_bytes {
            return Err(Ended);
        }
        self.push(frame, Vec::new());
        if self.watches_write { Ok(()) } else { self.flush(epoll).map(drop) }
    }

    /// Queues an encoded message, however much lies unread: see [`Self::queued_bytes`].
    pub fn push(&mut self, frame: Vec<u8>, descriptors: Vec<Arc<OwnedFd>>) {
        self.sender.push(frame, descriptors);
    }

    /// Bytes that the socket has not taken yet.
    #[must_use]
    pub fn queued_bytes(&self) -> usize {
        self.sender.queued_bytes()
    }

    /// Whether the socket is full: epoll says when what is queued can be sent.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.watches_write
    }

    /// Sends what is queued.
    ///
    /// # Errors
    /// [`Ended`]: the peer is gone.
    pub fn flush(&mut self, epoll: &Epoll) -> Result<Flushed, Ended> {
        let flushed = self.sender.flush(self.socket.as_fd()).map_err(|_| Ended)?;
        let wants_write = flushed == Flushed::Blocked;
        if wants_write != self.watches_write {
            let mut flags = EpollFlags::EPOLLIN;
            flags.set(EpollFlags::EPOLLOUT, wants_write);
            epoll.modify(&self.socket, &mut EpollEvent::new(flags, self.token)).map_err(|_| Ended)?;
            self.watches_write = wants_write;
        }
        Ok(flushed)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use nix::sys::epoll::{EpollCreateFlags, EpollTimeout};

    use super::*;
    use crate::proto::supervisor::{FromSupervisor, ToSupervisor, WriteStdin, to_supervisor::Request};

    fn message(sequence: u64, bytes: usize) -> ToSupervisor {
        let data = vec![7; bytes].into();
        let write = WriteStdin { terminal_id: "t".into(), data, eof: false, offset: None };
        ToSupervisor { sequence, request: Some(Request::WriteStdin(write)) }
    }

    fn polled<Out: Message, In: Message + Default>(socket: UnixStream) -> (Epoll, PolledConnection<Out, In>) {
        socket.set_nonblocking(true).unwrap();
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).unwrap();
        let connection = PolledConnection::new(socket.into(), &epoll, 1).unwrap();
        (epoll, connection)
    }

    fn events(epoll: &Epoll) -> EpollFlags {
        let mut events = [EpollEvent::empty()];
        match epoll.wait(&mut events, EpollTimeout::ZERO).unwrap() {
            0 => EpollFlags::empty(),
            _ => events[0].events(),
        }
    }

    #[test]
    fn what_the_socket_does_not_take_is_sent_when_epoll_says_so_and_a_peer_that_does_not_read_is_given_up() {
        let (one, other) = UnixStream::pair().unwrap();
        let (epoll, mut near) = polled::<ToSupervisor, FromSupervisor>(one);
        let (other_epoll, mut far) = polled::<FromSupervisor, ToSupervisor>(other);
        let (bound, sent) = (4 << 20, [message(1, 3 << 20), message(2, 10)]);
        for message in &sent {
            near.send(&epoll, message, bound).unwrap();
        }
        assert!(near.is_full() && near.queued_bytes() > 1 << 20);
        assert_eq!(near.send(&epoll, &message(3, 2 << 20), bound), Err(Ended));
        let mut received = Vec::new();
        while received.len() < sent.len() {
            let messages = far.ready(&other_epoll, events(&other_epoll)).unwrap();
            received.extend(messages.into_iter().map(|(message, _)| message));
            assert!(near.ready(&epoll, events(&epoll)).unwrap().is_empty());
        }
        assert!(received == sent);
        assert_eq!((near.is_full(), near.queued_bytes(), events(&epoll)), (false, 0, EpollFlags::empty()));
        drop(near);
        assert_eq!(far.ready(&other_epoll, events(&other_epoll)).err(), Some(Ended));
    }

    #[test]
    fn what_came_before_bytes_that_are_no_message_can_be_taken() {
        let (one, other) = UnixStream::pair().unwrap();
        let (epoll, mut near) = polled::<ToSupervisor, FromSupervisor>(one);
        let (_, mut far) = polled::<FromSupervisor, ToSupervisor>(other);
        near.send(&epoll, &message(1, 10), 1 << 20).unwrap();
        near.push([&2_u32.to_le_bytes()[..], &[0, 255, 255]].concat(), Vec::new());
        near.flush(&epoll).unwrap();
        while far.fill().unwrap() {
            assert!(far.next_message().unwrap().is_some_and(|(first, _)| first == message(1, 10)));
            if matches!(far.next_message(), Err(Ended)) {
                return;
            }
        }
        panic!("it was taken for a message");
    }
}
