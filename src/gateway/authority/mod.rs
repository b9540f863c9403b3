//! Makes an invalid `:authority` valid, in the bytes of a connection, before the HTTP/2 library reads them.
//!
//! Clients that are built on gRPC core, and some others, send the path of the unix socket as `:authority`. The HTTP/2 library refuses it,
//! and nothing here reads it: the caller is known by the credentials of its process. Such a value is overwritten where it lies, by a valid
//! one of the same length in the frame and in the header table (docs/internals/decisions/0193). Everything else reaches the library as the
//! client sent it, also what cannot be understood here.
//!
//! Blocks of headers are found among the HTTP/2 frames of a client (RFC 9113, 4 and 6.2). No frame is judged. One that is not understood,
//! and a block longer than its bounds, passes as it is, and the HTTP/2 library says what is wrong with it.

mod block;

use std::{
    io,
    ops::Range,
    pin::Pin,
    task::{Context, Poll, ready},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tonic::transport::server::Connected;

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

/// The bytes that a client's connection begins with (RFC 9113, 3.4).
const PREFACE_BYTES: usize = 24;
const HEAD_BYTES: usize = 9;
/// The longest block of headers that is looked at, with the heads of its frames. The headers of a call have at most
/// 16 KiB (`HEADERS_BYTES` in `gateway/server`).
const BLOCK_MAX_BYTES: usize = 20 << 10;
/// The most frames that such a block may have.
const BLOCK_FRAMES_MAX: usize = 16;

const HEADERS: u8 = 1;
const CONTINUATION: u8 = 9;
const END_HEADERS: u8 = 0x4;
const PADDED: u8 = 0x8;
const PRIORITY: u8 = 0x20;

/// Where in the frames of a connection a reader is.
#[derive(Debug)]
struct FrameScanner {
    /// Bytes that are yet to come and are not looked at.
    skip: usize,
}

impl FrameScanner {
    /// At the beginning of a connection.
    fn new() -> Self {
        Self { skip: PREFACE_BYTES }
    }

    /// Goes over bytes that have arrived, makes each `:authority` in them valid, and returns how many of them can be
    /// read. The others must be given again, with more bytes behind them.
    fn scan(&mut self, bytes: &mut [u8]) -> usize {
        let mut at = 0;
        loop {
            let skipped = self.skip.min(bytes.len() - at);
            self.skip -= skipped;
            at += skipped;
            if at == bytes.len() {
                return at;
            }
            match find_block(&bytes[at..]) {
                Found::Incomplete => return at,
                Found::Other { length } => self.skip = length,
                Found::Block(block) => {
                    block.make_authority_valid(&mut bytes[at..]);
                    self.skip = block.end;
                }
            }
        }
    }
}

/// What bytes begin with.
enum Found {
    /// More bytes are needed to know.
    Incomplete,
    /// So many bytes of something that is not looked at.
    Other {
        length: usize,
    },
    Block(Block),
}

/// A complete block of headers: the places of its fragments, and its end.
struct Block {
    first: Range<usize>,
    rest: Vec<Range<usize>>,
    end: usize,
}

impl Block {
    fn make_authority_valid(&self, bytes: &mut [u8]) {
        if self.rest.is_empty() {
            block::make_authority_valid(&mut bytes[self.first.clone()]);
            return;
        }
        let fragments = || std::iter::once(&self.first).chain(&self.rest);
        let mut whole = Vec::with_capacity(self.end);
        for fragment in fragments() {
            whole.extend_from_slice(&bytes[fragment.clone()]);
        }
        block::make_authority_valid(&mut whole);
        let mut at = 0;
        for fragment in fragments() {
            bytes[fragment.clone()].copy_from_slice(&whole[at..at + fragment.len()]);
            at += fragment.len();
        }
    }
}

fn find_block(bytes: &[u8]) -> Found {
    let Some(head) = FrameHead::parse(bytes) else { return Found::Incomplete };
    let length = head.frame_length();
    if head.kind != HEADERS || length > BLOCK_MAX_BYTES {
        return Found::Other { length };
    }
    let Some(first) = head.fragment(bytes) else { return Found::Incomplete };
    if first.start > first.end {
        return Found::Other { length };
    }
    let mut block = Block { first, rest: Vec::new(), end: length };
    let mut has_ended = head.has(END_HEADERS);
    while !has_ended {
        let Some(next) = bytes.get(block.end..).and_then(FrameHead::parse) else {
            return Found::Incomplete;
        };
        let end = block.end + next.frame_length();
        // The frames behind those that pass here are no beginning of a block, and pass as well.
        if next.kind != CONTINUATION || end > BLOCK_MAX_BYTES || block.rest.len() + 1 == BLOCK_FRAMES_MAX {
            return Found::Other { length: block.end };
        }
        block.rest.push(block.end + HEAD_BYTES..end);
        block.end = end;
        has_ended = next.has(END_HEADERS);
    }
    if bytes.len() < block.end { Found::Incomplete } else { Found::Block(block) }
}

/// The first bytes of a frame.
struct FrameHead {
    payload_length: usize,
    kind: u8,
    flags: u8,
}

impl FrameHead {
    fn parse(bytes: &[u8]) -> Option<Self> {
        let [high, mid, low, kind, flags, ..] = *bytes.get(..HEAD_BYTES)? else { return None };
        let payload_length = u32::from_be_bytes([0, high, mid, low]) as usize;
        Some(Self { payload_length, kind, flags })
    }

    fn frame_length(&self) -> usize {
        HEAD_BYTES + self.payload_length
    }

    fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// Where the headers of a HEADERS frame are, between its fields and its padding; backwards if they overlap. `None`:
    /// the length of the padding has not arrived.
    fn fragment(&self, frame: &[u8]) -> Option<Range<usize>> {
        let (mut start, mut end) = (HEAD_BYTES, self.frame_length());
        if self.has(PADDED) && self.payload_length > 0 {
            start += 1;
            end -= usize::from(*frame.get(HEAD_BYTES)?).min(self.payload_length);
        }
        if self.has(PRIORITY) {
            start += 5;
        }
        Some(start..end)
    }
}

#[cfg(test)]
mod tests;
