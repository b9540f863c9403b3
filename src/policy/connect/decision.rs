//! Decides about one connection: first about the name, then about each address that it leads to.

use std::{collections::BTreeSet, net::IpAddr};

use super::{
    super::{
        command::rule::{Decision, RuleMode},
        set::PolicySet,
    },
    request::{Approved, ConnectRequest, DialTarget},
    rule::ConnectRule,
    source::Tunnel,
};
use crate::network::{
    address::{self, Scope},
    destination::{Destination, Host},
    name::HostName,
};

/// The name under which an address is refused that is not public and that no rule names.
pub const ADDRESS_RULE: &str = "network.address";

/// The name under which a text is refused that names no host.
pub const NAME_RULE: &str = "network.name";

/// A decision, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectDecision {
    /// Allow, ask or deny.
    pub decision: Decision,
    /// Why.
    pub reason: ConnectReason,
    /// What may be spoken in the connection; of one that is allowed or asked about.
    pub tunnel: Tunnel,
    /// Rules that only watch, and that would have denied or allowed.
    pub observed: Vec<String>,
}

/// Why a connection is allowed or denied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConnectReason {
    /// A rule says so, with its own words.
    Rule(String, Option<String>),
    /// No rule allows it.
    Default,
    /// Its address is not public, and no rule names it.
    NotPublic(IpAddr, Scope),
}

impl ConnectReason {
    /// The name of the rule: of a policy file, `default`, or [`ADDRESS_RULE`].
    pub fn rule(&self) -> &str {
        match self {
            Self::Rule(id, _) => id,
            Self::Default => "default",
            Self::NotPublic(..) => ADDRESS_RULE,
        }
    }

    /// For people.
    pub fn text(&self) -> String {
        match self {
            Self::Rule(_, Some(reason)) => reason.clone(),
            Self::Rule(id, None) => format!("rule {id:?} decides"),
            Self::Default => "no rule allows it".to_owned(),
            Self::NotPublic(address, scope) => {
                format!("{address} is a {} address, and no rule names it under `address`", scope.name())
            }
        }
    }
}

impl PolicySet {
    /// Decides whether a name may be resolved. An address needs no resolving, and is allowed here. A name that only rules that ask
    /// are about is asked about before anything of it leaves the host.
    pub fn connect_name(&self, request: &ConnectRequest<'_>) -> ConnectDecision {
        let host = &request.destination.host;
        let rules = Applying::new(self, request);
        if let Host::Address(_) = host {
            return rules.decide(Decision::Allow, ConnectReason::Default, Tunnel::Any);
        }
        let denies =
            |rule: &&ConnectRule| !rule.has_addresses() && (!rule.has_hosts() || rule.names_host(host));
        if let Some(rule) = rules.enforced(Decision::Deny).find(denies) {
            return rules.decide_by(rule, Tunnel::Checked);
        }
        let allowing = rules.enforced(Decision::Allow).find(|rule| rule.names_host(host));
        let asks = |rule: &&ConnectRule| rules.ask_by_name(rule, host);
        match (rules.enforced(Decision::Ask).find(asks), allowing) {
            (Some(rule), _) if request.approved == Approved::Nothing => rules.decide_by(rule, rule.tunnel),
            (_, Some(rule)) | (Some(rule), None) => rules.decide_as(Decision::Allow, rule, rule.tunnel),
            (None, None) => rules.decide(Decision::Deny, ConnectReason::Default, Tunnel::Checked),
        }
    }

    /// The ports, in order, at which connections to a name could be allowed. An error is the decision against all of them.
    pub fn connect_ports(
        &self,
        principal: &str,
        profile: &str,
        name: &HostName,
    ) -> Result<Vec<u16>, ConnectDecision> {
        let host = Host::Name(name.clone());
        let decide = |port| {
            let destination = Destination { host: host.clone(), port };
            let approved = Approved::Nothing;
            self.connect_name(&ConnectRequest { principal, profile, destination: &destination, approved })
        };
        let naming = self.connect_rules().iter().filter(|rule| rule.names_host(&host));
        let ports: BTreeSet<u16> = naming.flat_map(ConnectRule::ports).copied().collect();
        let (allowed, denied): (Vec<_>, Vec<_>) = ports
            .into_iter()
            .map(|port| (port, decide(port)))
            .partition(|(_, decided)| decided.decision != Decision::Deny);
        if !allowed.is_empty() {
            return Ok(allowed.into_iter().map(|(port, _)| port).collect());
        }
        // A rule that is about every port says so for none in particular.
        Err(denied.into_iter().next().map_or_else(|| decide(0), |(_, decided)| decided))
    }

    /// Decides whether an address may be dialled: the one that was asked for, or one that its name leads to.
    pub fn connect_address(&self, request: &ConnectRequest<'_>, target: DialTarget) -> ConnectDecision {
        let host = &request.destination.host;
        let rules = Applying::new(self, request);
        let is_about = |rule: &&ConnectRule| {
            (!rule.has_hosts() || rule.names_host(host))
                && (!rule.has_addresses() || rule.covers(target.address))
        };
        if let Some(rule) = rules.enforced(Decision::Deny).find(is_about) {
            return rules.decide_by(rule, Tunnel::Checked);
        }
        let allows = |rule: &&ConnectRule| match host {
            Host::Name(_) => rule.names_host(host) && (!rule.has_addresses() || rule.covers(target.address)),
            Host::Address(_) => !rule.has_hosts() && rule.covers(target.address),
        };
        let allowing: Vec<&ConnectRule> = rules.granting().filter(allows).collect();
        // The one that is the widest says what may be spoken.
        let Some(rule) = allowing.iter().max_by_key(|rule| rule.tunnel) else {
            return rules.decide(Decision::Deny, ConnectReason::Default, Tunnel::Checked);
        };
        let scope = address::scope(target.address);
        if scope != Scope::Public || target.is_hosts_own {
            let names = |rule: &&ConnectRule| {
                rule.covers(target.address) && (!rule.has_hosts() || rule.names_host(host))
            };
            if rules.granting().find(names).is_none() {
                let scope = if target.is_hosts_own { Scope::Loopback } else { scope };
                let reason = ConnectReason::NotPublic(target.address, scope);
                return rules.decide(Decision::Deny, reason, Tunnel::Checked);
            }
        }
        let tunnel = match host {
            Host::Name(_) => rule.tunnel,
            // Whatever is spoken there, the rule is about the address alone.
            Host::Address(_) => Tunnel::Any,
        };
        let is_answered = |rule: &ConnectRule| match request.approved {
            Approved::Nothing => false,
            Approved::Name => rules.ask_by_name(rule, host),
            Approved::Addresses(addresses) => addresses.contains(&target.address),
        };
        match rules.enforced(Decision::Ask).filter(is_about).find(|rule| !is_answered(rule)) {
            Some(asking) => rules.decide_by(asking, tunnel),
            None => rules.decide_as(Decision::Allow, rule, tunnel),
        }
    }
}

/// The rules that count for one request.
struct Applying<'a> {
    rules: Vec<&'a ConnectRule>,
    observed: Vec<String>,
}

impl<'a> Applying<'a> {
    fn new(policy: &'a PolicySet, request: &ConnectRequest<'_>) -> Self {
        let host = &request.destination.host;
        let (observing, rules): (Vec<_>, Vec<_>) = policy
            .connect_rules()
            .iter()
            .filter(|rule| rule.applies(request))
            .partition(|rule| rule.mode == RuleMode::Observe);
        let is_about = |rule: &&ConnectRule| match host {
            Host::Name(_) => rule.names_host(host),
            Host::Address(address) => !rule.has_hosts() && rule.covers(*address),
        };
        Self { rules, observed: observing.into_iter().filter(is_about).map(|rule| rule.id.clone()).collect() }
    }

    fn enforced(&self, decision: Decision) -> impl Iterator<Item = &'a ConnectRule> {
        self.rules.iter().copied().filter(move |rule| rule.decision == decision)
    }

    /// Rules by which something may be reached: those that allow, and those that ask, once a person has said yes.
    fn granting(&self) -> impl Iterator<Item = &'a ConnectRule> {
        self.rules.iter().copied().filter(|rule| rule.decision != Decision::Deny)
    }

    /// Whether a rule that asks does so before the name is resolved. One with addresses may not be about this name's: where another
    /// rule lets it be resolved, they are known first.
    fn ask_by_name(&self, rule: &ConnectRule, host: &Host) -> bool {
        let is_resolved = || self.enforced(Decision::Allow).any(|other| other.names_host(host));
        rule.names_host(host) && (!rule.has_addresses() || !is_resolved())
    }

    fn decide_by(&self, rule: &ConnectRule, tunnel: Tunnel) -> ConnectDecision {
        self.decide_as(rule.decision, rule, tunnel)
    }

    fn decide_as(&self, decision: Decision, rule: &ConnectRule, tunnel: Tunnel) -> ConnectDecision {
        self.decide(decision, ConnectReason::Rule(rule.id.clone(), rule.reason.clone()), tunnel)
    }

    fn decide(&self, decision: Decision, reason: ConnectReason, tunnel: Tunnel) -> ConnectDecision {
        ConnectDecision { decision, reason, tunnel, observed: self.observed.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::destination::Destination;

    const RULES: &str = "default_profile='a'\n[profile.a]\n[profile.b]\n\
        [[connect]]\nid='registries'\ndecision='allow'\nhost=['registry.example.org','*.files.example.org']\nport=[443]\n\
        matches=['registry.example.org:443','a.files.example.org:443']\nrejects=['registry.example.org:80','10.0.0.1:443']\n\
        [[connect]]\nid='no-secrets'\ndecision='deny'\nhost=['secret.files.example.org']\nreason='not from here'\n\
        [[connect]]\nid='intranet'\ndecision='allow'\nhost=['git.corp.example']\naddress=['10.1.0.0/16']\nport=[22,443]\ntunnel='any'\n\
        [[connect]]\nid='database'\ndecision='allow'\naddress=['10.2.0.5']\nport=[5432]\nwhen={profile=['a']}\n\
        [[connect]]\nid='no-lab'\ndecision='deny'\naddress=['10.1.66.0/24']\n\
        [[connect]]\nid='watched'\ndecision='allow'\nhost=['new.example.org']\nport=[443]\nmode='observe'\n";

    fn decide(destination: &str, address: Option<&str>, profile: &str) -> (Decision, String) {
        let policy = PolicySet::parse("p", RULES).unwrap_or_else(|error| panic!("{error}"));
        let destination = Destination::parse(destination).unwrap();
        let approved = Approved::Nothing;
        let request = ConnectRequest { principal: "uid:1", profile, destination: &destination, approved };
        let decision = match address {
            None => policy.connect_name(&request),
            Some(address) => {
                let target = DialTarget { address: address.parse().unwrap(), is_hosts_own: false };
                policy.connect_address(&request, target)
            }
        };
        (decision.decision, decision.reason.rule().to_owned())
    }

    #[test]
    fn names_and_their_addresses_are_judged_by_the_same_rules() {
        use Decision::{Allow, Deny};
        for (destination, address, decision, rule) in [
            ("registry.example.org:443", None, Allow, "registries"),
            ("REGISTRY.example.org.:443", None, Allow, "registries"),
            ("registry.example.org:80", None, Deny, "default"),
            ("files.example.org:443", None, Deny, "default"),
            ("secret.files.example.org:443", None, Deny, "no-secrets"),
            ("registry.example.org:443", Some("93.184.216.34"), Allow, "registries"),
            ("registry.example.org:443", Some("127.0.0.1"), Deny, "network.address"),
            ("registry.example.org:443", Some("169.254.169.254"), Deny, "network.address"),
            ("registry.example.org:443", Some("::ffff:10.1.0.1"), Deny, "network.address"),
            ("registry.example.org:443", Some("10.1.66.1"), Deny, "no-lab"),
            ("git.corp.example:22", Some("10.1.2.3"), Allow, "intranet"),
            ("git.corp.example:22", Some("64:ff9b::a01:203"), Allow, "intranet"),
            ("git.corp.example:22", Some("10.3.0.1"), Deny, "default"),
            ("git.corp.example:22", Some("93.184.216.34"), Deny, "default"),
            ("git.corp.example:22", Some("10.1.66.9"), Deny, "no-lab"),
            ("10.2.0.5:5432", Some("10.2.0.5"), Allow, "database"),
            ("10.2.0.6:5432", Some("10.2.0.6"), Deny, "default"),
            ("10.1.2.3:22", Some("10.1.2.3"), Deny, "default"),
            ("93.184.216.34:443", Some("93.184.216.34"), Deny, "default"),
            ("new.example.org:443", None, Deny, "default"),
        ] {
            let expected = (decision, rule.to_owned());
            assert_eq!(decide(destination, address, "a"), expected, "{destination} {address:?}");
        }
        assert_eq!(decide("10.2.0.5:5432", Some("10.2.0.5"), "b"), (Deny, "default".to_owned()));
    }

    #[test]
    fn a_name_has_the_ports_at_which_some_rule_could_allow_it() {
        let policy = PolicySet::parse("p", RULES).unwrap_or_else(|error| panic!("{error}"));
        let ports = |name| {
            let name = HostName::parse(name).unwrap();
            let decided = policy.connect_ports("uid:1", "a", &name);
            decided.map_err(|decided| decided.reason.rule().to_owned())
        };
        assert_eq!(ports("registry.example.org"), Ok(vec![443]));
        assert_eq!(ports("git.corp.example"), Ok(vec![22, 443]));
        assert_eq!(ports("secret.files.example.org"), Err("no-secrets".to_owned()));
        assert_eq!(ports("new.example.org"), Err("default".to_owned()), "what only watches allows nothing");
        assert_eq!(ports("c2VjcmV0.example.org"), Err("default".to_owned()));
    }

    #[test]
    fn the_hosts_own_address_is_as_its_loopback_and_what_watches_is_named() {
        let policy = PolicySet::parse("p", RULES).unwrap_or_else(|error| panic!("{error}"));
        let destination = Destination::parse("registry.example.org:443").unwrap();
        let approved = Approved::Nothing;
        let request =
            ConnectRequest { principal: "uid:1", profile: "a", destination: &destination, approved };
        let own = DialTarget { address: "93.184.216.34".parse().unwrap(), is_hosts_own: true };
        assert_eq!(policy.connect_address(&request, own).reason.rule(), ADDRESS_RULE);
        let destination = Destination::parse("new.example.org:443").unwrap();
        let request = ConnectRequest { destination: &destination, ..request };
        assert_eq!(policy.connect_name(&request).observed, ["watched"]);
    }

    #[test]
    fn what_is_asked_about_is_reached_when_a_person_has_said_yes_to_that_very_part_of_it() {
        use Decision::{Allow, Ask, Deny};
        let rules = "default_profile='a'\n[profile.a]\n\
            [[connect]]\nid='careful'\ndecision='ask'\nhost=['pay.example.org']\nport=[443]\n\
            [[connect]]\nid='inside'\ndecision='ask'\naddress=['10.0.0.0/8']\nport=[22,443]\n\
            [[connect]]\nid='git'\ndecision='allow'\nhost=['git.example.org']\naddress=['10.1.0.0/16']\nport=[22]\n\
            [[connect]]\nid='mirror'\ndecision='ask'\nhost=['git.example.org']\naddress=['10.1.2.0/24']\nport=[22]\n\
            [[connect]]\nid='lab'\ndecision='deny'\naddress=['10.1.66.0/24']\n";
        let policy = PolicySet::parse("p", rules).unwrap_or_else(|error| panic!("{error}"));
        let decide = |destination: &str, address: Option<&str>, approved: Approved<'_>| {
            let destination = Destination::parse(destination).unwrap();
            let request =
                ConnectRequest { principal: "uid:1", profile: "a", destination: &destination, approved };
            let decided = match address.map(|address| address.parse().unwrap()) {
                None => policy.connect_name(&request),
                Some(address) => {
                    policy.connect_address(&request, DialTarget { address, is_hosts_own: false })
                }
            };
            (decided.decision, decided.reason.rule().to_owned())
        };
        let here: IpAddr = "10.1.2.3".parse().unwrap();
        let (none, name, both) = (Approved::Nothing, Approved::Name, Approved::Addresses(&[here]));
        for (destination, address, approved, decision, rule) in [
            ("pay.example.org:443", None, none, Ask, "careful"),
            ("pay.example.org:443", None, name, Allow, "careful"),
            ("pay.example.org:80", None, name, Deny, "default"),
            ("pay.example.org:443", Some("93.184.216.34"), none, Ask, "careful"),
            ("pay.example.org:443", Some("93.184.216.34"), name, Allow, "careful"),
            // A rule without a host asks about an address, and is none by which a name reaches it.
            ("pay.example.org:443", Some("10.9.9.9"), name, Ask, "inside"),
            ("git.example.org:22", None, none, Allow, "git"),
            ("git.example.org:22", Some("10.1.9.9"), none, Ask, "inside"),
            ("git.example.org:22", Some("10.1.2.3"), name, Ask, "inside"),
            ("git.example.org:22", Some("10.1.2.3"), both, Allow, "mirror"),
            ("git.example.org:22", Some("10.1.2.4"), both, Ask, "inside"),
            ("git.example.org:22", Some("10.1.66.4"), both, Deny, "lab"),
            ("10.1.2.3:22", Some("10.1.2.3"), none, Ask, "inside"),
            ("10.1.2.3:22", Some("10.1.2.3"), both, Allow, "inside"),
            ("10.1.2.3:80", Some("10.1.2.3"), both, Deny, "default"),
        ] {
            let expected = (decision, rule.to_owned());
            assert_eq!(
                decide(destination, address, approved),
                expected,
                "{destination} {address:?} {approved:?}"
            );
        }
        let names = HostName::parse("pay.example.org").unwrap();
        assert_eq!(policy.connect_ports("uid:1", "a", &names), Ok(vec![443]), "it may be asked about");
    }
}
