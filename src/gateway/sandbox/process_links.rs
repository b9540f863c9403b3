//! How the processes of a sandbox are reached: the sockets in its directory, also where its path is longer than a socket address, and how long
//! each process may take to answer.

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
    time::Duration,
};

use prost::Message;

use crate::link::{Connection, LinkError, Peer};

/// How long a process of a sandbox may take for one answer. None of them waits for a command, a network or a person before it answers: one that
/// takes longer is stopped, or hangs.
pub(crate) const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a supervisor that was just launched may take for the greeting: longer than for an answer, because many may be launched at once, and
/// the launch is lost when the time is over.
pub(crate) const SUPERVISOR_HELLO_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a gate may take to answer the greeting. It is asked after its launcher has said that it is set up.
pub(crate) const GATE_HELLO_TIMEOUT: Duration = Duration::from_secs(5);

/// The path of a socket address is shorter (unix(7)).
const ADDRESS_MAX_BYTES: usize = 108;

/// Listens, by the plain path where an address has room for it: who looks for the host's sockets finds it by that.
///
/// # Errors
/// As of open(2) for the directory, and of bind(2).
pub(super) fn bind_in_directory(directory: &Path, name: &str) -> io::Result<UnixListener> {
    let options = libc::O_DIRECTORY | libc::O_NOFOLLOW;
    let opened = OpenOptions::new().read(true).custom_flags(options).open(directory)?;
    let path = directory.join(name);
    let fits = path.is_absolute() && path.as_os_str().len() < ADDRESS_MAX_BYTES;
    let by_descriptor = || PathBuf::from(format!("/proc/self/fd/{}/{name}", opened.as_raw_fd()));
    UnixListener::bind(if fits { path } else { by_descriptor() })
}

/// Connects to a process by its socket.
///
/// # Errors
/// [`LinkError::Connect`].
pub(crate) fn connect<Out: Message, In: Message + Default>(
    peer: Peer,
    socket: &Path,
    max_queued_bytes: usize,
) -> Result<Connection<Out, In>, LinkError> {
    connect_by_directory(socket)
        .and_then(|stream| Connection::new(peer, stream, max_queued_bytes))
        .map_err(|error| LinkError::Connect(peer, error))
}

/// Connects to a socket. The path goes through its directory's descriptor, because it may be longer than a socket address
/// (108 bytes, unix(7)).
///
/// # Errors
/// As of open(2) for the directory, and of connect(2).
fn connect_by_directory(socket: &Path) -> io::Result<UnixStream> {
    let (Some(directory), Some(name)) = (socket.parent(), socket.file_name()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let directory = File::open(directory)?;
    let by_descriptor = format!("/proc/self/fd/{}", directory.as_raw_fd());
    UnixStream::connect(Path::new(&by_descriptor).join(name))
}
