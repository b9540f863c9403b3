//! A protection of this host: whether it is there, why not, and how to get it.

/// How a protection stands on this host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProtectionStatus {
    /// As it is meant to be.
    Available,
    /// There, but with a part missing.
    Weaker,
    /// Not there.
    Missing,
}

/// A protection and how it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Protection {
    /// Its name, stable.
    pub name: &'static str,
    /// How it stands.
    pub status: ProtectionStatus,
    /// What was found.
    pub reason: String,
    /// How to get it; empty when there is nothing to get.
    pub remedy: String,
}

pub(super) fn available(name: &'static str, why: &str) -> Protection {
    Protection { name, status: ProtectionStatus::Available, reason: why.into(), remedy: String::new() }
}

pub(super) fn missing(name: &'static str, why: &str, remedy: &str) -> Protection {
    Protection { name, status: ProtectionStatus::Missing, reason: why.into(), remedy: remedy.into() }
}
