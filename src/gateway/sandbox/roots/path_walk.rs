//! Walks a path from `/`, link by link, and finds an object's location in its file system.
//!
//! A path can be redirected at every directory and link on it, and one object can be visible at several mount
//! points. Both matter when deciding whether one directory reaches another. Changes nothing and decides nothing.

use std::{
    ffi::{OsStr, OsString},
    fs::{self, Metadata},
    io::{self, Read as _},
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
        unix::{
            ffi::{OsStrExt, OsStringExt},
            fs::MetadataExt,
        },
    },
    path::{Component, Path, PathBuf},
};

use nix::{
    errno::Errno,
    fcntl::{AT_FDCWD, OFlag, openat},
    sys::stat::Mode,
};

/// Symbolic links followed for one path, as many as the kernel follows (path_resolution(7)).
const MAX_LINKS: u32 = 40;

/// The first read of a file of /proc: most mount tables are shorter.
const READ_BYTES: usize = 8 << 10;

/// An object's device and inode.
pub(crate) type ObjectId = (u64, u64);

/// One object on the path: a directory, a symbolic link, or the final object.
#[derive(Debug)]
pub struct WalkStep {
    /// Absolute; its parent has no symbolic links.
    pub path: PathBuf,
    /// From lstat(2): symbolic links are not followed.
    pub metadata: Metadata,
}

/// The walk along a path.
#[derive(Debug)]
pub struct PathWalk {
    /// In order, `/` first. A directory that is passed twice is listed twice.
    pub steps: Vec<WalkStep>,
    /// The final path, without symbolic links.
    pub real: PathBuf,
    /// Whether the final path exists.
    pub exists: bool,
}

/// Walks an absolute path. The walk ends early where nothing exists or this process may not look.
///
/// # Errors
/// Walks by lstat(2) and readlink(2). A way that leads nowhere, or nowhere that this process can see, ends there.
pub(crate) fn walk(path: &Path) -> io::Result<PathWalk> {
    let root = PathBuf::from("/");
    let mut walk = PathWalk { steps: vec![step(root.clone())?], real: root.clone(), exists: true };
    let mut left: Vec<OsString> = Vec::new();
    prepend(&mut left, path);
    let mut links = 0;
    while let Some(name) = left.pop() {
        if name == ".." {
            walk.real.pop();
            continue;
        }
        let next = match step(walk.real.join(&name)) {
            Ok(next) => next,
            Err(error) if leads_nowhere(&error) => {
                left.push(name);
                return Ok(walk.truncated_at(&left));
            }
            Err(error) => return Err(error),
        };
        if next.metadata.is_symlink() {
            links += 1;
            if links > MAX_LINKS {
                left.push(name);
                return Ok(walk.truncated_at(&left));
            }
            let target = fs::read_link(&next.path)?;
            if target.is_absolute() {
                walk.real = root.clone();
            }
            prepend(&mut left, &target);
        } else {
            walk.real = next.path.clone();
        }
        walk.steps.push(next);
    }
    Ok(walk)
}

fn leads_nowhere(error: &io::Error) -> bool {
    let errno = error.raw_os_error().map(Errno::from_raw);
    matches!(errno, Some(Errno::ENOENT | Errno::ENOTDIR | Errno::EACCES | Errno::ELOOP))
}

fn step(path: PathBuf) -> io::Result<WalkStep> {
    Ok(WalkStep { metadata: fs::symlink_metadata(&path)?, path })
}

fn prepend(left: &mut Vec<OsString>, path: &Path) {
    let named = path.components().rev().filter_map(|part| match part {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    });
    left.extend(named);
}

impl PathWalk {
    fn truncated_at(mut self, left: &[OsString]) -> Self {
        self.exists = false;
        self.real = left.iter().rev().fold(self.real, |path, name| path.join(name));
        self
    }

    /// The final object, if it exists.
    pub fn end(&self) -> Option<&WalkStep> {
        self.steps.iter().rev().find(|step| self.exists && step.path == self.real)
    }

    /// Whether this object is on the path or at its end.
    pub fn visits(&self, object: ObjectId) -> bool {
        self.steps.iter().any(|step| (step.metadata.dev(), step.metadata.ino()) == object)
    }
}

/// An object's location in its file system, which is the same at every mount point.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilesystemLocation {
    device: OsString,
    path: PathBuf,
}

impl FilesystemLocation {
    /// Whether it equals the other location or lies below it.
    pub fn is_within(&self, other: &Self) -> bool {
        self.device == other.device && self.path.starts_with(&other.path)
    }
}

/// The mounts of this process's namespace (proc_pid_mountinfo(5)).
#[derive(Debug, Default)]
pub struct MountTable(Vec<MountEntry>);

/// One mount.
#[derive(Debug)]
pub struct MountEntry {
    id: u64,
    /// The location that is mounted here.
    pub location: FilesystemLocation,
    /// Where.
    pub point: PathBuf,
    /// The kind of its file system.
    pub filesystem: OsString,
}

/// Reads a file of /proc in as few calls as possible, because the kernel generates the whole file for each call.
fn read_proc_file(path: &Path) -> io::Result<Vec<u8>> {
    let mut text = Vec::with_capacity(READ_BYTES);
    fs::File::open(path)?.read_to_end(&mut text)?;
    Ok(text)
}

impl MountTable {
    /// Reads the mount table of this process.
    pub fn read() -> io::Result<Self> {
        let text = read_proc_file(Path::new("/proc/self/mountinfo"))?;
        let lines = text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        let mounts = lines.map(|line| parse(line).ok_or(io::ErrorKind::InvalidData.into()));
        mounts.collect::<io::Result<_>>().map(Self)
    }

    /// The location of an open object. `None` when its mount is not in the table.
    pub fn location_of(&self, object: BorrowedFd<'_>) -> io::Result<Option<FilesystemLocation>> {
        let number = object.as_raw_fd();
        let information = read_proc_file(Path::new(&format!("/proc/self/fdinfo/{number}")))?;
        let id = String::from_utf8_lossy(&information)
            .lines()
            .find_map(|line| line.strip_prefix("mnt_id:")?.trim().parse().ok());
        let Some(mount) = self.0.iter().find(|mount| Some(mount.id) == id) else { return Ok(None) };
        let path = fs::read_link(format!("/proc/self/fd/{number}"))?;
        Ok(path.strip_prefix(&mount.point).ok().map(|below| mount.location.join(below)))
    }

    /// The location that a walk ends at. The object need not exist.
    pub fn location_of_walk(&self, walk: &PathWalk) -> io::Result<Option<FilesystemLocation>> {
        let mut path: &Path = &walk.real;
        let mut absent: Vec<&OsStr> = Vec::new();
        let there = loop {
            match open(path) {
                Ok(there) => break there,
                Err(errno) if leads_nowhere(&errno.into()) => {}
                Err(errno) => return Err(errno.into()),
            }
            let (Some(above), Some(name)) = (path.parent(), path.file_name()) else { return Ok(None) };
            absent.push(name);
            path = above;
        };
        let place = self.location_of(there.as_fd())?;
        Ok(place.map(|place| absent.iter().rev().fold(place, |place, name| place.join(Path::new(name)))))
    }

    /// What is mounted below a directory.
    pub fn mounted_below<'a>(&'a self, directory: &'a Path) -> impl Iterator<Item = &'a MountEntry> {
        let below = move |mount: &&MountEntry| mount.point != directory && mount.point.starts_with(directory);
        self.0.iter().filter(below)
    }

    /// The mount that a path without links is on.
    pub fn mount_of(&self, path: &Path) -> Option<&MountEntry> {
        let above = self.0.iter().filter(|mount| path.starts_with(&mount.point));
        // The last one of several at one point is seen.
        above.max_by_key(|mount| mount.point.components().count())
    }

    /// The paths at which a location is to be found, by any mount. What is mounted over it hides it there.
    pub fn places_of(&self, location: &FilesystemLocation) -> Vec<PathBuf> {
        let place = |mount: &MountEntry| {
            let below = location.path.strip_prefix(&mount.location.path).ok()?;
            (mount.location.device == location.device).then(|| join(&mount.point, below))
        };
        let mut places: Vec<PathBuf> = self.0.iter().filter_map(place).collect();
        places.sort();
        places.dedup();
        places
    }
}

/// Unlike [`Path::join`], adds no slash for an empty path.
fn join(path: &Path, below: &Path) -> PathBuf {
    if below.as_os_str().is_empty() { path.to_owned() } else { path.join(below) }
}

impl FilesystemLocation {
    fn join(&self, below: &Path) -> Self {
        Self { device: self.device.clone(), path: join(&self.path, below) }
    }

    /// The number of its file system, as the mount table writes it.
    pub fn device(&self) -> &OsStr {
        &self.device
    }
}

/// Opens an object with `O_PATH`. A symbolic link is opened itself.
pub(crate) fn open(path: &Path) -> Result<OwnedFd, Errno> {
    openat(AT_FDCWD, path, OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC, Mode::empty())
}

fn parse(line: &[u8]) -> Option<MountEntry> {
    let mut fields = line.split(|byte| *byte == b' ');
    let id = std::str::from_utf8(fields.next()?).ok()?.parse().ok()?;
    let device = OsString::from_vec(fields.nth(1)?.to_vec());
    let location = FilesystemLocation { device, path: unescape(fields.next()?) };
    let point = unescape(fields.next()?);
    // Behind a varying number of optional fields.
    let filesystem = OsString::from_vec(fields.skip_while(|field| *field != b"-").nth(1)?.to_vec());
    Some(MountEntry { id, location, point, filesystem })
}

/// Undoes the kernel's octal escapes for blanks, newlines and backslashes.
fn unescape(field: &[u8]) -> PathBuf {
    let mut path = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&first, after)) = rest.split_first() {
        let octal = after.get(..3).filter(|_| first == b'\\');
        let octal = octal.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok());
        match octal {
            Some(byte) => {
                path.push(byte);
                rest = &after[3..];
            }
            None => {
                path.push(first);
                rest = after;
            }
        }
    }
    OsStr::from_bytes(&path).into()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_way_passes_each_directory_and_link_on_it() {
        let directory = tempfile::tempdir().unwrap();
        let top = directory.path().canonicalize().unwrap();
        fs::create_dir_all(top.join("a/deep")).unwrap();
        fs::create_dir(top.join("b")).unwrap();
        symlink("../a/deep", top.join("b/link")).unwrap();
        fs::write(top.join("a/deep/file"), "").unwrap();
        let walked = walk(&top.join("b/link/file")).unwrap();
        assert_eq!((walked.real.clone(), walked.exists), (top.join("a/deep/file"), true));
        for passed in ["", "a", "b", "a/deep", "a/deep/file"] {
            let metadata = fs::metadata(top.join(passed)).unwrap();
            assert!(walked.visits((metadata.dev(), metadata.ino())), "{passed}");
        }
        assert!(walked.steps.iter().any(|step| step.metadata.is_symlink()));
        let absent = walk(&top.join("b/link/none/deeper")).unwrap();
        assert_eq!((absent.real.clone(), absent.exists), (top.join("a/deep/none/deeper"), false));
        symlink("loop", top.join("loop")).unwrap();
        let endless = walk(&top.join("loop")).unwrap();
        assert!(!endless.exists && endless.end().is_none());
    }

    #[test]
    fn places_are_of_the_file_system() {
        let directory = tempfile::tempdir().unwrap();
        let top = directory.path().canonicalize().unwrap();
        fs::create_dir(top.join("in")).unwrap();
        let mounts = MountTable::read().unwrap();
        let place = |path: &Path| mounts.location_of(open(path).unwrap().as_fd()).unwrap().unwrap();
        assert!(place(&top.join("in")).is_within(&place(&top)));
        assert!(!place(&top).is_within(&place(&top.join("in"))));
        assert!(!place(Path::new("/proc/self")).is_within(&place(&top)));
        assert!(mounts.places_of(&place(&top.join("in"))).contains(&top.join("in")));
        assert_eq!(mounts.mount_of(&top).map(|mount| mount.location.device()), Some(place(&top).device()));
        let absent = mounts.location_of_walk(&walk(&top.join("in/none/x")).unwrap()).unwrap().unwrap();
        assert!(absent.is_within(&place(&top.join("in"))));
    }

    #[test]
    fn a_line_of_the_mount_table_is_read_as_the_kernel_writes_it() {
        let line = br"36 35 98:0 /mnt\0401 /mnt2\134x rw,noatime master:1 - ext3 /dev/root rw";
        let mount = parse(line).unwrap();
        assert_eq!((mount.id, mount.location.device.as_os_str()), (36, OsStr::new("98:0")));
        assert_eq!(mount.location.path, Path::new("/mnt 1"));
        assert_eq!(mount.point, Path::new(r"/mnt2\x"));
        assert_eq!(mount.filesystem, "ext3");
        assert!(parse(b"invalid").is_none());
    }
}
