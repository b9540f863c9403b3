//! How far the journal is written, for whoever waits for more.
//!
//! Waits by wakers, and so by any runtime or none; costs the writer a lock when nobody waits.

use std::{
    collections::BTreeMap,
    future::poll_fn,
    sync::{Arc, Mutex},
    task::{Poll, Waker},
};

use super::queue::lock;

/// The number of the last record that is written.
#[derive(Debug, Default)]
pub(super) struct Progress(Mutex<ProgressState>);

#[derive(Debug, Default)]
struct ProgressState {
    last: u64,
    /// One entry for each [`Written`] that waits, which takes it out when it is dropped.
    waiting: BTreeMap<u64, Waker>,
    next_slot: u64,
}

impl Progress {
    /// Everything up to this record is written.
    pub fn advance_to(&self, last: u64) {
        let mut reached = lock(&self.0);
        reached.last = last;
        let waiting = std::mem::take(&mut reached.waiting);
        drop(reached);
        waiting.into_values().for_each(Waker::wake);
    }
}

/// Tells of records that were written. See [`Journal::written`](super::Journal::written).
#[derive(Debug)]
pub struct ProgressReceiver {
    progress: Arc<Progress>,
    seen: u64,
    slot: u64,
}

impl ProgressReceiver {
    pub(super) fn of(progress: &Arc<Progress>) -> Self {
        let mut reached = lock(&progress.0);
        reached.next_slot += 1;
        Self { progress: Arc::clone(progress), seen: reached.last, slot: reached.next_slot }
    }

    /// The last record that was told of.
    pub fn last(&self) -> u64 {
        self.seen
    }

    /// Waits until more is written than was told of.
    pub async fn changed(&mut self) {
        poll_fn(|context| {
            let mut reached = lock(&self.progress.0);
            if reached.last != self.seen {
                self.seen = reached.last;
                return Poll::Ready(());
            }
            reached.waiting.insert(self.slot, context.waker().clone());
            Poll::Pending
        })
        .await;
    }
}

impl Drop for ProgressReceiver {
    fn drop(&mut self) {
        lock(&self.progress.0).waiting.remove(&self.slot);
    }
}

#[cfg(test)]
mod tests {
    use std::{pin::pin, task::Context};

    use super::*;

    #[test]
    fn a_receiver_wakes_once_per_advance_and_unregisters_when_dropped() {
        let progress = Arc::<Progress>::default();
        progress.advance_to(3);
        let mut written = ProgressReceiver::of(&progress);
        let mut context = Context::from_waker(Waker::noop());
        assert!(pin!(written.changed()).poll(&mut context).is_pending());
        progress.advance_to(5);
        assert!(pin!(written.changed()).poll(&mut context).is_ready());
        assert_eq!(written.last(), 5);
        assert!(pin!(written.changed()).poll(&mut context).is_pending());
        drop(written);
        assert!(lock(&progress.0).waiting.is_empty());
    }
}
