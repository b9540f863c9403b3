//! How many terminals have gone through each state since the gateway's start.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Counters that only go up.
#[derive(Debug, Default)]
pub struct Counters {
    created: AtomicU64,
    adopted: AtomicU64,
    started: AtomicU64,
    refused: AtomicU64,
    failed: AtomicU64,
    finished: AtomicU64,
    lost: AtomicU64,
    released: AtomicU64,
    collected: AtomicU64,
}

/// The counters at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counted {
    /// Permitted.
    pub created: u64,
    /// Found after a restart, running or ended.
    pub adopted: u64,
    /// Exec has succeeded.
    pub started: u64,
    /// Refused by policy or by a cap.
    pub refused: u64,
    /// Permitted, and not started.
    pub failed: u64,
    /// Ended, however.
    pub finished: u64,
    /// Of those, ended with their sandbox.
    pub lost: u64,
    /// Released by their caller, with their session or by collection.
    pub released: u64,
    /// Of those, collected because nobody released them in time.
    pub collected: u64,
}

impl Counters {
    pub(super) fn created(&self) {
        self.created.fetch_add(1, Relaxed);
    }

    pub(super) fn adopted(&self) {
        self.adopted.fetch_add(1, Relaxed);
    }

    pub(super) fn started(&self) {
        self.started.fetch_add(1, Relaxed);
    }

    pub(super) fn refused(&self) {
        self.refused.fetch_add(1, Relaxed);
    }

    pub(super) fn failed(&self) {
        self.failed.fetch_add(1, Relaxed);
    }

    pub(super) fn finished(&self) {
        self.finished.fetch_add(1, Relaxed);
    }

    pub(super) fn lost(&self) {
        self.lost.fetch_add(1, Relaxed);
    }

    pub(super) fn released(&self) {
        self.released.fetch_add(1, Relaxed);
    }

    pub(super) fn collected(&self) {
        self.collected.fetch_add(1, Relaxed);
    }

    /// All of them now.
    pub fn read(&self) -> Counted {
        Counted {
            created: self.created.load(Relaxed),
            adopted: self.adopted.load(Relaxed),
            started: self.started.load(Relaxed),
            refused: self.refused.load(Relaxed),
            failed: self.failed.load(Relaxed),
            finished: self.finished.load(Relaxed),
            lost: self.lost.load(Relaxed),
            released: self.released.load(Relaxed),
            collected: self.collected.load(Relaxed),
        }
    }
}
