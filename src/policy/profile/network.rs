//! The part of a profile that says which network a command has.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Deserialize;

use crate::network::socket_path::SocketPath;

/// Which network a command has, and which a caller may ask for.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct NetworkRule {
    /// When the caller says nothing.
    pub default: Network,
    /// What the caller may ask for.
    pub choices: Vec<Network>,
    /// TCP ports that may be connected to, in either network, and no others: enforced by landlock. Absent: all.
    pub tcp_connect: Option<Vec<u16>>,
    /// TCP ports that may be bound, likewise.
    pub tcp_bind: Option<Vec<u16>>,
    /// With `proxy`: what becomes of open connections when another policy comes into force.
    pub on_reload: OnReload,
    /// With `proxy`: bytes that the connections of one session may carry, in both directions together. Absent: any number.
    pub max_bytes: Option<u64>,
    /// With `proxy`: unix sockets of the host that commands see, as listeners of the sandbox's own. Rules with `unix` decide about each
    /// connection.
    pub sockets: Vec<SocketPlace>,
}

/// A socket of the host, and where commands find it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SocketPlace {
    /// Its path on the host, without symbolic links.
    pub host: PathBuf,
    /// Its path inside, below `/run`. Absent: the same.
    pub inside: Option<PathBuf>,
}

impl SocketPlace {
    /// Its path inside.
    pub fn inside(&self) -> &std::path::Path {
        self.inside.as_deref().unwrap_or(&self.host)
    }
}

/// What becomes of open connections when another policy comes into force.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum OnReload {
    /// They go on.
    #[default]
    Keep,
    /// Those that the new rules do not allow are closed.
    Close,
}

impl Default for NetworkRule {
    fn default() -> Self {
        Self {
            default: Network::None,
            choices: vec![Network::None],
            tcp_connect: None,
            tcp_bind: None,
            on_reload: OnReload::Keep,
            max_bytes: None,
            sockets: Vec::new(),
        }
    }
}

impl NetworkRule {
    /// Whether commands see this socket of the host.
    pub fn lets_in(&self, path: &SocketPath) -> bool {
        self.sockets.iter().any(|one| one.host == path.as_path())
    }

    /// What a caller could ask for instead.
    pub fn choices_but(&self, chosen: Network) -> Vec<Network> {
        self.choices.iter().copied().filter(|choice| *choice != chosen).collect()
    }
}

/// A kind of network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Network {
    /// A network of its own, with a loopback only.
    None,
    /// The host's.
    Host,
    /// A network of its own, with proxies on its loopback that carry what rules about connections allow.
    Proxy,
}

impl Network {
    /// As policy files write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Host => "host",
            Self::Proxy => "proxy",
        }
    }

    /// The network with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::None, Self::Host, Self::Proxy].into_iter().find(|one| one.name() == name)
    }
}
