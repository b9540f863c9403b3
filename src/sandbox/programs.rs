//! Which files commands will find: the profile's view of this host, looked at from outside.
//!
//! Follows links as the sandbox shows them, never out of what it shows. What only exists inside (the private
//! `/tmp`, the home, `/proc`, `/dev`) is unknown here, and said to be. What is executed in the end is held against
//! the identity that is found here. It opens no file but a program in a place that commands can change, to see by its
//! first line whether it is a script, and which file runs that.

use std::{
    collections::HashMap,
    fs::{self, Metadata},
    io::Read,
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::{Component, Path, PathBuf},
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use super::script;
use crate::{
    policy::{
        Views,
        command::program::{FileId, Found, Interpreter, Programs, Way},
        profile::{Access, Profile},
    },
    sys::rights::Rights,
};

/// Links that are followed for one path: as many as the kernel follows (path_resolution(7)).
const MOST_LINKS: usize = 40;

/// Names that are remembered; at more, all are forgotten.
const MOST_NAMES: usize = 16_384;

/// How long a name may mean what it meant: installing a program is seen after this.
const FRESH: Duration = Duration::from_secs(1);

/// Scripts that run one another, in a chain: as many as the kernel takes (execve(2), ELOOP).
const MOST_INTERPRETERS: usize = 5;

/// What names meant a moment ago, for all profiles of a gateway.
#[derive(Debug, Default)]
pub struct Remembered {
    names: Mutex<HashMap<(u64, String), (Instant, Found)>>,
}

/// The files of one session, under each profile.
#[derive(Debug)]
pub struct SessionViews<'a> {
    roots: Vec<PathBuf>,
    rights: Rights,
    remembered: &'a Remembered,
}

impl<'a> SessionViews<'a> {
    /// With the session's roots, and its principal's rights.
    pub fn new(roots: Vec<PathBuf>, rights: Rights, remembered: &'a Remembered) -> Self {
        Self { roots, rights, remembered }
    }

    /// As this process sees them.
    pub fn own(roots: Vec<PathBuf>, remembered: &'a Remembered) -> Self {
        Self::new(roots, Rights::own(), remembered)
    }
}

impl Views for SessionViews<'_> {
    fn under<'a>(&'a self, profile: &'a Profile) -> Box<dyn Programs + 'a> {
        Box::new(View::new(profile, self.roots.iter().cloned(), &self.rights, self.remembered))
    }
}

/// The files of one profile and one session.
#[derive(Debug)]
pub struct View<'a> {
    profile: &'a Profile,
    shown: Vec<Folder>,
    /// For paths that a caller names. Trusted names mean the same for everybody.
    rights: &'a Rights,
    remembered: &'a Remembered,
    /// Tells profiles apart whose names mean different files.
    key: u64,
}

/// A folder or file of the host that the sandbox shows.
#[derive(Debug)]
struct Folder {
    path: PathBuf,
    /// As commands see it.
    access: Access,
}

impl<'a> View<'a> {
    /// Of a profile, with the session's roots.
    pub fn new(
        profile: &'a Profile,
        roots: impl IntoIterator<Item = PathBuf>,
        rights: &'a Rights,
        remembered: &'a Remembered,
    ) -> Self {
        use std::hash::{DefaultHasher, Hash, Hasher};
        let mut hasher = DefaultHasher::new();
        let files = &profile.filesystem;
        (&profile.path, &files.system, &files.read_only, &files.writable).hash(&mut hasher);
        // Those that a profile adds are shown where they really are.
        let real = |path: &PathBuf| path.canonicalize().unwrap_or_else(|_| path.clone());
        let read_only = files.system.iter().cloned().chain(files.read_only.iter().map(real));
        let read_only = read_only.map(|path| Folder { path, access: Access::Read });
        let writable = files.writable.iter().map(real).map(|path| Folder { path, access: Access::Write });
        let roots = roots.into_iter().map(|path| Folder { path, access: files.workspace });
        let shown = read_only.chain(writable).chain(roots).collect();
        Self { profile, shown, rights, remembered, key: hasher.finish() }
    }

    fn place(&self, path: &Path) -> Shown {
        let depth = |folder: &Path| folder.components().count();
        let governing = self
            .shown
            .iter()
            .filter(|folder| path.starts_with(&folder.path))
            .max_by_key(|folder| depth(&folder.path));
        let private = [Path::new("/tmp"), Path::new("/dev"), Path::new("/proc"), Path::new("/var/tmp")];
        let inside = private
            .into_iter()
            .chain([self.profile.identity.home.as_path()])
            .filter(|folder| path.starts_with(folder))
            .map(depth)
            .max();
        match governing {
            Some(folder) if Some(depth(&folder.path)) > inside => Shown::Host {
                access: folder.access,
                top: if folder.path == path { Top::Yes } else { Top::No },
            },
            // Also in the private folders: a root may lie below the host's /tmp.
            _ if self.shown.iter().any(|folder| folder.path.starts_with(path)) => Shown::Above,
            None if inside.is_none() => Shown::Nowhere,
            _ => Shown::Inside,
        }
    }

    /// The file that a path means, all links followed.
    fn resolve(&self, path: &Path) -> Found {
        let (mut links, mut way) = (0, Way::Settled);
        // Of `done` without its last part, where that was just looked at.
        let mut above: Option<Metadata> = None;
        let mut done = PathBuf::from("/");
        let mut rest: Vec<PathBuf> = components(path);
        while let Some(part) = rest.pop() {
            if part.as_os_str() == ".." {
                done.pop();
                above = None;
                continue;
            }
            done.push(&part);
            match self.place(&done) {
                Shown::Above => {
                    above = None;
                    continue;
                }
                Shown::Nowhere => return Found::Missing,
                Shown::Inside => return Found::Unknown,
                Shown::Host { access, top } => {
                    if way == Way::Settled && !is_settled(&done, access, top, above.as_ref()) {
                        way = Way::Changeable;
                    }
                }
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
                    above = None;
                } else {
                    done.pop();
                }
                rest.extend(components(&target));
            } else if rest.is_empty() {
                return found(&done, &metadata, path, way);
            } else {
                above = Some(metadata);
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
        let resolved = self.rights.exercise(|| self.resolve(&Path::new(cwd).join(path)));
        match resolved.unwrap_or(Found::Unknown) {
            // Executed as it was named.
            Found::File(file) => Found::File(FileId { found_at: path.to_owned(), ..file }),
            other => other,
        }
    }

    fn interpreters(&self, file: &FileId, cwd: &str) -> Vec<Interpreter> {
        let mut chain: Vec<Interpreter> = Vec::new();
        let mut script = file.clone();
        while script.way == Way::Changeable && chain.len() < MOST_INTERPRETERS {
            let line = self.rights.exercise(|| first_line(&script)).ok().flatten();
            let Some(script::Line { path, argument }) = line else { break };
            let file = self.at(&path, cwd);
            let next = match &file {
                Found::File(file) => Some(file.clone()),
                Found::Builtin | Found::Missing | Found::Unknown => None,
            };
            chain.push(Interpreter { path, argument, file });
            match next {
                Some(next) => script = next,
                None => break,
            }
        }
        chain
    }
}

/// How the sandbox has a path.
enum Shown {
    /// As the host's.
    Host {
        /// What commands can do there.
        access: Access,
        /// Whether the path is the very folder that is shown.
        top: Top,
    },
    /// As a folder on the way to something that is shown.
    Above,
    /// As its own.
    Inside,
    /// Not at all.
    Nowhere,
}

/// Whether a path is one of those that are shown, and not below it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Top {
    Yes,
    No,
}

/// Whether neither a command nor anybody but root outside can put something else at a path.
fn is_settled(path: &Path, access: Access, top: Top, above: Option<&Metadata>) -> bool {
    let is_roots = |found: &Metadata| found.uid() == 0 && found.mode() & 0o022 == 0;
    let look = || fs::symlink_metadata(path.parent()?).ok();
    // A mount stays where it is, whatever becomes of its name outside.
    access == Access::Read
        && (top == Top::Yes || above.map_or_else(|| look().is_some_and(|found| is_roots(&found)), is_roots))
}

/// The first line of a script, if that is what the file is, and still the same.
fn first_line(file: &FileId) -> Option<script::Line> {
    // Not waiting for the writer of a pipe that somebody may have put there; not following what is a link by now.
    let opened = fs::File::options()
        .read(true)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY)
        .open(&file.path)
        .ok()?;
    let metadata = opened.metadata().ok()?;
    if !metadata.is_file() || !is_identity(file, &metadata) {
        return None;
    }
    let mut beginning = Vec::with_capacity(script::LONGEST_LINE);
    opened.take(script::LONGEST_LINE as u64).read_to_end(&mut beginning).ok()?;
    script::parse(&beginning)
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

fn found(path: &Path, metadata: &Metadata, found_at: &Path, way: Way) -> Found {
    match (path.to_str(), found_at.to_str()) {
        (Some(path), Some(found_at)) if metadata.is_file() => Found::File(FileId {
            path: path.to_owned(),
            device: metadata.dev(),
            inode: metadata.ino(),
            changed_nanos: changed_nanos(metadata),
            found_at: found_at.to_owned(),
            way,
        }),
        // A name that is no text cannot be judged by its text.
        _ if metadata.is_file() => Found::Unknown,
        _ => Found::Missing,
    }
}

fn changed_nanos(metadata: &Metadata) -> i64 {
    metadata.ctime().wrapping_mul(1_000_000_000).wrapping_add(metadata.ctime_nsec())
}

fn is_identity(file: &FileId, metadata: &Metadata) -> bool {
    (file.device, file.inode, file.changed_nanos) == (metadata.dev(), metadata.ino(), changed_nanos(metadata))
}

fn is_unchanged(file: &FileId) -> bool {
    fs::symlink_metadata(&file.path).is_ok_and(|metadata| metadata.is_file() && is_identity(file, &metadata))
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
        let (remembered, rights) = (Remembered::default(), Rights::own());
        let view = View::new(&profile, [work.clone()], &rights, &remembered);
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
        let (remembered, rights) = (Remembered::default(), Rights::own());
        let view = View::new(&profile, [work.clone()], &rights, &remembered);
        let cwd = work.to_str().unwrap();
        let tool = view.trusted("tool");
        assert!(view.at("./tool", cwd).is_same(&tool));
        assert!(view.at("./hard", cwd).is_same(&tool));
        assert!(view.at("../work/./tool", cwd).is_same(&tool));
        assert!(!view.at("copy", cwd).is_same(&tool));
    }

    #[test]
    fn a_way_is_settled_where_nobody_but_root_can_change_it() {
        let (host, mut profile, work) = host();
        let file = |found: Found| match found {
            Found::File(file) => file,
            other => panic!("{other:?}"),
        };
        let way = |profile: &Profile, work: &Path, path: &str| {
            let (remembered, rights) = (Remembered::default(), Rights::own());
            file(View::new(profile, [work.to_owned()], &rights, &remembered).at(path, work.to_str().unwrap()))
                .way
        };
        let tool = host.path().join("bin/tool").display().to_string();
        symlink(&tool, work.join("link")).unwrap();
        program(&work.join("own"));
        if !nix::unistd::geteuid().is_root() {
            assert_eq!(way(&profile, &work, &tool), Way::Changeable);
            return;
        }
        assert_eq!(way(&profile, &work, &tool), Way::Settled);
        assert_eq!(way(&profile, &work, "link"), Way::Changeable, "the link can be exchanged");
        assert_eq!(way(&profile, &work, "own"), Way::Changeable);
        profile.filesystem.workspace = Access::Read;
        assert_eq!(way(&profile, &work, "link"), Way::Settled);
        fs::set_permissions(&work, fs::Permissions::from_mode(0o775)).unwrap();
        assert_eq!(way(&profile, &work, "link"), Way::Changeable, "somebody outside can exchange it");
    }

    #[test]
    fn a_script_that_can_be_exchanged_is_known_with_what_runs_it() {
        let (host, profile, work) = host();
        let script = |name: &str, line: &str| {
            fs::write(work.join(name), line).unwrap();
            fs::set_permissions(work.join(name), fs::Permissions::from_mode(0o755)).unwrap();
        };
        script("inner", &format!("#!{} -x\n", host.path().join("bin/tool").display()));
        script("outer", "#!./inner a b\n");
        script("plain", "echo\n");
        let (remembered, rights) = (Remembered::default(), Rights::own());
        let view = View::new(&profile, [work.clone()], &rights, &remembered);
        let cwd = work.to_str().unwrap();
        let interpreters = |name: &str| match view.at(name, cwd) {
            Found::File(file) => view.interpreters(&file, cwd),
            other => panic!("{other:?}"),
        };
        let chain = interpreters("./outer");
        let words: Vec<_> = chain.iter().map(|one| one.argument.as_deref()).collect();
        assert_eq!(words[..2], [Some("a b"), Some("-x")]);
        assert_eq!(chain[0].path, "./inner");
        assert!(chain[1].file.is_same(&view.trusted("tool")));
        assert!(interpreters("./plain").is_empty());
    }

    #[test]
    fn a_program_that_was_replaced_is_another_at_once() {
        let (host, profile, work) = host();
        let (remembered, rights) = (Remembered::default(), Rights::own());
        let view = View::new(&profile, [work], &rights, &remembered);
        let before = view.trusted("tool");
        let new = host.path().join("bin/new");
        program(&new);
        fs::rename(&new, host.path().join("bin/tool")).unwrap();
        assert!(!view.trusted("tool").is_same(&before));
    }
}
