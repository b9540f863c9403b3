//! File operations below the root of a workspace: list, read, restore and quarantine, by descriptor, without following links and without
//! leaving the file system.
//!
//! Decides nothing. Has the permissions of the calling thread, which are the workspace owner's. When what was done to a file is undone,
//! what was there comes back, and what is there gets a name that no tool reads. Nothing is lost: it may be a person's.

use std::{
    collections::BTreeSet,
    ffi::{OsStr, OsString},
    os::{
        fd::{AsFd, AsRawFd, OwnedFd},
        unix::ffi::OsStringExt,
    },
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

use nix::{
    dir::{Dir, Type},
    errno::Errno,
    fcntl::{OFlag, OpenHow, ResolveFlag, openat2, readlinkat, renameat},
    sys::stat::{FileStat, Mode, SFlag, fchmod, fstat},
    unistd::{UnlinkatFlags, geteuid, symlinkat, unlinkat, write},
};

use crate::sys::file::{exchange, rename_absent};

/// The most bytes of a control file that are read; a longer one counts as [`FileContent::Unsupported`].
pub(super) const MAX_CONTROL_FILE_BYTES: usize = 1 << 20;
/// In the names of quarantined files.
pub(super) const QUARANTINE_MARK: &str = ".provost-quarantine-";
/// In the names of files that are about to be restored.
pub(super) const RESTORE_MARK: &str = ".provost-restore-";

/// What is at a place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum FileContent {
    /// Nothing.
    Absent,
    /// A file.
    File {
        /// All of it.
        bytes: Vec<u8>,
        /// Its permissions.
        mode: u32,
    },
    /// A symbolic link.
    Link(PathBuf),
    /// A directory.
    Directory,
    /// Neither, or it cannot be read: a FIFO, a file that is too long or closed to its owner. Such a file is the same as
    /// before only where its identity is.
    Unsupported(Option<FileIdentity>),
}

/// By what a file is known whose content is not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FileIdentity {
    /// Its file system.
    pub device: u64,
    /// Its number there.
    pub inode: u64,
    /// The size of a regular file, in bytes; else 0, as the next ones.
    pub size: i64,
    /// When its content changed, in nanoseconds.
    pub written_at: i64,
    /// When anything of it changed, in nanoseconds.
    pub changed_at: i64,
}

impl FileIdentity {
    fn of(stat: &FileStat) -> Self {
        let (device, inode) = (stat.st_dev, stat.st_ino);
        match kind(stat) {
            SFlag::S_IFREG => Self {
                device,
                inode,
                size: stat.st_size,
                written_at: nanoseconds(stat.st_mtime, stat.st_mtime_nsec),
                changed_at: nanoseconds(stat.st_ctime, stat.st_ctime_nsec),
            },
            // A pipe is written by being used.
            _ => Self { device, inode, size: 0, written_at: 0, changed_at: 0 },
        }
    }
}

/// A time of a file.
pub(super) fn nanoseconds(seconds: i64, rest: i64) -> i64 {
    seconds.saturating_mul(1_000_000_000).saturating_add(rest)
}

/// What a name in a directory is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EntryKind {
    /// A directory.
    Directory,
    /// A symbolic link.
    Link,
    /// Neither.
    Other,
    /// Some file systems do not report it. What is no directory then fails to open as one.
    Unknown,
}

impl EntryKind {
    /// Whether it can be a directory.
    pub(super) fn may_be_directory(self) -> bool {
        matches!(self, Self::Directory | Self::Unknown)
    }

    /// Whether it can be a link.
    pub(super) fn may_be_link(self) -> bool {
        matches!(self, Self::Link | Self::Unknown)
    }
}

/// The files below a root.
#[derive(Debug)]
pub(super) struct Tree {
    path: PathBuf,
    root: OwnedFd,
    owner: u32,
    roots: SharedRoots,
}

/// The paths of all roots that are watched.
pub(super) type SharedRoots = Arc<Mutex<BTreeSet<PathBuf>>>;

impl Tree {
    /// Below a directory that is open, with `O_PATH` or otherwise.
    pub(super) fn new(path: PathBuf, root: OwnedFd) -> Self {
        Self { path, root, owner: geteuid().as_raw(), roots: SharedRoots::default() }
    }

    /// These are watched, too.
    pub(super) fn among(self, roots: SharedRoots) -> Self {
        Self { roots, ..self }
    }

    /// Whether a path below this root is one of the others.
    pub(super) fn is_another_root(&self, below: &Path) -> bool {
        self.roots.lock().is_ok_and(|roots| roots.contains(&self.path.join(below)))
    }

    /// An absolute path relative to another root, if it is below one.
    pub(super) fn below_another_root(&self, absolute: &Path) -> Option<PathBuf> {
        let roots = self.roots.lock().ok()?;
        let below =
            roots.iter().filter(|root| **root != self.path).find_map(|root| absolute.strip_prefix(root).ok());
        below.map(Path::to_owned)
    }

    /// The files are this user's.
    pub(super) fn owned_by(self, owner: u32) -> Self {
        Self { owner, ..self }
    }

    /// Whose files they are.
    pub(super) fn owner(&self) -> u32 {
        self.owner
    }

    /// Where the root is.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The root, open.
    pub(super) fn root(&self) -> &OwnedFd {
        &self.root
    }

    /// Opens a directory for listing.
    pub(super) fn directory(&self, path: &Path) -> Result<OwnedFd, Errno> {
        match self.open(path, OFlag::O_RDONLY | OFlag::O_DIRECTORY) {
            // Its owner has closed it, or one above it, and can open it again.
            Err(Errno::EACCES) => self.open_closed_directory(path).map_err(|_| Errno::EACCES),
            opened => opened,
        }
    }

    /// Opens a directory whose owner has closed it or one above it: each is open to its owner for a moment.
    fn open_closed_directory(&self, path: &Path) -> Result<OwnedFd, Errno> {
        let mut opened = Vec::new();
        let mut at = PathBuf::new();
        let mut step = || -> Result<OwnedFd, Errno> {
            let names = std::iter::once(OsStr::new("")).chain(path.iter());
            for name in names {
                at.push(name);
                let place = self.open(&at, OFlag::O_PATH | OFlag::O_DIRECTORY)?;
                let mode = fstat(&place)?.st_mode & 0o7777;
                if mode & 0o700 != 0o700 {
                    set_mode(&place, mode | 0o700)?;
                    opened.push((place, mode));
                }
            }
            self.open(path, OFlag::O_RDONLY | OFlag::O_DIRECTORY)
        };
        let directory = step();
        for (place, mode) in opened.into_iter().rev() {
            set_mode(&place, mode)?;
        }
        directory
    }

    /// A path that leads to an open descriptor, for calls that take no descriptor.
    pub(super) fn proc_fd_path(descriptor: &impl AsRawFd) -> PathBuf {
        format!("/proc/self/fd/{}", descriptor.as_raw_fd()).into()
    }

    /// What a link contains; `None` where there is no link.
    pub(super) fn read_link(&self, path: &Path) -> Option<PathBuf> {
        let place = self.open_path(path).ok()?;
        let is_link = kind(&fstat(&place).ok()?) == SFlag::S_IFLNK;
        is_link.then(|| readlinkat(&place, "").ok()).flatten().map(PathBuf::from)
    }

    /// Whether a link leads to a regular file, below the root or elsewhere.
    pub(super) fn leads_to_file(&self, link: &Path) -> bool {
        std::fs::metadata(self.path.join(link)).is_ok_and(|found| found.is_file())
    }

    /// The names in a directory, and what each is.
    pub(super) fn names(directory: OwnedFd) -> Result<Vec<(OsString, EntryKind)>, Errno> {
        let mut names = Vec::new();
        let mut directory = Dir::from_fd(directory)?;
        for entry in directory.iter() {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if matches!(name, b"." | b"..") {
                continue;
            }
            let name = OsString::from_vec(name.to_vec());
            let kind = match entry.file_type() {
                Some(Type::Directory) => EntryKind::Directory,
                Some(Type::Symlink) => EntryKind::Link,
                Some(_) => EntryKind::Other,
                None => EntryKind::Unknown,
            };
            names.push((name, kind));
        }
        Ok(names)
    }

    /// Opens whatever is at a place without reading it.
    pub(super) fn open_path(&self, path: &Path) -> Result<OwnedFd, Errno> {
        let (directory, name) = self.open_parent(path)?;
        let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        with_write_permission(&directory, || nix::fcntl::openat(&directory, name, flags, Mode::empty()))
    }

    /// What is at a place, and when it was last changed (stat(2) `st_ctime`, in nanoseconds).
    pub(super) fn content(&self, path: &Path) -> (FileContent, i64) {
        let place = match self.open_path(path) {
            Ok(place) => place,
            Err(Errno::ENOENT | Errno::ENOTDIR) => return (FileContent::Absent, 0),
            Err(_) => return (FileContent::Unsupported(None), i64::MAX),
        };
        Self::content_at(&place)
    }

    /// What an open place holds; as [`Tree::content`].
    fn content_at(place: &OwnedFd) -> (FileContent, i64) {
        let Ok(stat) = fstat(place) else { return (FileContent::Unsupported(None), i64::MAX) };
        let unsupported = || FileContent::Unsupported(Some(FileIdentity::of(&stat)));
        let content = match kind(&stat) {
            SFlag::S_IFDIR => FileContent::Directory,
            SFlag::S_IFLNK => {
                readlinkat(place, "").map_or_else(|_| unsupported(), |to| FileContent::Link(to.into()))
            }
            SFlag::S_IFREG => Self::read(place, &stat).unwrap_or_else(|_| unsupported()),
            _ => unsupported(),
        };
        (content, nanoseconds(stat.st_ctime, stat.st_ctime_nsec))
    }

    fn read(place: &OwnedFd, seen: &FileStat) -> Result<FileContent, Errno> {
        // By descriptor: its directory may be closed to its owner.
        let flags = OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
        let file = nix::fcntl::open(&Self::proc_fd_path(place), flags, Mode::empty())?;
        let stat = fstat(&file)?;
        if kind(&stat) != SFlag::S_IFREG || (stat.st_dev, stat.st_ino) != (seen.st_dev, seen.st_ino) {
            return Ok(FileContent::Unsupported(Some(FileIdentity::of(&stat))));
        }
        let mut bytes = vec![0; usize::try_from(stat.st_size).unwrap_or(0).min(MAX_CONTROL_FILE_BYTES) + 1];
        let mut length = 0;
        loop {
            match nix::unistd::read(&file, &mut bytes[length..]) {
                Ok(0) => break,
                Ok(count) => length += count,
                Err(Errno::EINTR) => {}
                Err(errno) => return Err(errno),
            }
            if length > MAX_CONTROL_FILE_BYTES {
                return Ok(FileContent::Unsupported(Some(FileIdentity::of(&stat))));
            }
            if length == bytes.len() {
                bytes.resize(length * 2, 0);
            }
        }
        bytes.truncate(length);
        Ok(FileContent::File { bytes, mode: stat.st_mode & 0o7777 })
    }

    fn open_parent<'a>(&self, path: &'a Path) -> Result<(OwnedFd, &'a OsStr), Errno> {
        let name = path.file_name().ok_or(Errno::EINVAL)?;
        Ok((self.directory(path.parent().unwrap_or(Path::new("")))?, name))
    }

    fn open(&self, path: &Path, flags: OFlag) -> Result<OwnedFd, Errno> {
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        let how = OpenHow::new().flags(flags | OFlag::O_CLOEXEC).resolve(
            ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_SYMLINKS | ResolveFlag::RESOLVE_NO_XDEV,
        );
        openat2(self.root.as_fd(), path, how)
    }
}

fn kind(stat: &FileStat) -> SFlag {
    SFlag::from_bits_truncate(stat.st_mode & SFlag::S_IFMT.bits())
}

/// Changes permissions by a descriptor that only names the place.
fn set_mode(place: &OwnedFd, mode: u32) -> Result<(), Errno> {
    let flags = nix::sys::stat::FchmodatFlags::FollowSymlink;
    nix::sys::stat::fchmodat(place, &Tree::proc_fd_path(place), Mode::from_bits_truncate(mode), flags)
}

/// Does something in a directory; where its owner may not write there, the owner is allowed to for as long.
fn with_write_permission<T>(directory: &OwnedFd, act: impl Fn() -> Result<T, Errno>) -> Result<T, Errno> {
    match act() {
        Err(Errno::EACCES) => {
            let before = Mode::from_bits_truncate(fstat(directory)?.st_mode & 0o7777);
            fchmod(directory, before | Mode::S_IRWXU)?;
            let done = act();
            let _ = fchmod(directory, before);
            done
        }
        done => done,
    }
}

/// What came of an undo.
#[derive(Debug)]
pub(super) struct Undone {
    /// Whether the path holds what it held before; if not, nothing is there.
    pub is_restored: bool,
    /// The name, in the same directory, of what was there; `None`: it was no other than what is there now.
    pub kept: Option<OsString>,
}

impl Tree {
    /// Makes a path hold what it held before, and gives what is there a name that no tool reads: in one step, so that the path is never
    /// without a file, but on a file system that cannot exchange names. `known`: what an earlier undo of this path has kept. What is the
    /// same is not kept twice.
    ///
    /// # Errors
    /// `ENOENT`: nothing was there. Nothing has changed then.
    pub(super) fn restore(
        &self,
        path: &Path,
        before: &FileContent,
        known: Option<&OsStr>,
    ) -> Result<Undone, Errno> {
        let (directory, name) = self.open_parent(path)?;
        let new = suffixed(name, QUARANTINE_MARK);
        let exchanged = with_write_permission(&directory, || {
            make(&directory, &new, before)?;
            exchange(directory.as_fd(), &new, name).inspect_err(|_| {
                let _ = unlinkat(&directory, new.as_os_str(), UnlinkatFlags::NoRemoveDir);
            })
        });
        match exchanged {
            Err(Errno::EINVAL) => {
                let kept = self.quarantine(path)?.kept;
                Ok(Undone { is_restored: put(&directory, name, before).is_ok(), kept })
            }
            Err(errno) => Err(errno),
            Ok(()) => {
                let kept =
                    with_write_permission(&directory, || Ok(keep_once(&directory, &new, before, known)))?;
                Ok(Undone { is_restored: true, kept })
            }
        }
    }

    /// Renames what is at a path to a name in the same directory that no tool reads.
    pub(super) fn quarantine(&self, path: &Path) -> Result<Undone, Errno> {
        let (directory, name) = self.open_parent(path)?;
        let kept = with_write_permission(&directory, || rename_to_quarantine(&directory, name))?;
        Ok(Undone { is_restored: false, kept: Some(kept) })
    }
}

/// Removes what was taken out of its place where the same is there already: in the place itself, or by the name of an earlier undo. Returns
/// where it is otherwise. Nobody is asked whose it was: whatever is not there a second time stays.
fn keep_once(
    directory: &OwnedFd,
    taken: &OsStr,
    before: &FileContent,
    known: Option<&OsStr>,
) -> Option<OsString> {
    let content = |name: &OsStr| {
        let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let place = nix::fcntl::openat(directory, name, flags, Mode::empty()).ok()?;
        match Tree::content_at(&place).0 {
            content @ (FileContent::File { .. } | FileContent::Link(_)) => Some(content),
            FileContent::Absent | FileContent::Directory | FileContent::Unsupported(_) => None,
        }
    };
    let Some(found) = content(taken) else { return Some(taken.to_owned()) };
    let known = known.filter(|known| content(known).as_ref() == Some(&found));
    if known.is_none() && found != *before {
        return Some(taken.to_owned());
    }
    let _ = unlinkat(directory, taken, UnlinkatFlags::NoRemoveDir);
    known.map(OsStr::to_owned)
}

/// Makes a file in a place where nothing is.
fn put(directory: &OwnedFd, name: &OsStr, before: &FileContent) -> Result<(), Errno> {
    let new = suffixed(name, RESTORE_MARK);
    with_write_permission(directory, || {
        make(directory, &new, before)?;
        renameat(directory, new.as_os_str(), directory, name).inspect_err(|_| {
            let _ = unlinkat(directory, new.as_os_str(), UnlinkatFlags::NoRemoveDir);
        })
    })
}

fn suffixed(name: &OsStr, part: &str) -> OsString {
    let mut new = name.to_owned();
    new.push(part);
    new.push(ulid::Ulid::generate().to_string());
    new
}

fn make(directory: &OwnedFd, name: &OsStr, content: &FileContent) -> Result<(), Errno> {
    match content {
        FileContent::File { bytes, mode } => make_file(directory, name, bytes, *mode),
        FileContent::Link(target) => symlinkat(target.as_path(), directory, name),
        FileContent::Absent | FileContent::Directory | FileContent::Unsupported(_) => Err(Errno::ENOENT),
    }
}

fn make_file(directory: &OwnedFd, name: &OsStr, bytes: &[u8], mode: u32) -> Result<(), Errno> {
    let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let file = nix::fcntl::openat(directory, name, flags, Mode::S_IRUSR | Mode::S_IWUSR)?;
    let mut left = bytes;
    let mut written = || -> Result<(), Errno> {
        while !left.is_empty() {
            match write(&file, left) {
                Ok(count) => left = &left[count..],
                Err(Errno::EINTR) => {}
                Err(errno) => return Err(errno),
            }
        }
        fchmod(&file, Mode::from_bits_truncate(mode & 0o7777))
    };
    written().inspect_err(|_| {
        let _ = unlinkat(directory, name, UnlinkatFlags::NoRemoveDir);
    })
}

fn rename_to_quarantine(directory: &OwnedFd, name: &OsStr) -> Result<OsString, Errno> {
    let new_name = suffixed(name, QUARANTINE_MARK);
    match rename_absent(directory.as_fd(), name, &new_name) {
        // A file system without the flag. The new name is unique.
        Err(Errno::EINVAL) => renameat(directory, name, directory, new_name.as_os_str()),
        done => done,
    }?;
    Ok(new_name)
}
