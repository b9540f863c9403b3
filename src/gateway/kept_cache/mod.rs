//! Caches that outlive their session, as an earlier one has left them: where they lie, who finds them, how much there may be.
//!
//! Each is a line of generations: directories that never change. Sessions read one below a layer of their own, and what a session has
//! written to its layer makes the next generation when it has ended, by links to the one before and copies of what is new. Nothing is ever
//! mounted to be written, so that sessions which run at the same time do not meet.
//!
//! Commands of any kind have made what is copied. So only plain files, directories and symbolic links are, without extended attributes,
//! set-id bits and owners, by descriptors and never through a link; and they are written with the rights of the caller whose they are.
//!
//! Here a layer becomes a generation, and it is said why a cache cannot be opened or what a session wrote to it is not kept.

mod generation;
mod scope;
mod store;
mod tree;

use std::{
    fs::{self, File},
    io,
    os::fd::{AsFd, BorrowedFd},
    path::PathBuf,
};

use nix::{
    errno::Errno,
    fcntl::{Flock, FlockArg},
};

pub(crate) use self::scope::LayerName;
pub use self::scope::Scope;
pub(crate) use self::store::OpenedCache;
pub use self::store::{KeptCaches, ListedCache};
use self::{
    generation::{Generation, UNFINISHED},
    store::FoundCache,
    tree::{Budget, Target},
};
use crate::sys::rights::Rights;

/// What there is to keep after a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kept {
    /// Files that the cache has now.
    pub files: u64,
    /// What it takes, in whole pages of 4 KiB.
    pub used_bytes: u64,
    /// What of the session's layer was left out: devices, sockets, pipes, and what cannot be read.
    pub left_out: u64,
}

impl KeptCaches {
    /// Keeps what is in a session's layer, which nothing writes to any more. `None`: it is empty.
    ///
    /// Takes as long as copying it.
    ///
    /// # Errors
    /// [`KeepError`]; the cache is as it was before.
    pub fn keep(
        &self,
        owner: &Rights,
        layer: &LayerName,
        written: BorrowedFd<'_>,
    ) -> Result<Option<Kept>, KeepError> {
        if tree::is_empty(written)? {
            return Ok(None);
        }
        let found = self.find(owner.uid, layer)?;
        let unfinished = Unfinished::make(&found, owner)?;
        let mut budget = Budget::new(found.scope.max_bytes);
        let mut target = Target { owner, budget: &mut budget };
        let removals = target.copy(written, unfinished.directory.as_fd())?;
        let _lock = store::lock(&found.user)?;
        let before = generation::current(&found.cache)?;
        let base = before.filter(|one| !one.is_older_than(found.scope.max_age));
        if let Some(base) = base {
            let directory = generation::hold(&found.cache, base)?;
            target.link(directory.as_fd(), unfinished.directory.as_fd(), &removals)?;
        }
        let (used_bytes, files) = (budget.used_bytes(), budget.files());
        store::make_room(&found, used_bytes, found.scope.max_bytes)?;
        let next = match base {
            Some(base) => base.next(used_bytes),
            None => Generation { used_bytes, ..Generation::first(before) },
        };
        unfinished.finish(&found, next)?;
        generation::remove_unused(&found.cache, Some(next))?;
        generation::mark_used(&found.cache)?;
        Ok(Some(Kept { files, used_bytes, left_out: removals.left_out }))
    }
}

/// A generation that is being made, and is removed unless it is finished.
struct Unfinished {
    path: PathBuf,
    /// Locked, so that nobody takes it for what a killed gateway has left.
    directory: Flock<File>,
}

impl Unfinished {
    fn make(found: &FoundCache, owner: &Rights) -> Result<Self, KeepError> {
        let path = found.cache.join(format!("{UNFINISHED}{}", ulid::Ulid::generate()));
        let _lock = store::lock(&found.user)?;
        store::make_directory(&path, owner)?;
        let directory = Flock::lock(generation::open_directory(&path)?, FlockArg::LockExclusive)
            .map_err(|(_, errno)| KeepError::of("lock", &path)(errno))?;
        Ok(Self { path, directory })
    }

    fn finish(self, found: &FoundCache, generation: Generation) -> Result<(), KeepError> {
        // A host that fails now must not find files without their content.
        nix::unistd::syncfs(&*self.directory).map_err(KeepError::of("write", &self.path))?;
        fs::rename(&self.path, found.cache.join(generation.name()))
            .map_err(KeepError::of("rename", &self.path))
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        // After `finish` it has another name. What cannot be removed now is when the cache is used next.
        let _ = fs::remove_dir_all(&self.path);
    }
}

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
    fn of<E: Into<io::Error>>(act: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(E) -> Self {
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
