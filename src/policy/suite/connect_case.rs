//! Cases about connections: a destination, and perhaps an address that its name leads to.

use std::net::IpAddr;

use super::SuiteCase;
use crate::{
    network::{destination::Host, http_request::WantedConnection},
    policy::{
        command::rule::{Decision, RuleAt},
        connect_decision::NAME_RULE,
        profile::ProfileName,
        set::PolicySet,
    },
};

/// What is wrong with a case.
pub(super) fn problem(case: &SuiteCase) -> Option<&'static str> {
    let is_alone = case.line.is_none() && case.command.is_none() && case.at == RuleAt::Request;
    (!is_alone).then_some("a case with `connect` has neither a line nor a command")
}

/// The decision on a destination, and the rule that made it.
pub(super) fn evaluate(
    policy: &PolicySet,
    (principal, profile): (&str, &ProfileName),
    destination: &str,
    address: Option<IpAddr>,
) -> Result<(Decision, String), String> {
    let Ok(wanted) = WantedConnection::parse(destination) else {
        return Ok((Decision::Deny, NAME_RULE.to_owned()));
    };
    let address = match (&wanted.destination.host, address) {
        (Host::Address(_), Some(_)) => return Err("an address leads to no other address".to_owned()),
        (Host::Address(own), None) => Some(*own),
        (Host::Name(_), given) => given,
    };
    let decided = policy.connect_wanted((principal, profile.as_str()), &wanted, address);
    Ok((decided.decision, decided.reason.rule().to_owned()))
}
