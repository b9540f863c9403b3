//! The bounded queue between the callers that append records and the writer.
//!
//! When the queue is full, callers wait for room: a thread on a condition variable, a task on a `Notify`. Best-effort
//! records never wait. They have limits of their own, beyond which they are counted and dropped, and they do not wake a
//! writer that will look at the queue soon anyway. The queue knows nothing of files, and not which thread writes.

use std::{
    collections::VecDeque,
    sync::{Condvar, Mutex, PoisonError},
    time::{Duration, Instant},
};

use tokio::sync::{Notify, oneshot};

use super::lock;
use crate::AppendError;

/// The maximum number of records that wait for the writer.
pub(crate) const MAX_QUEUE_RECORDS: usize = 1024;
/// The maximum bytes that wait for the writer. One longer record is accepted into an empty queue.
pub(crate) const MAX_QUEUE_BYTES: usize = 4 * 1024 * 1024;
/// A best-effort record is dropped when this many records wait for the writer.
pub(crate) const MAX_BEST_EFFORT_RECORDS: usize = 16 * 1024;
/// A best-effort record is dropped when more bytes than this would wait for the writer.
pub(crate) const MAX_BEST_EFFORT_BYTES: usize = 32 * 1024 * 1024;
/// How long a best-effort record stays in the queue when nobody appends, so that several can share one write.
pub(crate) const BEST_EFFORT_DELAY: Duration = Duration::from_millis(5);
/// The maximum bytes of one batch. A batch of one append can be longer.
const MAX_BATCH_BYTES: usize = 1024 * 1024;

/// The result of an append: the sequence number of its first record.
pub type AppendResult = Result<u64, AppendError>;

/// Records that are written together or not at all.
#[derive(Debug)]
pub(crate) struct Append {
    /// The records, each encoded as JSON.
    pub bodies: Vec<Vec<u8>>,
    /// Where the result goes; absent for a best-effort record.
    result: Option<oneshot::Sender<AppendResult>>,
}

impl Append {
    /// Sends the result to the caller. An append that is dropped without one has failed with
    /// [`AppendError::Stopped`].
    pub(crate) fn complete(self, result: AppendResult) {
        if let Some(sender) = self.result {
            // The caller may have stopped waiting.
            let _ = sender.send(result);
        }
    }
}

/// Receives the result of an append in the queue.
#[derive(Debug)]
pub(super) struct Ack(oneshot::Receiver<AppendResult>);

impl Ack {
    /// Blocks the thread until the append is written or has failed.
    pub(super) fn wait(self) -> AppendResult {
        self.0.blocking_recv().unwrap_or(Err(AppendError::Stopped))
    }

    /// Waits until the append is written or has failed.
    pub(super) async fn received(self) -> AppendResult {
        self.0.await.unwrap_or(Err(AppendError::Stopped))
    }
}

/// The appends of one write.
#[derive(Debug)]
pub(crate) struct Batch {
    /// In the order in which they were queued.
    pub appends: Vec<Append>,
    /// Best-effort records that were dropped since the last batch.
    pub dropped: u64,
}

/// The queue.
#[derive(Debug, Default)]
pub(super) struct Queue {
    state: Mutex<QueueState>,
    /// Wakes the writer's thread.
    not_empty: Condvar,
    /// Wakes threads that wait for room.
    not_full: Condvar,
    /// Wakes tasks that wait for room.
    has_room: Notify,
}

#[derive(Debug, Default)]
struct QueueState {
    appends: VecDeque<Append>,
    bytes: usize,
    is_closed: bool,
    /// A caller waits for what is queued, or for another attempt on the disk.
    is_wake_requested: bool,
    /// When the best-effort records in the queue are to be written.
    best_effort_deadline: Option<Instant>,
    writer_state: WriterState,
    waiting_threads: usize,
    /// Best-effort records that were dropped since the last batch.
    dropped: u64,
}

/// What the writer's thread is doing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum WriterState {
    /// It looks at the queue before it waits again.
    #[default]
    Running,
    /// It wakes by itself at this moment.
    SleepingUntil(Instant),
    /// It sleeps until it is woken.
    Parked,
}

impl QueueState {
    fn has_room_for(&self, bytes: usize) -> bool {
        self.appends.is_empty()
            || self.appends.len() < MAX_QUEUE_RECORDS && self.bytes + bytes <= MAX_QUEUE_BYTES
    }

    fn push(&mut self, bodies: Vec<Vec<u8>>) -> Ack {
        let (sender, receiver) = oneshot::channel();
        self.push_append(Append { bodies, result: Some(sender) });
        Ack(receiver)
    }

    fn push_append(&mut self, append: Append) {
        self.bytes += total_bytes(&append.bodies);
        self.appends.push_back(append);
    }
}

fn total_bytes(bodies: &[Vec<u8>]) -> usize {
    bodies.iter().map(Vec::len).sum()
}

impl Queue {
    /// Queues an append; blocks the thread while there is no room. Does not wake the writer.
    ///
    /// # Errors
    /// [`AppendError::Stopped`] when the queue is closed.
    pub(super) fn enqueue(&self, bodies: Vec<Vec<u8>>) -> Result<Ack, AppendError> {
        let mut state = lock(&self.state);
        let bytes = total_bytes(&bodies);
        while !state.is_closed && !state.has_room_for(bytes) {
            self.wake_writer_locked(&mut state);
            state.waiting_threads += 1;
            state = self.not_full.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.waiting_threads -= 1;
        }
        if state.is_closed { Err(AppendError::Stopped) } else { Ok(state.push(bodies)) }
    }

    /// As [`Queue::enqueue`], for a task. Nothing is queued when it is dropped while it waits.
    pub(super) async fn enqueue_async(&self, mut bodies: Vec<Vec<u8>>) -> Result<Ack, AppendError> {
        loop {
            // Created before the check: room that is made in between wakes it.
            let has_room = self.has_room.notified();
            if let Some(ack) = self.try_enqueue(&mut bodies)? {
                return Ok(ack);
            }
            has_room.await;
        }
    }

    /// Takes the bodies when there is room, and asks the writer to make some when there is none.
    fn try_enqueue(&self, bodies: &mut Vec<Vec<u8>>) -> Result<Option<Ack>, AppendError> {
        let mut state = lock(&self.state);
        if state.is_closed {
            return Err(AppendError::Stopped);
        }
        if state.has_room_for(total_bytes(bodies)) {
            return Ok(Some(state.push(std::mem::take(bodies))));
        }
        self.wake_writer_locked(&mut state);
        Ok(None)
    }

    /// Queues a record without waiting for room or for a result. Returns false, and counts the record as dropped, when
    /// there is no room.
    pub(super) fn push_best_effort(&self, body: Vec<u8>) -> bool {
        let mut state = lock(&self.state);
        let has_room = state.appends.len() < MAX_BEST_EFFORT_RECORDS
            && state.bytes + body.len() <= MAX_BEST_EFFORT_BYTES;
        if state.is_closed || !has_room {
            state.dropped += 1;
            return false;
        }
        state.push_append(Append { bodies: vec![body], result: None });
        let deadline = *state.best_effort_deadline.get_or_insert_with(|| Instant::now() + BEST_EFFORT_DELAY);
        let must_wake = match state.writer_state {
            WriterState::Running => false,
            WriterState::SleepingUntil(wake) => wake > deadline,
            WriterState::Parked => true,
        };
        drop(state);
        if must_wake {
            self.not_empty.notify_one();
        }
        true
    }

    /// Counts a best-effort record that could not be encoded.
    pub(super) fn count_dropped(&self) {
        lock(&self.state).dropped += 1;
    }

    /// The bytes in the queue.
    pub(super) fn bytes(&self) -> usize {
        lock(&self.state).bytes
    }

    /// Makes the writer's thread look at the queue now.
    pub(super) fn wake_writer(&self) {
        self.wake_writer_locked(&mut lock(&self.state));
    }

    fn wake_writer_locked(&self, state: &mut QueueState) {
        state.is_wake_requested = true;
        if state.writer_state != WriterState::Running {
            self.not_empty.notify_one();
        }
    }

    /// Blocks the writer's thread until something is to be written, for `max_wait` at most. Returns false when the queue
    /// is closed and empty.
    pub(super) fn wait_for_work(&self, max_wait: Option<Duration>) -> bool {
        let last = max_wait.map(|wait| Instant::now() + wait);
        let mut state = lock(&self.state);
        loop {
            state.writer_state = WriterState::Running;
            if state.is_closed {
                return !state.appends.is_empty();
            }
            if state.is_wake_requested {
                return true;
            }
            let Some(until) = [last, state.best_effort_deadline].into_iter().flatten().min() else {
                state.writer_state = WriterState::Parked;
                state = self.not_empty.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return true;
            }
            state.writer_state = WriterState::SleepingUntil(until);
            (state, _) = self.not_empty.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Takes the next batch out of the queue. The caller must write it before another batch is taken.
    pub(super) fn next_batch(&self) -> Batch {
        let mut state = lock(&self.state);
        let mut appends = Vec::new();
        let mut bytes = 0;
        while let Some(append) = state.appends.pop_front() {
            if !appends.is_empty() && bytes + total_bytes(&append.bodies) > MAX_BATCH_BYTES {
                state.appends.push_front(append);
                break;
            }
            bytes += total_bytes(&append.bodies);
            appends.push(append);
        }
        state.bytes -= bytes;
        state.is_wake_requested = !state.appends.is_empty();
        state.best_effort_deadline = None;
        let dropped = std::mem::take(&mut state.dropped);
        let waiting_threads = state.waiting_threads;
        drop(state);
        // Waking a condition variable is a system call even when no thread waits.
        if waiting_threads > 0 {
            self.not_full.notify_all();
        }
        self.has_room.notify_waiters();
        Batch { appends, dropped }
    }

    /// Refuses further appends. What is in the queue is still written.
    pub(super) fn close(&self) {
        lock(&self.state).is_closed = true;
        self.not_empty.notify_all();
        self.not_full.notify_all();
        self.has_room.notify_waiters();
    }

    /// Closes the queue, and fails what is in it with [`AppendError::Stopped`].
    pub(super) fn abandon(&self) {
        self.close();
        let appends = std::mem::take(&mut lock(&self.state).appends);
        drop(appends);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_is_bounded_in_bytes() {
        let queue = Queue::default();
        for _ in 0..3 {
            queue.enqueue(vec![vec![0; MAX_BATCH_BYTES / 2 + 1]]).unwrap();
        }
        assert_eq!([1, 2, 3, 4].map(|_| queue.next_batch().appends.len()), [1, 1, 1, 0]);
    }

    #[test]
    fn a_best_effort_record_never_waits_and_is_counted_when_dropped() {
        let queue = Queue::default();
        let queued =
            (0..MAX_BEST_EFFORT_RECORDS + 3).filter(|_| queue.push_best_effort(b"{}".to_vec())).count();
        assert_eq!(queued, MAX_BEST_EFFORT_RECORDS);
        assert_eq!(queue.next_batch().dropped, 3);
        assert_eq!(queue.next_batch().dropped, 0);
    }

    #[test]
    fn a_best_effort_record_is_delayed_and_an_awaited_append_is_not() {
        let queue = Queue::default();
        queue.push_best_effort(b"{}".to_vec());
        let queued_at = Instant::now();
        assert!(queue.wait_for_work(None));
        assert!(
            queued_at.elapsed() + Duration::from_millis(1) >= BEST_EFFORT_DELAY,
            "it was written too early"
        );
        assert_eq!(queue.next_batch().appends.len(), 1);
        queue.wake_writer();
        // Without the wake it would block for ever.
        assert!(queue.wait_for_work(None));
        queue.next_batch();
        assert!(queue.wait_for_work(Some(Duration::ZERO)), "another attempt on the disk");
        queue.close();
        assert!(!queue.wait_for_work(None));
    }
}
