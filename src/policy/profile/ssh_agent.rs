//! The part of a profile that says what commands have of the caller's SSH agent.

use schemars::JsonSchema;
use serde::Deserialize;

/// The namespaces that a profile can name: what git(1) signs. A namespace of files signs anything.
pub const SIGNED_NAMESPACES: [&str; 1] = ["git"];

/// What commands have of the caller's SSH agent. Nothing, unless it is said.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SshAgentRule {
    /// The namespaces of texts that the agent's keys may sign (ssh-keygen(1), `-Y sign`): "git" for commits and tags
    pub sign: Vec<String>,
    /// The hosts to which the agent's keys may log in, by ssh(1): each with its own keys, by which it is known.
    pub hosts: Vec<SshHost>,
}

/// A host that commands may log in to.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SshHost {
    /// For people and the journal. What the host is, its keys say.
    pub name: String,
    /// Its Ed25519 keys, as `ssh-keyscan -t ed25519` prints them without the name: "ssh-ed25519 AAAA...".
    pub keys: Vec<String>,
}

impl SshAgentRule {
    /// Whether commands have anything of an agent.
    pub fn is_empty(&self) -> bool {
        self.sign.is_empty() && self.hosts.is_empty()
    }
}
