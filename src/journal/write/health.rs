//! Whether the journal can be written.

use crate::WriteFailure;

/// Whether the journal takes records. [`Journal::health`](crate::Journal::health) says what it is now, and
/// [`Journal::health_changes`](crate::Journal::health_changes) when it changes.
#[derive(Debug, Clone)]
pub enum Health {
    /// The last append succeeded.
    Writable,
    /// The last append failed: no command may be started.
    Unwritable(WriteFailure),
}

impl Health {
    /// Replaces the health, and returns whether it went from writable to unwritable or back.
    pub(crate) fn replace(&mut self, new: Self) -> bool {
        let has_changed = matches!(self, Self::Writable) != matches!(new, Self::Writable);
        *self = new;
        has_changed
    }
}
