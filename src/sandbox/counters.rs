//! What has become of sandboxes since the gateway's start.

use crate::counters::Counter;

/// Counts that only go up.
#[derive(Debug, Default)]
pub struct SandboxCounters {
    /// Launched.
    pub launched: Counter,
    /// Not launched, or launched and never heard of.
    pub failed: Counter,
    /// Found after a restart, alive, and taken back.
    pub adopted: Counter,
    /// Ended before this gateway ended them.
    pub lost: Counter,
    /// Ended, however, with nothing left of them.
    pub gone: Counter,
}

impl SandboxCounters {
    /// How many there are.
    pub fn alive(&self) -> u64 {
        // Read first: one that comes meanwhile is counted, one that goes is not missed.
        let gone = self.gone.read();
        (self.launched.read() + self.adopted.read()).saturating_sub(gone)
    }
}
