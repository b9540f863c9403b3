//! A gateway inside another command, for that command alone. It leaves nothing behind.
//!
//! Its directory is created for one process, private to its user, and removed with the process. The directory's parent must be one that no
//! other user can write to: that user could put another socket in place of the gateway's. A later process removes the directories of
//! processes that were killed.

use std::{
    fs, io,
    os::unix::fs::{DirBuilderExt, MetadataExt},
    path::{Path, PathBuf},
    time::Duration,
};

use nix::fcntl::{Flock, FlockArg};

use crate::{
    composition::{Gateway, ServeError},
    config::{self, Config},
    path_trust,
    sandbox::roots::governing::{GoverningKind, GoverningPath},
    shutdown::ShutdownSignal,
    socket,
    state_directory::StateError,
};

/// A gateway inside this process, for one command. Its directory is private, and goes with it.
#[derive(Debug)]
pub struct Embedded {
    uri: String,
    directory: PathBuf,
    shutdown: ShutdownSignal,
    serving: tokio::task::JoinHandle<Result<(), ServeError>>,
}

/// Starts a gateway of this process's own. The configuration's socket and state directory are not looked at: both are
/// made again, for this process only.
pub async fn embed(mut config: Config) -> Result<Embedded, ServeError> {
    let directory = create_directory()?;
    config.listen = directory.join("provost.sock");
    config.state = directory.join("state");
    let started = Gateway::open(&config)
        .and_then(|gateway| Ok((gateway, socket::bind(&config.listen, config.socket_mode)?)));
    let (gateway, listening) = match started {
        Ok(started) => started,
        Err(error) => {
            remove_directory(&directory);
            return Err(error);
        }
    };
    let uri = format!("unix:{}", config.listen.display());
    let shutdown = ShutdownSignal::default();
    let gateway_shutdown = shutdown.clone();
    let serving = tokio::spawn(async move { gateway.serve(listening, &gateway_shutdown, None).await });
    Ok(Embedded { uri, directory, shutdown, serving })
}

impl Embedded {
    /// Where it listens, as clients take it.
    pub fn uri(&self) -> &str {
        &self.uri
    }

    /// Stops everything and takes everything away. Returns when nothing is left.
    pub async fn close(self) -> Result<(), ServeError> {
        self.shutdown.stop_all();
        let served = self.serving.await;
        remove_directory(&self.directory);
        served.unwrap_or_else(|failed| std::panic::resume_unwind(failed.into_panic()))
    }
}

/// What the directories' names begin with.
const PREFIX: &str = "run-";
/// A younger one may belong to a process that has not locked it yet.
const ABANDONED_AFTER: Duration = Duration::from_secs(60);

/// Makes a directory.
pub(super) fn create_directory() -> Result<PathBuf, StateError> {
    let parent = config::runtime_directory();
    let name = format!("{PREFIX}{}", ulid::Ulid::generate());
    // Its failure shows below.
    let _ = fs::DirBuilder::new().recursive(true).mode(0o700).create(&parent);
    let parent_path = GoverningPath { kind: GoverningKind::State, path: parent.clone() };
    let directory = if is_private(&parent) && path_trust::check_trust([&parent_path]).is_ok() {
        remove_abandoned(&parent);
        parent.join(name)
    } else {
        // The sticky bit keeps others from renaming it.
        PathBuf::from("/tmp").join(format!("provost-{name}"))
    };
    match fs::DirBuilder::new().mode(0o700).create(&directory) {
        Ok(()) => Ok(directory),
        Err(source) => Err(StateError::Unusable { path: directory, source }),
    }
}

/// Removes a directory with all that is in it.
pub(super) fn remove_directory(directory: &Path) {
    match fs::remove_dir_all(directory) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => {
            tracing::error!(directory = %crate::printable::path(directory), error = %error, "cannot remove")
        }
    }
}

/// Whether nobody else can change what is in a directory.
fn is_private(directory: &Path) -> bool {
    let user = nix::unistd::geteuid().as_raw();
    directory
        .symlink_metadata()
        .is_ok_and(|found| found.is_dir() && found.uid() == user && found.mode() & 0o022 == 0)
}

/// Removes the directories of processes that were killed: nobody holds the lock of their state.
fn remove_abandoned(parent: &Path) {
    let Ok(entries) = fs::read_dir(parent) else { return };
    for entry in entries.flatten() {
        let is_old = |found: fs::Metadata| {
            found
                .modified()
                .ok()
                .and_then(|time| time.elapsed().ok())
                .is_some_and(|age| age > ABANDONED_AFTER)
        };
        if !entry.file_name().to_string_lossy().starts_with(PREFIX) || !entry.metadata().is_ok_and(is_old) {
            continue;
        }
        let lock = fs::File::open(entry.path().join("state/lock"));
        let is_held = match lock.map(|lock| Flock::lock(lock, FlockArg::LockExclusiveNonblock)) {
            Ok(locked) => locked.is_err(),
            Err(error) => error.kind() != io::ErrorKind::NotFound,
        };
        if !is_held {
            remove_directory(&entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn leftover(above: &Path, name: &str, age: Duration) -> PathBuf {
        let directory = above.join(name);
        fs::create_dir_all(directory.join("state")).unwrap();
        fs::write(directory.join("state/lock"), "").unwrap();
        let time = std::time::SystemTime::now() - age;
        fs::File::open(&directory).unwrap().set_modified(time).unwrap();
        directory
    }

    #[test]
    fn what_a_killed_process_left_is_removed_and_nothing_else() {
        let above = tempfile::tempdir().unwrap();
        let hour = Duration::from_secs(3600);
        let dead = leftover(above.path(), "run-dead", hour);
        let young = leftover(above.path(), "run-young", Duration::ZERO);
        let held = leftover(above.path(), "run-held", hour);
        let other = leftover(above.path(), "state", hour);
        let lock = fs::File::open(held.join("state/lock")).unwrap();
        let _lock = Flock::lock(lock, FlockArg::LockExclusiveNonblock).unwrap();
        remove_abandoned(above.path());
        assert_eq!([dead.exists(), young.exists(), held.exists(), other.exists()], [false, true, true, true]);
    }

    #[test]
    fn a_directory_that_others_can_write_to_is_not_ours() {
        let directory = tempfile::tempdir().unwrap();
        assert!(is_private(directory.path()));
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o777)).unwrap();
        assert!(!is_private(directory.path()));
        assert!(!is_private(&directory.path().join("absent")));
    }
}
