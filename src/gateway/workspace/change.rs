//! A dangerous change of a workspace, and what was done about it.

use std::path::PathBuf;

/// What was done about a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChangeAction {
    /// It holds what it held before.
    Restored,
    /// It was renamed so that no tool finds it.
    Quarantined,
    /// Nothing: the profile asks for a report only.
    Reported,
    /// It could not be undone.
    Failed(String),
}

/// A dangerous change of a workspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DangerousChange {
    /// Absolute.
    pub path: PathBuf,
    /// What it would have made people's tools run.
    pub what: String,
    /// What was done about it.
    pub action: ChangeAction,
    /// SHA-256 of what was there, where it was a file.
    pub sha256: Option<String>,
}
