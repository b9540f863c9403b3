//! How much a session and a principal may have at once.

use serde::{Deserialize, Deserializer, de::Error as _};

use crate::sandbox::cgroup::PrincipalLimits;

/// Caps. At a cap, a create is refused with RESOURCE_EXHAUSTED; what lives goes on, and can be killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Quotas {
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
    /// Bytes of memory of one principal's sandboxes together; absent: 80 % of the host's.
    pub memory_bytes_per_principal: Option<u64>,
    /// Processes and threads of one principal's sandboxes together; absent: 80 % of what the host can have.
    pub pids_per_principal: Option<u64>,
    /// A principal's share of the processors against the others', as the kernel's `cpu.weight`.
    #[serde(deserialize_with = "weight")]
    pub cpu_weight_per_principal: u64,
}

impl Quotas {
    /// Those that the kernel holds.
    pub fn principal_limits(&self) -> PrincipalLimits {
        PrincipalLimits {
            memory_bytes: self.memory_bytes_per_principal,
            pids: self.pids_per_principal,
            cpu_weight: self.cpu_weight_per_principal,
        }
    }
}

fn weight<'de, D: Deserializer<'de>>(number: D) -> Result<u64, D::Error> {
    match u64::deserialize(number)? {
        weight @ 1..=10_000 => Ok(weight),
        other => Err(D::Error::custom(format!("a weight is from 1 to 10,000, not {other}"))),
    }
}

impl Default for Quotas {
    fn default() -> Self {
        Self {
            sessions_per_principal: 512,
            live_terminals_per_session: 1_024,
            live_terminals_per_principal: 4_096,
            retained_terminals_per_session: 4_096,
            retained_terminals_per_principal: 8_192,
            retained_bytes_per_session: 8 << 30,
            retained_bytes_per_principal: 16 << 30,
            memory_bytes_per_principal: None,
            pids_per_principal: None,
            cpu_weight_per_principal: PrincipalLimits::default().cpu_weight,
        }
    }
}
