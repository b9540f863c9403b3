//! The configuration of approvals: how long a question waits, how many may be open, and who may answer.

use std::time::Duration;

use serde::{Deserialize, Deserializer, de::Error as _};

use super::Approvers;
use crate::policy::duration;

/// The longest expiry: who has not answered in a day does not know any more what was asked.
const EXPIRY_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// The table `approvals` of the configuration.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ApprovalConfig {
    /// How long a question waits for its answer, and afterwards an approval for its request.
    #[serde(deserialize_with = "expiry_within_bounds")]
    pub expiry: Duration,
    /// Who may answer, in addition to root and the gateway's own user.
    pub approvers: Approvers,
    /// Questions of one principal that are open: unanswered, or answered and not used.
    pub open_per_principal: u32,
    /// Open questions of all principals.
    pub open: u32,
}

impl Default for ApprovalConfig {
    fn default() -> Self {
        Self {
            expiry: Duration::from_secs(5 * 60),
            approvers: Approvers::default(),
            open_per_principal: 250,
            open: 1_000,
        }
    }
}

/// As many questions are open as may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ApprovalLimitReached {
    /// Of one principal.
    #[error("{0} questions of this principal wait for a person, the most that may")]
    Principal(u32),
    /// Of all.
    #[error("{0} questions wait for a person, the most that may")]
    Gateway(u32),
}

impl ApprovalLimitReached {
    /// The bound, as the configuration names it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Principal(_) => "approvals_open_per_principal",
            Self::Gateway(_) => "approvals_open",
        }
    }

    /// Its value.
    pub fn max(self) -> u32 {
        match self {
            Self::Principal(most) | Self::Gateway(most) => most,
        }
    }
}

fn expiry_within_bounds<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    match duration::deserialize(deserializer)? {
        Duration::ZERO => Err(D::Error::custom("must be more than 0")),
        time if time > EXPIRY_MAX => Err(D::Error::custom("must be at most 24h")),
        time => Ok(time),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_names_the_bound_and_its_value() {
        for (reached, name) in [
            (ApprovalLimitReached::Principal(17), "approvals_open_per_principal"),
            (ApprovalLimitReached::Gateway(17), "approvals_open"),
        ] {
            assert_eq!((reached.name(), reached.max()), (name, 17));
            assert!(reached.to_string().starts_with("17 questions"), "{reached}");
        }
    }

    #[test]
    fn a_question_waits_for_some_time_and_not_for_ever() {
        let expiry =
            |text: &str| toml::from_str::<ApprovalConfig>(&format!("expiry = '{text}'")).map(|it| it.expiry);
        assert_eq!(expiry("90s").unwrap(), Duration::from_secs(90));
        assert_eq!(expiry("24h").unwrap(), EXPIRY_MAX);
        for wrong in ["0s", "25h", "5", "18446744073709551615ms"] {
            assert!(expiry(wrong).is_err(), "{wrong}");
        }
        assert!(toml::from_str::<ApprovalConfig>("approvers = ['root']").is_err());
        assert_eq!(toml::from_str::<ApprovalConfig>("").unwrap(), ApprovalConfig::default());
    }
}
