//! What a sandbox shows at a place of its own: directories and files of the host, and for whom; and what the gateway has made for it, the
//! directory of a session's certificates and sockets on which the gateway's side listens.

use std::{
    fs::{OpenOptions, Permissions},
    io,
    os::{
        fd::OwnedFd,
        unix::fs::{OpenOptionsExt as _, PermissionsExt as _},
    },
    path::Path,
};

use crate::proto::supervisor::{Mount, mount::Kind};

/// For whom a directory is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ShownFor {
    /// For everybody: the system's.
    System,
    /// By the profile, to be read.
    Profile,
    /// By the profile, to be written.
    Writable,
    /// As a root of the session in which commands work.
    Session,
    /// As one that is only read: `--ro`, toolchains.
    SessionToRead,
}

/// A directory or file of the host, shown at its own place.
#[derive(Debug, Clone, Copy)]
pub(super) struct ShownDirectory<'a> {
    /// Absolute, without links.
    pub path: &'a Path,
    /// For whom.
    pub shown_for: ShownFor,
    /// Whether what is mounted below it is shown.
    pub is_recursive: bool,
}

/// The mount of a directory of the gateway's own at this place, to be read, and its source. The directory itself is shown, so that files in
/// it can be replaced.
pub(super) fn show_directory(directory: &Path, place: &str) -> io::Result<(Mount, OwnedFd)> {
    // An ordinary user's supervisor opens it by a path without links.
    open_to_show(&directory.canonicalize()?, libc::O_DIRECTORY, place)
}

/// The mount of a socket in the sandbox's directory, which nobody but the gateway's user can enter, and its source. The socket is the
/// sandbox's alone, so all of its users may connect.
pub(super) fn show_socket(directory: &Path, name: &str, place: &str) -> io::Result<(Mount, OwnedFd)> {
    let path = directory.canonicalize()?.join(name);
    let shown = open_to_show(&path, 0, place)?;
    std::fs::set_permissions(&path, Permissions::from_mode(0o666))?;
    Ok(shown)
}

fn open_to_show(path: &Path, flags: i32, place: &str) -> io::Result<(Mount, OwnedFd)> {
    let opened =
        OpenOptions::new().read(true).custom_flags(libc::O_PATH | libc::O_NOFOLLOW | flags).open(path)?;
    let mount = Mount {
        kind: Kind::Bind.into(),
        source: path.to_str().ok_or(io::ErrorKind::InvalidFilename)?.to_owned(),
        target: place.into(),
        from_descriptor: true,
        read_only: true,
        no_exec: true,
        ..Mount::default()
    };
    Ok((mount, opened.into()))
}
