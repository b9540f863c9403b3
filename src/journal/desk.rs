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
    queue::{Admission, Answer, Place, Queue, Ticket, lock},
    writer::Writer,
};

/// The most bytes that are written for whoever appends by itself, what others have queued before it included.
const HERE_BYTES: usize = 64 * 1024;
/// How often a disk that refused is tried when nobody appends.
const RETRY: Duration = Duration::from_millis(500);

/// The queue and what writes it to the file.
#[derive(Debug, Default)]
pub(super) struct Desk {
    pub queue: Queue,
    /// Whoever holds it takes from the queue and writes. Absent once the journal has ended.
    writer: Mutex<Option<Writer>>,
}

impl Desk {
    pub fn new(writer: Writer) -> Self {
        Self { queue: Queue::default(), writer: Mutex::new(Some(writer)) }
    }

    /// Appends and waits for the answer.
    pub fn append(&self, body: Vec<u8>) -> Answer {
        let ticket = self.queue.admit(vec![body])?;
        self.attend();
        ticket.wait()
    }

    /// Appends when polled.
    pub fn append_async(self: &Arc<Self>, bodies: Result<Vec<Vec<u8>>, AppendError>) -> Append {
        let step = match bodies {
            Ok(bodies) => Step::Waiting { bodies, place: Place::default() },
            Err(error) => Step::Refused(Some(error)),
        };
        Append { desk: Arc::clone(self), step }
    }

    /// Has what is queued written now: here, or by the journal's thread.
    fn attend(&self) {
        if self.write_here() == Written::No {
            self.queue.press();
        }
    }

    fn write_here(&self) -> Written {
        // Who holds it may have taken what is queued, or not: the thread looks.
        let Ok(mut writer) = self.writer.try_lock() else { return Written::No };
        let Some(writer) = writer.as_mut() else { return Written::No };
        if self.queue.bytes() > HERE_BYTES || !writer.has_only_to_append() {
            return Written::No;
        }
        writer.write_next(&self.queue);
        // What the disk has refused is tried again by the thread.
        if writer.is_refusing() { Written::No } else { Written::Yes }
    }

    /// The life of the journal's thread.
    pub fn keep(&self) {
        let _end = AnswersAtEnd(&self.queue);
        let mut at_most = None;
        while self.queue.wait(at_most) {
            // After a panic in the middle of writing nothing is known of the file.
            let Ok(mut writer) = self.writer.lock() else { return };
            let Some(writer) = writer.as_mut() else { return };
            writer.write_next(&self.queue);
            at_most = writer.is_refusing().then_some(RETRY);
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
struct AnswersAtEnd<'a>(&'a Queue);

impl Drop for AnswersAtEnd<'_> {
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
pub struct Append {
    desk: Arc<Desk>,
    step: Step,
}

#[derive(Debug)]
enum Step {
    Refused(Option<AppendError>),
    Waiting { bodies: Vec<Vec<u8>>, place: Place },
    Queued(Arc<Ticket>),
}

impl Future for Append {
    type Output = Answer;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Answer> {
        let Self { desk, step } = &mut *self;
        loop {
            match step {
                Step::Refused(error) => {
                    return Poll::Ready(Err(error.take().unwrap_or(AppendError::Stopped)));
                }
                Step::Queued(ticket) => return ticket.poll(context),
                Step::Waiting { bodies, place } => match desk.queue.poll_admit(bodies, place, context) {
                    Err(error) => return Poll::Ready(Err(error)),
                    Ok(Admission::Full) => return Poll::Pending,
                    Ok(Admission::Queued(ticket)) => {
                        *step = Step::Queued(ticket);
                        desk.attend();
                    }
                },
            }
        }
    }
}

impl Drop for Append {
    fn drop(&mut self) {
        if let Step::Waiting { place, .. } = &mut self.step {
            self.desk.queue.leave(place);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{pin::pin, task::Waker, thread};

    use super::*;
    use crate::journal::queue::{Job, QUEUED_BYTES, QUEUED_RECORDS};

    fn taken(desk: &Desk) -> Vec<Job> {
        assert!(desk.queue.wait(None));
        desk.queue.take().jobs
    }

    fn poll(append: Pin<&mut Append>) -> Poll<Answer> {
        append.poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn at_the_bound_a_task_waits_and_is_admitted_when_there_is_room() {
        let desk = Arc::new(Desk::default());
        let mut queued: Vec<_> =
            (0..QUEUED_RECORDS).map(|_| Box::pin(desk.append_async(Ok(vec![b"{}".to_vec()])))).collect();
        for append in &mut queued {
            assert!(poll(append.as_mut()).is_pending());
        }
        let mut one_more = pin!(desk.append_async(Ok(vec![b"last".to_vec()])));
        assert!(poll(one_more.as_mut()).is_pending());
        assert_eq!(taken(&desk).len(), QUEUED_RECORDS);
        assert!(poll(one_more.as_mut()).is_pending());
        assert_eq!(taken(&desk)[0].bodies[0], b"last");
        // The job was dropped without an answer.
        assert!(matches!(poll(one_more.as_mut()), Poll::Ready(Err(AppendError::Stopped))));
    }

    #[test]
    fn what_gives_up_waiting_leaves_nothing_behind() {
        let desk = Arc::new(Desk::default());
        let mut large = Box::pin(desk.append_async(Ok(vec![vec![0; QUEUED_BYTES]])));
        assert!(poll(large.as_mut()).is_pending());
        let mut second = Box::pin(desk.append_async(Ok(vec![vec![0; 10]])));
        assert!(poll(second.as_mut()).is_pending());
        assert_eq!(desk.queue.tasks_waiting(), 1);
        drop(second);
        assert_eq!(desk.queue.tasks_waiting(), 0);
    }

    #[test]
    fn a_closed_queue_refuses_at_once_and_gives_out_what_it_holds() {
        let desk = Arc::new(Desk::default());
        let waiting = {
            let desk = Arc::clone(&desk);
            thread::spawn(move || desk.append(b"{}".to_vec()))
        };
        let group = taken(&desk);
        desk.queue.close();
        assert!(matches!(desk.append(Vec::new()), Err(AppendError::Stopped)));
        for job in group {
            job.answer(Ok(7));
        }
        assert!(matches!(waiting.join().unwrap(), Ok(7)));
        assert!(!desk.queue.wait(None));
    }
}
