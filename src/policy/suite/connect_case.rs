//! Cases about connections: a destination, and perhaps an address that its name leads to.

use std::net::IpAddr;

use super::SuiteCase;
use crate::{
    command::rule::{Decision, RuleAt},
    connect::{ConnectingProgram, SocketRequest},
    connect_decision::{NAME_RULE, SOCKET_RULE},
    network::{destination::Host, http_request::WantedConnection, socket_path::SocketPath},
    profile::ProfileName,
    set::PolicySet,
};

/// What is wrong with a case.
pub(super) fn problem(case: &SuiteCase) -> Option<&'static str> {
    let is_alone = case.line.is_none() && case.command.is_none() && case.at == RuleAt::Request;
    (!is_alone).then_some("a case with `connect` has neither a line nor a command")
}

/// The program that a person names; without one it is not known.
pub(super) fn programs(program: Option<&str>) -> ConnectingProgram {
    program.map_or(ConnectingProgram::Unknown, |one| ConnectingProgram::Known(vec![one.to_owned()]))
}

/// The decision on a destination, and the rule that made it.
pub(super) fn evaluate(
    policy: &PolicySet,
    (principal, profile): (&str, &ProfileName),
    destination: &str,
    address: Option<IpAddr>,
    program: Option<&str>,
) -> Result<(Decision, String), String> {
    let program = &programs(program);
    if let Some(socket) = SocketPath::parse_connection(destination) {
        let Ok(path) = &socket else { return Ok((Decision::Deny, SOCKET_RULE.to_owned())) };
        let profile = profile.as_str();
        let decided =
            policy.connect_socket(&SocketRequest { principal, profile, path, program, is_approved: false });
        return Ok((decided.decision, decided.reason.rule().to_owned()));
    }
    let Ok(wanted) = WantedConnection::parse(destination) else {
        return Ok((Decision::Deny, NAME_RULE.to_owned()));
    };
    let address = match (&wanted.destination.host, address) {
        (Host::Address(_), Some(_)) => return Err("an address leads to no other address".to_owned()),
        (Host::Address(own), None) => Some(*own),
        (Host::Name(_), given) => given,
    };
    let decided = policy.connect_wanted((principal, profile.as_str()), &wanted, address, program);
    Ok((decided.decision, decided.reason.rule().to_owned()))
}
