//! Sends a GOAWAY frame with the reason to a client whose connection is closed before anything was read from it.
//!
//! It sends once, without blocking. If the client cannot receive it, the connection is closed without a reason.

use std::os::fd::{AsFd, AsRawFd};

use nix::sys::socket::{MsgFlags, send};

/// ENHANCE_YOUR_CALM (RFC 9113, 7).
const ENHANCE_YOUR_CALM: u32 = 0xb;

/// Sends a server's preface and a GOAWAY with this message.
pub(super) fn send_goaway(socket: &impl AsFd, message: &str) {
    // A client that has gone already is closed as well.
    let _ =
        send(socket.as_fd().as_raw_fd(), &frames(message), MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL);
}

fn frames(message: &str) -> Vec<u8> {
    const SETTINGS: [u8; 9] = [0, 0, 0, 4, 0, 0, 0, 0, 0];
    let length = u32::try_from(8 + message.len()).unwrap_or(u32::MAX).to_be_bytes();
    let mut bytes = SETTINGS.to_vec();
    bytes.extend([length[1], length[2], length[3], 7, 0, 0, 0, 0, 0]);
    bytes.extend(0_u32.to_be_bytes());
    bytes.extend(ENHANCE_YOUR_CALM.to_be_bytes());
    bytes.extend(message.as_bytes());
    bytes
}
