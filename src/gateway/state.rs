//! The state folder: one gateway at a time, and what a dead one left in it.
//!
//! A gateway that was killed leaves its sandboxes running, so that a later one can take them back. This one does
//! not yet know how to, and says so: it ends them, and removes their folders and groups.

use std::{
    fs, io,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
    time::Duration,
};

use nix::fcntl::{Flock, FlockArg};

use super::ServeError;
use crate::{
    proto::supervisor::{Shutdown, ToSupervisor, to_supervisor::Request},
    wire,
};

/// How long the sandboxes of a dead gateway may take to end.
const SWEEP_LIMIT: Duration = Duration::from_secs(5);

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
            tracing::warn!(sandbox.id = %id, "sandbox of a gateway that died: ended, its terminals are lost");
            match end(&entry.path()) {
                Ok(()) => {}
                // Nobody listens: it has died too.
                Err(error) if is_gone(&error) => {}
                Err(error) => {
                    tracing::error!(sandbox.id = %id, error = %error, "cannot reach it");
                }
            }
            if let Err(error) = fs::remove_dir_all(entry.path()) {
                tracing::error!(sandbox.id = %id, error = %error, "cannot remove its folder");
            }
        }
        Ok(())
    }
}

fn is_gone(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound | io::ErrorKind::BrokenPipe
    )
}

/// Asks a supervisor to end, and waits until it has: its socket closes with it.
fn end(folder: &Path) -> io::Result<()> {
    use std::io::{Read, Write};
    use std::os::fd::AsRawFd;
    let opened = fs::File::open(folder)?;
    let path = format!("/proc/self/fd/{}/control.sock", opened.as_raw_fd());
    let mut socket = std::os::unix::net::UnixStream::connect(path)?;
    socket.set_read_timeout(Some(SWEEP_LIMIT))?;
    let hello = crate::proto::supervisor::Hello {
        lowest_version: crate::sandbox::control::VERSIONS.0,
        highest_version: crate::sandbox::control::VERSIONS.1,
    };
    for (sequence, request) in [(1, Request::Hello(hello)), (2, Request::Shutdown(Shutdown { grace_ms: 0 }))]
    {
        let message = ToSupervisor { sequence, request: Some(request) };
        let frame = wire::encode(&message, 0).map_err(io::Error::other)?;
        socket.write_all(&frame)?;
    }
    let mut answers = [0; 4096];
    while socket.read(&mut answers)? > 0 {}
    Ok(())
}
