//! Copies what a session has written, and links what the generation before has: directory by directory, by descriptor, and never through a
//! link.
//!
//! What a generation takes is counted, so that neither its bytes nor the number of its files is without a bound.

use std::{
    collections::HashSet,
    ffi::{OsStr, OsString},
    fs::File,
    io,
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
        unix::ffi::{OsStrExt, OsStringExt},
    },
    path::{Path, PathBuf},
};

use nix::{
    dir::Dir,
    errno::Errno,
    fcntl::{AtFlags, OFlag, openat, readlinkat},
    sys::{
        stat::{FileStat, Mode, fchmod, fstat, fstatat, futimens, mkdirat},
        time::TimeSpec,
    },
    unistd::{linkat, symlinkat},
};

use super::KeepError;
use crate::sys::{file, rights::Rights};

/// No tool's cache is as deep. It bounds the recursion.
const MAX_DEPTH: usize = 64;
/// In which overlayfs says that nothing below shows through a directory.
const OPAQUE: &std::ffi::CStr = c"user.overlay.opaque";

/// What a session's layer says of the generation below it.
#[derive(Debug, Default)]
pub(super) struct Removals {
    /// These are gone.
    removed: HashSet<PathBuf>,
    /// Directories of which all is gone that the layer has not.
    replaced: HashSet<PathBuf>,
    /// How much was not copied: what is no file, directory or link, or cannot be read.
    pub(super) left_out: u64,
}

/// Where something is copied or linked to, and with whose rights.
pub(super) struct Target<'a> {
    pub(super) owner: &'a Rights,
    pub(super) budget: &'a mut Budget,
}

/// Whether a directory has nothing in it.
pub(super) fn is_empty(directory: BorrowedFd<'_>) -> Result<bool, KeepError> {
    Ok(names(directory, Path::new("."))?.is_empty())
}

impl Target<'_> {
    /// Copies what is in the layer `from` to `to`, which is empty.
    pub(super) fn copy(&mut self, from: BorrowedFd<'_>, to: BorrowedFd<'_>) -> Result<Removals, KeepError> {
        let mut removals = Removals::default();
        self.copy_directory(from, to, Path::new(""), &mut removals, 0)?;
        Ok(removals)
    }

    /// Adds what the generation `from` has, and the layer in `to` neither replaces nor removes.
    pub(super) fn link(
        &mut self,
        from: BorrowedFd<'_>,
        to: BorrowedFd<'_>,
        removals: &Removals,
    ) -> Result<(), KeepError> {
        self.link_directory(from, to, Path::new(""), removals, 0)
    }

    fn copy_directory(
        &mut self,
        from: BorrowedFd<'_>,
        to: BorrowedFd<'_>,
        at: &Path,
        removals: &mut Removals,
        depth: usize,
    ) -> Result<(), KeepError> {
        check_depth(depth)?;
        for name in names(from, at)? {
            let path = at.join(&name);
            let found = fstatat(from, name.as_os_str(), AtFlags::AT_SYMLINK_NOFOLLOW)
                .map_err(KeepError::of("read", &path))?;
            match found.st_mode & libc::S_IFMT {
                libc::S_IFDIR => {
                    let Some(below) = open_kept(from, &name, OFlag::O_DIRECTORY, &path)? else {
                        removals.left_out += 1;
                        continue;
                    };
                    if file::has_attribute(&short_path(below.as_fd()), OPAQUE) {
                        removals.replaced.insert(path.clone());
                    }
                    let made = self.make_directory(to, &name, &path, &found)?;
                    self.copy_directory(below.as_fd(), made.as_fd(), &path, removals, depth + 1)?;
                    self.set_times(&made, &found, &path)?;
                }
                libc::S_IFREG => match open_kept(from, &name, OFlag::O_NONBLOCK, &path)? {
                    Some(opened) => self.copy_file(opened, to, &name, &path)?,
                    None => removals.left_out += 1,
                },
                libc::S_IFLNK => self.copy_link(from, to, &name, &path)?,
                // A whiteout.
                libc::S_IFCHR if found.st_rdev == 0 => {
                    removals.removed.insert(path);
                }
                _ => removals.left_out += 1,
            }
        }
        Ok(())
    }

    fn copy_file(
        &mut self,
        from: OwnedFd,
        to: BorrowedFd<'_>,
        name: &OsStr,
        path: &Path,
    ) -> Result<(), KeepError> {
        let found = fstat(&from).map_err(KeepError::of("read", path))?;
        self.budget.add_file(found.st_size.unsigned_abs())?;
        // Readable and not changeable for its owner's tools as it was; nothing of it is anybody else's.
        let mode = Mode::from_bits_truncate((found.st_mode & 0o755) | 0o400);
        let made = self.as_owner(|| {
            let flags =
                OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
            openat(to, name, flags, Mode::from_bits_truncate(0o600))
        });
        let made = made.map_err(KeepError::of("make", path))?;
        let (mut from, mut made) =
            (io::Read::take(File::from(from), found.st_size.unsigned_abs()), File::from(made));
        io::copy(&mut from, &mut made).map_err(KeepError::of("write", path))?;
        fchmod(&made, mode).map_err(KeepError::of("write", path))?;
        self.set_times(&made, &found, path)
    }

    fn copy_link(
        &mut self,
        from: BorrowedFd<'_>,
        to: BorrowedFd<'_>,
        name: &OsStr,
        path: &Path,
    ) -> Result<(), KeepError> {
        self.budget.add_entry()?;
        let leads_to = readlinkat(from, name).map_err(KeepError::of("read", path))?;
        self.as_owner(|| symlinkat(leads_to.as_os_str(), to, name)).map_err(KeepError::of("make", path))
    }

    fn link_directory(
        &mut self,
        from: BorrowedFd<'_>,
        to: BorrowedFd<'_>,
        at: &Path,
        removals: &Removals,
        depth: usize,
    ) -> Result<(), KeepError> {
        check_depth(depth)?;
        for name in names(from, at)? {
            let path = at.join(&name);
            let stat = |directory| fstatat(directory, name.as_os_str(), AtFlags::AT_SYMLINK_NOFOLLOW);
            let found = stat(from).map_err(KeepError::of("read", &path))?;
            let is_directory = |found: &FileStat| found.st_mode & libc::S_IFMT == libc::S_IFDIR;
            let new = match stat(to) {
                Ok(new) => Some(new),
                Err(Errno::ENOENT) => None,
                Err(errno) => return Err(KeepError::of("read", &path)(errno)),
            };
            match new {
                None if removals.removed.contains(&path) => {}
                None if is_directory(&found) => {
                    let made = self.make_directory(to, &name, &path, &found)?;
                    let below =
                        open(from, &name, OFlag::O_DIRECTORY).map_err(KeepError::of("open", &path))?;
                    self.link_directory(below.as_fd(), made.as_fd(), &path, removals, depth + 1)?;
                    self.set_times(&made, &found, &path)?;
                }
                None => {
                    match found.st_mode & libc::S_IFMT {
                        libc::S_IFREG => self.budget.add_file(found.st_size.unsigned_abs())?,
                        _ => self.budget.add_entry()?,
                    }
                    let link = || linkat(from, name.as_os_str(), to, name.as_os_str(), AtFlags::empty());
                    self.as_owner(link).map_err(KeepError::of("link", &path))?;
                }
                Some(new) if is_directory(&new) && is_directory(&found) => {
                    if removals.replaced.contains(&path) {
                        continue;
                    }
                    let part = |of| open(of, &name, OFlag::O_DIRECTORY).map_err(KeepError::of("open", &path));
                    let (below, same) = (part(from)?, part(to)?);
                    self.link_directory(below.as_fd(), same.as_fd(), &path, removals, depth + 1)?;
                    self.set_times(&same, &new, &path)?;
                }
                // What the session has written.
                Some(_) => {}
            }
        }
        Ok(())
    }

    fn make_directory(
        &mut self,
        to: BorrowedFd<'_>,
        name: &OsStr,
        path: &Path,
        like: &FileStat,
    ) -> Result<OwnedFd, KeepError> {
        self.budget.add_entry()?;
        let mode = Mode::from_bits_truncate((like.st_mode & 0o755) | 0o700);
        self.as_owner(|| mkdirat(to, name, mode)).map_err(KeepError::of("make", path))?;
        open(to, name, OFlag::O_DIRECTORY).map_err(KeepError::of("open", path))
    }

    /// Tools compare the times of what they have written.
    fn set_times(&self, made: &impl AsFd, like: &FileStat, path: &Path) -> Result<(), KeepError> {
        let modified = TimeSpec::new(like.st_mtime, like.st_mtime_nsec);
        futimens(made, &modified, &modified).map_err(KeepError::of("write", path))
    }

    fn as_owner<T>(&self, work: impl FnOnce() -> Result<T, Errno>) -> Result<T, Errno> {
        self.owner.run_with(work)?
    }
}

fn check_depth(depth: usize) -> Result<(), KeepError> {
    if depth > MAX_DEPTH { Err(KeepError::TooDeep { max: MAX_DEPTH }) } else { Ok(()) }
}

/// Opens a file or directory of a session's layer. `None` for what an ordinary user's gateway may not read.
fn open_kept(
    directory: BorrowedFd<'_>,
    name: &OsStr,
    flags: OFlag,
    path: &Path,
) -> Result<Option<OwnedFd>, KeepError> {
    match open(directory, name, flags) {
        Err(Errno::EACCES) => Ok(None),
        opened => opened.map(Some).map_err(KeepError::of("open", path)),
    }
}

fn open(directory: BorrowedFd<'_>, name: &OsStr, flags: OFlag) -> Result<OwnedFd, Errno> {
    openat(directory, name, flags | OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC, Mode::empty())
}

fn short_path(descriptor: BorrowedFd<'_>) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", descriptor.as_raw_fd()))
}

fn names(directory: BorrowedFd<'_>, path: &Path) -> Result<Vec<OsString>, KeepError> {
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let mut opened =
        Dir::openat(directory, ".", flags, Mode::empty()).map_err(KeepError::of("read", path))?;
    let mut names = Vec::new();
    for entry in opened.iter() {
        let name = entry.map_err(KeepError::of("read", path))?.file_name().to_bytes().to_vec();
        if name != b"." && name != b".." {
            names.push(OsString::from_vec(name));
        }
    }
    names.sort_by(|one, other| one.as_bytes().cmp(other.as_bytes()));
    Ok(names)
}

/// What each file, directory and link takes at least.
const PAGE_BYTES: u64 = 4096;

/// What may still be taken.
#[derive(Debug)]
pub(super) struct Budget {
    max_bytes: u64,
    used_bytes: u64,
    files: u64,
}

impl Budget {
    pub(super) fn new(max_bytes: u64) -> Self {
        Self { max_bytes, used_bytes: 0, files: 0 }
    }

    /// A directory or a link: it takes a page.
    pub(super) fn add_entry(&mut self) -> Result<(), KeepError> {
        self.add(PAGE_BYTES)
    }

    /// A file of this length, of which holes count as well.
    pub(super) fn add_file(&mut self, length: u64) -> Result<(), KeepError> {
        self.files += 1;
        self.add(length.checked_next_multiple_of(PAGE_BYTES).unwrap_or(u64::MAX).max(PAGE_BYTES))
    }

    fn add(&mut self, bytes: u64) -> Result<(), KeepError> {
        self.used_bytes = self.used_bytes.saturating_add(bytes);
        if self.used_bytes > self.max_bytes {
            return Err(KeepError::TooLarge { max_bytes: self.max_bytes });
        }
        Ok(())
    }

    pub(super) fn used_bytes(&self) -> u64 {
        self.used_bytes
    }

    pub(super) fn files(&self) -> u64 {
        self.files
    }
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        os::unix::fs::{PermissionsExt, symlink},
    };

    use super::*;

    fn open_all(path: &Path) -> File {
        File::open(path).unwrap()
    }

    fn copy(from: &Path, to: &Path, max_bytes: u64) -> Result<Removals, KeepError> {
        let (owner, mut budget) = (Rights::own(), Budget::new(max_bytes));
        let (from, to) = (open_all(from), open_all(to));
        Target { owner: &owner, budget: &mut budget }.copy(from.as_fd(), to.as_fd())
    }

    #[test]
    fn a_copy_has_no_set_id_bits_pipes_or_what_a_link_leads_to() {
        let place = tempfile::tempdir().unwrap();
        let [from, to, outside] = ["from", "to", "outside"].map(|name| place.path().join(name));
        for directory in [&from, &to, &outside] {
            fs::create_dir(directory).unwrap();
        }
        fs::write(outside.join("secret"), "secret").unwrap();
        symlink(&outside, from.join("directory")).unwrap();
        symlink(outside.join("secret"), from.join("file")).unwrap();
        fs::write(from.join("tool"), "text").unwrap();
        fs::set_permissions(from.join("tool"), fs::Permissions::from_mode(0o6777)).unwrap();
        nix::unistd::mkfifo(&from.join("pipe"), Mode::S_IRWXU).unwrap();
        assert_eq!(copy(&from, &to, u64::MAX).unwrap().left_out, 1);
        assert!(fs::symlink_metadata(to.join("directory")).unwrap().is_symlink());
        assert!(fs::symlink_metadata(to.join("file")).unwrap().is_symlink());
        let mode = fs::metadata(to.join("tool")).unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, 0o755);
        assert!(!to.join("pipe").exists());
    }

    #[test]
    fn what_a_directory_becomes_a_link_to_is_never_written_to() {
        let place = tempfile::tempdir().unwrap();
        let [base, layer, to, outside] =
            ["base", "layer", "to", "outside"].map(|name| place.path().join(name));
        for directory in [&base, &layer, &to, &outside, &base.join("part")] {
            fs::create_dir(directory).unwrap();
        }
        fs::write(base.join("part/file"), "base").unwrap();
        symlink(&outside, layer.join("part")).unwrap();
        let removals = copy(&layer, &to, u64::MAX).unwrap();
        let (owner, mut budget) = (Rights::own(), Budget::new(u64::MAX));
        let (from, made) = (open_all(&base), open_all(&to));
        Target { owner: &owner, budget: &mut budget }.link(from.as_fd(), made.as_fd(), &removals).unwrap();
        assert_eq!(fs::read_link(to.join("part")).unwrap(), outside);
        assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
    }

    #[test]
    fn what_is_too_deep_or_too_large_is_refused() {
        let place = tempfile::tempdir().unwrap();
        let [from, to, small] = ["from", "to", "small"].map(|name| place.path().join(name));
        fs::create_dir(&to).unwrap();
        fs::create_dir(&small).unwrap();
        fs::create_dir_all((0..=MAX_DEPTH).fold(from.clone(), |path, _| path.join("d"))).unwrap();
        assert!(matches!(copy(&from, &to, u64::MAX), Err(KeepError::TooDeep { .. })));
        assert!(matches!(copy(&from, &small, 4096), Err(KeepError::TooLarge { .. })));
    }

    #[test]
    fn small_and_empty_files_count_a_page_each_and_a_sparse_one_its_length() {
        let mut budget = Budget::new(4 * PAGE_BYTES);
        budget.add_file(0).unwrap();
        budget.add_file(1).unwrap();
        budget.add_entry().unwrap();
        assert_eq!((budget.used_bytes(), budget.files()), (3 * PAGE_BYTES, 2));
        budget.add_file(PAGE_BYTES).unwrap();
        assert!(matches!(budget.add_entry(), Err(KeepError::TooLarge { .. })));
        assert!(matches!(Budget::new(u64::MAX - 1).add_file(u64::MAX), Err(KeepError::TooLarge { .. })));
    }
}
