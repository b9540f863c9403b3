//! Opens what a path leads to, with whatever rights the thread has, and finds its name without links.

use std::{
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    path::{Path, PathBuf},
};

use nix::{
    dir::Dir,
    errno::Errno,
    fcntl::{AT_FDCWD, OFlag, OpenHow, ResolveFlag, openat2},
    sys::stat::{FileStat, Mode, fstat},
};

use crate::sandbox::roots::path_walk::ObjectId;

/// A file or directory, and which one it was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FoundPath {
    /// Absolute, without links.
    pub(super) path: PathBuf,
    /// Another one at the same path is not this one.
    pub(super) object: ObjectId,
}

/// An open file or directory.
pub(super) struct Opened {
    /// Open with `O_PATH`.
    pub(super) descriptor: OwnedFd,
    pub(super) found: FoundPath,
}

/// What must be there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A directory.
    Directory,
    /// Anything.
    Any,
}

/// Opens a path, relative to `base` if it is not absolute. Links on the way are followed, but not by way of /proc.
///
/// # Errors
/// Those of openat2(2); `ESTALE` for what was removed or replaced meanwhile.
pub(super) fn open(base: Option<BorrowedFd<'_>>, path: &Path, kind: Kind) -> Result<Opened, Errno> {
    let directory = if kind == Kind::Directory { OFlag::O_DIRECTORY } else { OFlag::empty() };
    let how = |resolve| {
        OpenHow::new()
            .flags(OFlag::O_PATH | OFlag::O_CLOEXEC | directory)
            .resolve(resolve | ResolveFlag::RESOLVE_NO_MAGICLINKS)
    };
    let descriptor = openat2(base.unwrap_or(AT_FDCWD), path, how(ResolveFlag::empty()))?;
    let real = std::fs::read_link(format!("/proc/self/fd/{}", descriptor.as_raw_fd()));
    let real = real.map_err(|error| error.raw_os_error().map_or(Errno::EIO, Errno::from_raw))?;
    let named = openat2(AT_FDCWD, &real, how(ResolveFlag::RESOLVE_NO_SYMLINKS))?;
    let (object, again) = (object(&fstat(&descriptor)?), object(&fstat(&named)?));
    // What was removed has no name, and another one may have taken its old one.
    if object != again {
        return Err(Errno::ESTALE);
    }
    Ok(Opened { descriptor, found: FoundPath { path: real, object } })
}

/// Which object a descriptor is of. `None`: the file system does not say.
pub(super) fn object_of(descriptor: &OwnedFd) -> Option<ObjectId> {
    fstat(descriptor).ok().map(|stat| object(&stat))
}

/// Which file or directory it is.
pub(super) fn object(stat: &FileStat) -> ObjectId {
    (stat.st_dev, stat.st_ino)
}

/// The names in a directory that are text, at most `max`.
pub(super) fn names(directory: BorrowedFd<'_>, max: usize) -> io::Result<Vec<String>> {
    let mut directory = Dir::openat(directory.as_fd(), ".", OFlag::O_CLOEXEC, Mode::empty())?;
    let names = directory.iter().flatten().take(max);
    let names = names.filter_map(|entry| entry.file_name().to_str().ok().map(str::to_owned));
    Ok(names.filter(|name| name != "." && name != "..").collect())
}

#[cfg(test)]
mod tests {
    use std::{
        ffi::OsStr,
        fs,
        os::unix::{
            ffi::OsStrExt,
            fs::{MetadataExt, symlink},
            net::UnixListener,
        },
    };

    use super::*;

    #[test]
    fn a_path_is_opened_without_use_and_must_be_of_its_kind() {
        let place = tempfile::tempdir().unwrap();
        let directory = place.path().canonicalize().unwrap();
        // Who would open it to read is refused.
        let socket = directory.join("socket");
        let _listener = UnixListener::bind(&socket).unwrap();
        symlink("socket", directory.join("link")).unwrap();
        let opened = open(None, &socket, Kind::Any).unwrap();
        let stat = fs::metadata(&socket).unwrap();
        assert_eq!(object_of(&opened.descriptor), Some((stat.dev(), stat.ino())));
        let open = |path: &Path, kind| open(None, path, kind).map(|opened| opened.found.path);
        assert_eq!(open(&directory.join("link"), Kind::Any), Ok(socket));
        assert_eq!(open(&directory.join("link"), Kind::Directory), Err(Errno::ENOTDIR));
        for kind in [Kind::Any, Kind::Directory] {
            assert_eq!(open(&directory, kind), Ok(directory.clone()));
            assert_eq!(open(Path::new("/proc/self/cwd"), kind), Err(Errno::ELOOP), "by way of /proc");
        }
    }

    #[test]
    fn names_are_those_of_entries_that_are_text() {
        let place = tempfile::tempdir().unwrap();
        for name in [&b"two"[..], b".one", b"\xff"] {
            fs::write(place.path().join(OsStr::from_bytes(name)), "").unwrap();
        }
        let opened = open(None, place.path(), Kind::Directory).unwrap();
        let mut all = names(opened.descriptor.as_fd(), 100).unwrap();
        all.sort();
        assert_eq!(all, [".one", "two"]);
        assert!(names(opened.descriptor.as_fd(), 0).unwrap().is_empty());
    }
}
