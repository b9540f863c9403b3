//! Lines to a client, with bounds. A sender waits while too much waits to be written: a client that does not read holds up its own
//! commands and nothing else.

use std::sync::Arc;

use tokio::{
    io::{AsyncWrite, AsyncWriteExt},
    sync::{OwnedSemaphorePermit, Semaphore, mpsc},
};

/// The longest message from a client, in bytes: a file of [`super::FILE_MAX_BYTES`] in base64, and a little.
pub const LINE_MAX_BYTES: usize = super::FILE_MAX_BYTES / 3 * 4 + (1 << 20);
/// How many bytes may wait to be written. One message can be longer: it waits alone.
pub const QUEUE_MAX_BYTES: usize = 32 << 20;
/// And how many messages.
const QUEUE_MAX_MESSAGES: usize = 4_096;
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
    async fn a_sender_is_told_when_nobody_reads() {
        let (sender, queue) = line_channel();
        let (reader, writer) = tokio::io::duplex(16);
        drop(reader);
        sender.send("x".to_owned()).await.unwrap();
        queue.write_to(writer).await;
        assert_eq!(sender.send("y".to_owned()).await, Err(Disconnected));
    }
}
