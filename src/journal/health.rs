//! Whether the journal takes records, for whoever asks and for whoever waits for a change.
//!
//! Waits by wakers, and so by any runtime or none.

use std::{
    future::poll_fn,
    sync::{Arc, Mutex},
    task::{Poll, Waker},
};

use super::{WriteFailure, queue::lock};

/// Whether the journal takes records.
#[derive(Debug, Clone)]
pub enum Health {
    /// The last append went well.
    Writable,
    /// The last append failed: nothing may be started.
    Unwritable(WriteFailure),
}

impl Health {
    /// Whether both say that it takes records, or both that it does not.
    fn is_same_state(&self, other: &Self) -> bool {
        matches!(self, Self::Writable) == matches!(other, Self::Writable)
    }
}

/// The health now, and who waits for another.
#[derive(Debug)]
pub(super) struct HealthState(Mutex<SharedHealth>);

#[derive(Debug)]
struct SharedHealth {
    health: Health,
    /// Counts the changes.
    changes: u64,
    wakers: Vec<Waker>,
}

impl HealthState {
    pub fn new(health: Health) -> Self {
        Self(Mutex::new(SharedHealth { health, changes: 0, wakers: Vec::new() }))
    }

    pub fn get(&self) -> Health {
        lock(&self.0).health.clone()
    }

    pub fn set(&self, health: Health) {
        let mut known = lock(&self.0);
        let changed = !known.health.is_same_state(&health);
        known.health = health;
        if changed {
            known.changes += 1;
            let waiting = std::mem::take(&mut known.wakers);
            drop(known);
            waiting.into_iter().for_each(Waker::wake);
        }
    }
}

/// Tells of changes of a journal's health. See [`Journal::health_changes`](super::Journal::health_changes).
#[derive(Debug)]
pub struct HealthChanges {
    state: Arc<HealthState>,
    /// The changes that were told.
    seen: u64,
}

impl HealthChanges {
    pub(super) fn of(state: &Arc<HealthState>) -> Self {
        let seen = lock(&state.0).changes;
        Self { state: Arc::clone(state), seen }
    }

    /// Waits until the journal takes records again, or does so no more. Only the last of several changes is told.
    pub async fn next(&mut self) -> Health {
        poll_fn(|context| {
            let mut known = lock(&self.state.0);
            if known.changes != self.seen {
                self.seen = known.changes;
                return Poll::Ready(known.health.clone());
            }
            if !known.wakers.iter().any(|waker| waker.will_wake(context.waker())) {
                known.wakers.push(context.waker().clone());
            }
            Poll::Pending
        })
        .await
    }
}
