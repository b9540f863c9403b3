//! What the journal has done since it was opened.

use crate::counters::Counter;

/// Counts that only go up.
#[derive(Debug, Default)]
pub struct Counters {
    /// Records that were written, those about the journal itself included.
    pub records: Counter,
    /// Their bytes.
    pub bytes: Counter,
    /// Records that were not written: refused to who waited for them, or dropped where nobody did.
    pub unwritten: Counter,
    /// Groups of records that the disk did not take.
    pub write_failures: Counter,
    /// Times that the disk did not make records durable.
    pub sync_failures: Counter,
    /// Files that were begun, but for the first.
    pub rotations: Counter,
}
