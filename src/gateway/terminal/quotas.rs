//! The quotas of a session and of a principal, and the error when one is reached.

use serde::{Deserialize, Deserializer, de::Error as _};

use crate::sandbox::cgroup::PrincipalLimits;

/// Lines that wait for their turn in one kept shell.
pub const MAX_QUEUED_LINES: u32 = 16;

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

/// Which cap is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{scope} has reached its cap of {max} {kind}")]
pub struct QuotaReached {
    /// Of what.
    pub kind: QuotaKind,
    /// Of whom.
    pub scope: QuotaScope,
    /// The cap.
    pub max: u64,
}

impl QuotaReached {
    /// The cap's name in the configuration.
    pub fn name(&self) -> &'static str {
        match (self.kind, self.scope) {
            (QuotaKind::Live, QuotaScope::Session) => "live_terminals_per_session",
            (QuotaKind::Live, QuotaScope::Principal) => "live_terminals_per_principal",
            (QuotaKind::Retained, QuotaScope::Session) => "retained_terminals_per_session",
            (QuotaKind::Retained, QuotaScope::Principal) => "retained_terminals_per_principal",
            (QuotaKind::Bytes, QuotaScope::Session) => "retained_bytes_per_session",
            (QuotaKind::Bytes, QuotaScope::Principal) => "retained_bytes_per_principal",
            (QuotaKind::Journal { .. }, _) => "journal_share",
            (QuotaKind::Descriptors, _) => "descriptors_per_principal",
        }
    }
}

/// What is capped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QuotaKind {
    /// Terminals whose command runs.
    Live,
    /// Terminals that are not released.
    Retained,
    /// Bytes of output.
    Bytes,
    /// Bytes of records.
    Journal {
        /// Written in the last so many seconds.
        within_s: u64,
    },
    /// Descriptors of the gateway.
    Descriptors,
}

impl std::fmt::Display for QuotaKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Live => f.write_str("live terminals"),
            Self::Retained => f.write_str("retained terminals"),
            Self::Bytes => f.write_str("retained bytes"),
            Self::Descriptors => f.write_str("of the gateway's descriptors"),
            Self::Journal { within_s } => write!(f, "bytes in the journal within {within_s} s"),
        }
    }
}

/// Whose cap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QuotaScope {
    /// A session's.
    Session,
    /// A principal's.
    Principal,
}

impl std::fmt::Display for QuotaScope {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Session => "the session",
            Self::Principal => "the principal",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_weight_is_one_that_the_kernel_takes() {
        let read = |weight: u64| toml::from_str::<Quotas>(&format!("cpu_weight_per_principal = {weight}"));
        for weight in [1, 10_000] {
            assert_eq!(read(weight).unwrap().principal_limits().cpu_weight, weight);
        }
        for weight in [0, 10_001] {
            assert!(read(weight).unwrap_err().to_string().contains("from 1 to 10,000"), "{weight}");
        }
    }

    #[test]
    fn what_the_kernel_holds_for_a_principal_is_what_is_configured() {
        let text = "memory_bytes_per_principal = 7\npids_per_principal = 8\ncpu_weight_per_principal = 9";
        let limits = toml::from_str::<Quotas>(text).unwrap().principal_limits();
        assert_eq!((limits.memory_bytes, limits.pids, limits.cpu_weight), (Some(7), Some(8), 9));
        let default = Quotas::default();
        assert_eq!(
            (default.retained_bytes_per_session, default.retained_bytes_per_principal),
            (8 << 30, 16 << 30)
        );
    }

    #[test]
    fn a_cap_that_is_reached_is_named_as_in_the_configuration() {
        let reached = |kind, scope| QuotaReached { kind, scope, max: 3 };
        let named = [
            (
                QuotaKind::Live,
                QuotaScope::Session,
                "live_terminals_per_session",
                "the session has reached its cap of 3 live terminals",
            ),
            (
                QuotaKind::Live,
                QuotaScope::Principal,
                "live_terminals_per_principal",
                "the principal has reached its cap of 3 live terminals",
            ),
            (
                QuotaKind::Retained,
                QuotaScope::Session,
                "retained_terminals_per_session",
                "the session has reached its cap of 3 retained terminals",
            ),
            (
                QuotaKind::Retained,
                QuotaScope::Principal,
                "retained_terminals_per_principal",
                "the principal has reached its cap of 3 retained terminals",
            ),
            (
                QuotaKind::Bytes,
                QuotaScope::Session,
                "retained_bytes_per_session",
                "the session has reached its cap of 3 retained bytes",
            ),
            (
                QuotaKind::Bytes,
                QuotaScope::Principal,
                "retained_bytes_per_principal",
                "the principal has reached its cap of 3 retained bytes",
            ),
            (
                QuotaKind::Journal { within_s: 9 },
                QuotaScope::Principal,
                "journal_share",
                "the principal has reached its cap of 3 bytes in the journal within 9 s",
            ),
            (
                QuotaKind::Descriptors,
                QuotaScope::Principal,
                "descriptors_per_principal",
                "the principal has reached its cap of 3 of the gateway's descriptors",
            ),
        ];
        for (kind, scope, name, message) in named {
            assert_eq!(
                (reached(kind, scope).name(), reached(kind, scope).to_string()),
                (name, message.to_owned())
            );
        }
    }
}
