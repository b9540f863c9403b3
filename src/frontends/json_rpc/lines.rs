//! Lines of a stream, with bounds: what every front end reads its client's messages by, and what it writes its own by.
//!
//! A line that is too long is dropped to its end and reported by its beginning and its end, so that it costs one message and can be
//! answered by its id. What waits to be written is bounded in bytes and in lines: a sender with more to write waits, in order.

use std::{io, sync::Arc, time::Duration};

use bytes::{Bytes, BytesMut};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    sync::{OwnedSemaphorePermit, Semaphore, mpsc},
};
use tokio_util::sync::CancellationToken;

/// How much of a line that is too long is kept: of its beginning, and of its end.
const BEGINNING_BYTES: usize = 64 << 10;
const END_BYTES: usize = 1 << 10;
/// What is read at once, at least.
const CHUNK_BYTES: usize = 64 << 10;
/// Short lines are written together up to this.
const BATCH_BYTES: usize = 256 << 10;

/// What was read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum InputLine {
    /// A line, with its end.
    Complete(Bytes),
    /// A line that is longer than may be. What is between was dropped.
    TooLong {
        /// Its first bytes.
        beginning: Bytes,
        /// Its last ones, without the line end; those of the beginning where it is hardly too long.
        end: Bytes,
    },
    /// What stood after the last line end. The writer has gone away.
    Unfinished(Bytes),
}

/// Reads lines.
#[derive(Debug)]
pub(crate) struct LineReader<R> {
    from: R,
    max_bytes: usize,
    buffer: BytesMut,
    /// Up to here there is no line end in the buffer.
    searched: usize,
    /// The beginning of a line that is being dropped.
    dropping: Option<Bytes>,
}

impl<R: AsyncRead + Unpin> LineReader<R> {
    /// `max_bytes`: of a line, its end not counted.
    pub(crate) fn new(from: R, max_bytes: usize) -> Self {
        Self { from, max_bytes, buffer: BytesMut::new(), searched: 0, dropping: None }
    }

    /// The next line; none at the end. May be dropped and called again without losing any.
    pub(crate) async fn next(&mut self) -> io::Result<Option<InputLine>> {
        loop {
            if let Some(line) = self.buffered() {
                return Ok(Some(line));
            }
            self.buffer.reserve(CHUNK_BYTES);
            if self.from.read_buf(&mut self.buffer).await? == 0 {
                return Ok(self.rest());
            }
        }
    }

    fn buffered(&mut self) -> Option<InputLine> {
        let Some(at) = memchr::memchr(b'\n', &self.buffer[self.searched..]) else {
            self.drop_when_too_long();
            self.searched = self.buffer.len();
            return None;
        };
        let line = self.buffer.split_to(self.searched + at + 1).freeze();
        self.searched = 0;
        let text = line.slice(..line.len() - 1);
        if self.dropping.is_none() && text.len() <= self.max_bytes {
            return Some(InputLine::Complete(line));
        }
        Some(self.too_long(&text))
    }

    /// A new buffer takes the place of a large one, whose memory goes.
    fn drop_when_too_long(&mut self) {
        if self.dropping.is_none() && self.buffer.len() > self.max_bytes {
            self.dropping = Some(Bytes::copy_from_slice(first(&self.buffer)));
        }
        if self.dropping.is_some() {
            self.buffer = BytesMut::from(last(&self.buffer));
        }
    }

    fn too_long(&mut self, text: &[u8]) -> InputLine {
        let beginning = self.dropping.take().unwrap_or_else(|| Bytes::copy_from_slice(first(text)));
        InputLine::TooLong { beginning, end: Bytes::copy_from_slice(last(text)) }
    }

    fn rest(&mut self) -> Option<InputLine> {
        self.searched = 0;
        let rest = self.buffer.split().freeze();
        match self.dropping {
            Some(_) => Some(self.too_long(&rest)),
            None => (!rest.is_empty()).then_some(InputLine::Unfinished(rest)),
        }
    }
}

fn first(bytes: &[u8]) -> &[u8] {
    &bytes[..bytes.len().min(BEGINNING_BYTES)]
}

fn last(bytes: &[u8]) -> &[u8] {
    &bytes[bytes.len().saturating_sub(END_BYTES)..]
}

/// How much may wait to be written to one side.
#[derive(Debug, Clone, Copy)]
pub(crate) struct QueueBounds {
    /// How many bytes all lines together may have. A longer line waits alone.
    pub(crate) bytes: usize,
    pub(crate) lines: usize,
}

/// The other side has gone away, or its writer has been given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("nobody reads any more")]
pub(crate) struct Disconnected;

/// What is done when the other side has a line. Dropped, it may not have it.
pub(crate) type Receipt = Box<dyn FnOnce() + Send>;

/// A line that is to be written.
pub(crate) struct QueuedLine {
    /// With its end.
    pub(crate) line: Bytes,
    pub(crate) receipt: Option<Receipt>,
    /// Given back when it is written.
    pub(crate) room: OwnedSemaphorePermit,
}

/// Where lines are put that are to be written. All clones are one.
#[derive(Debug, Clone)]
pub(crate) struct LineSender {
    queue: mpsc::Sender<QueuedLine>,
    room: Arc<Semaphore>,
    max_bytes: usize,
    gone: CancellationToken,
}

/// The other end of a [`LineSender`]. Dropped, nobody reads any more.
#[derive(Debug)]
pub(crate) struct LineQueue {
    queue: mpsc::Receiver<QueuedLine>,
    gone: CancellationToken,
}

/// A queue of lines.
pub(crate) fn line_channel(bounds: QueueBounds) -> (LineSender, LineQueue) {
    let (sender, receiver) = mpsc::channel(bounds.lines);
    let gone = CancellationToken::new();
    let room = Arc::new(Semaphore::new(bounds.bytes));
    (
        LineSender { queue: sender, room, max_bytes: bounds.bytes, gone: gone.clone() },
        LineQueue { queue: receiver, gone },
    )
}

impl LineSender {
    /// Puts a line at the end of the queue; waits while the queue is full.
    pub(crate) async fn send(&self, line: impl Into<Bytes>) -> Result<(), Disconnected> {
        self.put(line.into(), None).await
    }

    /// As [`LineSender::send`], for who has to know that the other side has it.
    pub(crate) async fn send_for_receipt(
        &self,
        line: impl Into<Bytes>,
        receipt: Receipt,
    ) -> Result<(), Disconnected> {
        self.put(line.into(), Some(receipt)).await
    }

    async fn put(&self, line: Bytes, receipt: Option<Receipt>) -> Result<(), Disconnected> {
        let cost = u32::try_from(line.len().clamp(1, self.max_bytes)).unwrap_or(u32::MAX);
        let room = tokio::select! {
            room = self.room.clone().acquire_many_owned(cost) => room.map_err(|_| Disconnected)?,
            () = self.gone.cancelled() => return Err(Disconnected),
        };
        tokio::select! {
            sent = self.queue.send(QueuedLine { line, receipt, room }) => sent.map_err(|_| Disconnected),
            () = self.gone.cancelled() => Err(Disconnected),
        }
    }

    /// How many bytes wait to be written.
    pub(crate) fn waiting_bytes(&self) -> usize {
        self.max_bytes - self.room.available_permits()
    }

    /// Waits until everything that was put in before has been written, or nobody reads, or `limit` has passed.
    pub(crate) async fn flushed(&self, limit: Duration) {
        let all = u32::try_from(self.max_bytes).unwrap_or(u32::MAX);
        tokio::select! {
            _ = self.room.acquire_many(all) => {}
            () = self.gone.cancelled() => {}
            () = tokio::time::sleep(limit) => {}
        }
    }

    /// Resolves when nobody reads any more.
    pub(crate) async fn gone(&self) {
        self.gone.cancelled().await;
    }

    /// Ends the writer, and with it what still waits.
    pub(crate) fn close(&self) {
        self.gone.cancel();
    }
}

impl LineQueue {
    /// The next line; none when all senders are gone.
    pub(crate) async fn next(&mut self) -> Option<QueuedLine> {
        self.queue.recv().await
    }

    /// Writes what comes until all senders are gone, nobody reads, or the queue is closed. Then `to` is closed. What is in a pipe counts as
    /// read: it is lost only with this process.
    pub(crate) async fn write_to(mut self, mut to: impl AsyncWrite + Unpin) {
        let gone = self.gone.clone();
        let writing = async {
            while let Some(first) = self.next().await {
                if write_batch(&mut to, first, &mut self.queue).await.is_err() {
                    return;
                }
            }
        };
        tokio::select! {
            () = writing => {}
            () = gone.cancelled() => {}
        }
    }
}

impl Drop for LineQueue {
    fn drop(&mut self) {
        self.gone.cancel();
    }
}

/// Writes a line, and with it those that wait behind it: one system call for many short lines.
async fn write_batch(
    to: &mut (impl AsyncWrite + Unpin),
    first: QueuedLine,
    queue: &mut mpsc::Receiver<QueuedLine>,
) -> io::Result<()> {
    let QueuedLine { line, receipt, room } = first;
    let (mut receipts, mut rooms) = (Vec::from_iter(receipt), vec![room]);
    // A long line is written as it is.
    let mut next = if line.len() < BATCH_BYTES { queue.try_recv().ok() } else { None };
    let line = if next.is_none() {
        line
    } else {
        let mut batch = BytesMut::from(line);
        while let Some(QueuedLine { line, receipt, room }) = next.take() {
            batch.extend_from_slice(&line);
            receipts.extend(receipt);
            rooms.push(room);
            if batch.len() < BATCH_BYTES {
                next = queue.try_recv().ok();
            }
        }
        batch.freeze()
    };
    let written = to.write_all(&line).await;
    drop(rooms);
    written?;
    to.flush().await?;
    receipts.into_iter().for_each(|receipt| receipt());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: usize = 1 << 20;

    fn line(text: &[u8]) -> Option<InputLine> {
        Some(InputLine::Complete(Bytes::copy_from_slice(text)))
    }

    #[tokio::test]
    async fn lines_come_whole_and_the_last_one_is_unfinished() {
        let mut lines = LineReader::new(&b"a\n\nbc\r\nd"[..], MAX);
        for expected in [&b"a\n"[..], b"\n", b"bc\r\n"] {
            assert_eq!(lines.next().await.unwrap(), line(expected));
        }
        assert_eq!(lines.next().await.unwrap(), Some(InputLine::Unfinished(Bytes::from_static(b"d"))));
        assert_eq!(lines.next().await.unwrap(), None);
    }

    #[tokio::test]
    async fn a_line_that_is_too_long_costs_one_line() {
        for more in [1, 5, CHUNK_BYTES, 3 * MAX] {
            let mut text = b"begin".to_vec();
            text.resize(MAX + more - 3, b'x');
            text.extend_from_slice(b"end\nnext\n");
            let mut lines = LineReader::new(&text[..], MAX);
            let Some(InputLine::TooLong { beginning, end }) = lines.next().await.unwrap() else {
                panic!("{more} more");
            };
            assert!(beginning.starts_with(b"begin") && beginning.len() == BEGINNING_BYTES, "{more} more");
            assert!(end.ends_with(b"xend") && end.len() == END_BYTES, "{more} more");
            assert_eq!(lines.next().await.unwrap(), line(b"next\n"));
            assert_eq!(lines.next().await.unwrap(), None);
        }
    }

    #[tokio::test]
    async fn a_line_as_long_as_may_be_is_taken_and_one_without_an_end_is_too_long() {
        let mut text = vec![b'x'; MAX];
        text.push(b'\n');
        text.resize(3 * MAX, b'y');
        let mut lines = LineReader::new(&text[..], MAX);
        assert!(
            matches!(lines.next().await.unwrap(), Some(InputLine::Complete(line)) if line.len() == MAX + 1)
        );
        assert!(matches!(lines.next().await.unwrap(), Some(InputLine::TooLong { .. })));
        assert_eq!(lines.next().await.unwrap(), None);
    }
    #[tokio::test]
    async fn lines_are_written_in_order_and_a_reader_that_goes_away_is_noticed() {
        let (sender, queue) = line_channel(QueueBounds { bytes: 64, lines: 16 });
        let (ours, mut theirs) = tokio::io::duplex(8);
        let writing = tokio::spawn(queue.write_to(ours));
        let (given, received) = tokio::sync::oneshot::channel();
        sender.send("one\n").await.unwrap();
        sender.send("two\n").await.unwrap();
        let receipt: Receipt = Box::new(move || given.send(()).unwrap());
        sender.send_for_receipt("three\n", receipt).await.unwrap();
        let mut read = [0; 14];
        theirs.read_exact(&mut read).await.unwrap();
        assert_eq!(&read, b"one\ntwo\nthree\n");
        received.await.unwrap();
        drop(theirs);
        sender.send("more\n").await.unwrap();
        writing.await.unwrap();
        assert_eq!(sender.send("even more\n").await, Err(Disconnected));
    }
}
