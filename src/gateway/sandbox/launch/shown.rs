//! A directory or file of the host that a sandbox shows at its own place, and for whom. Only types.

use std::path::Path;

/// For whom a directory is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ShownFor {
    /// For everybody: the system's.
    System,
    /// By the profile, to be read.
    Profile,
    /// By the profile, to be written.
    Writable,
    /// As a root of the session in which commands work.
    Session,
    /// As one that is only read: `--ro`, toolchains.
    SessionToRead,
}

/// A directory or file of the host, shown at its own place.
#[derive(Debug, Clone, Copy)]
pub(super) struct ShownDirectory<'a> {
    /// Absolute, without links.
    pub path: &'a Path,
    /// For whom.
    pub shown_for: ShownFor,
    /// Whether what is mounted below it is shown.
    pub is_recursive: bool,
}
