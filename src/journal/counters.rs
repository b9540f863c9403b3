//! What the journal has done since it was opened.

use crate::tally::Count;

/// Counts that only go up.
#[derive(Debug, Default)]
pub struct Counters {
    /// Records that were written, those about the journal itself included.
    pub records: Count,
    /// Their bytes.
    pub bytes: Count,
    /// Records that were not written: refused to who waited for them, or dropped where nobody did.
    pub unwritten: Count,
    /// Groups of records that the disk did not take.
    pub write_failures: Count,
    /// Times that the disk did not make records durable.
    pub sync_failures: Count,
    /// Files that were begun, but for the first.
    pub rotations: Count,
}
