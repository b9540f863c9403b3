//! Resolves the names in a command to files of the host, as a sandbox of the profile will show them.
//!
//! Symbolic links are followed as the sandbox shows them, and never to a file that it hides. A path that exists only
//! inside the sandbox (the private `/tmp`, the home, `/proc`, `/dev`) resolves to "unknown". The supervisor compares the
//! identity of the file that it executes with the one found here. Files are opened only to read the `#!` line of a program.

use std::{
    collections::HashMap,
    fs::{self, Metadata},
    io::ErrorKind,
    os::unix::fs::MetadataExt,
    path::{Component, Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use super::found_file::{self, FirstLines, first_line, is_executable, is_unchanged, to_resolved};
use provost_base::sys::rights::Rights;

use crate::{
    ProfileResolvers, byte_text,
    command::program::{
        Directory, DirectoryId, FileId, Interpreter, Interpreters, PathStability, ProgramResolver, Resolved,
    },
    profile::{Access, Profile},
    toolchain::{self, FoundToolchain, ToolchainOrder},
};

/// Symbolic links followed for one path: as many as the kernel follows (path_resolution(7)).
const MAX_LINKS: usize = 40;

/// Cached names. When the cache is full it is cleared.
const MAX_NAMES: usize = 16_384;

/// How long a cached name is valid. A newly installed program is found after this time.
const CACHE_TTL: Duration = Duration::from_secs(1);

/// How often a path is followed that leads to another file each time, before what it leads to counts as unknown.
const MAX_LOOKS: usize = 100;

/// The longest chain of scripts that interpret one another: as many as the kernel allows (execve(2), ELOOP).
const MAX_INTERPRETERS: usize = 5;

/// Recently resolved names, for all profiles of a gateway.
#[derive(Debug, Default)]
pub struct ProgramCache {
    names: Mutex<HashMap<(u64, String), (Instant, Resolved)>>,
    /// Whether files are programs of 32 bits, by their identity.
    machines: Mutex<HashMap<(u64, u64, i64), bool>>,
}

/// Resolves names for one session, under any profile.
#[derive(Debug)]
pub struct SessionResolver<'a> {
    roots: Vec<PathBuf>,
    toolchains: &'a [FoundToolchain],
    order: ToolchainOrder,
    named: Vec<(PathBuf, PathBuf)>,
    rights: Rights,
    cache: &'a ProgramCache,
}

impl<'a> SessionResolver<'a> {
    /// Resolves below the session's roots, with its principal's rights.
    pub fn new(roots: Vec<PathBuf>, rights: Rights, cache: &'a ProgramCache) -> Self {
        let (named, order) = (Vec::new(), ToolchainOrder::default());
        Self { roots, toolchains: &[], order, named, rights, cache }
    }

    /// Resolves also by names to which the sandbox has links: each with the directory in the roots to which it leads.
    #[must_use]
    pub fn with_names(self, named: Vec<(PathBuf, PathBuf)>) -> Self {
        Self { named, ..self }
    }

    /// Resolves also in the toolchains of the principal's home.
    #[must_use]
    pub fn with_toolchains(self, toolchains: &'a [FoundToolchain], order: ToolchainOrder) -> Self {
        Self { toolchains, order, ..self }
    }

    /// Resolves with the rights of this process.
    pub fn as_gateway(roots: Vec<PathBuf>, cache: &'a ProgramCache) -> Self {
        Self::new(roots, Rights::own(), cache)
    }
}

impl ProfileResolvers for SessionResolver<'_> {
    fn for_profile<'a>(&'a self, profile: &'a Profile) -> Box<dyn ProgramResolver + 'a> {
        let shown: Vec<PathBuf> = toolchain::used_by(profile, self.toolchains, self.order)
            .flat_map(|one| one.shown.clone())
            .collect();
        let resolver =
            ProfileResolver::new(profile, self.roots.iter().cloned(), shown, &self.rights, self.cache);
        Box::new(ProfileResolver { named: &self.named, ..resolver })
    }

    fn adapt(&self, profile: &Arc<Profile>) -> Arc<Profile> {
        toolchain::adapt(profile, self.toolchains, self.order)
    }
}

/// Resolves names for one session under one profile.
#[derive(Debug)]
pub(super) struct ProfileResolver<'a> {
    profile: &'a Profile,
    visible: Vec<VisibleDirectory>,
    /// As [`SessionResolver::with_names`] has them.
    named: &'a [(PathBuf, PathBuf)],
    /// Used for paths that a caller names. A bare program name resolves the same for every caller.
    rights: &'a Rights,
    cache: &'a ProgramCache,
    /// Part of the cache key: profiles that show different files have different keys.
    key: u64,
    first_lines: FirstLines,
}

/// A directory or file of the host that the sandbox shows.
#[derive(Debug)]
struct VisibleDirectory {
    path: PathBuf,
    /// What commands can do there.
    access: Access,
}

impl<'a> ProfileResolver<'a> {
    /// Resolves under this profile and below the session's roots. `shown` is what a sandbox shows in addition, to be read.
    pub(super) fn new(
        profile: &'a Profile,
        roots: impl IntoIterator<Item = PathBuf>,
        shown: Vec<PathBuf>,
        rights: &'a Rights,
        cache: &'a ProgramCache,
    ) -> Self {
        use std::hash::{DefaultHasher, Hash, Hasher};
        let mut hasher = DefaultHasher::new();
        let files = &profile.filesystem;
        (&profile.path, &files.system, &files.read_only, &files.writable, &shown).hash(&mut hasher);
        // The sandbox shows a profile's extra directories at their real paths.
        let real = |path: &PathBuf| path.canonicalize().unwrap_or_else(|_| path.clone());
        let read_only = files.system.iter().cloned().chain(files.read_only.iter().map(real)).chain(shown);
        let read_only = read_only.map(|path| VisibleDirectory { path, access: Access::Read });
        let writable =
            files.writable.iter().map(real).map(|path| VisibleDirectory { path, access: Access::Write });
        let roots = roots.into_iter().map(|path| VisibleDirectory { path, access: files.workspace });
        let visible = read_only.chain(writable).chain(roots).collect();
        let (key, first_lines) = (hasher.finish(), FirstLines::default());
        Self { profile, visible, named: &[], rights, cache, key, first_lines }
    }

    /// A path with a directory's own name in the place of one by which a link of the sandbox leads to it.
    fn without_names(&self, path: &Path) -> Option<PathBuf> {
        let is_shown = self.visible.iter().any(|directory| path.starts_with(&directory.path));
        let rebase =
            |(name, real): &(PathBuf, PathBuf)| path.strip_prefix(name).ok().map(|rest| real.join(rest));
        self.named.iter().filter(|_| !is_shown).find_map(rebase)
    }

    fn visibility(&self, path: &Path) -> Visibility {
        let depth = |directory: &Path| directory.components().count();
        let governing = self
            .visible
            .iter()
            .filter(|directory| path.starts_with(&directory.path))
            .max_by_key(|directory| depth(&directory.path));
        let private = [Path::new("/tmp"), Path::new("/dev"), Path::new("/proc"), Path::new("/var/tmp")];
        let inside = private
            .into_iter()
            .chain([self.profile.identity.home.as_path()])
            .filter(|directory| path.starts_with(directory))
            .map(depth)
            .max();
        match governing {
            Some(directory) if Some(depth(&directory.path)) > inside => Visibility::Host {
                access: directory.access,
                is_mount_point: if directory.path == path { IsMountPoint::Yes } else { IsMountPoint::No },
            },
            // This includes private directories: a root may lie below the host's /tmp.
            _ if self.visible.iter().any(|directory| directory.path.starts_with(path)) => {
                Visibility::Ancestor
            }
            None if inside.is_none() => Visibility::Hidden,
            _ => Visibility::Private,
        }
    }

    /// The file at a path, all symbolic links followed.
    fn resolve(&self, path: &Path) -> Resolved {
        match self.follow(path) {
            Ok(Followed { path: real, metadata: Some(metadata), way }) => {
                to_resolved(&real, &metadata, path, way)
            }
            Ok(Followed { metadata: None, .. }) => Resolved::Missing,
            Err(otherwise) => otherwise,
        }
    }

    /// What a path leads to, all symbolic links followed.
    fn follow(&self, path: &Path) -> Result<Followed, Resolved> {
        let (mut links, mut way) = (0, PathStability::Fixed);
        // The parent directory of `done`, when it was read in the previous step.
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
            match self.visibility(&done) {
                Visibility::Ancestor => {
                    above = None;
                    continue;
                }
                Visibility::Hidden => return Err(Resolved::Missing),
                Visibility::Private => return Err(Resolved::Unknown),
                Visibility::Host { access, is_mount_point: top } => {
                    if way == PathStability::Fixed && !is_stable(&done, access, top, above.as_ref()) {
                        way = PathStability::Changeable;
                    }
                }
            }
            let Ok(metadata) = fs::symlink_metadata(&done) else { return Err(Resolved::Missing) };
            if metadata.is_symlink() {
                links += 1;
                let Ok(target) = fs::read_link(&done) else { return Err(Resolved::Missing) };
                if links > MAX_LINKS {
                    return Err(Resolved::Missing);
                }
                if target.is_absolute() {
                    done = PathBuf::from("/");
                    above = None;
                } else {
                    done.pop();
                }
                rest.extend(components(&target));
            } else if rest.is_empty() {
                return Ok(Followed { path: done, metadata: Some(metadata), way });
            } else {
                above = Some(metadata);
            }
        }
        Ok(Followed { path: done, metadata: None, way })
    }

    /// A directory and those above it, as far as the sandbox shows the host's.
    fn directory_chain(&self, path: &str) -> Vec<Directory> {
        let Ok(Followed { path: real, .. }) = self.follow(&byte_text::to_path(path)) else {
            return Vec::new();
        };
        let shown =
            real.ancestors().take_while(|one| matches!(self.visibility(one), Visibility::Host { .. }));
        let found = shown.map(|one| {
            let metadata = fs::symlink_metadata(one).ok().filter(Metadata::is_dir)?;
            let changed_nanos =
                metadata.ctime().saturating_mul(1_000_000_000).saturating_add(metadata.ctime_nsec());
            Some(Directory { path: byte_text::from_path(one), id: identity(&metadata), changed_nanos })
        });
        found.map_while(|one| one).collect()
    }

    fn directories_in(&self, directory: &Path) -> Option<Vec<(String, DirectoryId)>> {
        if !matches!(self.visibility(directory), Visibility::Host { .. } | Visibility::Ancestor) {
            return Some(Vec::new());
        }
        let entries = match fs::read_dir(directory) {
            Ok(entries) => entries.flatten(),
            Err(error) => {
                // Its owner may give it back what it lacks. Where its owner lacks nothing, it is another's.
                let is_closed = |metadata: Metadata| metadata.mode() & 0o500 != 0o500;
                let may_open = fs::symlink_metadata(directory).is_ok_and(is_closed);
                let is_others = error.kind() == ErrorKind::PermissionDenied && !may_open;
                let is_gone = matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory);
                return (is_others || is_gone).then(Vec::new);
            }
        };
        let directories = entries.filter_map(|entry| {
            let metadata = entry.file_type().ok().filter(fs::FileType::is_dir).and(entry.metadata().ok())?;
            Some((byte_text::from_path(&entry.path()), identity(&metadata)))
        });
        Some(directories.collect())
    }

    fn search(&self, name: &str) -> Resolved {
        let mut not_executable = None;
        for directory in &self.profile.path {
            match self.resolve(&directory.join(byte_text::to_path(name))) {
                Resolved::Missing => {}
                Resolved::File(file) if is_executable(&file) => return Resolved::File(file),
                Resolved::File(file) => not_executable = not_executable.or(Some(Resolved::File(file))),
                // A directory of the search path that exists only inside the sandbox: its content is unknown.
                Resolved::Unknown => return Resolved::Unknown,
                Resolved::Builtin => {}
            }
        }
        not_executable.unwrap_or(Resolved::Missing)
    }

    /// A file that was found, if it is there still; with its first line where it can be exchanged. `None` where another is there by now.
    fn still(&self, file: FileId) -> Option<Resolved> {
        match file.stability {
            PathStability::Fixed => is_unchanged(&file).then_some(Resolved::File(file)),
            PathStability::Changeable => {
                let read = self.rights.run_with(|| self.first_lines.read(file));
                read.map_or(Some(Resolved::Unknown), |read| read.map(Resolved::File))
            }
        }
    }

    /// Looks until what was found is what is there.
    fn look_until_still(&self, look: impl Fn() -> Option<Resolved>) -> Resolved {
        (0..MAX_LOOKS).find_map(|_| look()).unwrap_or(Resolved::Unknown)
    }

    fn cached(&self, name: &str) -> Option<Resolved> {
        let names = self.cache.names.lock().unwrap_or_else(PoisonError::into_inner);
        let (when, found) = names.get(&(self.key, name.to_owned()))?;
        (when.elapsed() < CACHE_TTL).then(|| found.clone())
    }

    fn lookup(&self, name: &str) -> Resolved {
        if let Some(found) = self.cached(name) {
            return found;
        }
        let found = self.search(name);
        let mut names = self.cache.names.lock().unwrap_or_else(PoisonError::into_inner);
        if names.len() >= MAX_NAMES {
            names.clear();
        }
        names.insert((self.key, name.to_owned()), (Instant::now(), found.clone()));
        found
    }
}

impl ProgramResolver for ProfileResolver<'_> {
    fn find_in_path(&self, name: &str) -> Resolved {
        self.look_until_still(|| {
            let found = self.lookup(name);
            let still = match &found {
                Resolved::File(file) => self.still(file.clone()),
                _ => return Some(found),
            };
            if still.is_none() {
                // A cached file that was replaced or changed is resolved again.
                let key = (self.key, name.to_owned());
                self.cache.names.lock().unwrap_or_else(PoisonError::into_inner).remove(&key);
            }
            still
        })
    }

    fn find_command(&self, name: &str) -> Resolved {
        let (own, mut trusted) = (&self.profile.path, None);
        for directory in self.profile.searched() {
            let found = match own.contains(directory) {
                true if trusted.is_some() => continue,
                true => trusted.insert(self.find_in_path(name)).clone(),
                false => {
                    self.resolve_path(&byte_text::from_path(&directory.join(byte_text::to_path(name))), "/")
                }
            };
            match &found {
                Resolved::File(file) if is_executable(file) => return found,
                Resolved::Unknown => return found,
                Resolved::File(_) | Resolved::Missing | Resolved::Builtin => {}
            }
        }
        trusted.unwrap_or(Resolved::Missing)
    }

    fn is_trusted(&self, found: &Resolved) -> bool {
        match found {
            Resolved::File(file) => !self.profile.is_found_in_workspace(&file.lookup_path),
            Resolved::Builtin | Resolved::Missing | Resolved::Unknown => true,
        }
    }

    fn is_named(&self, file: &Resolved, name: &str) -> bool {
        !name.contains('/') && file.is_same(&self.lookup(name))
    }

    fn resolve_path(&self, path: &str, cwd: &str) -> Resolved {
        let whole = byte_text::to_path(cwd).join(byte_text::to_path(path));
        let renamed = self.without_names(&whole);
        let find = || match (&renamed, self.resolve(renamed.as_ref().unwrap_or(&whole))) {
            // Commands may be able to replace the link.
            (Some(_), Resolved::File(file)) => {
                Resolved::File(FileId { stability: PathStability::Changeable, ..file })
            }
            (_, found) => found,
        };
        let look = || match self.rights.run_with(find).unwrap_or(Resolved::Unknown) {
            Resolved::File(file) if file.stability == PathStability::Changeable => self.still(file),
            other => Some(other),
        };
        match self.look_until_still(look) {
            // The command is executed by the path that the caller named.
            Resolved::File(file) => Resolved::File(FileId { lookup_path: path.to_owned(), ..file }),
            other => other,
        }
    }

    fn real_directory(&self, path: &str) -> Option<String> {
        let path = byte_text::to_path(path);
        let renamed = self.without_names(&path);
        let path = renamed.as_deref().unwrap_or(&path);
        let found = self.rights.run_with(|| self.follow(path)).ok()?.ok()?;
        Some(byte_text::from_path(&found.path))
    }

    fn now(&self) -> Duration {
        SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
    }

    fn is_32_bit(&self, file: &FileId) -> bool {
        let version = (file.device, file.inode, file.changed_nanos);
        let lock = || self.cache.machines.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = lock().get(&version) {
            return *known;
        }
        let is_32_bit = self.rights.run_with(|| found_file::is_32_bit(file)).unwrap_or_default();
        let mut machines = lock();
        if machines.len() >= MAX_NAMES {
            machines.clear();
        }
        machines.insert(version, is_32_bit);
        is_32_bit
    }

    fn directories(&self, path: &str) -> Option<Vec<Directory>> {
        Some(self.rights.run_with(|| self.directory_chain(path)).unwrap_or_default())
    }

    fn subdirectories(&self, path: &str) -> Option<Vec<(String, DirectoryId)>> {
        self.rights.run_with(|| self.directories_in(&byte_text::to_path(path))).ok().flatten()
    }

    fn has_own_entry(&self, directory: &str, name: &str) -> bool {
        let path = byte_text::to_path(directory);
        let renamed = self.without_names(&path);
        let look = || {
            let Ok(found) = self.follow(renamed.as_deref().unwrap_or(&path)) else { return false };
            matches!(self.visibility(&found.path), Visibility::Host { access: Access::Write, .. })
                && fs::symlink_metadata(found.path.join(name)).is_ok()
        };
        self.rights.run_with(look).unwrap_or(true)
    }

    fn interpreters(&self, file: &FileId, cwd: &str) -> Interpreters {
        let mut chain: Vec<Interpreter> = Vec::new();
        let mut script = file.clone();
        loop {
            let line = match script.stability {
                // Root's own, which the kernel reads for all that may execute it.
                PathStability::Fixed => first_line(&script),
                PathStability::Changeable => self.first_lines.get(&script),
            };
            let Ok(line) = line else { return Interpreters { chain, may_go_on: true } };
            let Some(found_file::Shebang { path, argument }) = line else {
                return Interpreters { chain, may_go_on: false };
            };
            if chain.len() == MAX_INTERPRETERS {
                return Interpreters { chain, may_go_on: true };
            }
            let file = self.resolve_path(&byte_text::from_bytes(&path), cwd);
            chain.push(Interpreter { path, argument, file: file.clone() });
            match file {
                Resolved::File(next) => script = next,
                Resolved::Unknown => return Interpreters { chain, may_go_on: true },
                Resolved::Builtin | Resolved::Missing => return Interpreters { chain, may_go_on: false },
            }
        }
    }
}

fn identity(directory: &Metadata) -> DirectoryId {
    DirectoryId { device: directory.dev(), inode: directory.ino() }
}

/// How a sandbox shows a path.
enum Visibility {
    /// The host's file or directory.
    Host {
        /// What commands can do there.
        access: Access,
        /// Whether the path itself is mounted.
        is_mount_point: IsMountPoint,
    },
    /// A directory above something that the sandbox shows.
    Ancestor,
    /// The sandbox's own, which the host does not know.
    Private,
    /// Not at all.
    Hidden,
}

/// Where a path leads.
struct Followed {
    path: PathBuf,
    /// The metadata of what is there. Absent for a directory that the sandbox makes itself, or that `..` leads to.
    metadata: Option<Metadata>,
    way: PathStability,
}

/// Whether a path is itself a mount point, and not below one.
#[derive(Clone, Copy, PartialEq, Eq)]
enum IsMountPoint {
    Yes,
    No,
}

/// Whether only root outside can change what a path leads to.
fn is_stable(path: &Path, access: Access, top: IsMountPoint, above: Option<&Metadata>) -> bool {
    let is_roots = |found: &Metadata| found.uid() == 0 && found.mode() & 0o022 == 0;
    let look = || fs::symlink_metadata(path.parent()?).ok();
    // A mount point stays in place, even if the host renames its source.
    access == Access::Read
        && (top == IsMountPoint::Yes
            || above.map_or_else(|| look().is_some_and(|found| is_roots(&found)), is_roots))
}

/// The components of a path, last first.
fn components(path: &Path) -> Vec<PathBuf> {
    let part = |component: Component<'_>| match component {
        Component::Normal(part) => Some(PathBuf::from(part)),
        Component::ParentDir => Some(PathBuf::from("..")),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    };
    path.components().rev().filter_map(part).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn program(path: &Path) {
        fs::write(path, "#!/bin/sh\n").unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// A system directory with `tool` and a link to it, a workspace, and a directory that is not shown.
    fn host() -> (tempfile::TempDir, Profile, PathBuf) {
        let host = tempfile::Builder::new().prefix("view").tempdir_in("/var/lib").unwrap();
        let at = |name: &str| host.path().join(name);
        for directory in ["bin", "work", "hidden"] {
            fs::create_dir(at(directory)).unwrap();
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
        let (cache, rights) = (ProgramCache::default(), Rights::own());
        let view = ProfileResolver::new(&profile, [work.clone()], Vec::new(), &rights, &cache);
        let tool = view.find_in_path("tool");
        assert!(tool.path().is_some_and(|path| path.ends_with("bin/tool")), "{tool:?}");
        assert!(view.find_in_path("alias").is_same(&tool));
        assert!(view.is_named(&tool, "alias"));
        assert_eq!(view.find_in_path("out"), Resolved::Missing, "a link out of the view leads nowhere");
        assert_eq!(view.find_in_path("nothing"), Resolved::Missing);
        let hidden = host.path().join("hidden/tool");
        assert_eq!(view.resolve_path(hidden.to_str().unwrap(), "/"), Resolved::Missing);
        assert_eq!(view.resolve_path("/tmp/x", "/"), Resolved::Unknown);
    }

    #[test]
    fn a_link_in_the_workspace_is_the_file_that_it_leads_to_and_a_copy_is_another() {
        let (host, profile, work) = host();
        symlink(host.path().join("bin/tool"), work.join("tool")).unwrap();
        fs::copy(host.path().join("bin/tool"), work.join("copy")).unwrap();
        fs::hard_link(host.path().join("bin/tool"), work.join("hard")).unwrap();
        let (cache, rights) = (ProgramCache::default(), Rights::own());
        let view = ProfileResolver::new(&profile, [work.clone()], Vec::new(), &rights, &cache);
        let cwd = work.to_str().unwrap();
        let tool = view.find_in_path("tool");
        assert!(view.resolve_path("./tool", cwd).is_same(&tool));
        assert!(view.resolve_path("./hard", cwd).is_same(&tool));
        assert!(view.resolve_path("../work/./tool", cwd).is_same(&tool));
        fs::create_dir(work.join("sub")).unwrap();
        symlink("sub", work.join("linked")).unwrap();
        let real = |name: &str| view.real_directory(work.join(name).to_str().unwrap());
        assert_eq!(real("linked").as_deref(), work.join("sub").to_str());
        assert_eq!(real("linked/..").as_deref(), work.to_str());
        assert_eq!(real("nothing"), None);
        assert!(!view.resolve_path("copy", cwd).is_same(&tool));
    }

    #[test]
    fn a_way_is_settled_where_nobody_but_root_can_change_it() {
        let (host, mut profile, work) = host();
        let file = |found: Resolved| match found {
            Resolved::File(file) => file,
            other => panic!("{other:?}"),
        };
        let way = |profile: &Profile, work: &Path, path: &str| {
            let (cache, rights) = (ProgramCache::default(), Rights::own());
            file(
                ProfileResolver::new(profile, [work.to_owned()], Vec::new(), &rights, &cache)
                    .resolve_path(path, work.to_str().unwrap()),
            )
            .stability
        };
        let tool = host.path().join("bin/tool").display().to_string();
        symlink(&tool, work.join("link")).unwrap();
        program(&work.join("own"));
        if !nix::unistd::geteuid().is_root() {
            assert_eq!(way(&profile, &work, &tool), PathStability::Changeable);
            return;
        }
        assert_eq!(way(&profile, &work, &tool), PathStability::Fixed);
        assert_eq!(way(&profile, &work, "link"), PathStability::Changeable, "the link can be exchanged");
        assert_eq!(way(&profile, &work, "own"), PathStability::Changeable);
        profile.filesystem.workspace = Access::Read;
        assert_eq!(way(&profile, &work, "link"), PathStability::Fixed);
        fs::set_permissions(&work, fs::Permissions::from_mode(0o775)).unwrap();
        assert_eq!(
            way(&profile, &work, "link"),
            PathStability::Changeable,
            "a process outside can exchange it"
        );
    }

    #[test]
    fn a_script_is_known_with_what_runs_it() {
        let (host, profile, work) = host();
        let script = |name: &str, line: &str| {
            fs::write(work.join(name), line).unwrap();
            fs::set_permissions(work.join(name), fs::Permissions::from_mode(0o755)).unwrap();
        };
        script("inner", &format!("#!{} -x\n", host.path().join("bin/tool").display()));
        script("outer", "#!./inner a b\n");
        script("plain", "echo\n");
        let (cache, rights) = (ProgramCache::default(), Rights::own());
        let view = ProfileResolver::new(&profile, [work.clone()], Vec::new(), &rights, &cache);
        let cwd = work.to_str().unwrap();
        let interpreters = |name: &str| match view.resolve_path(name, cwd) {
            Resolved::File(file) => view.interpreters(&file, cwd),
            other => panic!("{other:?}"),
        };
        let chain = interpreters("./outer").chain;
        let words: Vec<_> = chain.iter().map(Interpreter::argument_text).collect();
        assert_eq!(words, [Some("a b".to_owned()), Some("-x".to_owned()), None]);
        assert_eq!(chain[0].path, b"./inner");
        assert!(chain[1].file.is_same(&view.find_in_path("tool")));
        // Nobody can exchange this one, and it is a script as well.
        assert_eq!((&chain[2].path[..], &chain[2].file), (&b"/bin/sh"[..], &Resolved::Missing));
        assert_eq!(interpreters("./plain"), Interpreters::default());
        script("bytes", "#!./inn\u{e9}r\n");
        fs::write(work.join("bytes"), b"#!./inner caf\xe9\n").unwrap();
        assert_eq!(interpreters("./bytes").chain[0].argument.as_deref(), Some(&b"caf\xe9"[..]));
        fs::write(work.join("bytes"), b"#!./inn\xe9r\n").unwrap();
        let chain = interpreters("./bytes");
        assert_eq!((&chain.chain[0].file, chain.may_go_on), (&Resolved::Missing, false));
        for number in 0..8 {
            script(&format!("n{number}"), &format!("#!./n{}\n", number + 1));
        }
        let chain = interpreters("./n0");
        assert_eq!((chain.chain.len(), chain.may_go_on), (MAX_INTERPRETERS, true));
        let Resolved::File(file) = view.resolve_path("./plain", cwd) else { panic!("no file") };
        script("plain", "#!./inner\n");
        assert_eq!(view.interpreters(&file, cwd), Interpreters::default(), "as it was when it was found");
        let Resolved::File(changed) = view.resolve_path("./plain", cwd) else { panic!("no file") };
        assert_eq!((changed.inode, changed != file), (file.inode, true));
        assert_eq!(view.interpreters(&changed, cwd).chain.len(), 3);
    }

    #[test]
    fn a_program_that_was_replaced_is_another_at_once() {
        let (host, profile, work) = host();
        let (cache, rights) = (ProgramCache::default(), Rights::own());
        let view = ProfileResolver::new(&profile, [work], Vec::new(), &rights, &cache);
        let before = view.find_in_path("tool");
        let new = host.path().join("bin/new");
        program(&new);
        fs::rename(&new, host.path().join("bin/tool")).unwrap();
        assert!(!view.find_in_path("tool").is_same(&before));
    }
}
