//! A compiled rule about connections. It knows nothing of other rules.

use std::net::IpAddr;

use super::{
    super::command::rule::{Decision, RuleMode},
    request::ConnectRequest,
    source::{ConnectSource, ConnectWhen, Tunnel},
};
use crate::network::{
    destination::{Destination, DestinationError, Host},
    pattern::{Cidr, CidrError, HostPattern, HostPatternError},
};

/// A compiled rule.
#[derive(Debug, Clone)]
pub struct ConnectRule {
    /// Its id.
    pub id: String,
    /// What it decides.
    pub decision: Decision,
    /// Whether it decides or only watches.
    pub mode: RuleMode,
    /// For the caller.
    pub reason: Option<String>,
    /// What may be spoken.
    pub tunnel: Tunnel,
    hosts: Vec<HostPattern>,
    addresses: Vec<Cidr>,
    ports: Vec<u16>,
    when: ConnectWhen,
}

/// Why a rule does not load.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConnectRuleError {
    /// The id.
    #[error("id: {0:?} must be letters, digits, \"-\", \"_\" and \".\"")]
    Id(String),
    /// A name pattern.
    #[error("host: {0:?}: {1}")]
    Host(String, HostPatternError),
    /// A network.
    #[error("address: {0:?}: {1}")]
    Address(String, CidrError),
    /// A rule that allows or asks, and is about nothing.
    #[error("host: a rule that allows or asks names hosts or addresses")]
    NoHost,
    /// A rule that allows or asks, without ports.
    #[error("port: a rule that allows or asks names its ports, from 1 to 65535")]
    Port,
    /// An effect of rules that allow.
    #[error("tunnel: a rule that denies has none")]
    TunnelOfDeny,
    /// An example that is no destination.
    #[error("{0:?} is no example of a destination such as \"example.org:443\": {1}")]
    Example(String, DestinationError),
    /// An example of `matches`.
    #[error("matches: the rule does not match {0:?}")]
    ExampleMissed(String),
    /// An example of `rejects`.
    #[error("rejects: the rule matches {0:?}")]
    ExampleCaught(String),
}

impl ConnectRuleError {
    /// The key of the rule that is wrong.
    pub fn key(&self) -> &'static str {
        match self {
            Self::Id(_) => "id",
            Self::Host(..) | Self::NoHost => "host",
            Self::Address(..) => "address",
            Self::Port => "port",
            Self::TunnelOfDeny => "tunnel",
            Self::Example(..) | Self::ExampleMissed(_) => "matches",
            Self::ExampleCaught(_) => "rejects",
        }
    }

    /// The text in the file that is wrong, where it is one.
    pub fn text(&self) -> Option<&str> {
        match self {
            Self::Host(text, _)
            | Self::Address(text, _)
            | Self::Example(text, _)
            | Self::ExampleMissed(text)
            | Self::ExampleCaught(text) => Some(text),
            Self::Id(_) | Self::NoHost | Self::Port | Self::TunnelOfDeny => None,
        }
    }
}

impl ConnectRule {
    /// Compiles a rule and tries it on its examples.
    ///
    /// # Errors
    /// [`ConnectRuleError`].
    pub fn compile(source: &ConnectSource, file_mode: RuleMode) -> Result<Self, ConnectRuleError> {
        let id_is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if source.id.is_empty() || !source.id.chars().all(id_is_plain) {
            return Err(ConnectRuleError::Id(source.id.clone()));
        }
        match source.decision {
            Decision::Allow | Decision::Ask if source.host.is_empty() && source.address.is_empty() => {
                return Err(ConnectRuleError::NoHost);
            }
            Decision::Allow | Decision::Ask if source.port.is_empty() => return Err(ConnectRuleError::Port),
            Decision::Deny if source.tunnel != Tunnel::Checked => return Err(ConnectRuleError::TunnelOfDeny),
            Decision::Allow | Decision::Ask | Decision::Deny => {}
        }
        if source.port.contains(&0) {
            return Err(ConnectRuleError::Port);
        }
        let host = |text: &String| {
            HostPattern::parse(text).map_err(|error| ConnectRuleError::Host(text.clone(), error))
        };
        let address =
            |text: &String| Cidr::parse(text).map_err(|error| ConnectRuleError::Address(text.clone(), error));
        let rule = Self {
            id: source.id.clone(),
            decision: source.decision,
            mode: source.mode.unwrap_or(file_mode),
            reason: source.reason.clone(),
            tunnel: source.tunnel,
            hosts: source.host.iter().map(host).collect::<Result<_, _>>()?,
            addresses: source.address.iter().map(address).collect::<Result<_, _>>()?,
            ports: source.port.clone(),
            when: source.when.clone(),
        };
        rule.check_examples(source)?;
        Ok(rule)
    }

    fn check_examples(&self, source: &ConnectSource) -> Result<(), ConnectRuleError> {
        let matches = |text: &String| {
            let destination =
                Destination::parse(text).map_err(|error| ConnectRuleError::Example(text.clone(), error))?;
            Ok(self.matches_example(&destination))
        };
        for text in &source.matches {
            if !matches(text)? {
                return Err(ConnectRuleError::ExampleMissed(text.clone()));
            }
        }
        for text in &source.rejects {
            if matches(text)? {
                return Err(ConnectRuleError::ExampleCaught(text.clone()));
            }
        }
        Ok(())
    }

    /// Examples are of names or of addresses, without a principal.
    fn matches_example(&self, destination: &Destination) -> bool {
        self.has_port(destination.port)
            && match &destination.host {
                Host::Name(_) => self.names_host(&destination.host),
                Host::Address(address) => self.hosts.is_empty() && self.covers(*address),
            }
    }

    /// Whether it counts for this caller and port.
    pub(super) fn applies(&self, request: &ConnectRequest<'_>) -> bool {
        let is_one_of = |list: &[String], value: &str| list.is_empty() || list.iter().any(|one| one == value);
        is_one_of(&self.when.principal, request.principal)
            && is_one_of(&self.when.profile, request.profile)
            && self.has_port(request.destination.port)
    }

    /// The ports that it names; none means all.
    pub(super) fn ports(&self) -> &[u16] {
        &self.ports
    }

    fn has_port(&self, port: u16) -> bool {
        self.ports.is_empty() || self.ports.contains(&port)
    }

    /// Whether it names hosts, and this is one of them.
    pub(super) fn names_host(&self, host: &Host) -> bool {
        match host {
            Host::Name(name) => self.hosts.iter().any(|pattern| pattern.matches(name)),
            Host::Address(_) => false,
        }
    }

    /// Whether it names hosts.
    pub(super) fn has_hosts(&self) -> bool {
        !self.hosts.is_empty()
    }

    /// Whether it names addresses.
    pub(super) fn has_addresses(&self) -> bool {
        !self.addresses.is_empty()
    }

    /// Whether it names this address.
    pub(super) fn covers(&self, address: IpAddr) -> bool {
        self.addresses.iter().any(|network| network.contains(address))
    }
}
