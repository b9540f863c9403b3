//! A connection whose first byte brings a descriptor with it: what a command of this process is to read. A gateway that knows nothing of
//! it receives the byte alone.

use std::{
    io::{self, IoSlice},
    os::fd::{AsRawFd, OwnedFd},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
use tokio::{
    io::{AsyncRead, AsyncWrite, Interest, ReadBuf},
    net::UnixStream,
};

/// A connection that has something to give at its first write.
#[derive(Debug)]
pub(super) struct GivingStream {
    stream: UnixStream,
    given: Option<Arc<OwnedFd>>,
}

impl GivingStream {
    pub(super) fn new(stream: UnixStream, given: Option<Arc<OwnedFd>>) -> Self {
        Self { stream, given }
    }

    fn poll_give(
        &mut self,
        context: &mut Context<'_>,
        bytes: &[u8],
        given: &OwnedFd,
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.stream.poll_write_ready(context))?;
            let sent = self.stream.try_io(Interest::WRITABLE, || {
                let descriptors = [given.as_raw_fd()];
                let message = [ControlMessage::ScmRights(&descriptors)];
                let parts = [IoSlice::new(bytes)];
                let socket = self.stream.as_raw_fd();
                Ok(sendmsg::<()>(socket, &parts, &message, MsgFlags::MSG_NOSIGNAL, None)?)
            });
            match sent {
                Ok(count) => {
                    self.given = None;
                    return Poll::Ready(Ok(count));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

impl AsyncRead for GivingStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for GivingStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.given.clone() {
            Some(given) if !bytes.is_empty() => self.poll_give(context, bytes, &given),
            Some(_) | None => Pin::new(&mut self.stream).poll_write(context, bytes),
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match (self.given.clone(), slices.iter().find(|slice| !slice.is_empty())) {
            (Some(given), Some(bytes)) => self.poll_give(context, bytes, &given),
            (Some(_) | None, _) => Pin::new(&mut self.stream).poll_write_vectored(context, slices),
        }
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
