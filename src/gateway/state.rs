//! The state folder: made, and locked, for one gateway at a time.
//!
//! What a gateway before has left in it is for `adoption` to take back.

use std::{
    fs,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use nix::{
    errno::Errno,
    fcntl::{Flock, FlockArg},
};

use super::ServeError;

/// A process that was being started when a gateway was killed holds that one's descriptors until it executes its
/// program: for so long a lock may still be taken, or a socket answer, although nobody is there. On a busy host that is not soon.
pub(super) const LEFT_BEHIND: Duration = Duration::from_secs(5);
/// How often that is looked at: no event tells of it.
pub(super) const LOOK_AGAIN: Duration = Duration::from_millis(20);

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
        for part in ["sessions", "terminals"] {
            // It may be there; where it cannot be made, whoever writes into it says so.
            let _ = fs::DirBuilder::new().mode(0o700).create(folder.join(part));
        }
        let mut lock = fs::OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(folder.join("lock"))
            .map_err(failed)?;
        let deadline = Instant::now() + LEFT_BEHIND;
        loop {
            lock = match Flock::lock(lock, FlockArg::LockExclusiveNonblock) {
                Ok(lock) => return Ok(Self { folder, _lock: lock }),
                Err((_, Errno::EWOULDBLOCK)) if Instant::now() >= deadline => {
                    return Err(ServeError::StateInUse(folder));
                }
                Err((lock, Errno::EWOULDBLOCK)) => lock,
                Err((_, errno)) => return Err(failed(errno.into())),
            };
            std::thread::park_timeout(LOOK_AGAIN);
        }
    }
}
