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
pub const QUEUED_RECORDS: usize = 1024;
/// The most bytes that wait for the writer, when more than one record does.
pub const QUEUED_BYTES: usize = 4 * 1024 * 1024;
/// The most records that wait for the writer when one more is noted; beyond, notes are counted and dropped.
pub const NOTED_RECORDS: usize = 16 * 1024;
/// The most bytes that wait for the writer when one more is noted.
pub const NOTED_BYTES: usize = 32 * 1024 * 1024;
/// How long a note may lie in the queue where nobody appends: so long several may share one write.
pub const NOTED_WITHIN: Duration = Duration::from_millis(5);
/// The most bytes of records that are taken at once, when more than one is.
const GROUP_BYTES: usize = 1024 * 1024;

/// What an append ends with: the sequence number of its first record.
pub type Answer = Result<u64, AppendError>;

/// Records on their way: all of them are written, or none.
#[derive(Debug)]
pub(super) struct Job {
    /// Each in JSON.
    pub bodies: Vec<Vec<u8>>,
    ticket: Arc<Ticket>,
}

/// What is written in one go.
#[derive(Debug)]
pub(super) struct Group {
    /// In order.
    pub jobs: Vec<Job>,
    /// Notes that were dropped before them.
    pub dropped: u64,
}

impl Job {
    /// Answers whoever waits.
    pub fn answer(self, answer: Answer) {
        self.ticket.answer(answer);
    }
}

impl Drop for Job {
    /// Nobody waits for ever: what was never answered was never written. The first answer stands.
    fn drop(&mut self) {
        self.ticket.answer(Err(AppendError::Stopped));
    }
}

#[derive(Debug, Default)]
pub(super) struct Ticket {
    state: Mutex<TicketState>,
    answered: Condvar,
}

#[derive(Debug, Default)]
struct TicketState {
    answer: Option<Answer>,
    waker: Option<Waker>,
    /// A thread waits. Waking nobody is a system call, too.
    has_thread: bool,
}

impl Ticket {
    fn answer(&self, answer: Answer) {
        let mut state = lock(&self.state);
        if state.answer.is_some() {
            return;
        }
        state.answer = Some(answer);
        let waker = state.waker.take();
        let has_thread = state.has_thread;
        drop(state);
        if has_thread {
            self.answered.notify_all();
        }
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Waits for the answer.
    pub fn wait(&self) -> Answer {
        let mut state = lock(&self.state);
        loop {
            if let Some(answer) = &state.answer {
                return answer.clone();
            }
            state.has_thread = true;
            state = self.answered.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// The answer, or the task is woken by it.
    pub fn poll(&self, context: &Context<'_>) -> Poll<Answer> {
        let mut state = lock(&self.state);
        if let Some(answer) = &state.answer {
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
    filled: Condvar,
    drained: Condvar,
}

#[derive(Debug, Default)]
struct QueueState {
    jobs: VecDeque<Job>,
    bytes: usize,
    closed: bool,
    /// Somebody waits for what is queued, or for another look at the disk.
    pressing: bool,
    /// When the oldest note in the queue has lain long enough, or something before it.
    due: Option<Instant>,
    sleep: Sleep,
    /// Tasks that wait for room: one entry for each, which takes it out when it waits no more.
    waiting: BTreeMap<u64, Waker>,
    next_waiting: u64,
    /// Threads that do.
    threads_waiting: usize,
    /// Notes that found no room, since the last group.
    dropped: u64,
}

/// How the writer's thread waits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Sleep {
    /// Not at all: it looks at the queue before it waits again.
    #[default]
    Awake,
    /// It looks again by itself.
    Until(Instant),
    /// Until it is woken.
    Sound,
}

/// A task's place among those that wait for room.
#[derive(Debug, Default)]
pub(super) struct Place(Option<u64>);

/// What became of an append that wanted in.
#[derive(Debug)]
pub(super) enum Admission {
    /// It is in the queue.
    Queued(Arc<Ticket>),
    /// There is no room; who waits is woken when there is.
    Full,
}

impl QueueState {
    fn has_room_for(&self, bytes: usize) -> bool {
        self.jobs.is_empty() || self.jobs.len() < QUEUED_RECORDS && self.bytes + bytes <= QUEUED_BYTES
    }

    fn push(&mut self, bodies: Vec<Vec<u8>>) -> Arc<Ticket> {
        let ticket = Arc::<Ticket>::default();
        self.bytes += length(&bodies);
        self.jobs.push_back(Job { bodies, ticket: Arc::clone(&ticket) });
        ticket
    }
}

fn length(bodies: &[Vec<u8>]) -> usize {
    bodies.iter().map(Vec::len).sum()
}

impl Queue {
    /// Takes an append in, when there is room, and wakes nobody.
    ///
    /// # Errors
    /// [`AppendError::Stopped`]: closed.
    pub fn admit(&self, bodies: Vec<Vec<u8>>) -> Result<Arc<Ticket>, AppendError> {
        let mut state = lock(&self.state);
        let bytes = length(&bodies);
        while !state.closed && !state.has_room_for(bytes) {
            self.press_in(&mut state);
            state.threads_waiting += 1;
            state = self.drained.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.threads_waiting -= 1;
        }
        if state.closed { Err(AppendError::Stopped) } else { Ok(state.push(bodies)) }
    }

    /// The same for a task, whose `bodies` stay its own and whose `place` is kept while there is no room.
    pub fn poll_admit(
        &self,
        bodies: &mut Vec<Vec<u8>>,
        place: &mut Place,
        context: &Context<'_>,
    ) -> Result<Admission, AppendError> {
        let mut state = lock(&self.state);
        if let Some(place) = place.0.take() {
            state.waiting.remove(&place);
        }
        if state.closed {
            return Err(AppendError::Stopped);
        }
        if state.has_room_for(length(bodies)) {
            return Ok(Admission::Queued(state.push(std::mem::take(bodies))));
        }
        let number = state.next_waiting;
        state.next_waiting += 1;
        state.waiting.insert(number, context.waker().clone());
        *place = Place(Some(number));
        self.press_in(&mut state);
        Ok(Admission::Full)
    }

    /// A task waits for room no more.
    pub fn leave(&self, place: &mut Place) {
        if let Some(place) = place.0.take() {
            lock(&self.state).waiting.remove(&place);
        }
    }

    /// Appends without waiting for room or for an answer; what finds no room is counted. False: not taken in.
    pub fn note(&self, body: Vec<u8>) -> bool {
        let mut state = lock(&self.state);
        let has_room = state.jobs.len() < NOTED_RECORDS && state.bytes + body.len() <= NOTED_BYTES;
        if state.closed || !has_room {
            state.dropped += 1;
            return false;
        }
        state.push(vec![body]);
        let due = *state.due.get_or_insert_with(|| Instant::now() + NOTED_WITHIN);
        let is_late = match state.sleep {
            Sleep::Awake => false,
            Sleep::Until(wake) => wake > due,
            Sleep::Sound => true,
        };
        drop(state);
        if is_late {
            self.filled.notify_one();
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
    pub fn tasks_waiting(&self) -> usize {
        lock(&self.state).waiting.len()
    }

    /// Has the writer's thread look now.
    pub fn press(&self) {
        self.press_in(&mut lock(&self.state));
    }

    fn press_in(&self, state: &mut QueueState) {
        state.pressing = true;
        if state.sleep != Sleep::Awake {
            self.filled.notify_one();
        }
    }

    /// Waits until something is to be written, at most so long. False: closed, and all of it was taken.
    pub fn wait(&self, at_most: Option<Duration>) -> bool {
        let last = at_most.map(|wait| Instant::now() + wait);
        let mut state = lock(&self.state);
        loop {
            state.sleep = Sleep::Awake;
            if state.closed {
                return !state.jobs.is_empty();
            }
            if state.pressing {
                return true;
            }
            let Some(until) = [last, state.due].into_iter().flatten().min() else {
                state.sleep = Sleep::Sound;
                state = self.filled.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return true;
            }
            state.sleep = Sleep::Until(until);
            (state, _) = self.filled.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// What is to be written next, in order. Who takes it writes it before anybody takes more.
    pub fn take(&self) -> Group {
        let mut state = lock(&self.state);
        let mut jobs = Vec::new();
        let mut bytes = 0;
        while let Some(job) = state.jobs.pop_front() {
            if !jobs.is_empty() && bytes + length(&job.bodies) > GROUP_BYTES {
                state.jobs.push_front(job);
                break;
            }
            bytes += length(&job.bodies);
            jobs.push(job);
        }
        state.bytes -= bytes;
        state.pressing = !state.jobs.is_empty();
        state.due = None;
        let dropped = std::mem::take(&mut state.dropped);
        let waiting = std::mem::take(&mut state.waiting);
        let threads_waiting = state.threads_waiting;
        drop(state);
        if threads_waiting > 0 {
            self.drained.notify_all();
        }
        waiting.into_values().for_each(Waker::wake);
        Group { jobs, dropped }
    }

    /// Nothing more is taken in; what is in the queue is still written.
    pub fn close(&self) {
        let mut state = lock(&self.state);
        state.closed = true;
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        self.filled.notify_all();
        self.drained.notify_all();
        waiting.into_values().for_each(Waker::wake);
    }

    /// Closes, and answers all that waits with [`AppendError::Stopped`].
    pub fn abandon(&self) {
        self.close();
        let jobs = std::mem::take(&mut lock(&self.state).jobs);
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
    fn a_group_is_bounded_in_bytes() {
        let queue = Queue::default();
        for _ in 0..3 {
            queue.admit(vec![vec![0; GROUP_BYTES / 2 + 1]]).unwrap();
        }
        assert_eq!([1, 2, 3, 4].map(|_| queue.take().jobs.len()), [1, 1, 1, 0]);
    }

    #[test]
    fn a_note_never_waits_and_is_counted_where_there_is_no_room() {
        let queue = Queue::default();
        let taken_in = (0..NOTED_RECORDS + 3).filter(|_| queue.note(b"{}".to_vec())).count();
        assert_eq!(taken_in, NOTED_RECORDS);
        assert_eq!(queue.take().dropped, 3);
        assert_eq!(queue.take().dropped, 0);
    }

    #[test]
    fn a_note_is_waited_with_and_a_pressing_append_is_not() {
        let queue = Queue::default();
        queue.note(b"{}".to_vec());
        let noted = Instant::now();
        assert!(queue.wait(None));
        assert!(noted.elapsed() + Duration::from_millis(1) >= NOTED_WITHIN, "it was not left to lie");
        assert_eq!(queue.take().jobs.len(), 1);
        queue.press();
        // It would wait for ever.
        assert!(queue.wait(None));
        queue.take();
        assert!(queue.wait(Some(Duration::ZERO)), "another look at the disk");
        queue.close();
        assert!(!queue.wait(None));
    }
}
