//! Lines to one side. What waits to be written is bounded in bytes; a sender with more to write waits, in order.

use std::{io, sync::Arc, time::Duration};

use bytes::{Bytes, BytesMut};
use tokio::{
    io::{AsyncWrite, AsyncWriteExt},
    sync::{OwnedSemaphorePermit, Semaphore, mpsc},
};
use tokio_util::sync::CancellationToken;

/// The longest message, in bytes, with its line end. Longer ones are refused.
pub const LINE_MAX_BYTES: usize = 16 << 20;
/// How much may wait to be written to one side.
const QUEUE_MAX_BYTES: usize = 64 << 20;
/// And how many lines.
const QUEUE_MAX_LINES: usize = 64 << 10;
/// Short lines are written together up to this.
const BATCH_BYTES: usize = 256 << 10;

/// The other side has gone away, or its writer has been given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("nobody reads any more")]
pub(in crate::acp) struct Disconnected;

/// Where lines are put that are to be written.
#[derive(Debug, Clone)]
pub(in crate::acp) struct LineSender {
    queue: mpsc::Sender<(Bytes, OwnedSemaphorePermit)>,
    capacity: Arc<Semaphore>,
    gone: CancellationToken,
}

/// The other end of an [`LineSender`].
#[derive(Debug)]
pub(in crate::acp) struct LineQueue {
    queue: mpsc::Receiver<(Bytes, OwnedSemaphorePermit)>,
    gone: CancellationToken,
}

/// A queue of lines.
pub(in crate::acp) fn line_channel() -> (LineSender, LineQueue) {
    let (sender, receiver) = mpsc::channel(QUEUE_MAX_LINES);
    let gone = CancellationToken::new();
    let room = Arc::new(Semaphore::new(QUEUE_MAX_BYTES));
    (LineSender { queue: sender, capacity: room, gone: gone.clone() }, LineQueue { queue: receiver, gone })
}

impl LineSender {
    /// Puts a line at the end of the queue; waits while the queue is full.
    pub(in crate::acp) async fn send(&self, line: impl Into<Bytes>) -> Result<(), Disconnected> {
        let line = line.into();
        let cost = u32::try_from(line.len().clamp(1, QUEUE_MAX_BYTES)).unwrap_or(u32::MAX);
        let room = tokio::select! {
            room = self.capacity.clone().acquire_many_owned(cost) => room.map_err(|_| Disconnected)?,
            () = self.gone.cancelled() => return Err(Disconnected),
        };
        tokio::select! {
            sent = self.queue.send((line, room)) => sent.map_err(|_| Disconnected),
            () = self.gone.cancelled() => Err(Disconnected),
        }
    }

    /// Whether so much waits that no snapshot of a running command's output should be added.
    pub(in crate::acp) fn is_congested(&self) -> bool {
        self.capacity.available_permits() < QUEUE_MAX_BYTES - (1 << 20)
    }

    /// Waits until everything that was put in before has been written, or nobody reads, or `limit` has passed.
    pub(in crate::acp) async fn flushed(&self, limit: Duration) {
        let all = u32::try_from(QUEUE_MAX_BYTES).unwrap_or(u32::MAX);
        tokio::select! {
            _ = self.capacity.acquire_many(all) => {}
            () = self.gone.cancelled() => {}
            () = tokio::time::sleep(limit) => {}
        }
    }

    /// Resolves when nobody reads any more.
    pub(in crate::acp) async fn gone(&self) {
        self.gone.cancelled().await;
    }

    /// Ends the writer, and with it what still waits.
    pub(in crate::acp) fn close(&self) {
        self.gone.cancel();
    }
}

impl LineQueue {
    /// Writes what comes until nobody reads, or the queue is closed. Then `to` is closed.
    pub(in crate::acp) async fn write<W: AsyncWrite + Unpin>(mut self, mut to: W) {
        let gone = self.gone.clone();
        let writing = async {
            while let Some(first) = self.queue.recv().await {
                if write_batch(&mut to, first, &mut self.queue).await.is_err() {
                    return;
                }
            }
        };
        tokio::select! {
            () = writing => {}
            () = gone.cancelled() => {}
        }
        gone.cancel();
    }
}

/// Writes a line, and with it those that wait behind it: one system call for many short lines.
async fn write_batch<W: AsyncWrite + Unpin>(
    to: &mut W,
    (line, room): (Bytes, OwnedSemaphorePermit),
    queue: &mut mpsc::Receiver<(Bytes, OwnedSemaphorePermit)>,
) -> io::Result<()> {
    let Ok(next) = queue.try_recv() else {
        let written = to.write_all(&line).await;
        drop(room);
        written?;
        return to.flush().await;
    };
    let mut rooms = vec![room];
    let mut batch = BytesMut::from(line);
    let mut next = Some(next);
    while let Some((line, room)) = next.take() {
        batch.extend_from_slice(&line);
        rooms.push(room);
        if batch.len() < BATCH_BYTES {
            next = queue.try_recv().ok();
        }
    }
    let written = to.write_all(&batch).await;
    drop(rooms);
    written?;
    to.flush().await
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt;

    use super::*;

    #[tokio::test]
    async fn lines_are_written_in_order_and_a_reader_that_goes_away_is_noticed() {
        let (outbox, waiting) = line_channel();
        let (ours, mut theirs) = tokio::io::duplex(8);
        let writing = tokio::spawn(waiting.write(ours));
        for line in ["one\n", "two\n", "three\n"] {
            outbox.send(line).await.unwrap();
        }
        let mut read = [0; 14];
        theirs.read_exact(&mut read).await.unwrap();
        assert_eq!(&read, b"one\ntwo\nthree\n");
        drop(theirs);
        outbox.send("more\n").await.unwrap();
        writing.await.unwrap();
        assert_eq!(outbox.send("even more\n").await, Err(Disconnected));
    }
}
