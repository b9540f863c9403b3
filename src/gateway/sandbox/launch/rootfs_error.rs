//! Why the root file system of a sandbox cannot be planned.

use std::{io, path::PathBuf};

use super::protected::ProtectError;
use crate::sandbox::roots::governing::GoverningError;

/// Why the root file system cannot be planned.
#[derive(Debug, thiserror::Error)]
pub enum RootfsError {
    /// A directory that the profile adds is missing or cannot be opened.
    #[error("open {path:?}, which the profile shows")]
    ProfilePath {
        /// Which one.
        path: PathBuf,
        /// Why.
        #[source]
        cause: io::Error,
    },
    /// A path that is not absolute, or contains `..`.
    #[error("{path:?} is no place in a sandbox: it must be absolute and without \"..\"")]
    InvalidPath {
        /// As in the profile.
        path: PathBuf,
    },
    /// A user name that would garble /etc/passwd.
    #[error("{name:?} is no user name")]
    UserName {
        /// As in the profile.
        name: String,
    },
    /// Commands are never root, not even in their own namespace.
    #[error("commands cannot have the id 0")]
    RootId,
    /// The session's directories cannot be held open once more.
    #[error("hold the session's directories")]
    SessionFiles(#[source] io::Error),
    /// A protected file in a root cannot be mounted.
    #[error(transparent)]
    Protect(#[from] ProtectError),
    /// What governs commands cannot be covered where it is shown.
    #[error(transparent)]
    Governing(GoverningError),
    /// What the host has in what is shown cannot be known.
    #[error("read the host's mounts and sockets")]
    HostObjects(#[source] io::Error),
    /// A root has more of the host's mounts and sockets than are covered.
    #[error("the host has more than {max} mounts and sockets in {path:?}")]
    TooManyHostObjects {
        /// Which one.
        path: PathBuf,
        /// The most.
        max: usize,
    },
    /// A root is another user's, and the profile lets nobody work there.
    #[error(
        "root {path:?} belongs to uid {owner}: the profile does not let commands work in directories of others \
         (filesystem.shared_workspaces)"
    )]
    Foreign {
        /// Which one.
        path: PathBuf,
        /// Whose.
        owner: u32,
    },
    /// A root cannot be read.
    #[error("look at root {path:?}")]
    Root {
        /// Which one.
        path: PathBuf,
        /// Why.
        #[source]
        cause: io::Error,
    },
}
