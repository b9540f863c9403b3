//! Control connections: accept, handshake, receive requests, answer, and drop peers that do not read.
//!
//! Several gateways may be connected. Events go to all that have completed the handshake. Nothing is stored for a
//! gateway that is gone: all state can be listed again.

use std::{
    os::fd::{AsFd as _, OwnedFd},
    sync::Arc,
    time::Duration,
};

use nix::{errno::Errno, sys::epoll::EpollFlags};

use super::{
    Runtime,
    links::{GatewayConnection, HandshakeState},
    poll::{EventSource, SlotKey},
};
use crate::{
    link::{Ended, PolledConnection},
    proto::supervisor::{Done, FromSupervisor, StdinWritten, from_supervisor},
    sys::fdpass::{self, Flushed},
    wire::encode,
};

/// Further connections are closed when they are accepted.
pub(super) const MAX_CONNECTIONS: usize = 16;

/// A connection that leaves more than this unread is dropped.
pub(super) const MAX_QUEUED_BYTES: usize = 8 << 20;

/// Receives from one other connection before a list is answered: more than a socket holds.
pub(super) const MAX_RECEIVES_FROM_OTHERS: usize = 64;

/// How long an event may be delayed to be sent with the next one, which saves the gateway a wake-up.
const COALESCE_DELAY: Duration = Duration::from_millis(1);

/// When a message is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SendTiming {
    /// At once, with all delayed messages.
    Immediate,
    /// With the next message.
    Coalesced,
}

/// Whether a receive returned data, so that there may be more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReceiveOutcome {
    Data,
    Empty,
}

impl Runtime {
    pub(super) fn accept(&mut self) {
        let socket = match fdpass::accept(self.listener.as_fd()) {
            Ok(socket) => socket,
            Err(Errno::EMFILE | Errno::ENFILE) => {
                // The listener would stay readable: free a descriptor, accept the connection, and close it.
                drop(self.reserve_listener.take());
                drop(self.listener.accept());
                self.reserve_listener = self.listener.try_clone().ok();
                return;
            }
            Err(_) => return,
        };
        if self.connections.len() >= MAX_CONNECTIONS {
            return;
        }
        let token = EventSource::Connection(self.connections.next_key()).token();
        if let Ok(frames) = PolledConnection::new(socket, self.epoll.set(), token) {
            self.connections.insert(GatewayConnection { frames, handshake: HandshakeState::Pending });
        }
    }

    pub(super) fn connection_ready(&mut self, key: SlotKey, flags: EpollFlags) {
        if flags.contains(EpollFlags::EPOLLOUT) {
            self.flush(key);
        }
        if flags.intersects(EpollFlags::EPOLLIN | EpollFlags::EPOLLHUP | EpollFlags::EPOLLERR) {
            // Unread data makes the socket readable again.
            self.receive(key);
        }
    }

    /// Handles requests of the other connections before a list is answered: a request of a gateway that is gone is
    /// done, or is not, before the next gateway gets the list.
    pub(super) fn receive_from_others(&mut self, key: SlotKey) {
        // Another connection may request the list as well.
        if std::mem::replace(&mut self.is_receiving_from_others, true) {
            return;
        }
        for other in self.connections.keys().into_iter().filter(|other| *other != key) {
            let mut receives = 0;
            while receives < MAX_RECEIVES_FROM_OTHERS && self.receive(other) == ReceiveOutcome::Data {
                receives += 1;
            }
        }
        self.is_receiving_from_others = false;
    }

    /// One receive, so that no peer keeps the loop.
    fn receive(&mut self, key: SlotKey) -> ReceiveOutcome {
        let Some(connection) = self.connections.get_mut(key) else { return ReceiveOutcome::Empty };
        match connection.frames.fill() {
            Ok(true) => {}
            Ok(false) => return ReceiveOutcome::Empty,
            Err(Ended) => {
                self.drop_connection(key);
                return ReceiveOutcome::Empty;
            }
        }
        loop {
            let Some(connection) = self.connections.get_mut(key) else { return ReceiveOutcome::Empty };
            match connection.frames.next_message() {
                Ok(Some((message, descriptors))) => self.handle(key, message, descriptors),
                Ok(None) => return ReceiveOutcome::Data,
                Err(Ended) => {
                    self.drop_connection(key);
                    return ReceiveOutcome::Empty;
                }
            }
        }
    }

    pub(super) fn drop_connection(&mut self, key: SlotKey) {
        let Some(connection) = self.connections.remove(key) else { return };
        self.let_idle_clocks_go(key);
        let handshaken = connection.handshake == HandshakeState::Done;
        if handshaken && !self.has_gateway() {
            match self.die_with_gateway {
                true => self.begin_shutdown(Duration::ZERO, None),
                false => self.without_gateway.begin(self.now),
            }
        }
    }

    /// A gateway that is gone asks no person any more.
    fn let_idle_clocks_go(&mut self, gateway: SlotKey) {
        let now = self.now;
        for key in self.terminals.keys() {
            let Some(terminal) = self.terminals.get_mut(key) else { continue };
            if terminal.holds.by_gateway == Some(gateway) {
                terminal.holds.by_gateway = None;
                if terminal.settle_idle_clock(now) {
                    // Not at once: this may be called while something is sent.
                    self.schedule(key, Some(now));
                }
            }
        }
    }

    fn has_gateway(&self) -> bool {
        let handshaken =
            |key| self.connections.get(key).is_some_and(|one| one.handshake == HandshakeState::Done);
        self.connections.keys().into_iter().any(handshaken)
    }

    pub(super) fn answer_done(&mut self, key: SlotKey, sequence: u64, result: Result<(), Errno>) {
        let errno = result.err().map_or(0, |errno| errno as i32);
        self.answer(key, sequence, from_supervisor::Message::Done(Done { errno }), Vec::new());
    }

    pub(super) fn answer_stdin(&mut self, key: SlotKey, sequence: u64, answer: StdinWritten) {
        self.answer(key, sequence, from_supervisor::Message::StdinWritten(answer), Vec::new());
    }

    pub(super) fn answer(
        &mut self,
        key: SlotKey,
        sequence: u64,
        message: from_supervisor::Message,
        descriptors: Vec<Arc<OwnedFd>>,
    ) {
        let message = FromSupervisor { sequence, message: Some(message) };
        match encode(&message, descriptors.len()) {
            Ok(frame) => self.send(key, frame, descriptors, SendTiming::Immediate),
            // All responses are far below the limits. If one is not, the peer must not wait for it.
            Err(_) => self.drop_connection(key),
        }
    }

    /// Sends an event to every gateway.
    pub(super) fn broadcast(&mut self, message: from_supervisor::Message) {
        self.send_to_all(message, SendTiming::Immediate);
        // This sent the delayed events too.
        self.flush_at = None;
    }

    /// Sends an event to every gateway, with the next one or a moment later.
    pub(super) fn broadcast_coalesced(&mut self, message: from_supervisor::Message) {
        self.send_to_all(message, SendTiming::Coalesced);
        let at = self.now + COALESCE_DELAY;
        self.flush_at.get_or_insert(at);
    }

    fn send_to_all(&mut self, message: from_supervisor::Message, when: SendTiming) {
        let Ok(frame) = encode(&FromSupervisor { sequence: 0, message: Some(message) }, 0) else { return };
        for key in self.connections.keys() {
            if self.connections.get(key).is_some_and(|one| one.handshake == HandshakeState::Done) {
                self.send(key, frame.clone(), Vec::new(), when);
            }
        }
    }

    /// Sends delayed events, if it is time.
    pub(super) fn flush_delayed(&mut self) {
        if self.flush_at.is_some_and(|at| at <= self.now) {
            self.flush_at = None;
            for key in self.connections.keys() {
                if self.connections.get(key).is_some_and(|one| one.frames.queued_bytes() > 0) {
                    self.flush(key);
                }
            }
        }
    }

    fn send(&mut self, key: SlotKey, frame: Vec<u8>, descriptors: Vec<Arc<OwnedFd>>, when: SendTiming) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        if connection.frames.queued_bytes() > MAX_QUEUED_BYTES {
            return self.drop_connection(key);
        }
        connection.frames.push(frame, descriptors);
        if when == SendTiming::Immediate && !connection.frames.is_full() {
            self.flush(key);
        }
    }

    fn flush(&mut self, key: SlotKey) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        match connection.frames.flush(self.epoll.set()) {
            Ok(Flushed::All) if connection.handshake == HandshakeState::Refused => self.drop_connection(key),
            Ok(Flushed::All | Flushed::Blocked) => {}
            Err(Ended) => self.drop_connection(key),
        }
    }
}
