//! Reads a small file of a caller as data, with whatever rights the thread has. Never waits for a pipe, and opens no
//! device.

use std::{
    io::{self, Read as _},
    os::fd::BorrowedFd,
    path::Path,
};

use nix::{
    errno::Errno,
    fcntl::{AtFlags, OFlag, OpenHow, ResolveFlag, openat2},
    sys::stat::{FileStat, fstat, fstatat},
};

/// Whether links on the way are followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Links {
    /// The file lies below the directory, without links.
    Refused,
    /// Links lead anywhere, but not by way of /proc.
    Followed,
}

/// A regular file, whole; of one that the kernel makes, nothing.
///
/// # Errors
/// Those of openat2(2) and read(2); `EINVAL` for what is no regular file, `EFBIG` for one that is longer than `max_bytes`.
pub(super) fn read(
    directory: BorrowedFd<'_>,
    path: &Path,
    links: Links,
    max_bytes: u64,
) -> io::Result<Vec<u8>> {
    let (flags, resolve) = match links {
        Links::Refused => {
            (AtFlags::AT_SYMLINK_NOFOLLOW, ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_SYMLINKS)
        }
        Links::Followed => (AtFlags::empty(), ResolveFlag::RESOLVE_NO_MAGICLINKS),
    };
    let how = OpenHow::new()
        .flags(OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_NOCTTY | OFlag::O_CLOEXEC)
        .resolve(resolve);
    let is_regular = |stat: &FileStat| stat.st_mode & libc::S_IFMT == libc::S_IFREG;
    // Before it is opened: to open a device can do something by itself.
    if !is_regular(&fstatat(directory, path, flags)?) {
        return Err(Errno::EINVAL.into());
    }
    let file = std::fs::File::from(openat2(directory, path, how)?);
    let stat = fstat(&file)?;
    if !is_regular(&stat) {
        return Err(Errno::EINVAL.into());
    }
    // What the kernel writes when it is read has no size: in proc(5) that is of this process, and not for its callers.
    let written_bytes = u64::try_from(stat.st_size).unwrap_or_default();
    let mut bytes = Vec::new();
    file.take(written_bytes.min(max_bytes + 1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > max_bytes {
        return Err(Errno::EFBIG.into());
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        os::{
            fd::{AsFd, AsRawFd},
            unix::fs::symlink,
        },
    };

    use super::*;

    #[test]
    fn a_regular_file_is_read_whole_and_nothing_else_is() {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        fs::create_dir(at("directory")).unwrap();
        fs::write(at("file"), "12345").unwrap();
        fs::write(at("empty"), "").unwrap();
        fs::write(at("longer"), "123456").unwrap();
        fs::write(at("directory/file"), "below").unwrap();
        nix::unistd::mkfifo(&at("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        symlink("file", at("link")).unwrap();
        symlink("directory", at("linked")).unwrap();
        symlink(at("file"), at("absolute")).unwrap();
        symlink("/dev/null", at("device")).unwrap();
        symlink("/proc/self/maps", at("made")).unwrap();
        let directory = fs::File::open(place.path()).unwrap();
        let file = fs::File::open(at("file")).unwrap();
        symlink(format!("/proc/self/fd/{}", file.as_raw_fd()), at("magic")).unwrap();
        let read = |name: &str, links| {
            let bytes = read(directory.as_fd(), Path::new(name), links, 5);
            bytes.map_err(|error| Errno::from_raw(error.raw_os_error().unwrap()))
        };

        let (refused, followed) = (Links::Refused, Links::Followed);
        for (name, links, text) in [
            ("file", refused, "12345"),
            ("empty", refused, ""),
            ("directory/file", refused, "below"),
            ("file", followed, "12345"),
            ("link", followed, "12345"),
            ("absolute", followed, "12345"),
            ("linked/file", followed, "below"),
            ("made", followed, ""),
        ] {
            assert_eq!(read(name, links).as_deref(), Ok(text.as_bytes()), "{name} {links:?}");
        }
        let above = format!("../{}/file", place.path().file_name().unwrap().to_str().unwrap());
        for (name, links, error) in [
            ("longer", refused, Errno::EFBIG),
            ("longer", followed, Errno::EFBIG),
            ("absent", refused, Errno::ENOENT),
            ("directory", refused, Errno::EINVAL),
            ("pipe", refused, Errno::EINVAL),
            ("pipe", followed, Errno::EINVAL),
            ("device", followed, Errno::EINVAL),
            ("link", refused, Errno::EINVAL),
            ("linked/file", refused, Errno::ELOOP),
            (&above, refused, Errno::EXDEV),
            ("magic", followed, Errno::ELOOP),
        ] {
            assert_eq!(read(name, links), Err(error), "{name} {links:?}");
        }
        assert_eq!(read(&above, followed).as_deref(), Ok(&b"12345"[..]));
    }
}
