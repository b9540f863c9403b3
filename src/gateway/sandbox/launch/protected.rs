//! Files inside a workspace that no command may change, because people's tools run them outside of the sandbox:
//! hooks, agents' configuration.
//!
//! Each is mounted read-only, and every directory above it becomes a mount point, which no command can rename or
//! replace; otherwise a command could move `.git` aside. A file that does not exist cannot be a mount point, so for
//! some directories the profile asks that an empty one is made. Nothing else on the host is changed. All lookups
//! are by descriptor and beneath the root. A link there is followed, and what it leads to is mounted in its place.

use std::{
    collections::BTreeMap,
    ffi::OsStr,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::{Path, PathBuf},
};

use nix::{
    dir::Dir,
    errno::Errno,
    fcntl::{OFlag, OpenHow, ResolveFlag, openat2, readlinkat},
    sys::stat::{Mode, fstat, mkdirat},
    unistd::{Gid, Uid, fchown, geteuid},
};

use crate::{
    policy::profile::{Access, Filesystem},
    sandbox::roots::{Root, RootRole},
};

/// The most links on the way to a protected path.
const MAX_LINKS: usize = 16;

/// A path in a root that becomes a mount point.
#[derive(Debug)]
pub(super) struct ProtectedMount {
    /// Absolute.
    pub path: PathBuf,
    /// Open with `O_PATH`.
    pub descriptor: OwnedFd,
    /// What commands can do there.
    pub access: Access,
}

/// Who commands are on the disk.
#[derive(Debug, Clone)]
pub(super) struct DiskIdentity {
    /// Their user.
    pub uid: u32,
    /// Their groups.
    pub gids: Vec<u32>,
}

impl DiskIdentity {
    /// Whether a directory is closed to commands, for as long as its owner does not open it: it is another user's.
    fn is_closed(&self, directory: BorrowedFd<'_>) -> Result<bool, Errno> {
        let found = fstat(directory)?;
        let enters = if self.gids.contains(&found.st_gid) { libc::S_IXGRP } else { libc::S_IXOTH };
        Ok(found.st_uid != self.uid && found.st_mode & enters == 0)
    }
}

/// Why a root's files cannot be protected.
#[derive(Debug, thiserror::Error)]
#[error("protect {path:?} in the workspace")]
pub struct ProtectError {
    /// Which.
    pub path: PathBuf,
    /// Why not.
    #[source]
    pub cause: Errno,
}

/// Whether what is reserved is made where it is not there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MakeReserved {
    /// In a directory of the caller's.
    Yes,
    /// In another's, nothing is made that the caller might not make.
    No,
}

/// The mount points of a root: the protected paths, the directories above them and above `sockets`, which are covered, and `covered`,
/// files that are shown read-only. Makes the directories that the profile reserves.
///
/// # Errors
/// [`ProtectError`]: what exists could not be opened, or what is reserved could not be made.
pub(super) fn protected_mounts(
    root: &Root,
    files: &Filesystem,
    covered: &[&Path],
    commands: &DiskIdentity,
    sockets: &[PathBuf],
    make: MakeReserved,
) -> Result<Vec<ProtectedMount>, ProtectError> {
    if files.workspace == Access::Read || root.role == RootRole::ReadOnly {
        return Ok(Vec::new());
    }
    let mut found: BTreeMap<PathBuf, (OwnedFd, Access)> = BTreeMap::new();
    let if_absent = if make == MakeReserved::Yes { IfAbsent::Create } else { IfAbsent::Skip };
    let reserved = files.reserved.iter().map(|path| (path_in(root.role, path), if_absent));
    let protected =
        files.protected.iter().map(|path| path_in(root.role, path)).chain(covered.iter().copied());
    let protected = protected.map(|path| (path, IfAbsent::Skip));
    for (path, absent) in reserved.chain(protected) {
        let error = |cause| ProtectError { path: root.path.join(path), cause };
        let Some(real) = without_links(root, path) else { continue };
        let (path, absent) = match real == path {
            true => (path, absent),
            // Nothing is made behind a link.
            false => (real.as_path(), IfAbsent::Skip),
        };
        let way = walk(root.descriptor.as_fd(), path, absent, commands).map_err(error)?;
        let last = way.len().saturating_sub(1);
        for (at, (path, descriptor)) in way.into_iter().enumerate() {
            let access = if at == last { Access::Read } else { Access::Write };
            let entry = found.entry(path).or_insert((descriptor, access));
            if access == Access::Read {
                entry.1 = Access::Read;
            }
        }
    }
    let unreached = |cause| ProtectError { path: root.path.clone(), cause };
    for (path, descriptor) in ways_to(root.descriptor.as_fd(), sockets, commands).map_err(unreached)? {
        found.entry(path).or_insert((descriptor, Access::Write));
    }
    let place =
        |(path, (descriptor, access))| ProtectedMount { path: root.path.join(path), descriptor, access };
    Ok(found.into_iter().map(place).collect())
}

/// The directories above what is covered, relative to `root`: as mount points they cannot be renamed, so that what is covered stays where
/// the next sandbox looks for it.
///
/// # Errors
/// The errno of openat2(2) for one of them.
pub(super) fn ways_to(
    root: BorrowedFd<'_>,
    covered: &[PathBuf],
    commands: &DiskIdentity,
) -> Result<BTreeMap<PathBuf, OwnedFd>, Errno> {
    let above = covered.iter().filter_map(|path| path.parent());
    let above = above.filter(|above| !above.as_os_str().is_empty());
    above.map(|above| walk(root, above, IfAbsent::Skip, commands)).try_fold(
        BTreeMap::new(),
        |mut all, way| {
            all.extend(way?);
            Ok(all)
        },
    )
}

/// Where a path of a working directory lies in a root: a git directory is what a working directory calls `.git`.
fn path_in(role: RootRole, path: &Path) -> &Path {
    match role {
        RootRole::GitDirectory => path.strip_prefix(".git").unwrap_or(path),
        RootRole::Work | RootRole::Volume | RootRole::ReadOnly => path,
    }
}

/// Where a path leads by way of links. `None`: out of the root, or to a directory that it is in, which commands work in.
fn without_links(root: &Root, path: &Path) -> Option<PathBuf> {
    let names = |path: &Path| path.iter().map(OsStr::to_owned).rev().collect::<Vec<_>>();
    let (mut real, mut left) = (PathBuf::new(), names(path));
    let mut links = 0;
    while let Some(name) = left.pop() {
        match name.as_encoded_bytes() {
            b"." => continue,
            b".." if real.pop() => continue,
            b".." => return None,
            _ => real.push(&name),
        }
        let Some(to) = read_link(root.descriptor.as_fd(), &real) else { continue };
        links += 1;
        if links > MAX_LINKS {
            return None;
        }
        real.pop();
        let below = match to.is_absolute() {
            true => {
                real = PathBuf::new();
                to.strip_prefix(&root.path).ok()?
            }
            false => &to,
        };
        left.extend(names(below));
    }
    (links == 0 || !path.starts_with(&real)).then_some(real)
}

fn read_link(root: BorrowedFd<'_>, path: &Path) -> Option<PathBuf> {
    let how = OpenHow::new().flags(OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC).resolve(
        ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_SYMLINKS | ResolveFlag::RESOLVE_NO_XDEV,
    );
    let place = openat2(root, path, how).ok()?;
    // What is no link has nothing to be read.
    readlinkat(&place, "").ok().map(PathBuf::from)
}

/// What to do when the last directory of a path is missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum IfAbsent {
    Create,
    Skip,
}

/// Every directory on a path, and its end. Empty when the path does not exist. It ends early at a directory that is closed to commands.
fn walk(
    root: BorrowedFd<'_>,
    path: &Path,
    absent: IfAbsent,
    commands: &DiskIdentity,
) -> Result<Vec<(PathBuf, OwnedFd)>, Errno> {
    let mut way: Vec<(PathBuf, OwnedFd)> = Vec::new();
    let mut so_far = PathBuf::new();
    let mut names = path.components().peekable();
    while let Some(name) = names.next() {
        let name = name.as_os_str();
        let is_last = names.peek().is_none();
        let directory = match way.last() {
            None => root,
            Some((_, directory)) if commands.is_closed(directory.as_fd())? => return Ok(way),
            Some((_, directory)) => directory.as_fd(),
        };
        so_far.push(name);
        match open_beneath(directory, name) {
            Ok(next) => way.push((so_far.clone(), next)),
            Err(Errno::ENOENT) if is_last && absent == IfAbsent::Create => {
                match make_directory(directory, name) {
                    Ok(made) => way.push((so_far.clone(), made)),
                    // On a read-only file system no command can make it either.
                    Err(Errno::EROFS) => return Ok(Vec::new()),
                    Err(errno) => return Err(errno),
                }
            }
            // The path is missing, or crosses a link or another file system, which the sandbox does not show there.
            Err(Errno::ENOENT | Errno::ENOTDIR | Errno::ELOOP | Errno::EXDEV) => return Ok(Vec::new()),
            Err(errno) => return Err(errno),
        }
    }
    Ok(way)
}

fn open_beneath(directory: BorrowedFd<'_>, name: &OsStr) -> Result<OwnedFd, Errno> {
    let how = OpenHow::new().flags(OFlag::O_PATH | OFlag::O_CLOEXEC).resolve(
        ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_SYMLINKS | ResolveFlag::RESOLVE_NO_XDEV,
    );
    openat2(directory, Path::new(name), how)
}

/// Makes an empty directory with the owner of its parent.
fn make_directory(above: BorrowedFd<'_>, name: &OsStr) -> Result<OwnedFd, Errno> {
    let owner = fstat(above)?;
    match mkdirat(above, Path::new(name), Mode::from_bits_truncate(0o755)) {
        // Another process has made it: just as good.
        Ok(()) | Err(Errno::EEXIST) => {}
        Err(errno) => return Err(errno),
    }
    let us = geteuid().as_raw();
    if owner.st_uid != us {
        let how = OpenHow::new()
            .flags(OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC)
            .resolve(ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_SYMLINKS);
        let directory = openat2(above, Path::new(name), how)?;
        // The parent's owner may have replaced it. Only give away a directory that is empty and ours.
        if fstat(&directory)?.st_uid == us && is_empty(&directory)? {
            fchown(&directory, Some(Uid::from_raw(owner.st_uid)), Some(Gid::from_raw(owner.st_gid)))?;
        }
    }
    open_beneath(above, name)
}

fn is_empty(directory: &OwnedFd) -> Result<bool, Errno> {
    let mut entries = Dir::from_fd(directory.try_clone().map_err(|_| Errno::EMFILE)?)?;
    let is_name = |entry: Result<nix::dir::Entry, Errno>| {
        entry.map(|entry| !matches!(entry.file_name().to_bytes(), b"." | b"..")).unwrap_or(true)
    };
    Ok(!entries.iter().any(is_name))
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::*;

    fn root(directory: &Path) -> Root {
        let descriptor = fs::File::open(directory).unwrap().into();
        Root { path: directory.to_owned(), descriptor, role: RootRole::Work }
    }

    fn us() -> DiskIdentity {
        DiskIdentity { uid: geteuid().as_raw(), gids: Vec::new() }
    }

    fn found(directory: &Path) -> Vec<(String, Access)> {
        let files = Filesystem {
            reserved: vec![".git/hooks".into()],
            protected: vec![".agent".into(), ".agent/deep".into(), "file".into()],
            ..Filesystem::default()
        };
        let relative = |place: ProtectedMount| {
            let path = place.path.strip_prefix(directory).unwrap().display().to_string();
            (path, place.access)
        };
        protected_mounts(&root(directory), &files, &[], &us(), &[], MakeReserved::Yes)
            .unwrap()
            .into_iter()
            .map(relative)
            .collect()
    }

    #[test]
    fn an_empty_workspace_stays_empty() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(found(directory.path()), []);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    }

    #[test]
    fn what_exists_is_protected_with_the_way_to_it_and_what_is_reserved_is_made() {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir(directory.path().join(".git")).unwrap();
        fs::create_dir_all(directory.path().join(".agent/deep")).unwrap();
        fs::write(directory.path().join("file"), "").unwrap();
        let expected = [
            (".agent", Access::Read),
            (".agent/deep", Access::Read),
            (".git", Access::Write),
            (".git/hooks", Access::Read),
            ("file", Access::Read),
        ];
        assert_eq!(found(directory.path()), expected.map(|(path, access)| (path.to_owned(), access)));
        assert!(directory.path().join(".git/hooks").is_dir());
    }

    #[test]
    fn links_and_files_in_the_way_lead_nowhere_and_nothing_is_made_behind_them() {
        let directory = tempfile::tempdir().unwrap();
        let outside = tempfile::tempdir().unwrap();
        symlink(outside.path(), directory.path().join(".git")).unwrap();
        assert_eq!(found(directory.path()), []);
        assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 0);
        fs::remove_file(directory.path().join(".git")).unwrap();
        fs::write(directory.path().join(".git"), "gitdir: elsewhere\n").unwrap();
        assert_eq!(found(directory.path()), []);
    }

    #[test]
    fn what_a_link_leads_to_below_the_root_is_protected_in_its_place() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        fs::create_dir_all(root.join("cfg/deep")).unwrap();
        fs::create_dir_all(root.join(".git")).unwrap();
        symlink("cfg", root.join(".agent")).unwrap();
        symlink("../cfg/hooks", root.join(".git/hooks")).unwrap();
        symlink("cfg/file", root.join("file")).unwrap();
        fs::write(root.join("cfg/file"), "").unwrap();
        assert!(!found(root).is_empty());
        let is_read_only = |path: &str| found(root).contains(&(path.to_owned(), Access::Read));
        assert!(is_read_only("cfg/file") && is_read_only("cfg/deep"), "{:?}", found(root));
        assert!(!root.join("cfg/hooks").exists(), "nothing is made behind a link");
        fs::remove_file(root.join("file")).unwrap();
        for to in [".", "..", "file", "/"] {
            symlink(to, root.join("file")).unwrap();
            assert!(!is_read_only("file") && !is_read_only(""), "{to}");
            fs::remove_file(root.join("file")).unwrap();
        }
    }

    #[test]
    fn a_git_directory_is_protected_as_a_working_directorys_own() {
        let directory = tempfile::tempdir().unwrap();
        let files = Filesystem { reserved: vec![".git/hooks".into()], ..Filesystem::default() };
        let git = Root { role: RootRole::GitDirectory, ..root(directory.path()) };
        let mounts = protected_mounts(&git, &files, &[], &us(), &[], MakeReserved::Yes).unwrap();
        assert!(
            mounts.iter().any(|one| one.path == directory.path().join("hooks") && one.access == Access::Read)
        );
    }

    #[test]
    fn a_directory_of_another_user_that_commands_cannot_enter_is_protected_as_a_whole() {
        use std::os::unix::fs::PermissionsExt;
        let directory = tempfile::tempdir().unwrap();
        let git = directory.path().join(".git");
        fs::create_dir_all(git.join("hooks")).unwrap();
        let files = Filesystem { reserved: vec![".git/hooks".into()], ..Filesystem::default() };
        let gid = nix::unistd::getegid().as_raw();
        let git_access = |mode, uid, gids: &[u32]| {
            fs::set_permissions(&git, fs::Permissions::from_mode(mode)).unwrap();
            let commands = DiskIdentity { uid, gids: gids.to_vec() };
            let mounts =
                protected_mounts(&root(directory.path()), &files, &[], &commands, &[], MakeReserved::Yes)
                    .unwrap();
            let of = |path: &Path| mounts.iter().find(|mount| mount.path == path).map(|mount| mount.access);
            (of(&git), of(&git.join("hooks")))
        };
        let (whole, parts) = ((Some(Access::Read), None), (Some(Access::Write), Some(Access::Read)));
        let (us, other) = (geteuid().as_raw(), geteuid().as_raw() + 1);
        assert_eq!(git_access(0o700, us, &[]), parts);
        assert_eq!(git_access(0o700, other, &[]), whole);
        assert_eq!(git_access(0o711, other, &[]), parts);
        assert_eq!(git_access(0o710, other, &[gid]), parts);
        assert_eq!(git_access(0o701, other, &[gid]), whole);
    }

    #[test]
    fn a_workspace_that_can_only_be_read_needs_nothing() {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir(directory.path().join(".git")).unwrap();
        let files = Filesystem { workspace: Access::Read, ..Filesystem::default() };
        assert!(
            protected_mounts(&root(directory.path()), &files, &[], &us(), &[], MakeReserved::Yes)
                .unwrap()
                .is_empty()
        );
        assert!(!directory.path().join(".git/hooks").exists());
    }
}
