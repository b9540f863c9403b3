//! Writes batches of records to the log files, on the caller's own thread or the journal's, and sends each append its result.
//!
//! A hand-over to another thread and back takes longer than the write, and every command waits for one. So a caller writes by itself when
//! no other caller does and the write is a plain append. The journal's thread does what can wait for a disk (syncing, creating a file,
//! retrying after a failure) and what nobody waits for (best-effort records).
//!
//! A failing disk stops nothing here. Every batch is tried and fails at once with the disk's error; the first batch that succeeds again is
//! preceded by a record of how many records were not written. The journal's thread retries when nobody appends, so that the health recovers
//! with the disk.

use std::{
    fmt,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use tokio::sync::watch;

use super::{
    Counters, Health, lock,
    queue::{Append, AppendResult, Batch, Queue},
    store::LogStore,
    write_quota::WriteQuota,
};
use crate::{
    AppendError, JournalOptions, WriteFailure, WriteStep,
    format::{clock::Clock, directory::LockedDirectory, maintenance::Unwritten},
};

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
    pub(super) fn new(writer: BatchWriter) -> Self {
        Self { queue: Queue::default(), writer: Mutex::new(Some(writer)) }
    }

    /// Appends one record; blocks the thread until it is written.
    pub(super) fn append(&self, body: Vec<u8>) -> AppendResult {
        let ack = self.queue.enqueue(vec![body])?;
        self.flush();
        ack.wait()
    }

    /// Appends records together. Nothing is written when it is dropped before there was room in the queue; they are
    /// written all the same when it is dropped later.
    pub(super) fn append_async(
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
    pub(super) fn run(&self) {
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

/// The first time between two attempts on a disk that fails to sync.
const MIN_BACKOFF: Duration = Duration::from_millis(500);
/// The longest time between two attempts: each attempt creates a file.
const MAX_BACKOFF: Duration = Duration::from_secs(30);

/// How the disk failed to sync, and when it is tried again.
pub(super) struct Backoff {
    until: Instant,
    length: Duration,
    failure: WriteFailure,
}

/// Writes batches to the store.
pub(super) struct BatchWriter {
    pub health: watch::Sender<Health>,
    /// The sequence number of the last written record.
    pub last_sequence: watch::Sender<u64>,
    pub counters: Arc<Counters>,
    pub write_quota: Arc<WriteQuota>,
    pub locked: Arc<LockedDirectory>,
    pub options: JournalOptions,
    pub boot_id: String,
    pub clock: Box<dyn Clock>,
    /// Absent until the directory could be recovered.
    pub store: Option<LogStore>,
    /// The records that were not written since the last successful batch.
    pub unwritten: Option<Unwritten>,
    pub backoff: Option<Backoff>,
}

impl fmt::Debug for BatchWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BatchWriter").field("directory", self.locked.directory()).finish_non_exhaustive()
    }
}

impl BatchWriter {
    /// Writes the next batch of the queue. With an empty queue, tries a failing disk again.
    pub(super) fn write_next_batch(&mut self, queue: &Queue) {
        let Batch { appends, dropped } = queue.next_batch();
        self.count_unwritten(dropped, "the queue was full");
        if appends.is_empty() && !self.is_failing() {
            return;
        }
        let outcome = self.write(&appends);
        self.set_health(match &outcome {
            Ok(_) => Health::Writable,
            Err(failure) => Health::Unwritable(failure.clone()),
        });
        self.complete(appends, outcome);
        if let Some(store) = &self.store {
            let last = store.last_sequence();
            self.last_sequence.send_if_modified(|known| std::mem::replace(known, last) != last);
        }
    }

    /// Whether writing a batch is a plain append to the current file, without a sync or another wait for the disk.
    pub(super) fn can_append_without_blocking(&mut self) -> bool {
        let Self { store, unwritten, backoff, clock, .. } = self;
        let is_ready = store.as_ref().is_some_and(|store| store.can_append_without_blocking(&mut **clock));
        is_ready && unwritten.is_none() && backoff.is_none()
    }

    /// Finishes the current file after the last batch.
    pub(super) fn finish(mut self) {
        if let Some(store) = self.store.take()
            && let Err(failure) = store.finish(&mut *self.clock)
        {
            self.set_health(Health::Unwritable(failure));
        }
    }

    /// Whether the last batch failed, so that the disk is to be tried again.
    pub(super) fn is_failing(&self) -> bool {
        self.store.is_none() || self.unwritten.is_some()
    }

    fn set_health(&self, health: Health) {
        self.health.send_if_modified(|known| known.replace(health));
    }

    fn write(&mut self, appends: &[Append]) -> Result<u64, WriteFailure> {
        if let Some(backoff) = &self.backoff
            && Instant::now() < backoff.until
        {
            return Err(backoff.failure.clone());
        }
        let outcome = self.try_write(appends);
        self.backoff = match &outcome {
            Err(failure) if failure.step == WriteStep::Sync => {
                let last = self.backoff.take();
                let length = last.map_or(MIN_BACKOFF, |last| (last.length * 2).min(MAX_BACKOFF));
                Some(Backoff { until: Instant::now() + length, length, failure: failure.clone() })
            }
            Ok(_) | Err(_) => None,
        };
        outcome
    }

    fn try_write(&mut self, appends: &[Append]) -> Result<u64, WriteFailure> {
        let bodies: Vec<&[u8]> =
            appends.iter().flat_map(|append| &append.bodies).map(Vec::as_slice).collect();
        let store = match &mut self.store {
            Some(store) => store,
            empty => {
                let Self { locked, options, boot_id, clock, counters, write_quota, .. } = self;
                let store = LogStore::open(locked, options, boot_id, &mut **clock, counters, write_quota)?;
                empty.insert(store)
            }
        };
        store.write(&bodies, self.unwritten.as_ref(), &mut *self.clock)
    }

    fn complete(&mut self, appends: Vec<Append>, outcome: Result<u64, WriteFailure>) {
        match outcome {
            Ok(mut first) => {
                self.unwritten = None;
                for append in appends {
                    let records = append.bodies.len() as u64;
                    append.complete(Ok(first));
                    first += records;
                }
            }
            Err(failure) => {
                if !appends.is_empty() {
                    self.counters.write_failures.inc();
                }
                let records = appends.iter().map(|append| append.bodies.len() as u64).sum();
                self.count_unwritten(records, &format!("{failure}: {}", failure.source));
                for append in appends {
                    append.complete(Err(AppendError::Unwritable(failure.clone())));
                }
            }
        }
    }

    /// Counts records that are not written. The next successful batch begins with the count.
    fn count_unwritten(&mut self, records: u64, error: &str) {
        if records > 0 {
            self.counters.unwritten.add(records);
            let unwritten =
                self.unwritten.get_or_insert_with(|| Unwritten { records: 0, error: error.to_owned() });
            unwritten.records += records;
        }
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
