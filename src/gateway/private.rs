//! The folder of an embedded gateway: made for one process, private to its user, gone with it.
//!
//! Never in a place that somebody else can change: who owns the folder above could put a socket of their own where
//! ours is looked for. What a killed process left is removed by the next one.

use std::{
    fs, io,
    os::unix::fs::{DirBuilderExt, MetadataExt},
    path::{Path, PathBuf},
    time::Duration,
};

use nix::fcntl::{Flock, FlockArg};

use super::{ServeError, config, governing};
use crate::sandbox::governing::{GoverningPath, Kind};

/// What the folders' names begin with.
const PREFIX: &str = "run-";
/// Younger ones may be somebody's who has not locked theirs yet.
const STARTING: Duration = Duration::from_secs(60);

/// Makes a folder.
pub(super) fn make() -> Result<PathBuf, ServeError> {
    let above = config::runtime_folder();
    let name = format!("{PREFIX}{}", ulid::Ulid::generate());
    // Its failure shows below.
    let _ = fs::DirBuilder::new().recursive(true).mode(0o700).create(&above);
    let state = GoverningPath { kind: Kind::State, path: above.clone() };
    let folder = if is_ours(&above) && governing::must_be_trusted([&state]).is_ok() {
        remove_abandoned(&above);
        above.join(name)
    } else {
        // The sticky bit keeps others from renaming it.
        PathBuf::from("/tmp").join(format!("provost-{name}"))
    };
    match fs::DirBuilder::new().mode(0o700).create(&folder) {
        Ok(()) => Ok(folder),
        Err(source) => Err(ServeError::State { path: folder, source }),
    }
}

/// Removes a folder with all that is in it.
pub(super) fn remove(folder: &Path) {
    match fs::remove_dir_all(folder) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => {
            tracing::error!(folder = %crate::printable::path(folder), error = %error, "cannot remove")
        }
    }
}

/// Whether nobody else can change what is in a folder.
fn is_ours(folder: &Path) -> bool {
    let user = nix::unistd::geteuid().as_raw();
    folder
        .symlink_metadata()
        .is_ok_and(|found| found.is_dir() && found.uid() == user && found.mode() & 0o022 == 0)
}

/// Removes the folders of processes that were killed: nobody holds the lock of their state.
fn remove_abandoned(above: &Path) {
    let Ok(entries) = fs::read_dir(above) else { return };
    for entry in entries.flatten() {
        let is_old = |found: fs::Metadata| {
            found.modified().ok().and_then(|time| time.elapsed().ok()).is_some_and(|age| age > STARTING)
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
            remove(&entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn leftover(above: &Path, name: &str, age: Duration) -> PathBuf {
        let folder = above.join(name);
        fs::create_dir_all(folder.join("state")).unwrap();
        fs::write(folder.join("state/lock"), "").unwrap();
        let time = std::time::SystemTime::now() - age;
        fs::File::open(&folder).unwrap().set_modified(time).unwrap();
        folder
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
    fn a_folder_that_others_can_write_to_is_not_ours() {
        let folder = tempfile::tempdir().unwrap();
        assert!(is_ours(folder.path()));
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
        assert!(!is_ours(folder.path()));
        assert!(!is_ours(&folder.path().join("absent")));
    }
}
