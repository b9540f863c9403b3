//! The directory of all kept caches: `UID/KEY/PLACE/GENERATION`, of a user, a scope and a place in a home.
//!
//! Only the gateway's user can enter it. What lies below a user's directory is that user's, so that it counts for
//! that user's disk quota. Several gateways of one user share it: a process that changes what a user has there holds
//! the lock of that user's directory.

use std::{
    fs::{self, File},
    os::{
        fd::OwnedFd,
        unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, chown},
    },
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use nix::fcntl::{Flock, FlockArg};

use super::{
    KeepError,
    generation::{self, Generation},
    scope::{self, LayerName, Scope, ScopeKey},
};
use crate::sys::rights::Rights;

/// In a scope's directory: what it is, as JSON.
const SCOPE_FILE: &str = "scope";
/// In a user's directory.
const LOCK_FILE: &str = "lock";

/// The kept caches of a gateway. Nothing is made before a profile keeps one.
#[derive(Debug, Clone)]
pub struct KeptCaches {
    root: PathBuf,
}

/// A kept cache as a session begins with it.
#[derive(Debug)]
pub struct OpenedCache {
    /// The name of the session's layer above it.
    pub layer: LayerName,
    /// The generation, absolute and without links.
    pub path: PathBuf,
    /// Open on it.
    pub directory: OwnedFd,
    /// It stays while this lives.
    pub hold: Flock<File>,
}

/// A kept cache, for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedCache {
    /// Whose it is.
    pub uid: u32,
    /// Who finds it.
    pub scope: Scope,
    /// Relative to a home.
    pub place: PathBuf,
    /// What it takes.
    pub used_bytes: u64,
    /// When a session has last begun with it, or added to it.
    pub last_used: SystemTime,
}

impl KeptCaches {
    /// Those below this directory, which need not be there.
    #[must_use]
    pub fn new(root: PathBuf) -> Self {
        Self { root }
    }

    /// Where they lie.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The caches of a scope at these places, empty where there are none or they are too old.
    ///
    /// # Errors
    /// [`KeepError`].
    pub fn open(
        &self,
        owner: &Rights,
        scope: &Scope,
        places: &[PathBuf],
    ) -> Result<Vec<OpenedCache>, KeepError> {
        let user = self.make_user_directory(owner)?;
        let _lock = lock(&user)?;
        let key = scope.key();
        let directory = user.join(key.as_str());
        make_directory(&directory, owner)?;
        write_scope(&directory, scope)?;
        let open = |place: &PathBuf| {
            let cache = directory.join(scope::directory_name(place));
            make_directory(&cache, owner)?;
            let current = generation::current(&cache)?;
            let usable = current.filter(|one| !one.is_older_than(scope.max_age));
            let generation = usable.unwrap_or_else(|| Generation::first(current));
            let path = cache.join(generation.name());
            if usable.is_none() {
                make_directory(&path, owner)?;
            }
            let hold = generation::hold(&cache, generation)?;
            generation::remove_unused(&cache, Some(generation))?;
            generation::mark_used(&cache)?;
            let directory = hold.try_clone().map_err(KeepError::of("hold", &path))?.into();
            Ok(OpenedCache { layer: LayerName::new(&key, place), path, directory, hold })
        };
        places.iter().map(open).collect()
    }

    /// All kept caches of a user; of all users, if none is named.
    ///
    /// # Errors
    /// [`KeepError`]: of those that cannot be read.
    pub fn list(&self, uid: Option<u32>) -> Result<Vec<ListedCache>, KeepError> {
        let mut listed = Vec::new();
        for user in generation::names(&self.root)?.iter().filter_map(|name| name.parse::<u32>().ok()) {
            if uid.is_some_and(|uid| uid != user) {
                continue;
            }
            let directory = self.root.join(user.to_string());
            for key in keys(&directory)? {
                let directory = directory.join(key.as_str());
                // Being made, or removed.
                let Some(scope) = read_scope(&directory)? else { continue };
                for (cache, current) in caches(&directory)? {
                    listed.push(ListedCache {
                        uid: user,
                        scope: scope.clone(),
                        place: scope::place_of(&cache),
                        used_bytes: current.used_bytes,
                        last_used: generation::last_used(&directory.join(cache))?,
                    });
                }
            }
        }
        Ok(listed)
    }

    /// Removes those of a user that no session has used for so long, and that none uses. Returns what was removed.
    ///
    /// # Errors
    /// [`KeepError`]: the others were left.
    pub fn prune(&self, uid: u32, unused_for: Duration) -> Result<Vec<ListedCache>, KeepError> {
        let user = self.root.join(uid.to_string());
        if !user.exists() {
            return Ok(Vec::new());
        }
        let _lock = lock(&user)?;
        let mut removed = Vec::new();
        for cache in self.list(Some(uid))? {
            let unused = SystemTime::now().duration_since(cache.last_used).unwrap_or_default();
            if unused >= unused_for && remove(&user, &cache.scope.key(), &cache.place)? {
                removed.push(cache);
            }
        }
        Ok(removed)
    }

    fn make_user_directory(&self, owner: &Rights) -> Result<PathBuf, KeepError> {
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&self.root)
            .map_err(KeepError::of("make", &self.root))?;
        let root = self.root.canonicalize().map_err(KeepError::of("read", &self.root))?;
        let found = fs::metadata(&root).map_err(KeepError::of("read", &root))?;
        if found.uid() != nix::unistd::geteuid().as_raw() || found.mode() & 0o077 != 0 {
            return Err(KeepError::NotOwn(root));
        }
        let user = root.join(owner.uid.to_string());
        make_directory(&user, owner)?;
        Ok(user)
    }

    /// The directory of the cache below a layer, and the scope, of a user who has it.
    pub(super) fn find(&self, uid: u32, layer: &LayerName) -> Result<FoundCache, KeepError> {
        let root = self.root.canonicalize().map_err(KeepError::of("read", &self.root))?;
        let user = root.join(uid.to_string());
        let key = ScopeKey::parse(&layer.key).ok_or(KeepError::Missing)?;
        let scope = read_scope(&user.join(key.as_str()))?.ok_or(KeepError::Missing)?;
        let cache = user.join(key.as_str()).join(scope::directory_name(&layer.place));
        if !cache.is_dir() {
            return Err(KeepError::Missing);
        }
        Ok(FoundCache { user, cache, scope })
    }
}

/// A cache in the directory.
pub(super) struct FoundCache {
    pub(super) user: PathBuf,
    pub(super) cache: PathBuf,
    pub(super) scope: Scope,
}

/// Removes other caches of the user, the longest unused first, until all take no more than `max_bytes` together with
/// `added`.
pub(super) fn make_room(found: &FoundCache, added: u64, max_bytes: u64) -> Result<(), KeepError> {
    let mut others = Vec::new();
    for key in keys(&found.user)? {
        let directory = found.user.join(key.as_str());
        for (name, current) in caches(&directory)? {
            let cache = directory.join(&name);
            if cache != found.cache {
                others.push((generation::last_used(&cache)?, key.clone(), name, current.used_bytes));
            }
        }
    }
    others.sort();
    let mut total = others.iter().fold(added, |sum, (.., used)| sum.saturating_add(*used));
    for (_, key, name, used) in others {
        if total <= max_bytes {
            return Ok(());
        }
        if remove(&found.user, &key, &scope::place_of(&name))? {
            total -= used;
        }
    }
    if total > max_bytes { Err(KeepError::TooLarge { max_bytes }) } else { Ok(()) }
}

/// Locks what a user has. The lock of a dead process is none.
pub(super) fn lock(user: &Path) -> Result<Flock<File>, KeepError> {
    let path = user.join(LOCK_FILE);
    let file = fs::OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW)
        .open(&path)
        .map_err(KeepError::of("open", &path))?;
    Flock::lock(file, FlockArg::LockExclusive).map_err(|(_, errno)| KeepError::of("lock", path)(errno))
}

/// Makes a directory of the owner's, if there is none.
pub(super) fn make_directory(path: &Path, owner: &Rights) -> Result<(), KeepError> {
    match fs::DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
        made => {
            made.map_err(KeepError::of("make", path))?;
            chown(path, Some(owner.uid), Some(owner.gid)).map_err(KeepError::of("give away", path))
        }
    }
}

fn keys(user: &Path) -> Result<Vec<ScopeKey>, KeepError> {
    Ok(generation::names(user)?.iter().filter_map(|name| ScopeKey::parse(name)).collect())
}

/// The caches of a scope that have a generation.
fn caches(scope: &Path) -> Result<Vec<(String, Generation)>, KeepError> {
    let mut caches = Vec::new();
    for name in generation::names(scope)?.into_iter().filter(|name| !name.starts_with(SCOPE_FILE)) {
        if let Some(current) = generation::current(&scope.join(&name))? {
            caches.push((name, current));
        }
    }
    Ok(caches)
}

/// Removes a cache that no session uses. Whether it is gone. The caller has the lock.
fn remove(user: &Path, key: &ScopeKey, place: &Path) -> Result<bool, KeepError> {
    let directory = user.join(key.as_str());
    let cache = directory.join(scope::directory_name(place));
    // One that is used keeps all: what its session has written is to be added to the newest generation.
    if generation::is_held(&cache)? {
        return Ok(false);
    }
    generation::remove_unused(&cache, None)?;
    fs::remove_dir(&cache).map_err(KeepError::of("remove", &cache))?;
    if caches(&directory)?.is_empty() {
        fs::remove_dir_all(&directory).map_err(KeepError::of("remove", &directory))?;
    }
    Ok(true)
}

fn write_scope(directory: &Path, scope: &Scope) -> Result<(), KeepError> {
    let path = directory.join(SCOPE_FILE);
    let unfinished = directory.join(format!("{SCOPE_FILE}.new"));
    let text = serde_json::to_vec(scope).map_err(KeepError::of("write", &path))?;
    fs::write(&unfinished, text).map_err(KeepError::of("write", &path))?;
    fs::rename(&unfinished, &path).map_err(KeepError::of("write", path))
}

fn read_scope(directory: &Path) -> Result<Option<Scope>, KeepError> {
    let path = directory.join(SCOPE_FILE);
    match fs::read(&path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        read => {
            let bytes = read.map_err(KeepError::of("read", &path))?;
            serde_json::from_slice(&bytes).map(Some).map_err(KeepError::of("read", path))
        }
    }
}
