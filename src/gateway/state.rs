//! The state folder: one gateway at a time, and what a dead one left in it.
//!
//! A gateway that was killed leaves its sandboxes running, so that a later one can take them back. This one does
//! not yet know how to, and says so: it ends them, and removes their folders and groups.

use std::{
    fs, io,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
};

use nix::fcntl::{Flock, FlockArg};

use super::ServeError;
use crate::sandbox::leftover;

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

    /// Ends what a gateway before this one has left running here. Blocks: call it before serving.
    pub(super) fn sweep(&self) -> Result<(), ServeError> {
        let sandboxes = self.folder.join("sandboxes");
        let entries = match fs::read_dir(&sandboxes) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(source) => return Err(ServeError::State { path: sandboxes, source }),
        };
        for entry in entries {
            let entry = entry.map_err(|source| ServeError::State { path: sandboxes.clone(), source })?;
            let name = entry.file_name();
            let id = name.to_string_lossy();
            tracing::warn!(sandbox.id = %id, "sandbox of a gateway that died: it is ended, its terminals are lost");
            if let Err(error) = leftover::end(&entry.path()) {
                let cause = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
                tracing::error!(sandbox.id = %id, error = %error, cause, "may be alive: its folder is kept");
            }
        }
        Ok(())
    }
}
