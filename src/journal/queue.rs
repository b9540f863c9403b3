//! The bounded queue in front of the file, and the tickets by which appends are answered.
//!
//! At the bound, whoever appends waits: a thread on a condition, a task by its waker. Notes never wait: they have a
//! bound of their own, and beyond it are counted and dropped; they wake nobody either who looks soon by itself. Knows
//! nothing of files, nor who writes.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
    time::{Duration, Instant},
};

use super::AppendError;

/// The most records that wait for the writer.
pub const MAX_QUEUE_RECORDS: usize = 1024;
/// The most bytes that wait for the writer, when more than one record does.
pub const MAX_QUEUE_BYTES: usize = 4 * 1024 * 1024;
/// The most records that wait for the writer when one more is noted; beyond, notes are counted and dropped.
pub const MAX_BEST_EFFORT_RECORDS: usize = 16 * 1024;
/// The most bytes that wait for the writer when one more is noted.
pub const MAX_BEST_EFFORT_BYTES: usize = 32 * 1024 * 1024;
/// How long a note may lie in the queue where nobody appends: so long several may share one write.
pub const BEST_EFFORT_DELAY: Duration = Duration::from_millis(5);
/// The most bytes of records that are taken at once, when more than one is.
const MAX_BATCH_BYTES: usize = 1024 * 1024;

/// What an append ends with: the sequence number of its first record.
pub type AppendResult = Result<u64, AppendError>;

/// Records on their way: all of them are written, or none.
#[derive(Debug)]
pub(super) struct Append {
    /// Each in JSON.
    pub bodies: Vec<Vec<u8>>,
    ack: Arc<Ack>,
}

/// What is written in one go.
#[derive(Debug)]
pub(super) struct Batch {
    /// In order.
    pub appends: Vec<Append>,
    /// Notes that were dropped before them.
    pub dropped: u64,
}

impl Append {
    /// Answers whoever waits.
    pub fn complete(self, answer: AppendResult) {
        self.ack.complete(answer);
    }
}

impl Drop for Append {
    /// Nobody waits for ever: what was never answered was never written. The first answer stands.
    fn drop(&mut self) {
        self.ack.complete(Err(AppendError::Stopped));
    }
}

#[derive(Debug, Default)]
pub(super) struct Ack {
    state: Mutex<AckState>,
    completed: Condvar,
}

#[derive(Debug, Default)]
struct AckState {
    result: Option<AppendResult>,
    waker: Option<Waker>,
    /// A thread waits. Waking nobody is a system call, too.
    has_waiting_thread: bool,
}

impl Ack {
    fn complete(&self, answer: AppendResult) {
        let mut state = lock(&self.state);
        if state.result.is_some() {
            return;
        }
        state.result = Some(answer);
        let waker = state.waker.take();
        let has_thread = state.has_waiting_thread;
        drop(state);
        if has_thread {
            self.completed.notify_all();
        }
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Waits for the answer.
    pub fn wait(&self) -> AppendResult {
        let mut state = lock(&self.state);
        loop {
            if let Some(answer) = &state.result {
                return answer.clone();
            }
            state.has_waiting_thread = true;
            state = self.completed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// The answer, or the task is woken by it.
    pub fn poll(&self, context: &Context<'_>) -> Poll<AppendResult> {
        let mut state = lock(&self.state);
        if let Some(answer) = &state.result {
            return Poll::Ready(answer.clone());
        }
        state.waker = Some(context.waker().clone());
        Poll::Pending
    }
}

/// The queue.
#[derive(Debug, Default)]
pub(super) struct Queue {
    state: Mutex<QueueState>,
    not_empty: Condvar,
    not_full: Condvar,
}

#[derive(Debug, Default)]
struct QueueState {
    appends: VecDeque<Append>,
    bytes: usize,
    closed: bool,
    /// Somebody waits for what is queued, or for another look at the disk.
    wake_requested: bool,
    /// When the oldest note in the queue has lain long enough, or something before it.
    best_effort_deadline: Option<Instant>,
    writer_state: WriterState,
    /// Tasks that wait for room: one entry for each, which takes it out when it waits no more.
    waiting_tasks: BTreeMap<u64, Waker>,
    next_slot: u64,
    /// Threads that do.
    waiting_threads: usize,
    /// Notes that found no room, since the last group.
    dropped: u64,
}

/// How the writer's thread waits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum WriterState {
    /// Not at all: it looks at the queue before it waits again.
    #[default]
    Running,
    /// It looks again by itself.
    SleepingUntil(Instant),
    /// Until it is woken.
    Parked,
}

/// A task's place among those that wait for room.
#[derive(Debug, Default)]
pub(super) struct WaiterSlot(Option<u64>);

/// What became of an append that wanted in.
#[derive(Debug)]
pub(super) enum EnqueueOutcome {
    /// It is in the queue.
    Queued(Arc<Ack>),
    /// There is no room; who waits is woken when there is.
    Full,
}

impl QueueState {
    fn has_room_for(&self, bytes: usize) -> bool {
        self.appends.is_empty()
            || self.appends.len() < MAX_QUEUE_RECORDS && self.bytes + bytes <= MAX_QUEUE_BYTES
    }

    fn push(&mut self, bodies: Vec<Vec<u8>>) -> Arc<Ack> {
        let ticket = Arc::<Ack>::default();
        self.bytes += total_bytes(&bodies);
        self.appends.push_back(Append { bodies, ack: Arc::clone(&ticket) });
        ticket
    }
}

fn total_bytes(bodies: &[Vec<u8>]) -> usize {
    bodies.iter().map(Vec::len).sum()
}

impl Queue {
    /// Takes an append in, when there is room, and wakes nobody.
    ///
    /// # Errors
    /// [`AppendError::Stopped`]: closed.
    pub fn enqueue(&self, bodies: Vec<Vec<u8>>) -> Result<Arc<Ack>, AppendError> {
        let mut state = lock(&self.state);
        let bytes = total_bytes(&bodies);
        while !state.closed && !state.has_room_for(bytes) {
            self.wake_writer_locked(&mut state);
            state.waiting_threads += 1;
            state = self.not_full.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.waiting_threads -= 1;
        }
        if state.closed { Err(AppendError::Stopped) } else { Ok(state.push(bodies)) }
    }

    /// The same for a task, whose `bodies` stay its own and whose `place` is kept while there is no room.
    pub fn poll_enqueue(
        &self,
        bodies: &mut Vec<Vec<u8>>,
        place: &mut WaiterSlot,
        context: &Context<'_>,
    ) -> Result<EnqueueOutcome, AppendError> {
        let mut state = lock(&self.state);
        if let Some(place) = place.0.take() {
            state.waiting_tasks.remove(&place);
        }
        if state.closed {
            return Err(AppendError::Stopped);
        }
        if state.has_room_for(total_bytes(bodies)) {
            return Ok(EnqueueOutcome::Queued(state.push(std::mem::take(bodies))));
        }
        let number = state.next_slot;
        state.next_slot += 1;
        state.waiting_tasks.insert(number, context.waker().clone());
        *place = WaiterSlot(Some(number));
        self.wake_writer_locked(&mut state);
        Ok(EnqueueOutcome::Full)
    }

    /// A task waits for room no more.
    pub fn cancel_wait(&self, place: &mut WaiterSlot) {
        if let Some(place) = place.0.take() {
            lock(&self.state).waiting_tasks.remove(&place);
        }
    }

    /// Appends without waiting for room or for an answer; what finds no room is counted. False: not taken in.
    pub fn push_best_effort(&self, body: Vec<u8>) -> bool {
        let mut state = lock(&self.state);
        let has_room = state.appends.len() < MAX_BEST_EFFORT_RECORDS
            && state.bytes + body.len() <= MAX_BEST_EFFORT_BYTES;
        if state.closed || !has_room {
            state.dropped += 1;
            return false;
        }
        state.push(vec![body]);
        let due = *state.best_effort_deadline.get_or_insert_with(|| Instant::now() + BEST_EFFORT_DELAY);
        let is_late = match state.writer_state {
            WriterState::Running => false,
            WriterState::SleepingUntil(wake) => wake > due,
            WriterState::Parked => true,
        };
        drop(state);
        if is_late {
            self.not_empty.notify_one();
        }
        true
    }

    /// Counts a note that has no form.
    pub fn count_dropped(&self) {
        lock(&self.state).dropped += 1;
    }

    /// The bytes that wait.
    pub fn bytes(&self) -> usize {
        lock(&self.state).bytes
    }

    /// Tasks that wait for room.
    #[cfg(test)]
    pub fn waiting_task_count(&self) -> usize {
        lock(&self.state).waiting_tasks.len()
    }

    /// Has the writer's thread look now.
    pub fn wake_writer(&self) {
        self.wake_writer_locked(&mut lock(&self.state));
    }

    fn wake_writer_locked(&self, state: &mut QueueState) {
        state.wake_requested = true;
        if state.writer_state != WriterState::Running {
            self.not_empty.notify_one();
        }
    }

    /// Waits until something is to be written, at most so long. False: closed, and all of it was taken.
    pub fn wait_for_work(&self, max_wait: Option<Duration>) -> bool {
        let last = max_wait.map(|wait| Instant::now() + wait);
        let mut state = lock(&self.state);
        loop {
            state.writer_state = WriterState::Running;
            if state.closed {
                return !state.appends.is_empty();
            }
            if state.wake_requested {
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

    /// What is to be written next, in order. Who takes it writes it before anybody takes more.
    pub fn next_batch(&self) -> Batch {
        let mut state = lock(&self.state);
        let mut jobs = Vec::new();
        let mut bytes = 0;
        while let Some(job) = state.appends.pop_front() {
            if !jobs.is_empty() && bytes + total_bytes(&job.bodies) > MAX_BATCH_BYTES {
                state.appends.push_front(job);
                break;
            }
            bytes += total_bytes(&job.bodies);
            jobs.push(job);
        }
        state.bytes -= bytes;
        state.wake_requested = !state.appends.is_empty();
        state.best_effort_deadline = None;
        let dropped = std::mem::take(&mut state.dropped);
        let waiting = std::mem::take(&mut state.waiting_tasks);
        let threads_waiting = state.waiting_threads;
        drop(state);
        if threads_waiting > 0 {
            self.not_full.notify_all();
        }
        waiting.into_values().for_each(Waker::wake);
        Batch { appends: jobs, dropped }
    }

    /// Nothing more is taken in; what is in the queue is still written.
    pub fn close(&self) {
        let mut state = lock(&self.state);
        state.closed = true;
        let waiting = std::mem::take(&mut state.waiting_tasks);
        drop(state);
        self.not_empty.notify_all();
        self.not_full.notify_all();
        waiting.into_values().for_each(Waker::wake);
    }

    /// Closes, and answers all that waits with [`AppendError::Stopped`].
    pub fn abandon(&self) {
        self.close();
        let jobs = std::mem::take(&mut lock(&self.state).appends);
        drop(jobs);
    }
}

/// A panic elsewhere leaves these states whole: every change of them is one assignment or one push.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
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
        let taken_in =
            (0..MAX_BEST_EFFORT_RECORDS + 3).filter(|_| queue.push_best_effort(b"{}".to_vec())).count();
        assert_eq!(taken_in, MAX_BEST_EFFORT_RECORDS);
        assert_eq!(queue.next_batch().dropped, 3);
        assert_eq!(queue.next_batch().dropped, 0);
    }

    #[test]
    fn a_best_effort_record_is_delayed_and_an_awaited_append_is_not() {
        let queue = Queue::default();
        queue.push_best_effort(b"{}".to_vec());
        let noted = Instant::now();
        assert!(queue.wait_for_work(None));
        assert!(noted.elapsed() + Duration::from_millis(1) >= BEST_EFFORT_DELAY, "it was not left to lie");
        assert_eq!(queue.next_batch().appends.len(), 1);
        queue.wake_writer();
        // It would wait for ever.
        assert!(queue.wait_for_work(None));
        queue.next_batch();
        assert!(queue.wait_for_work(Some(Duration::ZERO)), "another look at the disk");
        queue.close();
        assert!(!queue.wait_for_work(None));
    }
}
