//! The configuration of approvals: how long a question waits, how many may be open, and who may answer.
//!
//! Root and the gateway's own user always may answer, because they write the policy. The configuration can name more approvers. An approver
//! gets no access to the requests themselves or to their sessions.

use std::time::Duration;

use serde::{Deserialize, Deserializer, de::Error as _};

use crate::{policy::duration, session::Principal};

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
pub(crate) enum ApprovalLimitReached {
    /// The questions of one principal.
    #[error("{0} questions of this principal wait for a person, the most that may")]
    Principal(u32),
    /// The questions of all principals.
    #[error("{0} questions wait for a person, the most that may")]
    Gateway(u32),
}

impl ApprovalLimitReached {
    /// The bound, as the configuration names it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Principal(_) => "approvals_open_per_principal",
            Self::Gateway(_) => "approvals_open",
        }
    }

    /// Its value.
    pub(crate) fn max(self) -> u32 {
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

/// One who may answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Approver {
    /// Each principal its own questions.
    Requester,
    /// This principal everybody's.
    Principal(Principal),
}

/// Those who may answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Approvers(Vec<Approver>);

impl Default for Approvers {
    /// Everybody their own.
    fn default() -> Self {
        Self(vec![Approver::Requester])
    }
}

impl Approvers {
    /// Whether `caller` may answer a question of `requester`, at the gateway of the user `gateway_uid`.
    pub fn may_answer(&self, caller: Principal, requester: Principal, gateway_uid: u32) -> bool {
        self.may_answer_all(caller, gateway_uid)
            || (caller == requester && self.0.contains(&Approver::Requester))
    }

    /// Whether `caller` may answer everybody's questions.
    pub fn may_answer_all(&self, caller: Principal, gateway_uid: u32) -> bool {
        is_administrator(caller, gateway_uid) || self.0.contains(&Approver::Principal(caller))
    }
}

/// Root, and who runs the gateway.
pub(super) fn is_administrator(caller: Principal, gateway_uid: u32) -> bool {
    caller.uid == 0 || caller.uid == gateway_uid
}

impl<'de> Deserialize<'de> for Approvers {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let names = Vec::<String>::deserialize(deserializer)?;
        let approver = |name: &String| {
            parse(name).ok_or_else(|| D::Error::custom(format!("{name:?} is neither \"self\" nor \"uid:N\"")))
        };
        names.iter().map(approver).collect::<Result<_, _>>().map(Self)
    }
}

fn parse(name: &str) -> Option<Approver> {
    if name == "self" {
        return Some(Approver::Requester);
    }
    let uid = name.strip_prefix("uid:")?.parse().ok()?;
    Some(Approver::Principal(Principal { uid }))
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

    const GATEWAY: u32 = 990;

    fn uid(uid: u32) -> Principal {
        Principal { uid }
    }

    #[test]
    fn everybody_answers_their_own_where_nobody_is_named() {
        let approvers = Approvers::default();
        assert!(approvers.may_answer(uid(1000), uid(1000), GATEWAY));
        assert!(!approvers.may_answer(uid(1000), uid(1001), GATEWAY));
    }

    #[test]
    fn where_approvers_are_named_nobody_answers_their_own() {
        let approvers = Approvers(vec![Approver::Principal(uid(1000))]);
        assert!(approvers.may_answer(uid(1000), uid(1001), GATEWAY));
        assert!(!approvers.may_answer(uid(1001), uid(1001), GATEWAY));
        assert!(!approvers.may_answer(uid(1001), uid(1000), GATEWAY));
    }

    #[test]
    fn names_are_self_and_uids_and_nothing_else() {
        assert_eq!(parse("self"), Some(Approver::Requester));
        assert_eq!(parse("uid:1000"), Some(Approver::Principal(uid(1000))));
        for other in ["", "Self", "uid:", "uid:-1", "uid:root", "1000", "gid:1000", "uid:4294967296"] {
            assert_eq!(parse(other), None, "{other}");
        }
        let both = Approvers(vec![Approver::Requester, Approver::Principal(uid(1000))]);
        assert!(
            both.may_answer(uid(1001), uid(1001), GATEWAY) && both.may_answer(uid(1000), uid(1001), GATEWAY)
        );
        assert!(!both.may_answer(uid(1001), uid(1002), GATEWAY));
    }

    #[test]
    fn root_and_the_gateways_own_user_always_answer() {
        for approver in [0, GATEWAY] {
            assert!(Approvers(Vec::new()).may_answer(uid(approver), uid(1000), GATEWAY));
        }
    }
}
