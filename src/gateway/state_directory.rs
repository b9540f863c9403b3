//! The state directory: creates it, checks its format, and locks it for one gateway at a time.
//!
//! `adoption` restores what an earlier gateway has left in it.

use std::{
    fs,
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use nix::{
    errno::Errno,
    fcntl::{Flock, FlockArg},
};

use crate::sys::text_file;

/// How long a lock or socket of a killed gateway may stay in use. A process that the gateway was starting has inherited
/// its descriptors, and closes them when it executes its program. On a busy host that takes time.
pub(super) const RELEASE_TIMEOUT: Duration = Duration::from_secs(5);
/// The time between two attempts; no event reports the release.
pub(super) const RELEASE_POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Why a state directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// The system refused.
    #[error("cannot use the state directory {}", crate::printable::path(path))]
    Unusable {
        /// The directory.
        path: PathBuf,
        /// The reason.
        #[source]
        source: io::Error,
    },
    /// Another gateway has it.
    #[error("the state directory {} belongs to a gateway that runs", crate::printable::path(.0))]
    InUse(PathBuf),
    /// What says its format cannot be read.
    #[error("cannot read the state file {}", crate::printable::path(path))]
    FormatFile {
        /// The file.
        path: PathBuf,
        /// The reason.
        #[source]
        source: io::Error,
    },
    /// What says its format is damaged.
    #[error(
        "the state file {} is damaged: it says {found:?}, and has the number of the directory's format; if this build has written the \
         directory, put {FORMAT} there",
        crate::printable::path(path)
    )]
    GarbledFormat {
        /// The file.
        path: PathBuf,
        /// What it says.
        found: String,
    },
    /// Another build, with another format, has written it.
    #[error(
        "the state directory {} has format {found}, as its file {FORMAT_FILE} says, and this build uses format {FORMAT}: start the build that \
         wrote it, stop that build with SIGINT, which ends its commands, and move the directory away",
        crate::printable::path(path)
    )]
    Format {
        /// The directory.
        path: PathBuf,
        /// Its format.
        found: String,
    },
}

/// The format of everything in the directory, as its file `format` says. Raised when a build cannot read what an
/// earlier one has written.
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
    pub(super) fn open(directory: &Path) -> Result<Self, StateError> {
        let failed = |source| StateError::Unusable { path: directory.to_owned(), source };
        fs::DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(failed)?;
        let directory = directory.canonicalize().map_err(failed)?;
        let mut lock = fs::OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o600)
            .open(directory.join("lock"))
            .map_err(failed)?;
        // A process that can open it can lock it (flock(2)), and the directory may be open to others.
        lock.set_permissions(fs::Permissions::from_mode(0o600)).map_err(failed)?;
        let deadline = Instant::now() + RELEASE_TIMEOUT;
        loop {
            lock = match Flock::lock(lock, FlockArg::LockExclusiveNonblock) {
                Ok(lock) => {
                    prepare(&directory)?;
                    return Ok(Self { directory, _lock: lock });
                }
                Err((_, Errno::EWOULDBLOCK)) if Instant::now() >= deadline => {
                    return Err(StateError::InUse(directory));
                }
                Err((lock, Errno::EWOULDBLOCK)) => lock,
                Err((_, errno)) => return Err(failed(errno.into())),
            };
            std::thread::park_timeout(RELEASE_POLL_INTERVAL);
        }
    }
}

impl StateDirectory {
    /// The directories of all sandboxes.
    pub(super) fn sandbox_directories(&self) -> io::Result<Vec<PathBuf>> {
        let entries = match fs::read_dir(self.directory.join("sandboxes")) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let mut directories = Vec::new();
        for entry in entries {
            directories.push(entry?.path());
        }
        directories.sort();
        Ok(directories)
    }

    pub(super) fn name_of(directory: &Path) -> String {
        directory.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }
}

/// Refuses a directory of another format, and creates what a new one needs.
fn prepare(directory: &Path) -> Result<(), StateError> {
    let failed = |source| StateError::Unusable { path: directory.to_owned(), source };
    let file = directory.join(FORMAT_FILE);
    let found = format_of(directory, &file);
    match found.map_err(|source| StateError::FormatFile { path: file.clone(), source })? {
        None => write_format(directory).map_err(failed)?,
        Some(found) if found == FORMAT.to_string() => {}
        Some(found) if found.parse::<u32>().is_err() => {
            return Err(StateError::GarbledFormat { path: file, found });
        }
        Some(found) => return Err(StateError::Format { path: directory.to_owned(), found }),
    }
    for part in ["sessions", "terminals"] {
        // It may exist. If it cannot be made, the first write into it fails with the reason.
        let _ = fs::DirBuilder::new().mode(0o700).create(directory.join(part));
    }
    Ok(())
}

/// The format of a state directory; `None` if no gateway has used the directory.
fn format_of(directory: &Path, file: &Path) -> io::Result<Option<String>> {
    match text_file::read_text(file, FORMAT_MAX_BYTES) {
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
            assert!(matches!(&error, StateError::Format { found, .. } if found == expected), "{error}");
            assert!(!state(name).join("terminals").exists());
        }
        for garbled in [&b"x2"[..], b"2 2", b"\0\0", b"\xff\xfe"] {
            fs::write(state("newer/format"), garbled).unwrap();
            let error = StateDirectory::open(&state("newer")).unwrap_err().to_string();
            assert!(error.contains(&state("newer/format").display().to_string()), "{error}");
        }
    }
}
