//! The files that govern commands: policies, configuration, keys, secrets, journal, state, sockets, the gateway's
//! program. No directory in which commands work may contain one of them, lie inside one, or reach one. The system's directories may
//! hold them, and then they are covered there.
//!
//! Objects are compared by device and inode and by their location in the file system, so links, renamed directories
//! and other mount points of the same directory do not help an attacker. Reads no content and changes nothing; the
//! caller refuses.

use std::{
    fmt, io,
    os::{
        fd::{AsFd, BorrowedFd},
        unix::fs::MetadataExt,
    },
    path::{Path, PathBuf},
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

use nix::{errno::Errno, sys::stat::fstat};

use crate::{
    policy::profile::{Access, Filesystem},
    sandbox::roots::path_walk::{self, FilesystemLocation, MountTable, PathWalk},
};

/// The purpose of a governing file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GoverningKind {
    /// The state directory.
    State,
    /// The directory of the caches that outlive their sessions.
    KeptCaches,
    /// A policy file, or the directory of all of them.
    Policies,
    /// The configuration file.
    Configuration,
    /// The journal's directory.
    Journal,
    /// The key that signs the journal.
    SigningKey,
    /// The file of a secret.
    Secret,
    /// The certificates by which a rule has servers verified.
    TrustedCertificates,
    /// A socket that the gateway listens on.
    Socket,
    /// The gateway's own executable file.
    Program,
}

impl GoverningKind {
    /// Whether commands must not read it.
    fn is_confidential(self) -> bool {
        match self {
            Self::State
            | Self::KeptCaches
            | Self::Journal
            | Self::SigningKey
            | Self::Secret
            | Self::Socket => true,
            Self::Policies | Self::Configuration | Self::TrustedCertificates | Self::Program => false,
        }
    }

    /// Whether it is covered in the system's directories: what no program of a sandbox has a use for.
    fn is_covered(self) -> bool {
        self.is_confidential() || matches!(self, Self::Policies | Self::Configuration)
    }
}

impl fmt::Display for GoverningKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::State => "gateway's state",
            Self::KeptCaches => "kept caches",
            Self::Policies => "policies",
            Self::Configuration => "configuration",
            Self::Journal => "journal",
            Self::SigningKey => "journal's signing key",
            Self::Secret => "secret",
            Self::TrustedCertificates => "file of trusted certificates",
            Self::Socket => "gateway's socket",
            Self::Program => "gateway's program",
        })
    }
}

/// A governing file by the path that the gateway uses for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GoverningPath {
    /// Its purpose.
    pub kind: GoverningKind,
    /// Absolute; may contain symbolic links.
    pub path: PathBuf,
}

/// What is covered of the system's directories, because it governs or holds nothing but what governs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GoverningCover {
    /// What is covered.
    pub place: PathBuf,
    /// What it is, or holds.
    pub kind: GoverningKind,
    /// The governing file.
    pub governing: PathBuf,
    /// How much.
    pub extent: CoverExtent,
}

/// How much is covered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CoverExtent {
    /// A directory, with what comes later.
    Directory,
    /// The one file. Another one that takes its place is seen by sandboxes that are there.
    File,
    /// Nothing: there is no file yet, and its directory has others.
    Nothing,
}

/// The most entries of directories above a governing file that are looked at.
const MAX_ENTRIES: usize = 256;

/// All governing files of a gateway.
#[derive(Debug, Default)]
pub struct Governing {
    /// These do not change while the gateway runs.
    fixed: Vec<GoverningPath>,
    /// Files that the active policy names.
    policy_paths: Mutex<Vec<GoverningPath>>,
    generation: AtomicU64,
    /// The gateway's programs, when sandboxes show them read-only instead of refusing the root that holds them.
    read_only_programs: Vec<PathBuf>,
}

/// A directory or file that commands can see.
#[derive(Debug, Clone, Copy)]
pub struct VisiblePath<'a> {
    /// Absolute, without links.
    pub path: &'a Path,
    /// Open on the same object.
    pub descriptor: BorrowedFd<'a>,
    /// What commands can do there.
    pub access: Access,
}

/// Why a directory or file cannot be shown to commands.
#[derive(Debug, thiserror::Error)]
pub enum GoverningError {
    /// It reaches a governing file.
    #[error("{path:?} is, holds, lies in or reaches the {kind}: no command may reach what governs it")]
    Reached {
        /// The directory or file.
        path: PathBuf,
        /// What it reaches.
        kind: GoverningKind,
        /// The path of the governing file. Not shown to callers.
        governing: PathBuf,
    },
    /// It could not be found out.
    #[error("cannot find out whether {path:?} reaches what governs commands")]
    Unknown {
        /// The directory or file.
        path: PathBuf,
        /// The governing file or the mount table. Not shown to callers.
        of: PathBuf,
        /// The reason.
        #[source]
        cause: io::Error,
    },
}

impl GoverningError {
    /// The governing file, for the gateway's log.
    pub fn governing(&self) -> &Path {
        match self {
            Self::Reached { governing, .. } => governing,
            Self::Unknown { of, .. } => of,
        }
    }
}

impl Governing {
    /// Starts with the files that do not depend on the policy. `read_only_programs` are shown read-only to the
    /// commands of a root that holds them.
    #[must_use]
    pub fn new(fixed: Vec<GoverningPath>, read_only_programs: Vec<PathBuf>) -> Self {
        Self { fixed, read_only_programs, ..Self::default() }
    }

    /// The files that do not depend on the policy.
    pub fn fixed(&self) -> &[GoverningPath] {
        &self.fixed
    }

    /// The directories and files that policies are read from.
    pub fn policies(&self) -> impl Iterator<Item = &GoverningPath> {
        self.fixed.iter().filter(|one| one.kind == GoverningKind::Policies)
    }

    /// The programs that are shown read-only in a root that holds them.
    pub fn read_only_programs(&self) -> &[PathBuf] {
        &self.read_only_programs
    }

    /// Increases with every change. A check is valid for one generation.
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Replaces the files that the policy names, and returns the previous ones.
    pub fn replace(&self, of_policy: Vec<GoverningPath>) -> Vec<GoverningPath> {
        let before = std::mem::replace(&mut *self.lock(), of_policy);
        self.generation.fetch_add(1, Ordering::AcqRel);
        before
    }

    /// The files that the active policy names.
    pub fn policy_paths(&self) -> Vec<GoverningPath> {
        self.lock().clone()
    }

    /// Fails if one of these directories or files reaches a governing file.
    ///
    /// # Errors
    /// [`GoverningError`], for the first of `shown` that does, or of which nobody can tell.
    pub fn check(&self, shown: &[VisiblePath<'_>]) -> Result<(), GoverningError> {
        match shown.first() {
            Some(first) => self.look(first.path)?.check(shown),
            None => Ok(()),
        }
    }

    /// Fails if an extra directory of a profile reaches a governing file, or if one of the system's cannot be shown without it.
    /// Missing directories are ignored.
    ///
    /// # Errors
    /// [`GoverningError`].
    pub fn check_profile_paths(&self, files: &Filesystem) -> Result<(), GoverningError> {
        let view = self.look(Path::new("/"))?;
        view.check_profile_paths(files)?;
        let others: Vec<&Path> =
            files.read_only.iter().chain(&files.writable).map(PathBuf::as_path).collect();
        view.covers(&files.system, &others).map(drop)
    }

    /// Finds out where all of it is now. `about`: what an error names.
    ///
    /// # Errors
    /// [`GoverningError::Unknown`].
    pub fn look(&self, about: &Path) -> Result<GoverningView, GoverningError> {
        let unknown = |of: &Path, cause| {
            let (path, of) = (about.to_owned(), of.to_owned());
            GoverningError::Unknown { path, of, cause }
        };
        let mounts = MountTable::read().map_err(|cause| unknown(Path::new("/proc/self/mountinfo"), cause))?;
        let all: Vec<GoverningPath> = self.fixed.iter().cloned().chain(self.policy_paths()).collect();
        let mut walked = Vec::with_capacity(all.len());
        for one in all {
            let traced =
                path_walk::walk(&one.path).and_then(|trace| Ok((mounts.location_of_walk(&trace)?, trace)));
            let (location, walk) = traced.map_err(|cause| unknown(&one.path, cause))?;
            check_single_link(one.kind, &walk).map_err(|cause| unknown(&one.path, cause))?;
            walked.push(WalkedPath { one, walk, location });
        }
        Ok(GoverningView { mounts, walked })
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<GoverningPath>> {
        self.policy_paths.lock().expect("no code panics while it holds the list of what governs")
    }
}

/// A second hard link could lie in any directory; finding it would take a scan of the whole file system.
fn check_single_link(kind: GoverningKind, trace: &PathWalk) -> io::Result<()> {
    // A running program cannot be written through any link (ETXTBSY), and builds leave it with two links.
    let matters = kind != GoverningKind::Program;
    match trace.end().map(|end| &end.metadata) {
        Some(metadata) if matters && metadata.is_file() && metadata.nlink() > 1 => {
            Err(io::Error::other(format!("it has {} hard links: replace it by a copy", metadata.nlink())))
        }
        Some(_) | None => Ok(()),
    }
}

#[derive(Debug)]
struct WalkedPath {
    one: GoverningPath,
    walk: PathWalk,
    location: Option<FilesystemLocation>,
}

impl WalkedPath {
    fn is_directory(&self) -> bool {
        self.walk.end().is_some_and(|end| end.metadata.is_dir())
    }

    fn reached_by(&self, path: &Path) -> GoverningError {
        let (path, governing) = (path.to_owned(), self.one.path.clone());
        GoverningError::Reached { path, kind: self.one.kind, governing }
    }
}

/// Where all that governs is at one moment.
#[derive(Debug)]
pub struct GoverningView {
    /// The mounts.
    pub mounts: MountTable,
    walked: Vec<WalkedPath>,
}

impl GoverningView {
    /// As [`Governing::check`].
    ///
    /// # Errors
    /// [`GoverningError`].
    pub fn check(&self, shown: &[VisiblePath<'_>]) -> Result<(), GoverningError> {
        shown.iter().try_for_each(|shown| check_path(shown, &self.walked, &self.mounts))
    }

    /// As [`Governing::check_profile_paths`], but for the system's directories.
    ///
    /// # Errors
    /// [`GoverningError`].
    pub fn check_profile_paths(&self, files: &Filesystem) -> Result<(), GoverningError> {
        let read_only = files.read_only.iter().map(|path| (path, Access::Read));
        let writable = files.writable.iter().map(|path| (path, Access::Write));
        let mut opened = Vec::new();
        for (path, access) in read_only.chain(writable) {
            let real = path.canonicalize();
            match real.and_then(|real| Ok((path_walk::open(&real)?, real))) {
                Ok((descriptor, real)) => opened.push((real, descriptor, access)),
                // Launching a sandbox that shows it will fail.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(cause) => {
                    let of = path.clone();
                    return Err(GoverningError::Unknown { path: path.clone(), of, cause });
                }
            }
        }
        let mut all = Vec::with_capacity(opened.len());
        for (path, descriptor, access) in &opened {
            all.push(VisiblePath { path, descriptor: descriptor.as_fd(), access: *access });
        }
        self.check(&all)
    }

    /// What is covered in directories of the system that are shown. It is found by each name and at each mount; where nothing but
    /// what governs lies next to it, its whole directory is covered, so that nothing is seen of what takes its place. No directory is
    /// covered that holds one of `others`, which are shown by themselves.
    ///
    /// # Errors
    /// [`GoverningError::Reached`]: one cannot be shown without it.
    pub fn covers(
        &self,
        system: &[PathBuf],
        others: &[&Path],
    ) -> Result<Vec<GoverningCover>, GoverningError> {
        let is_shown = |path: &&PathBuf| path.symlink_metadata().is_ok_and(|found| !found.is_symlink());
        let shown: Vec<&PathBuf> = system.iter().filter(is_shown).collect();
        let own: Vec<&Path> = system.iter().map(PathBuf::as_path).chain(others.iter().copied()).collect();
        let mut covers: Vec<GoverningCover> = Vec::new();
        for walked in self.walked.iter().filter(|walked| walked.one.kind.is_covered()) {
            let mut places = walked.location.as_ref().map(|at| self.mounts.places_of(at)).unwrap_or_default();
            if !places.contains(&walked.walk.real) {
                places.push(walked.walk.real.clone());
            }
            for place in &places {
                let is_on = |shown: &&&PathBuf| {
                    **shown == place || (walked.is_directory() && shown.starts_with(place))
                };
                if let Some(shown) = shown.iter().find(is_on) {
                    match walked.one.kind.is_confidential() {
                        true => return Err(walked.reached_by(shown)),
                        // The profile shows just that.
                        false => continue,
                    }
                }
                for shown in shown.iter().filter(|shown| place.starts_with(shown)) {
                    let is_free = |above: &Path| !own.iter().any(|one| one.starts_with(above));
                    covers.push(self.cover(walked, place, shown, is_free)?);
                }
            }
        }
        covers.sort_by(|one, other| one.place.cmp(&other.place));
        let mut kept: Vec<GoverningCover> = Vec::new();
        for cover in covers {
            let is_below = |above: &GoverningCover| {
                cover.place == above.place
                    || (above.extent == CoverExtent::Directory && cover.place.starts_with(&above.place))
            };
            if !kept.iter().any(is_below) {
                kept.push(cover);
            }
        }
        Ok(kept)
    }

    /// What is covered of a governing object at a place below a directory that is shown.
    fn cover(
        &self,
        walked: &WalkedPath,
        place: &Path,
        shown: &Path,
        is_free: impl Fn(&Path) -> bool,
    ) -> Result<GoverningCover, GoverningError> {
        let mut extent = match (walked.walk.exists, walked.is_directory()) {
            (false, _) => CoverExtent::Nothing,
            (true, true) => CoverExtent::Directory,
            (true, false) => CoverExtent::File,
        };
        let mut covered = place;
        let above = place.ancestors().skip(1);
        for above in above.take_while(|above| above.starts_with(shown) && is_free(above)) {
            match self.holds_only_governing(above, &mut { MAX_ENTRIES }) {
                Ok(true) => (covered, extent) = (above, CoverExtent::Directory),
                Ok(false) => break,
                // It is not there yet.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(_) => break,
            }
        }
        // It is made again at each start.
        if walked.one.kind == GoverningKind::Socket && extent != CoverExtent::Directory {
            return Err(walked.reached_by(shown));
        }
        let (kind, governing) = (walked.one.kind, walked.one.path.clone());
        Ok(GoverningCover { place: covered.to_owned(), kind, governing, extent })
    }

    /// Whether there is nothing in a directory but what is covered, and links to it.
    fn holds_only_governing(&self, directory: &Path, entries_left: &mut usize) -> io::Result<bool> {
        for entry in std::fs::read_dir(directory)? {
            let Some(left) = entries_left.checked_sub(1) else { return Ok(false) };
            *entries_left = left;
            let entry = entry?;
            let metadata = entry.metadata()?;
            let object = (metadata.dev(), metadata.ino());
            let is_it = |walked: &WalkedPath| match metadata.is_symlink() {
                true => walked.walk.visits(object),
                false => {
                    walked.walk.end().is_some_and(|end| (end.metadata.dev(), end.metadata.ino()) == object)
                }
            };
            let governs = self.walked.iter().any(|walked| walked.one.kind.is_covered() && is_it(walked));
            if !(governs || metadata.is_dir() && self.holds_only_governing(&entry.path(), entries_left)?) {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

fn check_path(
    shown: &VisiblePath<'_>,
    governing: &[WalkedPath],
    mounts: &MountTable,
) -> Result<(), GoverningError> {
    let unknown = |cause: io::Error| {
        let path = shown.path.to_owned();
        GoverningError::Unknown { of: path.clone(), path, cause }
    };
    let status = fstat(shown.descriptor).map_err(|errno| unknown(errno.into()))?;
    let object = (status.st_dev, status.st_ino);
    // It is not known what a mount outside of the mount table shows.
    let place = mounts.location_of(shown.descriptor).map_err(unknown)?;
    let place = place.ok_or_else(|| unknown(Errno::ESTALE.into()))?;
    for walked in governing {
        let WalkedPath { one, walk: trace, location: theirs } = walked;
        if shown.access == Access::Read && !one.kind.is_confidential() {
            continue;
        }
        let is_directory = walked.is_directory();
        let reaches = |shown: &FilesystemLocation| {
            theirs
                .as_ref()
                .is_some_and(|theirs| theirs.is_within(shown) || (is_directory && shown.is_within(theirs)))
        };
        let by_name =
            trace.real.starts_with(shown.path) || (is_directory && shown.path.starts_with(&trace.real));
        let mounted = || mounts.mounted_below(shown.path).any(|mount| reaches(&mount.location));
        if by_name || trace.visits(object) || reaches(&place) || mounted() {
            return Err(walked.reached_by(shown.path));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::*;

    fn reached(governing: &Governing, path: &Path, access: Access) -> Option<GoverningKind> {
        let (real, descriptor) = (path.canonicalize().unwrap(), path_walk::open(path).unwrap());
        match governing.check(&[VisiblePath { path: &real, descriptor: descriptor.as_fd(), access }]) {
            Ok(()) => None,
            Err(GoverningError::Reached { kind, .. }) => Some(kind),
            Err(error @ GoverningError::Unknown { .. }) => panic!("{error}"),
        }
    }

    #[test]
    fn what_holds_lies_in_or_passes_a_governing_object_is_refused_and_nothing_else() {
        let directory = tempfile::tempdir().unwrap();
        let top = directory.path();
        for directory in ["gov/policies/in", "work/deep", "links", "elsewhere"] {
            fs::create_dir_all(top.join(directory)).unwrap();
        }
        fs::write(top.join("elsewhere/key"), "").unwrap();
        symlink("../elsewhere/key", top.join("links/key")).unwrap();
        let of = |kind, path: &str| GoverningPath { kind, path: top.join(path) };
        let fixed = vec![
            of(GoverningKind::Policies, "gov/policies"),
            of(GoverningKind::SigningKey, "links/key"),
            of(GoverningKind::Secret, "absent/secret"),
        ];
        let governing = Governing::new(fixed, Vec::new());
        let write = |path: &str| reached(&governing, &top.join(path), Access::Write);
        for policies in ["", "gov", "gov/policies", "gov/policies/in"] {
            assert_eq!(write(policies), Some(GoverningKind::Policies), "{policies}");
        }
        assert_eq!(write("links"), Some(GoverningKind::SigningKey), "the link could be replaced");
        assert_eq!(write("elsewhere"), Some(GoverningKind::SigningKey));
        for free in ["work", "work/deep"] {
            assert_eq!(write(free), None, "{free}");
        }
        assert_eq!(reached(&governing, &top.join("gov"), Access::Read), None, "policies may be read");
        assert_eq!(
            reached(&governing, &top.join("elsewhere"), Access::Read),
            Some(GoverningKind::SigningKey)
        );
        let generation = governing.generation();
        assert!(governing.replace(vec![of(GoverningKind::Secret, "work/token")]).is_empty());
        assert_eq!(write("work"), Some(GoverningKind::Secret), "a file that is not there yet could be made");
        assert_ne!(governing.generation(), generation);
    }

    #[test]
    fn what_governs_is_covered_in_the_systems_directories_with_its_directory_where_nothing_else_is_there() {
        let directory = tempfile::tempdir().unwrap();
        let top = directory.path().canonicalize().unwrap();
        for directory in ["etc/own/secrets", "etc/own/policies", "etc/mixed", "etc/later", "etc/linked/..1"] {
            fs::create_dir_all(top.join(directory)).unwrap();
        }
        for file in [
            "etc/own/secrets/a",
            "etc/own/key",
            "etc/mixed/b",
            "etc/mixed/other",
            "etc/linked/..1/c",
            "etc/d",
        ] {
            fs::write(top.join(file), "").unwrap();
        }
        symlink("..1", top.join("etc/linked/..data")).unwrap();
        symlink("..data/c", top.join("etc/linked/c")).unwrap();
        let of = |kind, path: &str| GoverningPath { kind, path: top.join(path) };
        let secrets = ["etc/own/secrets/a", "etc/mixed/b", "etc/later/e", "etc/linked/c", "etc/d", "etc/f/g"];
        let fixed = secrets.map(|path| of(GoverningKind::Secret, path)).into_iter().chain([
            of(GoverningKind::Policies, "etc/own/policies"),
            of(GoverningKind::SigningKey, "etc/own/key"),
            of(GoverningKind::Secret, "elsewhere"),
        ]);
        let governing = Governing::new(fixed.collect(), Vec::new());
        let covers =
            || governing.look(Path::new("/")).unwrap().covers(&[top.join("etc"), top.join("none")], &[]);
        let covered: Vec<_> =
            covers().unwrap().into_iter().map(|cover| (cover.place, cover.extent)).collect();
        let expected = [
            ("etc/d", CoverExtent::File),
            ("etc/f/g", CoverExtent::Nothing),
            ("etc/later", CoverExtent::Directory),
            ("etc/linked", CoverExtent::Directory),
            ("etc/mixed/b", CoverExtent::File),
            ("etc/own", CoverExtent::Directory),
        ];
        assert_eq!(covered, expected.map(|(path, extent)| (top.join(path), extent)));
        // A file of certificates is for commands, too.
        governing.replace(vec![of(GoverningKind::TrustedCertificates, "etc/own/ca")]);
        fs::write(top.join("etc/own/ca"), "").unwrap();
        let places: Vec<_> = covers().unwrap().into_iter().map(|cover| cover.place).collect();
        for place in ["etc/own/key", "etc/own/policies", "etc/own/secrets"] {
            assert!(places.contains(&top.join(place)), "{places:?}");
        }
        // What is shown by its name, and a socket among other files, cannot be covered.
        let show = |path: &str| Filesystem { system: vec![top.join(path)], ..Filesystem::default() };
        for path in ["etc/d", "etc/own/secrets/a"] {
            assert!(governing.check_profile_paths(&show(path)).is_err(), "{path}");
        }
        assert!(governing.check_profile_paths(&show("etc/own/policies")).is_ok());
        governing.replace(vec![of(GoverningKind::Socket, "etc/mixed/socket")]);
        assert!(governing.check_profile_paths(&show("etc")).is_err());
    }

    #[test]
    fn extras_that_are_not_there_are_passed_over() {
        let directory = tempfile::tempdir().unwrap();
        let state = GoverningPath { kind: GoverningKind::State, path: directory.path().join("state") };
        let governing = Governing::new(vec![state], Vec::new());
        let extras = |path: PathBuf| Filesystem { writable: vec![path], ..Filesystem::default() };
        assert!(governing.check_profile_paths(&extras("/no/such".into())).is_ok());
        assert!(governing.check_profile_paths(&extras(directory.path().to_owned())).is_err());
    }
}
