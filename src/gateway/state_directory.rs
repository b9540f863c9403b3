//! The state directory: made, and locked, for one gateway at a time.
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
pub(super) const RELEASE_TIMEOUT: Duration = Duration::from_secs(5);
/// How often that is looked at: no event tells of it.
pub(super) const RELEASE_POLL_INTERVAL: Duration = Duration::from_millis(20);

/// The state directory, locked for as long as this lives.
#[derive(Debug)]
pub(super) struct StateDirectory {
    pub(super) directory: PathBuf,
    _lock: Flock<fs::File>,
}

impl StateDirectory {
    /// Makes the directory (0700) when there is none, and locks it.
    pub(super) fn open(directory: &Path) -> Result<Self, ServeError> {
        let failed = |source| ServeError::State { path: directory.to_owned(), source };
        fs::DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(failed)?;
        let directory = directory.canonicalize().map_err(failed)?;
        for part in ["sessions", "terminals"] {
            // It may be there; where it cannot be made, whoever writes into it says so.
            let _ = fs::DirBuilder::new().mode(0o700).create(directory.join(part));
        }
        let mut lock = fs::OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(directory.join("lock"))
            .map_err(failed)?;
        let deadline = Instant::now() + RELEASE_TIMEOUT;
        loop {
            lock = match Flock::lock(lock, FlockArg::LockExclusiveNonblock) {
                Ok(lock) => return Ok(Self { directory, _lock: lock }),
                Err((_, Errno::EWOULDBLOCK)) if Instant::now() >= deadline => {
                    return Err(ServeError::StateInUse(directory));
                }
                Err((lock, Errno::EWOULDBLOCK)) => lock,
                Err((_, errno)) => return Err(failed(errno.into())),
            };
            std::thread::park_timeout(RELEASE_POLL_INTERVAL);
        }
    }
}
