//! The bounded queue in front of the writer, and the tickets by which it answers.
//!
//! At the bound, whoever appends waits: a thread on a condition, a task by its waker. Knows nothing of files.

use std::{
    collections::{BTreeMap, VecDeque},
    future::Future,
    pin::Pin,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
};

use super::AppendError;

/// The most records that wait for the writer.
pub const QUEUED_RECORDS: usize = 1024;
/// The most bytes that wait for the writer, when more than one record does.
pub const QUEUED_BYTES: usize = 4 * 1024 * 1024;
/// The most bytes of records that the writer takes at once, when it takes more than one.
const GROUP_BYTES: usize = 1024 * 1024;

/// What an append ends with: the record's sequence number.
pub type Answer = Result<u64, AppendError>;

/// A record on its way.
#[derive(Debug)]
pub(super) struct Job {
    /// The record in JSON.
    pub body: Vec<u8>,
    ticket: Arc<Ticket>,
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
}

impl QueueState {
    fn has_room_for(&self, bytes: usize) -> bool {
        self.jobs.is_empty() || self.jobs.len() < QUEUED_RECORDS && self.bytes + bytes <= QUEUED_BYTES
    }

    fn push(&mut self, body: Vec<u8>) -> Arc<Ticket> {
        let ticket = Arc::<Ticket>::default();
        self.bytes += body.len();
        self.jobs.push_back(Job { body, ticket: Arc::clone(&ticket) });
        ticket
    }
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
        let ticket = state.push(body);
        drop(state);
        self.filled.notify_one();
        ticket.wait()
    }

    /// Appends when polled.
    pub fn append_async(self: &Arc<Self>, body: Result<Vec<u8>, AppendError>) -> Append {
        let step = match body {
            Ok(body) => Step::Waiting { body, place: None },
            Err(error) => Step::Refused(Some(error)),
        };
        Append { queue: Arc::clone(self), step }
    }

    /// The writer's next group, in order; waits for one. `None` when the queue is closed and empty.
    pub fn take(&self) -> Option<Vec<Job>> {
        let mut state = lock(&self.state);
        while state.jobs.is_empty() {
            if state.closed {
                return None;
            }
            state = self.filled.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        let mut group = Vec::new();
        let mut bytes = 0;
        while let Some(job) = state.jobs.pop_front() {
            if !group.is_empty() && bytes + job.body.len() > GROUP_BYTES {
                state.jobs.push_front(job);
                break;
            }
            bytes += job.body.len();
            group.push(job);
        }
        state.bytes -= bytes;
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        self.drained.notify_all();
        waiting.into_values().for_each(Waker::wake);
        Some(group)
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
    Waiting { body: Vec<u8>, place: Option<u64> },
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
                Step::Waiting { body, place } => {
                    let mut state = lock(&queue.state);
                    if let Some(place) = place.take() {
                        state.waiting.remove(&place);
                    }
                    if state.closed {
                        return Poll::Ready(Err(AppendError::Stopped));
                    }
                    if !state.has_room_for(body.len()) {
                        let number = state.next_waiting;
                        state.next_waiting += 1;
                        state.waiting.insert(number, context.waker().clone());
                        *place = Some(number);
                        return Poll::Pending;
                    }
                    let ticket = state.push(std::mem::take(body));
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

    #[test]
    fn at_the_bound_a_task_waits_and_is_admitted_when_there_is_room() {
        let queue = Arc::new(Queue::default());
        let mut context = Context::from_waker(Waker::noop());
        let mut queued: Vec<_> =
            (0..QUEUED_RECORDS).map(|_| Box::pin(queue.append_async(Ok(b"{}".to_vec())))).collect();
        for append in &mut queued {
            assert!(append.as_mut().poll(&mut context).is_pending());
        }
        let mut one_more = pin!(queue.append_async(Ok(b"last".to_vec())));
        assert!(one_more.as_mut().poll(&mut context).is_pending());
        assert_eq!(lock(&queue.state).waiting.len(), 1);
        let group = queue.take().unwrap();
        assert_eq!(group.len(), QUEUED_RECORDS);
        assert!(one_more.as_mut().poll(&mut context).is_pending());
        assert_eq!(queue.take().unwrap()[0].body, b"last");
        // The job was dropped without an answer.
        assert!(matches!(one_more.as_mut().poll(&mut context), Poll::Ready(Err(AppendError::Stopped))));
    }

    #[test]
    fn what_gives_up_waiting_leaves_nothing_behind() {
        let queue = Arc::new(Queue::default());
        let mut context = Context::from_waker(Waker::noop());
        let mut large = Box::pin(queue.append_async(Ok(vec![0; QUEUED_BYTES])));
        assert!(large.as_mut().poll(&mut context).is_pending());
        let mut second = Box::pin(queue.append_async(Ok(vec![0; 10])));
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
        let group = queue.take().unwrap();
        queue.close();
        assert!(matches!(queue.append(Vec::new()), Err(AppendError::Stopped)));
        for job in group {
            job.answer(Ok(7));
        }
        assert!(matches!(waiting.join().unwrap(), Ok(7)));
        assert!(queue.take().is_none());
    }

    #[test]
    fn a_group_is_bounded_in_bytes() {
        let queue = Arc::new(Queue::default());
        let mut context = Context::from_waker(Waker::noop());
        let mut appends: Vec<_> =
            (0..3).map(|_| Box::pin(queue.append_async(Ok(vec![0; GROUP_BYTES / 2 + 1])))).collect();
        for append in &mut appends {
            assert!(append.as_mut().poll(&mut context).is_pending());
        }
        assert_eq!(queue.take().unwrap().len(), 1);
    }
}
