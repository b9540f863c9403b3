//! The state folder: made, and locked, for one gateway at a time.
//!
//! What a gateway before has left in it is for `adoption` to take back.

use std::{
    fs,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
};

use nix::fcntl::{Flock, FlockArg};

use super::ServeError;

/// The state folder, locked for as long as this lives.
#[derive(Debug)]
pub(super) struct State {
    pub(super) folder: PathBuf,
    _lock: Flock<fs::File>,
}

impl State {
    /// Makes the folder (0700) when there is none, and locks it.
    pub(super) fn open(folder: &Path) -> Result<Self, ServeError> {
        let failed = |source| ServeError::State { path: folder.to_owned(), source };
        fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(failed)?;
        let folder = folder.canonicalize().map_err(failed)?;
        let _ = fs::DirBuilder::new().mode(0o700).create(folder.join("sessions"));
        let lock = fs::OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(folder.join("lock"))
            .map_err(failed)?;
        match Flock::lock(lock, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => Ok(Self { folder, _lock: lock }),
            Err((_, nix::errno::Errno::EWOULDBLOCK)) => Err(ServeError::StateInUse(folder)),
            Err((_, errno)) => Err(failed(errno.into())),
        }
    }
}
