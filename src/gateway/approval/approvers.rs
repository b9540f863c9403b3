//! Who may answer approval requests.
//!
//! Root and the gateway's own user always may, because they write the policy. The configuration can name more approvers.
//! An approver gets no access to the requests themselves or to their sessions.

use serde::{Deserialize, Deserializer, de::Error as _};

use crate::session::Principal;

/// One who may answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Approver {
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
    /// Whether `caller` may answer a question of `asker`, at the gateway of the user `gateway_uid`.
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
pub fn is_administrator(caller: Principal, gateway_uid: u32) -> bool {
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
