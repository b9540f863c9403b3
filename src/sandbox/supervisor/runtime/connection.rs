//! A control connection and how far its handshake has come.

use std::os::fd::OwnedFd;

use crate::sys::fdpass::{FrameReceiver, FrameSender};

/// Whether a peer may ask for anything but Hello.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HandshakeState {
    /// It has not said Hello.
    Pending,
    /// A version was agreed on.
    Done,
    /// There was none; the connection ends when the answer is out.
    Refused,
}

/// A control connection of one gateway.
#[derive(Debug)]
pub(super) struct GatewayConnection {
    pub(super) socket: OwnedFd,
    pub(super) receiver: FrameReceiver,
    pub(super) sender: FrameSender,
    pub(super) handshake: HandshakeState,
    /// The socket is full, and epoll reports when it takes more.
    pub(super) watches_write: bool,
}
