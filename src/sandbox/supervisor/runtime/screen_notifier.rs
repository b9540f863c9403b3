//! The socket by which the process that keeps a terminal's screen is notified of output.

use std::os::fd::{AsRawFd, OwnedFd};

use nix::{
    errno::Errno,
    sys::socket::{MsgFlags, send},
};

/// A socket whose other end the screen process has.
#[derive(Debug)]
pub(super) struct ScreenNotifier(OwnedFd);

impl ScreenNotifier {
    pub(super) fn new(socket: OwnedFd) -> Self {
        Self(socket)
    }

    /// Whether it is of further use. A socket that is full says enough. It never waits: not by the descriptor's own flags, which
    /// others that have the socket could change.
    pub(super) fn notify(&self) -> bool {
        let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
        matches!(send(self.0.as_raw_fd(), &[1], flags), Ok(_) | Err(Errno::EAGAIN | Errno::EINTR))
    }
}
