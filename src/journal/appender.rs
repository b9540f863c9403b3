//! Where records are written: by whoever appends, when nobody else is at it and there is nothing to do but append; by the
//! journal's own thread otherwise.
//!
//! A hand-over to that thread and back costs more than the writing, and every command waits for one. So its way is left
//! to what may wait for a disk (syncing, beginning a file, a disk that has refused) and to what nobody waits for (notes).
//! At most one caller is here at a time: should the disk hold it up, the others go by the queue.

use std::{
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll},
    time::Duration,
};

use super::{
    AppendError,
    queue::{Ack, AppendResult, EnqueueOutcome, Queue, WaiterSlot, lock},
    writer::BatchWriter,
};

/// The most bytes that are written for whoever appends by itself, what others have queued before it included.
const MAX_INLINE_BYTES: usize = 64 * 1024;
/// How often a disk that refused is tried when nobody appends.
const RETRY_INTERVAL: Duration = Duration::from_millis(500);

/// The queue and what writes it to the file.
#[derive(Debug, Default)]
pub(super) struct Appender {
    pub queue: Queue,
    /// Whoever holds it takes from the queue and writes. Absent once the journal has ended.
    writer: Mutex<Option<BatchWriter>>,
}

impl Appender {
    pub fn new(writer: BatchWriter) -> Self {
        Self { queue: Queue::default(), writer: Mutex::new(Some(writer)) }
    }

    /// Appends and waits for the answer.
    pub fn append(&self, body: Vec<u8>) -> AppendResult {
        let ticket = self.queue.enqueue(vec![body])?;
        self.flush();
        ticket.wait()
    }

    /// Appends when polled.
    pub fn append_async(self: &Arc<Self>, bodies: Result<Vec<Vec<u8>>, AppendError>) -> AppendFuture {
        let step = match bodies {
            Ok(bodies) => AppendState::Waiting { bodies, place: WaiterSlot::default() },
            Err(error) => AppendState::Failed(Some(error)),
        };
        AppendFuture { appender: Arc::clone(self), state: step }
    }

    /// Has what is queued written now: here, or by the journal's thread.
    fn flush(&self) {
        if self.write_inline() == Written::No {
            self.queue.wake_writer();
        }
    }

    fn write_inline(&self) -> Written {
        // Who holds it may have taken what is queued, or not: the thread looks.
        let Ok(mut writer) = self.writer.try_lock() else { return Written::No };
        let Some(writer) = writer.as_mut() else { return Written::No };
        if self.queue.bytes() > MAX_INLINE_BYTES || !writer.can_append_without_blocking() {
            return Written::No;
        }
        writer.write_next_batch(&self.queue);
        // What the disk has refused is tried again by the thread.
        if writer.is_failing() { Written::No } else { Written::Yes }
    }

    /// The life of the journal's thread.
    pub fn run(&self) {
        let _end = AbandonOnDrop(&self.queue);
        let mut at_most = None;
        while self.queue.wait_for_work(at_most) {
            // After a panic in the middle of writing nothing is known of the file.
            let Ok(mut writer) = self.writer.lock() else { return };
            let Some(writer) = writer.as_mut() else { return };
            writer.write_next_batch(&self.queue);
            at_most = writer.is_failing().then_some(RETRY_INTERVAL);
        }
        if let Some(writer) = lock(&self.writer).take() {
            writer.finish();
        }
    }
}

/// Whether what was queued is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Written {
    Yes,
    No,
}

/// However the thread ends, nobody waits for it.
struct AbandonOnDrop<'a>(&'a Queue);

impl Drop for AbandonOnDrop<'_> {
    fn drop(&mut self) {
        self.0.abandon();
    }
}

/// An append that a task waits for.
///
/// Dropped before its first poll has found room, nothing is written. Dropped later, the record is written and
/// nobody is told.
#[derive(Debug)]
#[must_use = "nothing is written before it is polled"]
pub struct AppendFuture {
    appender: Arc<Appender>,
    state: AppendState,
}

#[derive(Debug)]
enum AppendState {
    Failed(Option<AppendError>),
    Waiting { bodies: Vec<Vec<u8>>, place: WaiterSlot },
    Queued(Arc<Ack>),
}

impl Future for AppendFuture {
    type Output = AppendResult;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<AppendResult> {
        let Self { appender: desk, state: step } = &mut *self;
        loop {
            match step {
                AppendState::Failed(error) => {
                    return Poll::Ready(Err(error.take().unwrap_or(AppendError::Stopped)));
                }
                AppendState::Queued(ticket) => return ticket.poll(context),
                AppendState::Waiting { bodies, place } => {
                    match desk.queue.poll_enqueue(bodies, place, context) {
                        Err(error) => return Poll::Ready(Err(error)),
                        Ok(EnqueueOutcome::Full) => return Poll::Pending,
                        Ok(EnqueueOutcome::Queued(ticket)) => {
                            *step = AppendState::Queued(ticket);
                            desk.flush();
                        }
                    }
                }
            }
        }
    }
}

impl Drop for AppendFuture {
    fn drop(&mut self) {
        if let AppendState::Waiting { place, .. } = &mut self.state {
            self.appender.queue.cancel_wait(place);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{pin::pin, task::Waker, thread};

    use super::*;
    use crate::journal::queue::{Append, MAX_QUEUE_BYTES, MAX_QUEUE_RECORDS};

    fn take_appends(desk: &Appender) -> Vec<Append> {
        assert!(desk.queue.wait_for_work(None));
        desk.queue.next_batch().appends
    }

    fn poll(append: Pin<&mut AppendFuture>) -> Poll<AppendResult> {
        append.poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn at_the_bound_a_task_waits_and_is_admitted_when_there_is_room() {
        let desk = Arc::new(Appender::default());
        let mut queued: Vec<_> =
            (0..MAX_QUEUE_RECORDS).map(|_| Box::pin(desk.append_async(Ok(vec![b"{}".to_vec()])))).collect();
        for append in &mut queued {
            assert!(poll(append.as_mut()).is_pending());
        }
        let mut one_more = pin!(desk.append_async(Ok(vec![b"last".to_vec()])));
        assert!(poll(one_more.as_mut()).is_pending());
        assert_eq!(take_appends(&desk).len(), MAX_QUEUE_RECORDS);
        assert!(poll(one_more.as_mut()).is_pending());
        assert_eq!(take_appends(&desk)[0].bodies[0], b"last");
        // The job was dropped without an answer.
        assert!(matches!(poll(one_more.as_mut()), Poll::Ready(Err(AppendError::Stopped))));
    }

    #[test]
    fn a_cancelled_append_leaves_no_waiter() {
        let desk = Arc::new(Appender::default());
        let mut large = Box::pin(desk.append_async(Ok(vec![vec![0; MAX_QUEUE_BYTES]])));
        assert!(poll(large.as_mut()).is_pending());
        let mut second = Box::pin(desk.append_async(Ok(vec![vec![0; 10]])));
        assert!(poll(second.as_mut()).is_pending());
        assert_eq!(desk.queue.waiting_task_count(), 1);
        drop(second);
        assert_eq!(desk.queue.waiting_task_count(), 0);
    }

    #[test]
    fn a_closed_queue_refuses_new_appends_and_hands_out_queued_ones() {
        let desk = Arc::new(Appender::default());
        let waiting = {
            let desk = Arc::clone(&desk);
            thread::spawn(move || desk.append(b"{}".to_vec()))
        };
        let group = take_appends(&desk);
        desk.queue.close();
        assert!(matches!(desk.append(Vec::new()), Err(AppendError::Stopped)));
        for job in group {
            job.complete(Ok(7));
        }
        assert!(matches!(waiting.join().unwrap(), Ok(7)));
        assert!(!desk.queue.wait_for_work(None));
    }
}
