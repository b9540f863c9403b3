//! A compiled rule about connections. It knows nothing of other rules.

use std::net::IpAddr;

use super::{
    super::{
        AbsPath,
        command::rule::{Decision, RuleMode},
    },
    credential,
    request::{ConnectRequest, ConnectingProgram, SocketRequest},
    rule_error::ConnectRuleError,
    source::{ConnectSource, ConnectWhen, Credential, TlsHandling, Tunnel},
};
use crate::network::{
    destination::{Destination, Host},
    http_request::{HttpRequest, PathPattern, Scheme, WantedConnection},
    name::HostName,
    pattern::{Cidr, HostPattern},
    socket_path::SocketPath,
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
    /// What becomes of TLS to its hosts.
    pub tls: TlsHandling,
    /// What requests are given that it allows.
    pub credential: Option<Credential>,
    /// By which certificates the servers of these are verified.
    pub ca: Option<AbsPath>,
    hosts: Vec<HostPattern>,
    addresses: Vec<Cidr>,
    sockets: Vec<SocketPath>,
    programs: Vec<String>,
    ports: Vec<u16>,
    methods: Vec<String>,
    paths: Vec<PathPattern>,
    when: ConnectWhen,
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
        check_sockets(source)?;
        match source.decision {
            _ if !source.unix.is_empty() => {}
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
        check_requests(source)?;
        check_tls(source)?;
        let path = |text: &String| {
            PathPattern::parse(text).map_err(|error| ConnectRuleError::Path(text.clone(), error))
        };
        let host = |text: &String| {
            HostPattern::parse(text).map_err(|error| ConnectRuleError::Host(text.clone(), error))
        };
        let address =
            |text: &String| Cidr::parse(text).map_err(|error| ConnectRuleError::Address(text.clone(), error));
        let socket = |text: &String| {
            SocketPath::parse(text).map_err(|error| ConnectRuleError::Socket(text.clone(), error))
        };
        let program = |text: &String| match AbsPath::parse(text) {
            Ok(path) => Ok(path.to_string()),
            Err(_) => Err(ConnectRuleError::Program(text.clone())),
        };
        let ca = |text: &String| AbsPath::parse(text).map_err(|_| ConnectRuleError::Ca(text.clone()));
        let rule = Self {
            id: source.id.clone(),
            decision: source.decision,
            mode: source.mode.unwrap_or(file_mode),
            reason: source.reason.clone(),
            tunnel: source.tunnel,
            tls: source.tls,
            credential: source.credential.clone(),
            ca: source.ca.as_ref().map(ca).transpose()?,
            hosts: source.host.iter().map(host).collect::<Result<_, _>>()?,
            addresses: source.address.iter().map(address).collect::<Result<_, _>>()?,
            sockets: source.unix.iter().map(socket).collect::<Result<_, _>>()?,
            programs: source.program.iter().map(program).collect::<Result<_, _>>()?,
            ports: source.port.clone(),
            methods: source.method.clone(),
            paths: source.path.iter().map(path).collect::<Result<_, _>>()?,
            when: source.when.clone(),
        };
        rule.check_examples(source)?;
        Ok(rule)
    }

    fn check_examples(&self, source: &ConnectSource) -> Result<(), ConnectRuleError> {
        let matches = |text: &String| {
            if let Some(socket) = SocketPath::parse_connection(text) {
                let socket = socket.map_err(|error| ConnectRuleError::Socket(text.clone(), error))?;
                return Ok(self.names_socket(&socket));
            }
            let wanted = WantedConnection::parse(text)
                .map_err(|error| ConnectRuleError::Example(text.clone(), error))?;
            Ok(self.matches_example(&wanted))
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
    fn matches_example(&self, wanted: &WantedConnection) -> bool {
        let destination: &Destination = &wanted.destination;
        self.sockets.is_empty()
            && self.has_port(destination.port)
            && (wanted.scheme != Some(Scheme::Https)
                || self.tls == TlsHandling::Terminate
                || self.decision == Decision::Deny)
            && (!self.is_about_requests()
                || wanted.request.as_ref().is_some_and(|one| self.matches_request(one)))
            && match &destination.host {
                Host::Name(_) => self.names_host(&destination.host),
                Host::Address(address) => self.hosts.is_empty() && self.covers(*address),
            }
    }

    /// Whether it counts for this caller and port.
    pub(crate) fn applies(&self, request: &ConnectRequest<'_>) -> bool {
        self.sockets.is_empty()
            && self.is_for(request.principal, Some(request.profile))
            && self.is_by(request.program)
            && self.has_port(request.destination.port)
    }

    /// Whether it counts for this caller and socket.
    pub(crate) fn is_about_socket(&self, request: &SocketRequest<'_>) -> bool {
        self.is_for(request.principal, Some(request.profile))
            && self.is_by(request.program)
            && self.names_socket(request.path)
    }

    /// A rule that denies and names nothing is about everything.
    fn names_socket(&self, path: &SocketPath) -> bool {
        let names_nothing = self.sockets.is_empty()
            && self.hosts.is_empty()
            && self.addresses.is_empty()
            && self.ports.is_empty();
        names_nothing || self.sockets.contains(path)
    }

    /// Whether it counts for a connection of this program. What is not known is what the rule restricts.
    fn is_by(&self, program: &ConnectingProgram) -> bool {
        let names = |one: &String| self.programs.contains(one);
        match (program, self.decision) {
            _ if self.programs.is_empty() => true,
            (ConnectingProgram::Any, decision) => decision == Decision::Allow,
            (ConnectingProgram::Unknown, decision) => decision != Decision::Allow,
            (ConnectingProgram::Known(all), Decision::Allow) => !all.is_empty() && all.iter().all(names),
            (ConnectingProgram::Known(all), Decision::Ask | Decision::Deny) => all.iter().any(names),
        }
    }

    /// Whether it is about HTTP requests, and not about connections as a whole.
    pub fn is_about_requests(&self) -> bool {
        !self.methods.is_empty() || !self.paths.is_empty()
    }

    /// Whether this request has one of its methods and one of its paths.
    pub(crate) fn matches_request(&self, request: &HttpRequest) -> bool {
        (self.methods.is_empty() || self.methods.contains(&request.method))
            && (self.paths.is_empty() || self.paths.iter().any(|path| path.matches(&request.path)))
    }

    /// The ports that it names; none means all.
    pub(crate) fn ports(&self) -> &[u16] {
        &self.ports
    }

    fn has_port(&self, port: u16) -> bool {
        self.ports.is_empty() || self.ports.contains(&port)
    }

    /// Whether it names hosts, and this is one of them.
    pub(crate) fn names_host(&self, host: &Host) -> bool {
        match host {
            Host::Name(name) => self.hosts.iter().any(|pattern| pattern.matches(name)),
            Host::Address(_) => false,
        }
    }

    /// The names by which it names hosts: of `*.NAME`, the one that all are below.
    pub(crate) fn host_names(&self) -> impl Iterator<Item = &HostName> {
        self.hosts.iter().filter_map(|pattern| match pattern {
            HostPattern::Any => None,
            HostPattern::Exact(name) | HostPattern::Below(name) => Some(name),
        })
    }

    /// Whether TLS to its hosts is opened for these commands.
    pub(crate) fn opens_tls_for(&self, principal: &str, profile: Option<&str>) -> bool {
        self.mode == RuleMode::Enforce
            && self.tls == TlsHandling::Terminate
            && self.is_for(principal, profile)
    }

    /// Whether it decides, for these commands, by the program that connects.
    pub(crate) fn names_programs_for(&self, principal: &str, profile: &str) -> bool {
        self.mode == RuleMode::Enforce && !self.programs.is_empty() && self.is_for(principal, Some(profile))
    }

    /// Whether its conditions hold for commands of this principal; `None`: under some profile.
    fn is_for(&self, principal: &str, profile: Option<&str>) -> bool {
        let is_one_of = |list: &[String], value: &str| list.is_empty() || list.iter().any(|one| one == value);
        is_one_of(&self.when.principal, principal)
            && profile.is_none_or(|profile| is_one_of(&self.when.profile, profile))
    }

    /// Whether it names hosts.
    pub(crate) fn has_hosts(&self) -> bool {
        !self.hosts.is_empty()
    }

    /// Whether it names addresses.
    pub(crate) fn has_addresses(&self) -> bool {
        !self.addresses.is_empty()
    }

    /// Whether it names this address.
    pub(crate) fn covers(&self, address: IpAddr) -> bool {
        self.addresses.iter().any(|network| network.contains(address))
    }
}

fn check_sockets(source: &ConnectSource) -> Result<(), ConnectRuleError> {
    let names_more = !source.host.is_empty()
        || !source.address.is_empty()
        || !source.port.is_empty()
        || !source.method.is_empty()
        || !source.path.is_empty()
        || source.credential.is_some()
        || source.ca.is_some()
        || source.tls != TlsHandling::Carry
        || source.tunnel != Tunnel::Checked;
    if !source.unix.is_empty() && names_more { Err(ConnectRuleError::MoreThanSockets) } else { Ok(()) }
}

fn check_requests(source: &ConnectSource) -> Result<(), ConnectRuleError> {
    if source.method.is_empty() && source.path.is_empty() {
        return Ok(());
    }
    let is_method =
        |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'-');
    if let Some(wrong) = source.method.iter().find(|text| !is_method(text)) {
        return Err(ConnectRuleError::Method(wrong.clone()));
    }
    match (source.decision, source.tunnel) {
        _ if source.host.is_empty() => Err(ConnectRuleError::NoHostOfRequests),
        (Decision::Ask, _) => Err(ConnectRuleError::AskOfRequests),
        (_, Tunnel::Any) => Err(ConnectRuleError::TunnelOfRequests),
        (Decision::Allow | Decision::Deny, Tunnel::Checked) => Ok(()),
    }
}

fn check_tls(source: &ConnectSource) -> Result<(), ConnectRuleError> {
    if let Some(credential) = &source.credential {
        if source.tls == TlsHandling::Carry {
            return Err(ConnectRuleError::CredentialWithoutTls);
        }
        credential::check(credential).map_err(ConnectRuleError::Credential)?;
    }
    if source.ca.is_some() && source.tls == TlsHandling::Carry {
        return Err(ConnectRuleError::CaWithoutTls);
    }
    match (source.tls, source.decision, source.tunnel) {
        (TlsHandling::Carry, ..) => Ok(()),
        (TlsHandling::Terminate, Decision::Deny, _) => Err(ConnectRuleError::TlsOfDeny),
        (TlsHandling::Terminate, _, Tunnel::Any) => Err(ConnectRuleError::TunnelOfTls),
        (TlsHandling::Terminate, Decision::Allow | Decision::Ask, Tunnel::Checked) => {
            let is_all = |text: &String| text == "*";
            match source.host.is_empty() || source.host.iter().any(is_all) {
                true => Err(ConnectRuleError::TlsOfAll),
                false => Ok(()),
            }
        }
    }
}
