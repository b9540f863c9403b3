//! Connects to the sockets in a sandbox's directory.

use std::{
    fs::File,
    io,
    os::{fd::AsRawFd, unix::net::UnixStream},
    path::Path,
};

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
