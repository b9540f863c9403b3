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
pub(super) struct Progress(Mutex<Reached>);

#[derive(Debug, Default)]
struct Reached {
    last: u64,
    /// One entry for each [`Written`] that waits, which takes it out when it is dropped.
    waiting: BTreeMap<u64, Waker>,
    next_place: u64,
}

impl Progress {
    /// Everything up to this record is written.
    pub fn reach(&self, last: u64) {
        let mut reached = lock(&self.0);
        reached.last = last;
        let waiting = std::mem::take(&mut reached.waiting);
        drop(reached);
        waiting.into_values().for_each(Waker::wake);
    }
}

/// Tells of records that were written. See [`Journal::written`](super::Journal::written).
#[derive(Debug)]
pub struct Written {
    progress: Arc<Progress>,
    told: u64,
    place: u64,
}

impl Written {
    pub(super) fn of(progress: &Arc<Progress>) -> Self {
        let mut reached = lock(&progress.0);
        reached.next_place += 1;
        Self { progress: Arc::clone(progress), told: reached.last, place: reached.next_place }
    }

    /// The last record that was told of.
    pub fn last(&self) -> u64 {
        self.told
    }

    /// Waits until more is written than was told of.
    pub async fn more(&mut self) {
        poll_fn(|context| {
            let mut reached = lock(&self.progress.0);
            if reached.last != self.told {
                self.told = reached.last;
                return Poll::Ready(());
            }
            reached.waiting.insert(self.place, context.waker().clone());
            Poll::Pending
        })
        .await;
    }
}

impl Drop for Written {
    fn drop(&mut self) {
        lock(&self.progress.0).waiting.remove(&self.place);
    }
}

#[cfg(test)]
mod tests {
    use std::{pin::pin, task::Context};

    use super::*;

    #[test]
    fn whoever_waits_is_told_once_and_leaves_nothing_behind() {
        let progress = Arc::<Progress>::default();
        progress.reach(3);
        let mut written = Written::of(&progress);
        let mut context = Context::from_waker(Waker::noop());
        assert!(pin!(written.more()).poll(&mut context).is_pending());
        progress.reach(5);
        assert!(pin!(written.more()).poll(&mut context).is_ready());
        assert_eq!(written.last(), 5);
        assert!(pin!(written.more()).poll(&mut context).is_pending());
        drop(written);
        assert!(lock(&progress.0).waiting.is_empty());
    }
}
