//! Decides which thread writes an append: the caller's own, or the journal's.
//!
//! A hand-over to another thread and back takes longer than the write, and every command waits for one. So a caller
//! writes by itself when no other caller does and the write is a plain append. The journal's thread does what can wait
//! for a disk (syncing, creating a file, retrying after a failure) and what nobody waits for (best-effort records).

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use super::{
    mutex::lock,
    queue::{AppendResult, Queue},
    writer::BatchWriter,
};
use crate::AppendError;

/// A caller writes at most this much by itself, including what others have queued before it.
const MAX_INLINE_BYTES: usize = 64 * 1024;
/// How often a failing disk is tried when nobody appends.
const RETRY_INTERVAL: Duration = Duration::from_millis(500);

/// The queue, and the writer that empties it into the file.
#[derive(Debug, Default)]
pub(super) struct Appender {
    pub queue: Queue,
    /// Held by the thread that takes from the queue and writes. Absent once the journal is closed.
    writer: Mutex<Option<BatchWriter>>,
}

impl Appender {
    pub fn new(writer: BatchWriter) -> Self {
        Self { queue: Queue::default(), writer: Mutex::new(Some(writer)) }
    }

    /// Appends one record; blocks the thread until it is written.
    pub fn append(&self, body: Vec<u8>) -> AppendResult {
        let ack = self.queue.enqueue(vec![body])?;
        self.flush();
        ack.wait()
    }

    /// Appends records together. Nothing is written when it is dropped before there was room in the queue; they are
    /// written all the same when it is dropped later.
    pub fn append_async(
        self: &Arc<Self>,
        bodies: Result<Vec<Vec<u8>>, AppendError>,
    ) -> impl Future<Output = AppendResult> + Send + use<> {
        let appender = Arc::clone(self);
        async move {
            let ack = appender.queue.enqueue_async(bodies?).await?;
            appender.flush();
            ack.received().await
        }
    }

    /// Has the queue written: by this thread, or by the journal's.
    fn flush(&self) {
        if !self.try_write_inline() {
            self.queue.wake_writer();
        }
    }

    /// Writes the next batch on this thread. Returns false when the journal's thread has to.
    fn try_write_inline(&self) -> bool {
        // The thread that holds the lock may have taken its batch already.
        let Ok(mut writer) = self.writer.try_lock() else { return false };
        let Some(writer) = writer.as_mut() else { return false };
        if self.queue.bytes() > MAX_INLINE_BYTES || !writer.can_append_without_blocking() {
            return false;
        }
        writer.write_next_batch(&self.queue);
        !writer.is_failing()
    }

    /// The main loop of the journal's thread.
    pub fn run(&self) {
        let _abandon = AbandonOnDrop(&self.queue);
        let mut max_wait = None;
        while self.queue.wait_for_work(max_wait) {
            // After a panic during a write the state of the file is unknown.
            let Ok(mut writer) = self.writer.lock() else { return };
            let Some(writer) = writer.as_mut() else { return };
            writer.write_next_batch(&self.queue);
            max_wait = writer.is_failing().then_some(RETRY_INTERVAL);
        }
        if let Some(writer) = lock(&self.writer).take() {
            writer.finish();
        }
    }
}

/// Fails all waiting appends when the journal's thread ends, by a panic too.
struct AbandonOnDrop<'a>(&'a Queue);

impl Drop for AbandonOnDrop<'_> {
    fn drop(&mut self) {
        self.0.abandon();
    }
}

#[cfg(test)]
mod tests {
    use std::{
        pin::{Pin, pin},
        task::{Context, Poll, Waker},
        thread,
    };

    use super::*;
    use crate::write::queue::{Append, MAX_QUEUE_BYTES, MAX_QUEUE_RECORDS};

    fn take_appends(appender: &Appender) -> Vec<Append> {
        assert!(appender.queue.wait_for_work(None));
        appender.queue.next_batch().appends
    }

    fn poll(future: Pin<&mut impl Future<Output = AppendResult>>) -> Poll<AppendResult> {
        future.poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn a_task_waits_while_the_queue_is_full_and_is_queued_when_there_is_room() {
        let appender = Arc::new(Appender::default());
        let mut queued: Vec<_> = (0..MAX_QUEUE_RECORDS)
            .map(|_| Box::pin(appender.append_async(Ok(vec![b"{}".to_vec()]))))
            .collect();
        for append in &mut queued {
            assert!(poll(append.as_mut()).is_pending());
        }
        let mut one_more = pin!(appender.append_async(Ok(vec![b"last".to_vec()])));
        assert!(poll(one_more.as_mut()).is_pending());
        assert_eq!(take_appends(&appender).len(), MAX_QUEUE_RECORDS);
        assert!(poll(one_more.as_mut()).is_pending());
        assert_eq!(take_appends(&appender)[0].bodies[0], b"last");
        // The append was dropped without an answer.
        assert!(matches!(poll(one_more.as_mut()), Poll::Ready(Err(AppendError::Stopped))));
    }

    #[test]
    fn a_cancelled_append_is_not_written() {
        let appender = Arc::new(Appender::default());
        let mut large = Box::pin(appender.append_async(Ok(vec![vec![0; MAX_QUEUE_BYTES]])));
        assert!(poll(large.as_mut()).is_pending());
        let mut second = Box::pin(appender.append_async(Ok(vec![vec![0; 10]])));
        assert!(poll(second.as_mut()).is_pending());
        drop(second);
        assert_eq!(take_appends(&appender).len(), 1, "the large one");
        let mut third = Box::pin(appender.append_async(Ok(vec![b"third".to_vec()])));
        assert!(poll(third.as_mut()).is_pending());
        let appends = take_appends(&appender);
        assert_eq!(
            (appends.len(), &appends[0].bodies[0][..]),
            (1, &b"third"[..]),
            "nothing of the second one"
        );
    }

    #[test]
    fn a_closed_queue_refuses_new_appends_and_hands_out_queued_ones() {
        let appender = Arc::new(Appender::default());
        let waiting = {
            let appender = Arc::clone(&appender);
            thread::spawn(move || appender.append(b"{}".to_vec()))
        };
        let appends = take_appends(&appender);
        appender.queue.close();
        assert!(matches!(appender.append(Vec::new()), Err(AppendError::Stopped)));
        for append in appends {
            append.complete(Ok(7));
        }
        assert!(matches!(waiting.join().unwrap(), Ok(7)));
        assert!(!appender.queue.wait_for_work(None));
    }
}
