//! Which files commands will find: the profile's view of this host, looked at from outside.
//!
//! Follows links as the sandbox shows them, never out of what it shows. What only exists inside (the private
//! `/tmp`, the home, `/proc`, `/dev`) is unknown here, and said to be. It opens no file; what is executed in
//! the end is held against the identity that is found here.

use std::{
    collections::HashMap,
    fs::{self, Metadata},
    os::unix::fs::MetadataExt,
    path::{Component, Path, PathBuf},
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use crate::policy::{
    command::program::{FileId, Found, Programs},
    profile::Profile,
};

/// Links that are followed for one path: as many as the kernel follows (path_resolution(7)).
const MOST_LINKS: usize = 40;

/// Names that are remembered; at more, all are forgotten.
const MOST_NAMES: usize = 16_384;

/// How long a name may mean what it meant: installing a program is seen after this.
const FRESH: Duration = Duration::from_secs(1);

/// What names meant a moment ago, for all profiles of a gateway.
#[derive(Debug, Default)]
pub struct Remembered {
    names: Mutex<HashMap<(u64, String), (Instant, Found)>>,
}

/// The files of one profile and one session.
#[derive(Debug)]
pub struct View<'a> {
    profile: &'a Profile,
    roots: Vec<PathBuf>,
    remembered: &'a Remembered,
    /// Tells profiles apart whose names mean different files.
    key: u64,
}

impl<'a> View<'a> {
    /// Of a profile, with the session's roots.
    pub fn new(
        profile: &'a Profile,
        roots: impl IntoIterator<Item = PathBuf>,
        remembered: &'a Remembered,
    ) -> Self {
        use std::hash::{DefaultHasher, Hash, Hasher};
        let mut hasher = DefaultHasher::new();
        let files = &profile.filesystem;
        (&profile.path, &files.system, &files.read_only, &files.writable).hash(&mut hasher);
        Self { profile, roots: roots.into_iter().collect(), remembered, key: hasher.finish() }
    }

    /// The folders and files of the host that the sandbox shows.
    fn shown(&self) -> impl Iterator<Item = &Path> {
        let files = &self.profile.filesystem;
        files
            .system
            .iter()
            .chain(&files.read_only)
            .chain(&files.writable)
            .chain(&self.roots)
            .map(PathBuf::as_path)
    }

    fn place(&self, path: &Path) -> Shown {
        let longest = |found: Option<usize>, folder: &Path| {
            path.starts_with(folder).then(|| folder.components().count()).max(found)
        };
        let host = self.shown().fold(None, longest);
        let private = [Path::new("/tmp"), Path::new("/dev"), Path::new("/proc"), Path::new("/var/tmp")];
        let inside = private.into_iter().chain([self.profile.identity.home.as_path()]).fold(None, longest);
        match (host, inside) {
            (host, inside) if host > inside => Shown::Host,
            // Also in the private folders: a root may lie below the host's /tmp.
            _ if self.shown().any(|folder| folder.starts_with(path)) => Shown::Above,
            (None, None) => Shown::Nowhere,
            _ => Shown::Inside,
        }
    }

    /// The file that a path means, all links followed.
    fn resolve(&self, path: &Path) -> Found {
        let mut links = 0;
        let mut done = PathBuf::from("/");
        let mut rest: Vec<PathBuf> = components(path);
        while let Some(part) = rest.pop() {
            if part.as_os_str() == ".." {
                done.pop();
                continue;
            }
            done.push(&part);
            match self.place(&done) {
                Shown::Above => continue,
                Shown::Nowhere => return Found::Missing,
                Shown::Inside => return Found::Unknown,
                Shown::Host => {}
            }
            let Ok(metadata) = fs::symlink_metadata(&done) else { return Found::Missing };
            if metadata.is_symlink() {
                links += 1;
                let Ok(target) = fs::read_link(&done) else { return Found::Missing };
                if links > MOST_LINKS {
                    return Found::Missing;
                }
                if target.is_absolute() {
                    done = PathBuf::from("/");
                } else {
                    done.pop();
                }
                rest.extend(components(&target));
            } else if rest.is_empty() {
                return found(&done, &metadata);
            }
        }
        Found::Missing
    }

    fn search(&self, name: &str) -> Found {
        let mut not_executable = None;
        for folder in &self.profile.path {
            match self.resolve(&folder.join(name)) {
                Found::Missing => {}
                Found::File(file) if is_executable(&file) => return Found::File(file),
                Found::File(file) => not_executable = not_executable.or(Some(Found::File(file))),
                // A folder of the path that only exists inside: nobody knows what is in it.
                Found::Unknown => return Found::Unknown,
                Found::Builtin => {}
            }
        }
        not_executable.unwrap_or(Found::Missing)
    }

    fn recall(&self, name: &str) -> Option<Found> {
        let names = self.remembered.names.lock().unwrap_or_else(PoisonError::into_inner);
        let (when, found) = names.get(&(self.key, name.to_owned()))?;
        (when.elapsed() < FRESH).then(|| found.clone())
    }

    fn look_up(&self, name: &str) -> Found {
        if let Some(found) = self.recall(name) {
            return found;
        }
        let found = self.search(name);
        let mut names = self.remembered.names.lock().unwrap_or_else(PoisonError::into_inner);
        if names.len() >= MOST_NAMES {
            names.clear();
        }
        names.insert((self.key, name.to_owned()), (Instant::now(), found.clone()));
        found
    }
}

impl Programs for View<'_> {
    fn trusted(&self, name: &str) -> Found {
        let found = self.look_up(name);
        // Still the same file? Then the name means what it meant.
        match &found {
            Found::File(file) if !is_unchanged(file) => {
                let key = (self.key, name.to_owned());
                self.remembered.names.lock().unwrap_or_else(PoisonError::into_inner).remove(&key);
                self.look_up(name)
            }
            _ => found,
        }
    }

    fn is_named(&self, file: &Found, name: &str) -> bool {
        !name.contains('/') && file.is_same(&self.look_up(name))
    }

    fn at(&self, path: &str, cwd: &str) -> Found {
        self.resolve(&Path::new(cwd).join(path))
    }
}

/// How the sandbox has a path.
enum Shown {
    /// As the host's.
    Host,
    /// As a folder on the way to something that is shown.
    Above,
    /// As its own.
    Inside,
    /// Not at all.
    Nowhere,
}

/// Last part first.
fn components(path: &Path) -> Vec<PathBuf> {
    let part = |component: Component<'_>| match component {
        Component::Normal(part) => Some(PathBuf::from(part)),
        Component::ParentDir => Some(PathBuf::from("..")),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    };
    path.components().rev().filter_map(part).collect()
}

fn found(path: &Path, metadata: &Metadata) -> Found {
    match path.to_str() {
        Some(path) if metadata.is_file() => Found::File(identity(path, metadata)),
        // A name that is no text cannot be judged by its text.
        None if metadata.is_file() => Found::Unknown,
        _ => Found::Missing,
    }
}

fn identity(path: &str, metadata: &Metadata) -> FileId {
    FileId {
        path: path.to_owned(),
        device: metadata.dev(),
        inode: metadata.ino(),
        changed_nanos: metadata.ctime().wrapping_mul(1_000_000_000).wrapping_add(metadata.ctime_nsec()),
    }
}

fn is_unchanged(file: &FileId) -> bool {
    fs::symlink_metadata(&file.path).is_ok_and(|metadata| identity(&file.path, &metadata) == *file)
}

fn is_executable(file: &FileId) -> bool {
    fs::symlink_metadata(&file.path).is_ok_and(|metadata| metadata.mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn program(path: &Path) {
        fs::write(path, "#!/bin/sh\n").unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// A system folder with `tool` and a link to it, a workspace, and a folder that is not shown.
    fn host() -> (tempfile::TempDir, Profile, PathBuf) {
        let host = tempfile::Builder::new().prefix("view").tempdir_in("/var/lib").unwrap();
        let at = |name: &str| host.path().join(name);
        for folder in ["bin", "work", "hidden"] {
            fs::create_dir(at(folder)).unwrap();
        }
        program(&at("bin/tool"));
        program(&at("hidden/tool"));
        symlink("tool", at("bin/alias")).unwrap();
        symlink(at("hidden/tool"), at("bin/out")).unwrap();
        let mut profile = Profile { path: vec![at("bin")], ..Profile::default() };
        profile.filesystem.system = vec![at("bin")];
        let work = at("work");
        (host, profile, work)
    }

    #[test]
    fn names_mean_what_the_sandbox_shows() {
        let (host, profile, work) = host();
        let remembered = Remembered::default();
        let view = View::new(&profile, [work.clone()], &remembered);
        let tool = view.trusted("tool");
        assert!(tool.path().is_some_and(|path| path.ends_with("bin/tool")), "{tool:?}");
        assert!(view.trusted("alias").is_same(&tool));
        assert!(view.is_named(&tool, "alias"));
        assert_eq!(view.trusted("out"), Found::Missing, "a link out of the view leads nowhere");
        assert_eq!(view.trusted("nothing"), Found::Missing);
        let hidden = host.path().join("hidden/tool");
        assert_eq!(view.at(hidden.to_str().unwrap(), "/"), Found::Missing);
        assert_eq!(view.at("/tmp/x", "/"), Found::Unknown);
    }

    #[test]
    fn a_link_in_the_workspace_is_the_file_that_it_leads_to_and_a_copy_is_another() {
        let (host, profile, work) = host();
        symlink(host.path().join("bin/tool"), work.join("tool")).unwrap();
        fs::copy(host.path().join("bin/tool"), work.join("copy")).unwrap();
        fs::hard_link(host.path().join("bin/tool"), work.join("hard")).unwrap();
        let remembered = Remembered::default();
        let view = View::new(&profile, [work.clone()], &remembered);
        let cwd = work.to_str().unwrap();
        let tool = view.trusted("tool");
        assert!(view.at("./tool", cwd).is_same(&tool));
        assert!(view.at("./hard", cwd).is_same(&tool));
        assert!(view.at("../work/./tool", cwd).is_same(&tool));
        assert!(!view.at("copy", cwd).is_same(&tool));
    }

    #[test]
    fn a_program_that_was_replaced_is_another_at_once() {
        let (host, profile, work) = host();
        let remembered = Remembered::default();
        let view = View::new(&profile, [work], &remembered);
        let before = view.trusted("tool");
        let new = host.path().join("bin/new");
        program(&new);
        fs::rename(&new, host.path().join("bin/tool")).unwrap();
        assert!(!view.trusted("tool").is_same(&before));
    }
}
