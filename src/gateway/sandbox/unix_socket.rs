//! Binds and connects to the sockets in a sandbox's directory, also where its path is longer than a socket address.

use std::{
    fs::{File, OpenOptions},
    io,
    os::{
        fd::AsRawFd,
        unix::{
            fs::OpenOptionsExt as _,
            net::{UnixListener, UnixStream},
        },
    },
    path::{Path, PathBuf},
};

/// The path of a socket address is shorter (unix(7)).
const ADDRESS_MAX_BYTES: usize = 108;

/// Listens, by the plain path where an address has room for it: who looks for the host's sockets finds it by that.
///
/// # Errors
/// As of open(2) for the directory, and of bind(2).
pub fn bind_in_directory(directory: &Path, name: &str) -> io::Result<UnixListener> {
    let options = libc::O_DIRECTORY | libc::O_NOFOLLOW;
    let opened = OpenOptions::new().read(true).custom_flags(options).open(directory)?;
    let path = directory.join(name);
    let fits = path.is_absolute() && path.as_os_str().len() < ADDRESS_MAX_BYTES;
    let by_descriptor = || PathBuf::from(format!("/proc/self/fd/{}/{name}", opened.as_raw_fd()));
    UnixListener::bind(if fits { path } else { by_descriptor() })
}

/// Connects to a socket. The path goes through its directory's descriptor, because it may be longer than a socket address
/// (108 bytes, unix(7)).
///
/// # Errors
/// As of open(2) for the directory, and of connect(2).
pub fn connect_by_directory(socket: &Path) -> io::Result<UnixStream> {
    let (Some(directory), Some(name)) = (socket.parent(), socket.file_name()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let directory = File::open(directory)?;
    let by_descriptor = format!("/proc/self/fd/{}", directory.as_raw_fd());
    UnixStream::connect(Path::new(&by_descriptor).join(name))
}
