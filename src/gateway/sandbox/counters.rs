//! Counts of sandboxes since the gateway's start.

use crate::counters::Counter;

/// Counts that only go up.
#[derive(Debug, Default)]
pub(crate) struct SandboxCounters {
    /// Launched.
    pub launched: Counter,
    /// Launches that failed, and sandboxes that never answered.
    pub failed: Counter,
    /// Adopted after a restart.
    pub adopted: Counter,
    /// Ended before this gateway ended them.
    pub lost: Counter,
    /// Found or left without their gate, which they are to have.
    pub gates_lost: Counter,
    /// Ended and removed.
    pub gone: Counter,
}

impl SandboxCounters {
    /// How many exist now.
    pub(crate) fn alive(&self) -> u64 {
        // `gone` is read first, so that a sandbox that ends meanwhile is still counted as alive.
        let gone = self.gone.read();
        (self.launched.read() + self.adopted.read()).saturating_sub(gone)
    }
}
