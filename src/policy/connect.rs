//! Rules about connections: what a sandbox with the network `proxy` may reach.
//!
//! A rule is here as policy files write it, and compiled, with what it is matched against; and why one does not load, with the words of the
//! file that are wrong. A rule knows nothing of other rules. The order is that of all rules: deny over ask over allow, and what no rule
//! matches is denied. `connect_decision` decides by them.

use std::net::IpAddr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    AbsPath,
    command::rule::{Decision, RuleMode},
    network::{
        destination::{Destination, Host},
        http_request::{
            HttpRequest, PathPattern, PathPatternError, Scheme, WantedConnection, WantedConnectionError,
        },
        name::HostName,
        pattern::{Cidr, CidrError, HostPattern, HostPatternError},
        socket_path::{SocketPath, SocketPathError},
    },
};

/// A rule about connections as a policy file writes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ConnectSource {
    /// Unique among all rules of all files.
    pub id: String,
    /// What it decides: `allow`, `ask` or `deny`.
    pub decision: Decision,
    /// Names: `"registry.example.org"`, `"*.example.org"` for all below it, `"*"` for all. Absent: the rule is about addresses.
    #[serde(default)]
    pub host: Vec<String>,
    /// Addresses and networks, as `"10.1.0.0/16"`. With `host`: the name must lead there. An address that is not public is
    /// reached by a rule that names it here, and by no other.
    #[serde(default)]
    pub address: Vec<String>,
    /// Unix sockets of the host, by path, as `"/run/docker.sock"`. The rule is about these and about nothing else; the profile lets them in.
    #[serde(default)]
    pub unix: Vec<String>,
    /// Programs, by path, as `"/usr/bin/git"`. A rule that denies or asks is about connections that one of them may have; one that allows
    /// is about connections that no other has.
    #[serde(default)]
    pub program: Vec<String>,
    /// TCP ports. A rule that allows or asks names them; in one that denies, none means all.
    #[serde(default)]
    pub port: Vec<u16>,
    /// Methods of HTTP requests, as `"GET"`. The rule is about requests then, and about what has none in no way.
    #[serde(default)]
    pub method: Vec<String>,
    /// Paths of HTTP requests: `"/simple/*"`, where `*` is one part, and `**` all further ones. Likewise.
    #[serde(default)]
    pub path: Vec<String>,
    /// What may be spoken in a connection to a name.
    #[serde(default)]
    pub tunnel: Tunnel,
    /// Whether TLS to its hosts is opened, so that each request in it is judged.
    #[serde(default)]
    pub tls: TlsHandling,
    /// A secret that requests which the rule allows are given, in a header.
    #[serde(default)]
    pub credential: Option<Credential>,
    /// A file with the certificates (PEM) by which alone the servers of its requests are verified in opened TLS, as those of a private
    /// authority. Absent: by the host's trusted roots.
    #[serde(default)]
    pub ca: Option<String>,
    /// Only under these conditions.
    #[serde(default)]
    pub when: ConnectWhen,
    /// Given to the caller, word for word.
    #[serde(default)]
    pub reason: Option<String>,
    /// Destinations, as `"registry.example.org:443"`, that it must match.
    #[serde(default)]
    pub matches: Vec<String>,
    /// Destinations that it must not match.
    #[serde(default)]
    pub rejects: Vec<String>,
    /// Whether it decides or only watches.
    #[serde(default)]
    pub mode: Option<RuleMode>,
}

/// What may be spoken in a connection that was allowed by name.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Tunnel {
    /// TLS whose first message names the same host, or HTTP requests, each judged by itself.
    #[default]
    Checked,
    /// Anything: the proxy does not look into it.
    Any,
}

/// What becomes of TLS to a rule's hosts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum TlsHandling {
    /// It is carried as it is, where requests in it need not be judged.
    #[default]
    Carry,
    /// It is ended at the proxy, with a certificate of the session's, and begun again to the server.
    Terminate,
}

/// A secret that takes the place of what a program sends in a header.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Credential {
    /// The name of the header.
    pub header: String,
    /// The secret: `[secrets.NAME]`.
    pub secret: String,
    /// The header's value, where `{}` stands for the secret's: `"Bearer {}"`.
    #[serde(default = "whole_value")]
    pub format: String,
}

/// What stands for the secret in a format.
pub const SECRET_PLACE: &str = "{}";

fn whole_value() -> String {
    SECRET_PLACE.to_owned()
}

/// Conditions; all that are given must hold.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ConnectWhen {
    /// One of these principals, as `"uid:1000"`.
    pub principal: Vec<String>,
    /// A command under one of these profiles.
    pub profile: Vec<String>,
}

/// A connection that a command wants.
#[derive(Debug, Clone, Copy)]
pub struct ConnectRequest<'a> {
    /// Who runs the command.
    pub principal: &'a str,
    /// Its profile.
    pub profile: &'a str,
    /// Where to.
    pub destination: &'a Destination,
    /// The HTTP request that it is for, where that is known.
    pub http: Option<&'a HttpRequest>,
    /// Which program wants it.
    pub program: &'a ConnectingProgram,
    /// What a person has said yes to.
    pub approved: Approved<'a>,
}

/// Which program wants a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConnectingProgram {
    /// Nobody has connected yet, so that any of them may be meant.
    Any,
    /// It cannot be known: what restricts programs holds.
    Unknown,
    /// The files of all processes that have the connection.
    Known(Vec<String>),
}

/// A connection to a socket that a command wants.
#[derive(Debug, Clone, Copy)]
pub struct SocketRequest<'a> {
    /// Who runs the command.
    pub principal: &'a str,
    /// Its profile.
    pub profile: &'a str,
    /// The socket, on the host.
    pub path: &'a SocketPath,
    /// Which program wants it.
    pub program: &'a ConnectingProgram,
    /// Whether a person has said yes. Rules that ask count as rules that allow then.
    pub is_approved: bool,
}

/// How far a person has approved a connection. Rules that ask count as rules that allow then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Approved<'a> {
    /// Nobody was asked.
    Nothing,
    /// The name: rules that name it have their answer.
    Name,
    /// These addresses, too: all rules about them have their answer.
    Addresses(&'a [IpAddr]),
}

/// An address that is to be dialled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DialTarget {
    /// The address.
    pub address: IpAddr,
    /// It is one of the host's own: what listens there is on the host.
    pub is_hosts_own: bool,
}

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
        check_credential(credential).map_err(ConnectRuleError::Credential)?;
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

/// Headers that say where a request goes, where it ends, or that are between a program and its proxy.
const REFUSED_HEADERS: [&str; 12] = [
    "host",
    "content-length",
    "transfer-encoding",
    "connection",
    "keep-alive",
    "upgrade",
    "te",
    "trailer",
    "expect",
    "proxy-authorization",
    "proxy-authenticate",
    "proxy-connection",
];

/// The longest format, in bytes.
const MAX_FORMAT_BYTES: usize = 1_024;

/// What is wrong with a credential.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CredentialError {
    /// No name of a header, or one of another meaning.
    #[error("header: {0:?} is no name of a header that a secret can be in")]
    Header(String),
    /// No place for the secret, two, or a character that no header has.
    #[error(
        "format: {0:?} must be text of at most {MAX_FORMAT_BYTES} bytes with one \"{{}}\", where the secret is put"
    )]
    Format(String),
}

/// Checks one. Whether there is such a secret is checked where all secrets are known.
fn check_credential(credential: &Credential) -> Result<(), CredentialError> {
    let header = &credential.header;
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    let is_refused = REFUSED_HEADERS.iter().any(|one| one.eq_ignore_ascii_case(header));
    if header.is_empty() || !header.bytes().all(is_token) || is_refused {
        return Err(CredentialError::Header(header.clone()));
    }
    let format = &credential.format;
    let is_text = format.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic());
    if !is_text || format.len() > MAX_FORMAT_BYTES || format.matches(SECRET_PLACE).count() != 1 {
        return Err(CredentialError::Format(format.clone()));
    }
    Ok(())
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
    /// A socket of the host.
    #[error("unix: {0:?}: {1}")]
    Socket(String, SocketPathError),
    /// What no connection to a socket has.
    #[error("unix: a rule about sockets names nothing else that is connected to")]
    MoreThanSockets,
    /// A program.
    #[error("program: {0:?} is no absolute path of a file")]
    Program(String),
    /// A rule that allows or asks, and is about nothing.
    #[error("host: a rule that allows or asks names hosts, addresses or sockets")]
    NoHost,
    /// A rule that allows or asks, without ports.
    #[error("port: a rule that allows or asks names its ports, from 1 to 65535")]
    Port,
    /// A method that no request has.
    #[error("method: {0:?} is no method: they are written in capital letters")]
    Method(String),
    /// A pattern of paths.
    #[error("path: {0:?}: {1}")]
    Path(String, PathPatternError),
    /// A rule about requests that names no host.
    #[error("host: a rule about requests names hosts")]
    NoHostOfRequests,
    /// Questions about requests do not exist.
    #[error("decision: a rule about requests allows or denies")]
    AskOfRequests,
    /// A rule about requests that lets anything be spoken.
    #[error("tunnel: a rule about requests lets nothing else be spoken")]
    TunnelOfRequests,
    /// An effect of rules that allow.
    #[error("tunnel: a rule that denies has none")]
    TunnelOfDeny,
    /// An effect of rules that allow.
    #[error("tls: a rule that denies has none")]
    TlsOfDeny,
    /// A session's certificate is for hosts that are named.
    #[error("tls: a rule by which TLS is opened names hosts, and not \"*\"")]
    TlsOfAll,
    /// What is spoken in opened TLS is looked at.
    #[error("tunnel: a rule by which TLS is opened lets nothing be spoken but HTTP")]
    TunnelOfTls,
    /// Who would see it otherwise is not known.
    #[error("credential: a secret is put into opened TLS alone: write tls = \"terminate\"")]
    CredentialWithoutTls,
    /// A part of it.
    #[error("credential: {0}")]
    Credential(CredentialError),
    /// A path.
    #[error("ca: {0:?} is no absolute path of a file")]
    Ca(String),
    /// The program verifies the server itself then.
    #[error("ca: a server is verified here in opened TLS alone: write tls = \"terminate\"")]
    CaWithoutTls,
    /// An example that is no destination.
    #[error(
        "{0:?} is no example of a destination such as \"example.org:443\", or of a request such as \"GET http://example.org/\": {1}"
    )]
    Example(String, WantedConnectionError),
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
            Self::Method(_) => "method",
            Self::Path(..) => "path",
            Self::AskOfRequests => "decision",
            Self::Host(..) | Self::NoHost | Self::NoHostOfRequests => "host",
            Self::Address(..) => "address",
            Self::Port => "port",
            Self::Socket(..) | Self::MoreThanSockets => "unix",
            Self::Program(_) => "program",
            Self::TunnelOfDeny | Self::TunnelOfRequests | Self::TunnelOfTls => "tunnel",
            Self::TlsOfDeny | Self::TlsOfAll => "tls",
            Self::CredentialWithoutTls | Self::Credential(_) => "credential",
            Self::Ca(_) | Self::CaWithoutTls => "ca",
            Self::Example(..) | Self::ExampleMissed(_) => "matches",
            Self::ExampleCaught(_) => "rejects",
        }
    }

    /// The text in the file that is wrong, where it is one.
    pub fn text(&self) -> Option<&str> {
        match self {
            Self::Host(text, _)
            | Self::Method(text)
            | Self::Path(text, _)
            | Self::Address(text, _)
            | Self::Socket(text, _)
            | Self::Program(text)
            | Self::Ca(text)
            | Self::Example(text, _)
            | Self::ExampleMissed(text)
            | Self::ExampleCaught(text) => Some(text),
            Self::Id(_)
            | Self::MoreThanSockets
            | Self::NoHost
            | Self::NoHostOfRequests
            | Self::AskOfRequests
            | Self::TunnelOfRequests
            | Self::Port
            | Self::TunnelOfDeny
            | Self::TlsOfDeny
            | Self::TlsOfAll
            | Self::TunnelOfTls
            | Self::CredentialWithoutTls
            | Self::CaWithoutTls
            | Self::Credential(_) => None,
        }
    }
}
