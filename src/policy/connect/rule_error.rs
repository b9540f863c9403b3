//! Why a rule about connections does not load, and which words of the file are wrong.

use super::credential::CredentialError;
use crate::network::{
    http_request::{PathPatternError, WantedConnectionError},
    pattern::{CidrError, HostPatternError},
    socket_path::SocketPathError,
};

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
