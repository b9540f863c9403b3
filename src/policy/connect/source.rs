//! Rules about connections as policy files write them: types only.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::super::command::rule::{Decision, RuleMode};

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
