//! What a terminal is about: what was asked for and permitted. Never changes.

use std::collections::BTreeMap;

use super::holds::Waits;
use crate::policy::{Digest, ProfileName, Streams};

/// What a terminal's command is written as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// The program's name or path, with arguments.
    Program,
    /// A line for a shell, which may hold anything.
    Line,
}

/// What a terminal is about; never changes.
#[derive(Debug)]
pub struct Summary {
    /// What `command` is.
    pub form: Form,
    /// As the caller gave it.
    pub command: String,
    /// As the caller gave them.
    pub args: Vec<String>,
    /// Where it starts.
    pub cwd: String,
    /// The profile that confines it.
    pub profile: ProfileName,
    /// "none" or "host".
    pub network: &'static str,
    /// As the caller gave them.
    pub labels: BTreeMap<String, String>,
    /// Bytes of output to retain for each stream.
    pub output_limit_bytes: u64,
    /// How output is kept.
    pub streams: Streams,
    /// Whom the command waits for.
    pub waits: Waits,
    /// Of the request that was permitted.
    pub digest: Digest,
    /// Of the policy that permitted it.
    pub generation: u64,
}
