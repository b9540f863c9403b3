//! A session's root, held open since it was checked.

use std::{os::fd::OwnedFd, path::PathBuf};

use crate::policy::profile::Access;

/// What a root is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RootRole {
    /// A directory to work in.
    Work,
    /// A directory that commands may read and never write.
    ReadOnly,
    /// The git directory of a working directory that is another root: written by git alone.
    GitDirectory,
    /// A file system that is mounted below a directory to work in.
    Volume,
}

impl RootRole {
    /// The most that a profile can let commands do in it.
    pub fn max_access(self) -> Access {
        match self {
            Self::Work | Self::GitDirectory | Self::Volume => Access::Write,
            Self::ReadOnly => Access::Read,
        }
    }
}

/// A directory of the host that the sandbox shows at the same place.
#[derive(Debug)]
pub struct Root {
    /// Absolute, without links.
    pub path: PathBuf,
    /// Open with `O_PATH` since it was checked.
    pub descriptor: OwnedFd,
    /// What it is for.
    pub role: RootRole,
}
