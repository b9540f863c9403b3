//! What is decided about a connection or a request that a person writes down, and for which commands TLS is opened.

use std::{collections::BTreeSet, net::IpAddr};

use super::{
    command::rule::Decision,
    connect::{Approved, ConnectRequest, ConnectingProgram, DialTarget, TlsHandling},
    connect_decision::{ConnectDecision, ConnectReason},
    secret::SecretGrant,
    set::PolicySet,
};
use crate::network::{
    http_request::{Scheme, WantedConnection},
    name::HostName,
};

impl PolicySet {
    /// Decides about what commands of a principal and a profile want, as the proxy comes to see it: at an address, or about the name.
    pub fn connect_wanted(
        &self,
        (principal, profile): (&str, &str),
        wanted: &WantedConnection,
        address: Option<IpAddr>,
        program: &ConnectingProgram,
    ) -> ConnectDecision {
        let WantedConnection { destination, request, scheme } = wanted;
        let decide = |http| {
            let approved = Approved::Nothing;
            let request = ConnectRequest { principal, profile, destination, http, program, approved };
            match address {
                Some(address) => self.connect_address(&request, DialTarget { address, is_hosts_own: false }),
                None => self.connect_name(&request),
            }
        };
        let decided = decide(request.as_ref());
        if *scheme != Some(Scheme::Https) || decided.tls == TlsHandling::Terminate {
            return decided;
        }
        // Nobody sees the request.
        let decided = decide(None);
        match decided.decision == Decision::Deny || !decided.requests_only {
            true => decided,
            false => {
                ConnectDecision { decision: Decision::Deny, reason: ConnectReason::HiddenRequests, ..decided }
            }
        }
    }

    /// The names, with all below them, to which TLS of some command of a principal is opened.
    pub fn opened_hosts(&self, principal: &str) -> BTreeSet<HostName> {
        let opening = self.connect_rules().iter().filter(|rule| rule.opens_tls_for(principal, None));
        opening.flat_map(|rule| rule.host_names().cloned()).collect()
    }

    /// Whether TLS to some host is opened for commands of this principal and profile.
    pub fn opens_tls(&self, principal: &str, profile: &str) -> bool {
        self.connect_rules().iter().any(|rule| rule.opens_tls_for(principal, Some(profile)))
    }

    /// Whether rules that name programs are about connections of these commands.
    pub fn has_program_rules(&self, principal: &str, profile: &str) -> bool {
        self.connect_rules().iter().any(|rule| rule.names_programs_for(principal, profile))
    }

    /// The secrets that requests of these commands may be given.
    pub fn credential_secrets(&self, principal: &str, profile: &str) -> Vec<SecretGrant> {
        let rules = self.connect_rules().iter().filter(|rule| rule.opens_tls_for(principal, Some(profile)));
        let names: BTreeSet<&String> =
            rules.filter_map(|rule| Some(&rule.credential.as_ref()?.secret)).collect();
        // Loading has refused names that no secret has.
        names.into_iter().filter_map(|name| self.secret_grant(name)).collect()
    }
}
