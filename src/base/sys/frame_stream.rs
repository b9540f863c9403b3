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
        // Not for writing: who is watched for that is woken whenever the peer reads.
        Ok(Self { socket: async_fd::register(socket.into(), Interest::READABLE)? })
    }

    /// Sends an encoded frame, whole. For one task: two would mix their frames.
    ///
    /// # Errors
    /// The errno of sendmsg(2).
    pub async fn send(&self, frame: Vec<u8>, descriptors: Vec<Arc<OwnedFd>>) -> io::Result<()> {
        let mut sender = FrameSender::new();
        sender.push(frame, descriptors);
        if let Flushed::All = sender.flush(self.socket.as_fd())? {
            return Ok(());
        }
        let writing = async_fd::register(self.socket.get_ref().try_clone()?, Interest::WRITABLE)?;
        loop {
            let mut ready = writing.writable().await?;
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

#[cfg(test)]
mod tests {
    use super::*;

    /// As a frame without descriptors.
    fn frame(message: &[u8]) -> Vec<u8> {
        [&(message.len() as u32).to_le_bytes()[..], &[0], message].concat()
    }

    #[tokio::test]
    async fn a_frame_that_does_not_fit_is_sent_when_the_peer_reads() {
        let (one, other) = UnixStream::pair().unwrap();
        let (one, other) = (FrameStream::new(one).unwrap(), FrameStream::new(other).unwrap());
        // More than a socket holds, and then a short one.
        let long = vec![7; 3 << 20];
        let send = async {
            one.send(frame(&long), Vec::new()).await.unwrap();
            one.send(frame(b"short"), Vec::new()).await.unwrap();
        };
        let receive = async {
            let mut receiver = FrameReceiver::new();
            let first = other.receive(&mut receiver).await.unwrap().unwrap().message;
            (first, other.receive(&mut receiver).await.unwrap().unwrap().message)
        };
        let ((), (first, second)) = tokio::join!(send, receive);
        assert_eq!((first == long, second.as_slice()), (true, &b"short"[..]));
    }
}
