//! Listens on sockets in a sandbox's directory, also where its path is longer than a socket address.

use std::{
    io,
    os::{
        fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd},
        unix::{fs::OpenOptionsExt as _, net::UnixListener},
    },
    path::{Path, PathBuf},
};

use super::error::LaunchError;
use crate::{sandbox::process_links::bind_in_directory, wire::launch::CONTROL_SOCKET};

/// Listens in the sandbox's directory, even if its path is longer than a socket address.
pub(super) fn listen(directory: &Path, name: &str) -> Result<UnixListener, LaunchError> {
    let path = directory.join(name);
    let error = |cause| LaunchError::State { path: path.clone(), cause };
    bind_in_directory(directory, name).map_err(error)
}

/// The file of a socket, by which nothing can be done but to look whether it is still there.
pub(super) fn socket_file(directory: &Path, name: &str) -> Result<OwnedFd, LaunchError> {
    let error = |cause| LaunchError::State { path: directory.join(name), cause };
    let options = libc::O_PATH | libc::O_NOFOLLOW;
    let opened = open_directory(directory).and_then(|directory| {
        std::fs::OpenOptions::new().read(true).custom_flags(options).open(short_path(directory.as_fd(), name))
    });
    opened.map(OwnedFd::from).map_err(error)
}

/// A path to the control socket in an open directory that is short enough for a socket address.
#[must_use]
pub(crate) fn control_socket_path(directory: BorrowedFd<'_>) -> PathBuf {
    short_path(directory, CONTROL_SOCKET)
}

fn short_path(directory: BorrowedFd<'_>, name: &str) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}/{name}", directory.as_raw_fd()))
}

fn open_directory(directory: &Path) -> io::Result<OwnedFd> {
    let options = libc::O_DIRECTORY | libc::O_NOFOLLOW;
    std::fs::OpenOptions::new().read(true).custom_flags(options).open(directory).map(OwnedFd::from)
}
