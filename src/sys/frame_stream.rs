//! Frames with descriptors over a unix socket of a tokio runtime: one task sends, another one receives.

use std::{
    io,
    os::{
        fd::{AsFd as _, OwnedFd},
        unix::net::UnixStream,
    },
    sync::Arc,
};

use tokio::io::{Interest, unix::AsyncFd};

use super::{
    async_fd,
    fdpass::{Flushed, FrameReceiver, FrameSender, ReceiveError, ReceiveStatus, ReceivedFrame},
};

/// The socket.
#[derive(Debug)]
pub struct FrameStream {
    socket: AsyncFd<OwnedFd>,
}

impl FrameStream {
    /// Takes a socket over, and has it watched by the current runtime.
    ///
    /// # Errors
    /// When it cannot be made non-blocking, or not be watched.
    pub fn new(socket: UnixStream) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        Ok(Self { socket: async_fd::register(socket.into(), Interest::READABLE | Interest::WRITABLE)? })
    }

    /// Sends an encoded frame, whole. For one task: two would mix their frames.
    ///
    /// # Errors
    /// The errno of sendmsg(2).
    pub async fn send(&self, frame: Vec<u8>, descriptors: Vec<Arc<OwnedFd>>) -> io::Result<()> {
        let mut sender = FrameSender::new();
        sender.push(frame, descriptors);
        loop {
            let mut ready = self.socket.writable().await?;
            match sender.flush(self.socket.as_fd())? {
                Flushed::All => return Ok(()),
                Flushed::Blocked => ready.clear_ready(),
            }
        }
    }

    /// The next frame; `None` when the peer has closed. Cancel-safe: the receiver holds what has come.
    ///
    /// # Errors
    /// [`ReceiveError`]; the connection cannot be used any more.
    pub async fn receive(&self, receiver: &mut FrameReceiver) -> Result<Option<ReceivedFrame>, ReceiveError> {
        loop {
            if let Some(frame) = receiver.next_frame()? {
                return Ok(Some(frame));
            }
            let Ok(mut ready) = self.socket.readable().await else { return Ok(None) };
            match receiver.fill(self.socket.as_fd())? {
                ReceiveStatus::Bytes(_) => {}
                ReceiveStatus::Nothing => ready.clear_ready(),
                ReceiveStatus::End => return Ok(None),
            }
        }
    }
}
