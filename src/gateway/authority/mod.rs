//! Makes an invalid `:authority` valid, in the bytes of a connection, before the HTTP/2 library reads them.
//!
//! Clients that are built on gRPC core, and some others, send the path of the unix socket as `:authority`. The HTTP/2
//! library refuses it, and nothing here reads it: the caller is known by the credentials of its process. Such a value is
//! overwritten where it lies, by a valid one of the same length in the frame and in the header table (docs/internals/decisions/0193).
//! Everything else reaches the library as the client sent it, also what cannot be understood here.

mod block;
mod frames;
mod huffman;
#[cfg(test)]
mod tests;

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tonic::transport::server::Connected;

use frames::FrameScanner;

/// Read at once while the rest of a block of headers is awaited.
const HELD_READ_BYTES: usize = 4 << 10;

/// A connection whose requests have a valid `:authority`.
#[derive(Debug)]
pub(super) struct ValidAuthority<S> {
    connection: S,
    scanner: FrameScanner,
    /// The bytes of a block of headers that is not complete, and of what came with its end.
    held: Vec<u8>,
    /// How many of the held bytes can be read.
    readable: usize,
}

impl<S: AsyncRead + Unpin> ValidAuthority<S> {
    pub(super) fn new(connection: S) -> Self {
        Self { connection, scanner: FrameScanner::new(), held: Vec::new(), readable: 0 }
    }

    /// Reads into the caller's buffer. What the end of it leaves incomplete is taken back and held.
    fn poll_read_direct(
        &mut self,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<Progress>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.connection).poll_read(context, buffer))?;
        let arrived = &mut buffer.filled_mut()[before..];
        if arrived.is_empty() {
            return Poll::Ready(Ok(Progress::Done));
        }
        let readable = self.scanner.scan(arrived);
        self.held.extend_from_slice(&arrived[readable..]);
        buffer.set_filled(before + readable);
        Poll::Ready(Ok(if readable == 0 { Progress::Held } else { Progress::Done }))
    }

    /// Reads more of what is held.
    fn poll_read_held(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let before = self.held.len();
        self.held.resize(before + HELD_READ_BYTES, 0);
        let mut buffer = ReadBuf::new(&mut self.held[before..]);
        let polled = Pin::new(&mut self.connection).poll_read(context, &mut buffer);
        let arrived = buffer.filled().len();
        self.held.truncate(before + arrived);
        ready!(polled)?;
        // At the end of the connection nothing more can complete it.
        self.readable = if arrived == 0 { self.held.len() } else { self.scanner.scan(&mut self.held) };
        Poll::Ready(Ok(()))
    }

    fn give_readable(&mut self, buffer: &mut ReadBuf<'_>) {
        let given = self.readable.min(buffer.remaining());
        buffer.put_slice(&self.held[..given]);
        self.held.drain(..given);
        self.readable -= given;
        if self.held.is_empty() {
            self.held = Vec::new();
        }
    }
}

/// What a read has brought.
enum Progress {
    /// The caller has bytes, or the connection has ended.
    Done,
    /// Everything that arrived is held.
    Held,
}

impl<S: AsyncRead + Unpin> AsyncRead for ValidAuthority<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if buffer.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        loop {
            if self.readable > 0 {
                self.give_readable(buffer);
                return Poll::Ready(Ok(()));
            }
            if !self.held.is_empty() {
                ready!(self.poll_read_held(context))?;
            } else if let Progress::Done = ready!(self.poll_read_direct(context, buffer))? {
                return Poll::Ready(Ok(()));
            }
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for ValidAuthority<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.connection).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.connection).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.connection.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.connection).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.connection).poll_shutdown(context)
    }
}

impl<S: Connected> Connected for ValidAuthority<S> {
    type ConnectInfo = S::ConnectInfo;

    fn connect_info(&self) -> S::ConnectInfo {
        self.connection.connect_info()
    }
}
