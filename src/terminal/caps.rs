//! How much a session and a principal may have at once.

use serde::Deserialize;

/// Caps. At a cap, a create is refused with RESOURCE_EXHAUSTED; what lives goes on, and can be killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Caps {
    /// Open sessions of one principal.
    pub sessions_per_principal: u32,
    /// Terminals of one session whose command runs.
    pub live_terminals_per_session: u32,
    /// Terminals of one principal whose command runs.
    pub live_terminals_per_principal: u32,
    /// Terminals of one session that are not released, running or finished.
    pub retained_terminals_per_session: u32,
    /// Terminals of one principal that are not released, running or finished.
    pub retained_terminals_per_principal: u32,
    /// Bytes of output that the terminals of one session may retain together, by their limits.
    pub retained_bytes_per_session: u64,
    /// Bytes of output that the terminals of one principal may retain together, by their limits.
    pub retained_bytes_per_principal: u64,
}

impl Default for Caps {
    fn default() -> Self {
        Self {
            sessions_per_principal: 512,
            live_terminals_per_session: 1_024,
            live_terminals_per_principal: 4_096,
            retained_terminals_per_session: 4_096,
            retained_terminals_per_principal: 8_192,
            retained_bytes_per_session: 8 << 30,
            retained_bytes_per_principal: 16 << 30,
        }
    }
}
