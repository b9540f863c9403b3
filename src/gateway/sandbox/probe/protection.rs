//! A protection of this host: whether it is there, why not, and how to get it.

/// Whether this host has a protection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProtectionStatus {
    /// It works.
    Available,
    /// It works in part.
    Weaker,
    /// This host does not have it.
    Missing,
}

/// A protection and its status on this host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Protection {
    /// A stable name.
    pub name: &'static str,
    /// Whether this host has it.
    pub status: ProtectionStatus,
    /// What was found.
    pub reason: String,
    /// How to get it; empty when it is available.
    pub remedy: String,
}

pub(super) fn available(name: &'static str, reason: &str) -> Protection {
    Protection { name, status: ProtectionStatus::Available, reason: reason.into(), remedy: String::new() }
}

pub(super) fn missing(name: &'static str, reason: &str, remedy: &str) -> Protection {
    Protection { name, status: ProtectionStatus::Missing, reason: reason.into(), remedy: remedy.into() }
}
