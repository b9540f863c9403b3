//! Makes what a session has written to its layer the next generation of the cache below it.

use std::{
    fs::{self, File},
    os::fd::{AsFd, BorrowedFd},
    path::PathBuf,
};

use nix::fcntl::{Flock, FlockArg};

use super::{
    budget::Budget,
    error::KeepError,
    generation::{self, Generation, UNFINISHED},
    scope::LayerName,
    store::{self, FoundCache, KeptCaches},
    tree::{self, Target},
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
