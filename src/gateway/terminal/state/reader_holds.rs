//! Records which of a terminal's rings a reader holds.

use std::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicBool, Ordering},
};

/// The rings that are held: stdout's (or the merged one), stderr's.
#[derive(Debug, Default)]
pub(in crate::terminal) struct ReaderHolds {
    rings: Mutex<[bool; 2]>,
    is_left: AtomicBool,
}

impl ReaderHolds {
    pub(in crate::terminal) fn lock(&self) -> MutexGuard<'_, [bool; 2]> {
        self.rings.lock().expect("no code panics while it holds a terminal's holds")
    }

    /// From now on holds stay when their readers go: with this gateway, to come back to the next one.
    pub(in crate::terminal) fn leave(&self) {
        self.is_left.store(true, Ordering::Release);
    }

    pub(in crate::terminal) fn is_left(&self) -> bool {
        self.is_left.load(Ordering::Acquire)
    }
}
