//! Lines in, lines out, with bounds.
//!
//! A line that is too long is dropped to its end and reported, so that it costs one message. A sender waits while too much waits to
//! be written: a client that does not read holds up its own commands and nothing else.

use std::{io, sync::Arc};

use bytes::BytesMut;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    sync::{OwnedSemaphorePermit, Semaphore, mpsc},
};

/// The longest message from a client, in bytes: a file of [`super::FILE_MAX_BYTES`] in base64, and a little.
pub const LINE_MAX_BYTES: usize = super::FILE_MAX_BYTES / 3 * 4 + (1 << 20);
/// How many bytes may wait to be written. One message can be longer: it waits alone.
pub const QUEUE_MAX_BYTES: usize = 32 << 20;
/// And how many messages.
const QUEUE_MAX_MESSAGES: usize = 4_096;
/// What is read at once, at least.
const CHUNK_BYTES: usize = 64 << 10;

/// What was read.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum InputLine {
    /// A line, without its end.
    Complete(BytesMut),
    /// A line longer than [`LINE_MAX_BYTES`], which was dropped.
    TooLong,
}

/// Reads lines.
#[derive(Debug)]
pub(super) struct LineReader<R> {
    from: R,
    buffer: BytesMut,
    /// Up to here there is no line end in the buffer.
    searched: usize,
    is_skipping: bool,
}

impl<R: AsyncRead + Unpin> LineReader<R> {
    pub(super) fn new(from: R) -> Self {
        Self { from, buffer: BytesMut::new(), searched: 0, is_skipping: false }
    }

    /// The next line; none at the end. What stands after the last line end is no line. May be dropped and called again.
    pub(super) async fn next(&mut self) -> io::Result<Option<InputLine>> {
        loop {
            if let Some(line) = self.buffered() {
                return Ok(Some(line));
            }
            self.buffer.reserve(CHUNK_BYTES);
            if self.from.read_buf(&mut self.buffer).await? == 0 {
                return Ok(None);
            }
        }
    }

    fn buffered(&mut self) -> Option<InputLine> {
        let Some(end) = memchr::memchr(b'\n', &self.buffer[self.searched..]) else {
            self.searched = self.buffer.len();
            if self.is_skipping || self.searched > LINE_MAX_BYTES {
                // A new one: the large one's memory goes.
                (self.buffer, self.searched, self.is_skipping) = (BytesMut::new(), 0, true);
            }
            return None;
        };
        let mut line = self.buffer.split_to(self.searched + end + 1);
        line.truncate(line.len() - 1);
        self.searched = 0;
        let is_too_long = std::mem::take(&mut self.is_skipping) || line.len() > LINE_MAX_BYTES;
        Some(if is_too_long { InputLine::TooLong } else { InputLine::Complete(line) })
    }
}

/// Nobody reads any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Disconnected;

/// What is done when the client has a line. Dropped, the client may not have it.
pub(super) type Receipt = Box<dyn FnOnce() + Send>;

/// A line that is to be written.
pub(super) struct OutputLine {
    /// Without its end.
    pub(super) text: String,
    pub(super) receipt: Option<Receipt>,
    /// Given back when it is written.
    pub(super) room: OwnedSemaphorePermit,
}

/// Where lines are put that are to be written. All clones are one.
#[derive(Debug, Clone)]
pub(super) struct LineSender {
    queue: mpsc::Sender<OutputLine>,
    room: Arc<Semaphore>,
}

/// The other end of a [`LineSender`]. Dropped, nobody reads any more.
#[derive(Debug)]
pub(super) struct LineQueue {
    queue: mpsc::Receiver<OutputLine>,
    room: Arc<Semaphore>,
}

/// A queue of lines.
pub(super) fn line_channel() -> (LineSender, LineQueue) {
    let (sender, receiver) = mpsc::channel(QUEUE_MAX_MESSAGES);
    let room = Arc::new(Semaphore::new(QUEUE_MAX_BYTES));
    (LineSender { queue: sender, room: room.clone() }, LineQueue { queue: receiver, room })
}

impl LineSender {
    /// Puts a line, without its end, at the end of the queue; waits while the queue is full.
    pub(super) async fn send(&self, line: String) -> Result<(), Disconnected> {
        self.put(line, None).await
    }

    /// As [`LineSender::send`], for who has to know that the client has it.
    pub(super) async fn send_for_receipt(&self, line: String, receipt: Receipt) -> Result<(), Disconnected> {
        self.put(line, Some(receipt)).await
    }

    async fn put(&self, text: String, receipt: Option<Receipt>) -> Result<(), Disconnected> {
        let cost = u32::try_from(text.len().clamp(1, QUEUE_MAX_BYTES)).unwrap_or(u32::MAX);
        let room = self.room.clone().acquire_many_owned(cost).await.map_err(|_| Disconnected)?;
        self.queue.send(OutputLine { text, receipt, room }).await.map_err(|_| Disconnected)
    }
}

impl LineQueue {
    /// The next line; none when all senders are gone.
    pub(super) async fn next(&mut self) -> Option<OutputLine> {
        self.queue.recv().await
    }

    /// Writes what comes until all senders are gone or nobody reads. What is in the pipe counts as read: it is lost only with this
    /// process.
    pub(super) async fn write_to(mut self, mut to: impl AsyncWrite + Unpin) {
        while let Some(OutputLine { mut text, receipt, room: _room }) = self.next().await {
            text.push('\n');
            if to.write_all(text.as_bytes()).await.is_err() || to.flush().await.is_err() {
                break;
            }
            if let Some(receipt) = receipt {
                receipt();
            }
        }
    }
}

impl Drop for LineQueue {
    fn drop(&mut self) {
        self.room.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn lines_come_whole_and_one_that_is_too_long_costs_itself() {
        let mut bytes = b"one\n".to_vec();
        bytes.extend(std::iter::repeat_n(b'x', LINE_MAX_BYTES + 1));
        bytes.extend_from_slice(b"\ntwo\nrest");
        let mut lines = LineReader::new(&bytes[..]);
        let complete = |text: &str| Some(InputLine::Complete(BytesMut::from(text)));
        assert_eq!(lines.next().await.unwrap(), complete("one"));
        assert_eq!(lines.next().await.unwrap(), Some(InputLine::TooLong));
        assert_eq!(lines.next().await.unwrap(), complete("two"));
        assert_eq!(lines.next().await.unwrap(), None);
    }

    #[tokio::test]
    async fn a_sender_is_told_when_nobody_reads() {
        let (sender, queue) = line_channel();
        let (reader, writer) = tokio::io::duplex(16);
        drop(reader);
        sender.send("x".to_owned()).await.unwrap();
        queue.write_to(writer).await;
        assert_eq!(sender.send("y".to_owned()).await, Err(Disconnected));
    }
}
