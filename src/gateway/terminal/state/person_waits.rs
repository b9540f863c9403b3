//! How many of a command's questions wait for a person. A count only: `person_wait` says when it changes.

use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

use tokio::sync::{Mutex, MutexGuard};

/// The questions of one command that wait.
#[derive(Debug, Default)]
pub(super) struct PersonWaits {
    waiting: AtomicU32,
    telling: Mutex<()>,
}

impl PersonWaits {
    /// Whether it waits for a person.
    pub(super) fn any(&self) -> bool {
        self.waiting.load(SeqCst) > 0
    }

    /// One more. Whether it is the first.
    pub(super) fn add(&self) -> bool {
        self.waiting.fetch_add(1, SeqCst) == 0
    }

    /// One less. Whether it was the last.
    pub(super) fn remove(&self) -> bool {
        self.waiting.fetch_sub(1, SeqCst) == 1
    }

    /// Held by who tells the supervisor: of two that do, the later one says how it is.
    pub(super) async fn telling(&self) -> MutexGuard<'_, ()> {
        self.telling.lock().await
    }
}
