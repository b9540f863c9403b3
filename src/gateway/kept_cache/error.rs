//! Why a cache cannot be opened, or what a session wrote to it is not kept.

use std::{io, path::PathBuf};

use nix::errno::Errno;

/// Nothing was changed: the cache is as it was before.
#[derive(Debug, thiserror::Error)]
pub enum KeepError {
    /// With what the session wrote it would be larger than the profile allows.
    #[error("it would be larger than kept_caches.max_bytes, which is {max_bytes}")]
    TooLarge {
        /// As the profile has it.
        max_bytes: u64,
    },
    /// Directories within directories, without a sane end.
    #[error("it has directories more than {max} deep")]
    TooDeep {
        /// The bound.
        max: usize,
    },
    /// It is none of the caller's, or was removed meanwhile.
    #[error("there is no such kept cache")]
    Missing,
    /// Another user can write to where they lie.
    #[error("{} belongs to another user, or others can write to it", crate::printable::path(.0))]
    NotOwn(PathBuf),
    /// The system refused.
    #[error("cannot {act} {}: {cause}", crate::printable::path(path))]
    System {
        /// What was tried.
        act: &'static str,
        /// With what: below the directory of the kept caches, or in the session's layer.
        path: PathBuf,
        /// Why.
        cause: io::Error,
    },
}

impl KeepError {
    /// For `map_err` of a call on this path.
    pub(super) fn of<E: Into<io::Error>>(
        act: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(E) -> Self {
        let path = path.into();
        move |cause| Self::System { act, path, cause: cause.into() }
    }

    /// The system's number of what it refused.
    pub fn errno(&self) -> Option<Errno> {
        match self {
            Self::System { cause, .. } => cause.raw_os_error().map(Errno::from_raw),
            Self::TooLarge { .. } | Self::TooDeep { .. } | Self::Missing | Self::NotOwn(_) => None,
        }
    }
}
