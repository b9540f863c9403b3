//! What has become of sandboxes since the gateway's start.

use crate::tally::Count;

/// Counts that only go up.
#[derive(Debug, Default)]
pub struct Counters {
    /// Launched.
    pub launched: Count,
    /// Not launched, or launched and never heard of.
    pub failed: Count,
    /// Found after a restart, alive, and taken back.
    pub adopted: Count,
    /// Ended before this gateway ended them.
    pub lost: Count,
    /// Ended, however, with nothing left of them.
    pub gone: Count,
}

impl Counters {
    /// How many there are.
    pub fn alive(&self) -> u64 {
        // Read first: one that comes meanwhile is counted, one that goes is not missed.
        let gone = self.gone.read();
        (self.launched.read() + self.adopted.read()).saturating_sub(gone)
    }
}
