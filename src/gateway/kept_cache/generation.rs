//! The generations of one cache: directories whose names say their number, when their line has begun and what they
//! take.

use std::{
    fs::{self, File},
    os::unix::fs::OpenOptionsExt,
    path::Path,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use nix::fcntl::{Flock, FlockArg};

use super::KeepError;

/// What the name of a directory begins with that is being made, or removed.
pub(super) const UNFINISHED: &str = "new-";

/// A generation, by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Generation {
    pub(super) number: u64,
    /// When the first of its line was made, in seconds since 1970.
    pub(super) begun: u64,
    pub(super) used_bytes: u64,
}

impl Generation {
    /// The first one of a line that begins now: empty.
    pub(super) fn first(before: Option<Self>) -> Self {
        Self { number: before.map_or(1, |one| one.number + 1), begun: now(), used_bytes: 0 }
    }

    /// The one that comes after it.
    pub(super) fn next(self, used_bytes: u64) -> Self {
        Self { number: self.number + 1, used_bytes, ..self }
    }

    /// A clock that was set back makes nothing older.
    pub(super) fn is_older_than(self, max_age: Duration) -> bool {
        now().saturating_sub(self.begun) > max_age.as_secs()
    }

    pub(super) fn name(self) -> String {
        format!("{:016x}-{:x}-{:x}", self.number, self.begun, self.used_bytes)
    }

    pub(super) fn parse(name: &str) -> Option<Self> {
        let mut parts = name.split('-').map(|part| u64::from_str_radix(part, 16).ok());
        let one = Self { number: parts.next()??, begun: parts.next()??, used_bytes: parts.next()?? };
        (one.name() == name).then_some(one)
    }
}

/// The newest generation of the cache in this directory.
pub(super) fn current(cache: &Path) -> Result<Option<Generation>, KeepError> {
    Ok(names(cache)?.iter().filter_map(|name| Generation::parse(name)).max())
}

/// A generation, held: it is not removed while this lives.
pub(super) fn hold(cache: &Path, generation: Generation) -> Result<Flock<File>, KeepError> {
    let path = cache.join(generation.name());
    let opened = open_directory(&path)?;
    Flock::lock(opened, FlockArg::LockShared).map_err(|(_, errno)| KeepError::of("hold", path)(errno))
}

/// Whether a session of this or another gateway holds a generation of the cache, or makes one.
pub(super) fn is_held(cache: &Path) -> Result<bool, KeepError> {
    for name in names(cache)? {
        let opened = open_directory(&cache.join(name))?;
        if Flock::lock(opened, FlockArg::LockExclusiveNonblock).is_err() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Opens a directory, which is no link.
pub(super) fn open_directory(path: &Path) -> Result<File, KeepError> {
    let flags = libc::O_DIRECTORY | libc::O_NOFOLLOW;
    fs::OpenOptions::new().read(true).custom_flags(flags).open(path).map_err(KeepError::of("open", path))
}

/// Removes what no session holds of a cache: all but this generation, and what was not finished.
pub(super) fn remove_unused(cache: &Path, spared: Option<Generation>) -> Result<(), KeepError> {
    for name in names(cache)? {
        let generation = Generation::parse(&name);
        if (generation.is_some() && generation == spared)
            || (generation.is_none() && !name.starts_with(UNFINISHED))
        {
            continue;
        }
        let path = cache.join(&name);
        let Ok(opened) = open_directory(&path) else { continue };
        let Ok(_lock) = Flock::lock(opened, FlockArg::LockExclusiveNonblock) else { continue };
        // Under another name first: an interrupted removal leaves no generation with a part of its files.
        let doomed = match generation {
            None => path,
            Some(_) => {
                let doomed = cache.join(format!("{UNFINISHED}old-{name}"));
                fs::rename(&path, &doomed).map_err(KeepError::of("rename", path))?;
                doomed
            }
        };
        fs::remove_dir_all(&doomed).map_err(KeepError::of("remove", doomed))?;
    }
    Ok(())
}

/// The names in a directory of ours; none where there is no such directory.
pub(super) fn names(directory: &Path) -> Result<Vec<String>, KeepError> {
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        opened => opened.map_err(KeepError::of("read", directory))?,
    };
    let mut names = Vec::new();
    for entry in entries {
        let name = entry.map_err(KeepError::of("read", directory))?.file_name();
        names.extend(name.into_string().ok());
    }
    Ok(names)
}

/// When a cache was used last.
pub(super) fn last_used(cache: &Path) -> Result<SystemTime, KeepError> {
    fs::metadata(cache).and_then(|found| found.modified()).map_err(KeepError::of("read", cache))
}

/// It is used now.
pub(super) fn mark_used(cache: &Path) -> Result<(), KeepError> {
    let times = fs::FileTimes::new().set_modified(SystemTime::now());
    open_directory(cache)?.set_times(times).map_err(KeepError::of("mark", cache))
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
}
