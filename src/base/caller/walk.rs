//! Follows a caller's path name by name, as the kernel would follow it for the caller.
//!
//! Who follows it has the callers' root, mounts and rights to files. What differs is /proc/self and what leads through it.

use std::{
    ffi::CString,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
};

use nix::{
    errno::Errno,
    fcntl::{AT_FDCWD, OFlag, openat, readlinkat},
    sys::{
        stat::{FileStat, Mode, SFlag, fstat},
        statfs::{PROC_SUPER_MAGIC, fstatfs},
    },
};

/// Links on the way to a file (path_resolution(7)).
const MAX_LINKS: usize = 40;
/// The inode number of a /proc's root.
const PROC_ROOT: u64 = 1;

const OPEN: OFlag = OFlag::O_PATH.union(OFlag::O_CLOEXEC);

/// Whether the last name may be a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LastLink {
    /// It is followed.
    Follow,
    /// `AT_SYMLINK_NOFOLLOW`.
    Refuse,
}

/// What a thread is in the sandbox's pid namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OwnNumbers {
    /// The thread.
    pub thread: i32,
    /// Its group.
    pub group: i32,
}

/// Whose links of /proc to objects of a process (`fd/3`, `cwd`) are followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ObjectLinks {
    /// Every process's that lets who follows look at it.
    OfAll,
    /// The caller's. At others who follows may be allowed to look where the caller is not: `EPERM`.
    OfCaller,
}

/// Opens what a path means, by `O_PATH`. `own` is asked where the path leads through what is the caller's in /proc; `None` for a path that no
/// process has given.
///
/// # Errors
/// The errno that the caller would get, or that of `own`.
pub fn walk(
    from: BorrowedFd<'_>,
    path: &[u8],
    last: LastLink,
    objects: ObjectLinks,
    own: &dyn Fn() -> Result<Option<OwnNumbers>, Errno>,
) -> Result<OwnedFd, Errno> {
    if path.is_empty() {
        return Err(Errno::ENOENT);
    }
    let root = || openat(AT_FDCWD, c"/", OPEN | OFlag::O_DIRECTORY, Mode::empty());
    let mut at = if path.starts_with(b"/") {
        root()?
    } else {
        openat(from, c".", OPEN | OFlag::O_DIRECTORY, Mode::empty())?
    };
    let mut rest = names(path);
    let mut links = 0;
    // The process in whose directory of /proc the way is. It leads into another one only by that one's number.
    let mut process = None;
    while let Some(name) = rest.pop() {
        let is_last = rest.is_empty();
        if let Some(own) = own_name(at.as_fd(), &name, own)? {
            rest.extend(names(&own));
            continue;
        }
        if let Some(number) = process_named(at.as_fd(), &name)? {
            process = Some(number);
        }
        let c_name = CString::new(name).map_err(|_| Errno::EINVAL)?;
        let next = openat(&at, c_name.as_c_str(), OPEN | OFlag::O_NOFOLLOW, Mode::empty())?;
        if kind(&fstat(&next)?) != SFlag::S_IFLNK || (is_last && last == LastLink::Refuse) {
            at = next;
            continue;
        }
        links += 1;
        if links > MAX_LINKS {
            return Err(Errno::ELOOP);
        }
        if is_proc(next.as_fd())? && fstat(&at)?.st_ino != PROC_ROOT {
            // A link to an object that a process has: it can only be followed.
            if objects == ObjectLinks::OfCaller
                && (process.is_none() || own()?.map(|own| own.group) != process.take())
            {
                return Err(Errno::EPERM);
            }
            at = openat(&at, c_name.as_c_str(), OPEN, Mode::empty())?;
            continue;
        }
        let target = readlinkat(&next, c"")?;
        if target.as_bytes().starts_with(b"/") {
            at = root()?;
        }
        rest.extend(names(target.as_bytes()));
    }
    Ok(at)
}

/// What /proc/self and /proc/thread-self are to the caller.
fn own_name(
    directory: BorrowedFd<'_>,
    name: &[u8],
    own: &dyn Fn() -> Result<Option<OwnNumbers>, Errno>,
) -> Result<Option<Vec<u8>>, Errno> {
    if !matches!(name, b"self" | b"thread-self") || !is_root_of_proc(directory)? {
        return Ok(None);
    }
    let Some(OwnNumbers { thread, group }) = own()? else { return Ok(None) };
    Ok(Some(
        match name {
            b"self" => group.to_string(),
            _ => format!("{group}/task/{thread}"),
        }
        .into_bytes(),
    ))
}

/// The process whose directory a name of /proc is.
fn process_named(directory: BorrowedFd<'_>, name: &[u8]) -> Result<Option<i32>, Errno> {
    let number = std::str::from_utf8(name).ok().and_then(|name| name.parse::<i32>().ok());
    match number {
        Some(number) if is_root_of_proc(directory)? => Ok(Some(number)),
        Some(_) | None => Ok(None),
    }
}

fn is_root_of_proc(directory: BorrowedFd<'_>) -> Result<bool, Errno> {
    Ok(fstat(directory)?.st_ino == PROC_ROOT && is_proc(directory)?)
}

/// What a file is.
#[must_use]
pub fn kind(status: &FileStat) -> SFlag {
    SFlag::from_bits_truncate(status.st_mode & SFlag::S_IFMT.bits())
}

/// Whether an object is one of a /proc.
///
/// # Errors
/// The errno of fstatfs(2).
pub fn is_proc(object: BorrowedFd<'_>) -> Result<bool, Errno> {
    fstatfs(object.as_fd()).map(|found| found.filesystem_type() == PROC_SUPER_MAGIC)
}

/// The names on a path, the last one first. What a slash stands behind must be a directory, as before a `.`.
fn names(path: &[u8]) -> Vec<Vec<u8>> {
    let end = path.ends_with(b"/").then(|| b".".to_vec());
    let names = path.split(|byte| *byte == b'/').filter(|name| !name.is_empty());
    end.into_iter().chain(names.rev().map(<[u8]>::to_vec)).collect()
}

#[cfg(test)]
mod tests {
    use std::{
        fs::{self, File},
        os::{fd::AsRawFd, unix::fs::symlink},
    };

    use super::*;

    fn own() -> Result<Option<OwnNumbers>, Errno> {
        let number = std::process::id().cast_signed();
        Ok(Some(OwnNumbers { thread: number, group: number }))
    }

    fn found(from: &File, path: &str, last: LastLink) -> Result<u64, Errno> {
        walk(from.as_fd(), path.as_bytes(), last, ObjectLinks::OfCaller, &own)
            .and_then(|opened| fstat(&opened))
            .map(|status| status.st_ino)
    }

    #[test]
    fn paths_lead_where_the_kernel_leads() {
        let place = tempfile::tempdir().unwrap();
        fs::create_dir_all(place.path().join("a/b")).unwrap();
        fs::write(place.path().join("file"), "").unwrap();
        symlink("a", place.path().join("link")).unwrap();
        symlink("a/", place.path().join("slash")).unwrap();
        symlink("file/", place.path().join("wrong")).unwrap();
        symlink("loop", place.path().join("loop")).unwrap();
        symlink(place.path().join("link"), place.path().join("far")).unwrap();
        let from = File::open(place.path()).unwrap();
        let at = |path: &str| nix::sys::stat::stat(&place.path().join(path)).unwrap().st_ino;
        let (directory, here) = (at("a"), at("."));
        for path in ["a", "./a", "a/", "a/.", "a//b/..", "link", "link/", "slash", "far", "a/b/../../link"] {
            assert_eq!(found(&from, path, LastLink::Follow), Ok(directory), "{path}");
        }
        for path in ["a", "link/", "link/.", "far/"] {
            assert_eq!(found(&from, path, LastLink::Refuse), Ok(directory), "{path}");
        }
        assert_ne!(found(&from, "link", LastLink::Refuse), Ok(directory));
        for (path, errno) in [
            ("", Errno::ENOENT),
            ("none", Errno::ENOENT),
            ("file/", Errno::ENOTDIR),
            ("file/.", Errno::ENOTDIR),
            ("wrong", Errno::ENOTDIR),
            ("loop", Errno::ELOOP),
        ] {
            assert_eq!(found(&from, path, LastLink::Follow), Err(errno), "{path}");
        }
        let number = from.as_raw_fd();
        let process = std::process::id();
        for path in [
            format!("/proc/self/fd/{number}"),
            format!("/proc/thread-self/fd/{number}"),
            format!("/proc/{process}/task/{process}/fd/{number}/."),
            format!("/proc/../proc/self/fd/{number}/a/.."),
        ] {
            assert_eq!(found(&from, &path, LastLink::Follow), Ok(here), "{path}");
        }
    }

    #[test]
    fn objects_of_other_processes_are_not_reached() {
        let proc = File::open("/proc").unwrap();
        let other = std::os::unix::process::parent_id();
        let directory = File::open(format!("/proc/{other}")).unwrap();
        for (from, path) in [
            (&proc, format!("{other}/cwd")),
            (&proc, format!("self/../{other}/root/")),
            (&proc, format!("self/root/proc/{other}/cwd")),
            (&directory, "cwd".to_owned()),
            (&directory, format!("../{other}/cwd")),
        ] {
            assert_eq!(found(from, &path, LastLink::Follow), Err(Errno::EPERM), "{path}");
        }
        assert_eq!(
            found(&proc, "self/root/proc/self/root", LastLink::Follow),
            found(&proc, "/", LastLink::Follow)
        );
    }
}
