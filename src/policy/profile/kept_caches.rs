//! The part of a profile that says which caches outlive their session, and for how long.

use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;

use super::duration;

/// Which of `caches` a later session finds as an earlier one has left them. None, unless it is said.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct KeptCachesRule {
    /// Of `caches`, those that are kept.
    pub names: Vec<String>,
    /// Which later sessions find them.
    pub between: KeptBetween,
    /// Bytes that all kept caches of a principal may have, in whole pages of 4 KiB. Those that were not used for
    /// longest are removed; what a session adds beyond that is not kept.
    pub max_bytes: u64,
    /// After this time a kept cache begins again with nothing, so that what a command has planted in it does not
    /// stay.
    #[serde(deserialize_with = "duration::deserialize")]
    #[schemars(with = "String")]
    pub max_age: Duration,
}

impl Default for KeptCachesRule {
    fn default() -> Self {
        Self {
            names: Vec::new(),
            between: KeptBetween::default(),
            max_bytes: 4 << 30,
            max_age: Duration::from_secs(14 * 24 * 3600),
        }
    }
}

/// Which sessions of a principal share kept caches, of those with the same profile and network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema, Default)]
#[serde(rename_all = "lowercase")]
pub enum KeptBetween {
    /// Those with the same writable roots.
    #[default]
    Workspace,
    /// All: what a command of one workspace plants is built by the others.
    Principal,
}
