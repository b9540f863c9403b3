//! What the journal has done since it was opened.

use crate::counters::Counter;

/// Counts that only go up.
#[derive(Debug, Default)]
pub struct Counters {
    /// Records that were written, those about the journal itself included.
    pub records: Counter,
    /// Their bytes.
    pub bytes: Counter,
    /// Records that were not written: failed appends and dropped best-effort records.
    pub unwritten: Counter,
    /// Batches that could not be written.
    pub write_failures: Counter,
    /// Failed syncs.
    pub sync_failures: Counter,
    /// Files that were created after the first one.
    pub rotations: Counter,
}
