//! The bounded queue in front of the writer, and the tickets by which it answers.
//!
//! At the bound, whoever appends waits: a thread on a condition, a task by its waker. Notes never wait: they have a
//! bound of their own, and beyond it are counted and dropped. Knows nothing of files.

use std::{
    collections::{BTreeMap, VecDeque},
    future::Future,
    pin::Pin,
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
/// The most bytes of records that the writer takes at once, when it takes more than one.
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

/// What the writer does next.
#[derive(Debug)]
pub(super) enum Work {
    /// Writes these, in order, and says that as many notes were dropped before them.
    Write { group: Vec<Job>, dropped: u64 },
    /// Nothing has come in the time given.
    Idle,
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
struct Ticket {
    state: Mutex<TicketState>,
    answered: Condvar,
}

#[derive(Debug, Default)]
struct TicketState {
    answer: Option<Answer>,
    waker: Option<Waker>,
}

impl Ticket {
    fn answer(&self, answer: Answer) {
        let mut state = lock(&self.state);
        if state.answer.is_some() {
            return;
        }
        state.answer = Some(answer);
        let waker = state.waker.take();
        drop(state);
        self.answered.notify_all();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn wait(&self) -> Answer {
        let mut state = lock(&self.state);
        loop {
            if let Some(answer) = &state.answer {
                return answer.clone();
            }
            state = self.answered.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn poll(&self, context: &Context<'_>) -> Poll<Answer> {
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
    /// Tasks that wait for room: one entry for each pending [`Append`], which takes it out when it is dropped.
    waiting: BTreeMap<u64, Waker>,
    next_waiting: u64,
    /// Notes that found no room, since the last group.
    dropped: u64,
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
    /// Appends and waits for the answer.
    pub fn append(&self, body: Vec<u8>) -> Answer {
        let mut state = lock(&self.state);
        while !state.closed && !state.has_room_for(body.len()) {
            state = self.drained.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if state.closed {
            return Err(AppendError::Stopped);
        }
        let ticket = state.push(vec![body]);
        drop(state);
        self.filled.notify_one();
        ticket.wait()
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
        drop(state);
        self.filled.notify_one();
        true
    }

    /// Counts a note that has no form.
    pub fn count_dropped(&self) {
        lock(&self.state).dropped += 1;
    }

    /// Appends when polled.
    pub fn append_async(self: &Arc<Self>, bodies: Result<Vec<Vec<u8>>, AppendError>) -> Append {
        let step = match bodies {
            Ok(bodies) => Step::Waiting { bodies, place: None },
            Err(error) => Step::Refused(Some(error)),
        };
        Append { queue: Arc::clone(self), step }
    }

    /// The writer's next group, in order; waits for one, at most so long. `None` when the queue is closed and empty.
    pub fn take(&self, at_most: Option<Duration>) -> Option<Work> {
        let deadline = at_most.map(|wait| Instant::now() + wait);
        let mut state = lock(&self.state);
        while state.jobs.is_empty() {
            if state.closed {
                return None;
            }
            let Some(deadline) = deadline else {
                state = self.filled.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Some(Work::Idle);
            }
            (state, _) = self.filled.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner);
        }
        let mut group = Vec::new();
        let mut bytes = 0;
        while let Some(job) = state.jobs.pop_front() {
            if !group.is_empty() && bytes + length(&job.bodies) > GROUP_BYTES {
                state.jobs.push_front(job);
                break;
            }
            bytes += length(&job.bodies);
            group.push(job);
        }
        state.bytes -= bytes;
        let dropped = std::mem::take(&mut state.dropped);
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        self.drained.notify_all();
        waiting.into_values().for_each(Waker::wake);
        Some(Work::Write { group, dropped })
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

/// An append that a task waits for.
///
/// Dropped before its first poll has found room, nothing is written. Dropped later, the record is written and
/// nobody is told.
#[derive(Debug)]
#[must_use = "nothing is written before it is polled"]
pub struct Append {
    queue: Arc<Queue>,
    step: Step,
}

#[derive(Debug)]
enum Step {
    Refused(Option<AppendError>),
    Waiting { bodies: Vec<Vec<u8>>, place: Option<u64> },
    Queued(Arc<Ticket>),
}

impl Future for Append {
    type Output = Answer;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Answer> {
        let Self { queue, step } = &mut *self;
        loop {
            match step {
                Step::Refused(error) => {
                    return Poll::Ready(Err(error.take().unwrap_or(AppendError::Stopped)));
                }
                Step::Queued(ticket) => return ticket.poll(context),
                Step::Waiting { bodies, place } => {
                    let mut state = lock(&queue.state);
                    if let Some(place) = place.take() {
                        state.waiting.remove(&place);
                    }
                    if state.closed {
                        return Poll::Ready(Err(AppendError::Stopped));
                    }
                    if !state.has_room_for(length(bodies)) {
                        let number = state.next_waiting;
                        state.next_waiting += 1;
                        state.waiting.insert(number, context.waker().clone());
                        *place = Some(number);
                        return Poll::Pending;
                    }
                    let ticket = state.push(std::mem::take(bodies));
                    drop(state);
                    queue.filled.notify_one();
                    *step = Step::Queued(ticket);
                }
            }
        }
    }
}

impl Drop for Append {
    fn drop(&mut self) {
        if let Step::Waiting { place: Some(place), .. } = self.step {
            lock(&self.queue.state).waiting.remove(&place);
        }
    }
}

/// A panic elsewhere leaves these states whole: every change of them is one assignment or one push.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::{pin::pin, task::Waker, thread};

    use super::*;

    fn taken(queue: &Queue) -> Vec<Job> {
        match queue.take(None) {
            Some(Work::Write { group, .. }) => group,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn at_the_bound_a_task_waits_and_is_admitted_when_there_is_room() {
        let queue = Arc::new(Queue::default());
        let mut context = Context::from_waker(Waker::noop());
        let mut queued: Vec<_> =
            (0..QUEUED_RECORDS).map(|_| Box::pin(queue.append_async(Ok(vec![b"{}".to_vec()])))).collect();
        for append in &mut queued {
            assert!(append.as_mut().poll(&mut context).is_pending());
        }
        let mut one_more = pin!(queue.append_async(Ok(vec![b"last".to_vec()])));
        assert!(one_more.as_mut().poll(&mut context).is_pending());
        assert_eq!(lock(&queue.state).waiting.len(), 1);
        assert_eq!(taken(&queue).len(), QUEUED_RECORDS);
        assert!(one_more.as_mut().poll(&mut context).is_pending());
        assert_eq!(taken(&queue)[0].bodies[0], b"last");
        // The job was dropped without an answer.
        assert!(matches!(one_more.as_mut().poll(&mut context), Poll::Ready(Err(AppendError::Stopped))));
    }

    #[test]
    fn what_gives_up_waiting_leaves_nothing_behind() {
        let queue = Arc::new(Queue::default());
        let mut context = Context::from_waker(Waker::noop());
        let mut large = Box::pin(queue.append_async(Ok(vec![vec![0; QUEUED_BYTES]])));
        assert!(large.as_mut().poll(&mut context).is_pending());
        let mut second = Box::pin(queue.append_async(Ok(vec![vec![0; 10]])));
        assert!(second.as_mut().poll(&mut context).is_pending());
        drop(second);
        assert!(lock(&queue.state).waiting.is_empty());
    }

    #[test]
    fn a_closed_queue_refuses_at_once_and_gives_out_what_it_holds() {
        let queue = Arc::new(Queue::default());
        let waiting = {
            let queue = Arc::clone(&queue);
            thread::spawn(move || queue.append(b"{}".to_vec()))
        };
        let group = taken(&queue);
        queue.close();
        assert!(matches!(queue.append(Vec::new()), Err(AppendError::Stopped)));
        for job in group {
            job.answer(Ok(7));
        }
        assert!(matches!(waiting.join().unwrap(), Ok(7)));
        assert!(queue.take(None).is_none());
    }

    #[test]
    fn a_group_is_bounded_in_bytes() {
        let queue = Arc::new(Queue::default());
        let mut context = Context::from_waker(Waker::noop());
        let mut appends: Vec<_> =
            (0..3).map(|_| Box::pin(queue.append_async(Ok(vec![vec![0; GROUP_BYTES / 2 + 1]])))).collect();
        for append in &mut appends {
            assert!(append.as_mut().poll(&mut context).is_pending());
        }
        assert_eq!(taken(&queue).len(), 1);
    }

    #[test]
    fn a_note_never_waits_and_is_counted_where_there_is_no_room() {
        let queue = Queue::default();
        let taken_in = (0..NOTED_RECORDS + 3).filter(|_| queue.note(b"{}".to_vec())).count();
        assert_eq!(taken_in, NOTED_RECORDS);
        let Some(Work::Write { dropped, .. }) = queue.take(None) else { panic!("there is work") };
        assert_eq!(dropped, 3);
        let Some(Work::Idle) = queue.take(Some(Duration::ZERO)) else { panic!("there is none") };
    }
}
