//! The state directory: made, and locked, for one gateway at a time.
//!
//! What a gateway before has left in it is for `adoption` to take back.

use std::{
    fs,
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use nix::{
    errno::Errno,
    fcntl::{Flock, FlockArg},
};

use super::ServeError;
use crate::sys::text_file;

/// A process that was being started when a gateway was killed holds that one's descriptors until it executes its
/// program: for so long a lock may still be taken, or a socket answer, although nobody is there. On a busy host that is not soon.
pub(super) const RELEASE_TIMEOUT: Duration = Duration::from_secs(5);
/// How often that is looked at: no event tells of it.
pub(super) const RELEASE_POLL_INTERVAL: Duration = Duration::from_millis(20);

/// The format of everything in the directory, as its file `format` says. Raised when a build cannot read what an earlier
/// one has written.
pub(super) const FORMAT: u32 = 2;
/// The file that has the format. Builds before format 2 wrote none.
const FORMAT_FILE: &str = "format";
const FORMAT_MAX_BYTES: u64 = 64;

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
        let mut lock = fs::OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(directory.join("lock"))
            .map_err(failed)?;
        let deadline = Instant::now() + RELEASE_TIMEOUT;
        loop {
            lock = match Flock::lock(lock, FlockArg::LockExclusiveNonblock) {
                Ok(lock) => {
                    prepare(&directory)?;
                    return Ok(Self { directory, _lock: lock });
                }
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

/// Makes what an empty directory lacks; refuses the directory of a build with another format.
fn prepare(directory: &Path) -> Result<(), ServeError> {
    let failed = |source| ServeError::State { path: directory.to_owned(), source };
    match format_of(directory).map_err(failed)? {
        None => write_format(directory).map_err(failed)?,
        Some(found) if found == FORMAT.to_string() => {}
        Some(found) => return Err(ServeError::StateFormat { path: directory.to_owned(), found }),
    }
    for part in ["sessions", "terminals"] {
        // It may exist. If it cannot be made, the first write into it fails with the reason.
        let _ = fs::DirBuilder::new().mode(0o700).create(directory.join(part));
    }
    Ok(())
}

/// The format of a state directory; `None` if no gateway has used the directory.
fn format_of(directory: &Path) -> io::Result<Option<String>> {
    match text_file::read_text(&directory.join(FORMAT_FILE), FORMAT_MAX_BYTES) {
        // A crash of the host may leave an empty file.
        Ok(text) if text.is_empty() => Ok(None),
        Ok(text) => Ok(Some(crate::printable::line(text.trim()).into_owned())),
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Err(_) => Ok(directory.join("sessions").exists().then(|| "1".to_owned())),
    }
}

fn write_format(directory: &Path) -> io::Result<()> {
    let unfinished = directory.join(format!("{FORMAT_FILE}.new"));
    let mut file =
        fs::OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(&unfinished)?;
    writeln!(file, "{FORMAT}")?;
    fs::rename(&unfinished, directory.join(FORMAT_FILE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_of_another_format_is_refused_and_left_as_it_is() {
        let directory = tempfile::tempdir().unwrap();
        let state = |name: &str| directory.path().join(name);
        drop(StateDirectory::open(&state("new")).unwrap());
        StateDirectory::open(&state("new")).unwrap();

        fs::create_dir_all(state("old/sessions")).unwrap();
        fs::create_dir_all(state("newer")).unwrap();
        fs::write(state("newer/format"), "3\n").unwrap();
        for (name, expected) in [("old", "1"), ("newer", "3")] {
            let error = StateDirectory::open(&state(name)).unwrap_err();
            assert!(matches!(&error, ServeError::StateFormat { found, .. } if found == expected), "{error}");
            assert!(!state(name).join("terminals").exists());
        }
    }
}
