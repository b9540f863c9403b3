//! Records which of a terminal's rings a reader holds.

use std::sync::{Mutex, MutexGuard};

/// The rings that are held: stdout's (or the merged one), stderr's.
#[derive(Debug, Default)]
pub(in crate::terminal) struct ReaderHolds(Mutex<[bool; 2]>);

impl ReaderHolds {
    pub(in crate::terminal) fn lock(&self) -> MutexGuard<'_, [bool; 2]> {
        self.0.lock().expect("no code panics while it holds a terminal's holds")
    }
}
