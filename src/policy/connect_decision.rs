//! Decides about one connection by the rules about connections: to a host, to a unix socket of the host, or as a person writes it down.
//!
//! A name is judged before it is resolved, and each address that it has is judged before it is dialled. An address that is not public needs
//! a rule that names it. Unix sockets are those that a profile lets in. The order is the same for all: deny over ask over allow, and what
//! no rule matches is denied. For which commands TLS is opened is decided here, too.

use std::{collections::BTreeSet, net::IpAddr};

use crate::{
    AbsPath,
    command::rule::{Decision, RuleMode},
    connect::{
        Approved, ConnectRequest, ConnectRule, ConnectingProgram, Credential, DialTarget, SocketRequest,
        TlsHandling, Tunnel,
    },
    network::{
        address::{self, Scope},
        destination::{Destination, Host},
        http_request::{Scheme, WantedConnection},
        name::HostName,
    },
    set::{PolicySet, SecretGrant},
};

/// The name under which an address is refused that is not public and that no rule names.
pub const ADDRESS_RULE: &str = "network.address";

/// The name under which a text is refused that names no host.
pub const NAME_RULE: &str = "network.name";

/// The name under which TLS is refused that is for another host, or that hides what is judged.
pub const AGREEMENT_RULE: &str = "network.agreement";

/// The name under which a socket of the host is refused that is not let in, or that cannot be connected to.
pub const SOCKET_RULE: &str = "network.socket";

/// A decision, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectDecision {
    /// Allow, ask or deny.
    pub decision: Decision,
    /// Why.
    pub reason: ConnectReason,
    /// What may be spoken in the connection; of one that is allowed or asked about.
    pub tunnel: Tunnel,
    /// Only HTTP requests may be spoken, each of which is judged: rules are about those to this host.
    pub requests_only: bool,
    /// What becomes of TLS in it.
    pub tls: TlsHandling,
    /// What a request in opened TLS is given, when it is allowed: of a name, by the rules that could allow its address.
    pub credentials: Vec<AppliedCredential>,
    /// By which certificates the server of such a request is verified, likewise; none: by the host's trusted roots.
    pub authorities: Vec<AppliedCa>,
    /// Rules that only watch, and that would have denied or allowed.
    pub observed: Vec<String>,
}

/// A secret that a request is given, and the rule that says so.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct AppliedCredential {
    /// The secret, and where it is put.
    pub credential: Credential,
    /// The rule.
    pub rule: String,
}

/// A file by whose certificates a server is verified, and the rule that says so.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct AppliedCa {
    /// The file.
    pub file: AbsPath,
    /// The rule.
    pub rule: String,
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
    /// Rules are about its requests, and TLS that is not opened hides them.
    HiddenRequests,
    /// It is to a socket of the host that the profile does not let in.
    SocketNotLetIn,
}

impl ConnectReason {
    /// The name of the rule: of a policy file, `default`, or [`ADDRESS_RULE`].
    pub fn rule(&self) -> &str {
        match self {
            Self::Rule(id, _) => id,
            Self::Default => "default",
            Self::NotPublic(..) => ADDRESS_RULE,
            Self::HiddenRequests => AGREEMENT_RULE,
            Self::SocketNotLetIn => SOCKET_RULE,
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
            Self::SocketNotLetIn => "the profile lets no such socket in (`network.sockets`)".to_owned(),
            Self::HiddenRequests => "rules are about requests to this host, and TLS hides them".to_owned(),
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
            (_, Some(rule)) | (Some(rule), None) => {
                let granting: Vec<_> = rules.granting().filter(|rule| rule.names_host(host)).collect();
                ConnectDecision {
                    credentials: credentials(&granting, request),
                    authorities: authorities(&granting, request),
                    ..rules.decide_as(Decision::Allow, rule, rule.tunnel)
                }
            }
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
            let (http, approved, program) = (None, Approved::Nothing, &ConnectingProgram::Any);
            self.connect_name(&ConnectRequest {
                principal,
                profile,
                destination: &destination,
                http,
                program,
                approved,
            })
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
        // The one that is the widest says what may be spoken, and decides.
        let widest = |rule: &&&ConnectRule| (rule.tunnel, !rule.is_about_requests());
        let Some(rule) = allowing.iter().max_by_key(widest) else {
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
            None => ConnectDecision {
                credentials: credentials(&allowing, request),
                authorities: authorities(&allowing, request),
                ..rules.decide_as(Decision::Allow, rule, tunnel)
            },
        }
    }
}

/// What the rules that allow a request give to it. Of a connection as a whole nobody knows what is asked in it.
fn credentials(allowing: &[&ConnectRule], request: &ConnectRequest<'_>) -> Vec<AppliedCredential> {
    let applied = |rule: &ConnectRule| {
        let credential = rule.credential.clone()?;
        Some(AppliedCredential { credential, rule: rule.id.clone() })
    };
    let all: BTreeSet<_> = about(allowing, request).filter_map(applied).collect();
    all.into_iter().collect()
}

/// By what the rules that allow a request have its server verified.
fn authorities(allowing: &[&ConnectRule], request: &ConnectRequest<'_>) -> Vec<AppliedCa> {
    let applied = |rule: &ConnectRule| Some(AppliedCa { file: rule.ca.clone()?, rule: rule.id.clone() });
    let all: BTreeSet<_> = about(allowing, request).filter_map(applied).collect();
    all.into_iter().collect()
}

/// Those that are about the request that is asked for, or about all.
fn about<'a>(
    allowing: &[&'a ConnectRule],
    request: &ConnectRequest<'_>,
) -> impl Iterator<Item = &'a ConnectRule> {
    let is_about = |rule: &&ConnectRule| {
        !rule.is_about_requests() || request.http.is_some_and(|http| rule.matches_request(http))
    };
    allowing.iter().copied().filter(is_about)
}

/// The rules that count for one request.
struct Applying<'a> {
    rules: Vec<&'a ConnectRule>,
    requests_only: bool,
    tls: TlsHandling,
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
        let naming = |is_about_requests: bool| {
            let is_one = move |rule: &&&ConnectRule| {
                rule.is_about_requests() == is_about_requests && rule.names_host(host)
            };
            rules.iter().filter(is_one)
        };
        // What hides its requests cannot be judged by them.
        let requests_only = naming(true).any(|rule| rule.decision != Decision::Allow)
            || (naming(true).next().is_some() && naming(false).all(|rule| rule.decision == Decision::Deny));
        let opens = |rule: &&ConnectRule| rule.tls == TlsHandling::Terminate && rule.names_host(host);
        let tls = match rules.iter().any(opens) {
            true => TlsHandling::Terminate,
            false => TlsHandling::Carry,
        };
        let is_about = |rule: &&ConnectRule| match host {
            Host::Name(_) => rule.names_host(host),
            Host::Address(address) => !rule.has_hosts() && rule.covers(*address),
        };
        // Before there is a request, a rule that allows some may come to allow it, and one that denies some denies none.
        let counts = |rule: &&ConnectRule| match request.http {
            _ if !rule.is_about_requests() => true,
            Some(http) => rule.matches_request(http),
            None => rule.decision == Decision::Allow,
        };
        let observed = observing.into_iter().filter(is_about).filter(counts).map(|rule| rule.id.clone());
        Self {
            observed: observed.collect(),
            rules: rules.into_iter().filter(counts).collect(),
            requests_only,
            tls,
        }
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
        // What is spoken in opened TLS is looked at.
        let tunnel = if self.tls == TlsHandling::Terminate { Tunnel::Checked } else { tunnel };
        ConnectDecision {
            decision,
            reason,
            tunnel,
            requests_only: self.requests_only,
            tls: self.tls,
            credentials: Vec::new(),
            authorities: Vec::new(),
            observed: self.observed.clone(),
        }
    }
}

impl PolicySet {
    /// Decides whether a socket may be connected to.
    pub fn connect_socket(&self, request: &SocketRequest<'_>) -> ConnectDecision {
        let about = |rule: &&ConnectRule| rule.is_about_socket(request);
        let (observing, rules): (Vec<_>, Vec<_>) =
            self.connect_rules().iter().filter(about).partition(|rule| rule.mode == RuleMode::Observe);
        let observed: Vec<String> = observing.into_iter().map(|rule| rule.id.clone()).collect();
        let decided = |decision, reason| ConnectDecision {
            decision,
            reason,
            tunnel: Tunnel::Any,
            requests_only: false,
            tls: TlsHandling::Carry,
            credentials: Vec::new(),
            authorities: Vec::new(),
            observed: observed.clone(),
        };
        let is_let_in =
            self.profile(Some(request.profile)).is_some_and(|(_, one)| one.network.lets_in(request.path));
        if !is_let_in {
            return decided(Decision::Deny, ConnectReason::SocketNotLetIn);
        }
        let first = |decision| rules.iter().find(move |rule| rule.decision == decision);
        let asking = first(Decision::Ask);
        let deciding = match (first(Decision::Deny), asking, first(Decision::Allow)) {
            (Some(rule), _, _) => Some((Decision::Deny, rule)),
            (None, Some(rule), _) if !request.is_approved => Some((Decision::Ask, rule)),
            (None, _, Some(rule)) | (None, Some(rule), None) => Some((Decision::Allow, rule)),
            (None, None, None) => None,
        };
        match deciding {
            Some((decision, rule)) => {
                decided(decision, ConnectReason::Rule(rule.id.clone(), rule.reason.clone()))
            }
            None => decided(Decision::Deny, ConnectReason::Default),
        }
    }
}

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

#[cfg(test)]
mod tests;
