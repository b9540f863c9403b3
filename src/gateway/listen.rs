//! The gateway's unix socket: bound once, or taken from the service manager that bound it; and every connection with
//! its caller's credentials.
//!
//! A socket file that nobody listens on any more is replaced; one that answers is left alone and is an error.

use std::{
    fs, io,
    os::unix::fs::{DirBuilderExt, FileTypeExt, PermissionsExt},
    path::{Path, PathBuf},
    pin::Pin,
    task::{Context, Poll},
    time::Instant,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{UnixListener, UnixStream},
};
use tonic::transport::server::Connected;

use super::state::{LEFT_BEHIND, LOOK_AGAIN};
use crate::session::Peer;

/// Why the gateway cannot listen.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// Another process answers there.
    #[error("a gateway already listens at {}", .0.display())]
    InUse(PathBuf),
    /// Something that is no socket lies there.
    #[error("{} exists and is not a socket", .0.display())]
    NotASocket(PathBuf),
    /// The system refused.
    #[error("cannot listen at {}", path.display())]
    System {
        /// The socket.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The service manager passed something else than one listening unix socket.
    #[error("the service manager passed {count} descriptors: one unix stream socket that listens is wanted")]
    Passed {
        /// How many.
        count: usize,
        /// What is wrong with the first of several, or the only one.
        #[source]
        source: Option<io::Error>,
    },
    /// The service manager listens elsewhere than the configuration says, where clients would look in vain.
    #[error("the service manager listens at {passed}, the configuration says {}", configured.display())]
    Elsewhere {
        /// The passed socket's address.
        passed: String,
        /// What was configured.
        configured: PathBuf,
    },
}

/// A bound socket; its file goes away with it, unless somebody else made it.
#[derive(Debug)]
pub(super) struct Listening {
    listener: UnixListener,
    made: Option<PathBuf>,
}

impl Drop for Listening {
    fn drop(&mut self) {
        if let Some(path) = &self.made {
            // A failure leaves a stale file, which the next start replaces.
            let _ = fs::remove_file(path);
        }
    }
}

/// The socket that a service manager passed to this process (sd_listen_fds(3)), which must be bound to `configured`;
/// `None` when none was passed. Call it before any process is started: until then the descriptor can be inherited.
pub(super) fn take_passed(configured: &Path) -> Result<Option<Listening>, ListenError> {
    let mut passed = listenfd::ListenFd::from_env();
    let count = passed.len();
    if count == 0 {
        return Ok(None);
    }
    if count > 1 {
        return Err(ListenError::Passed { count, source: None });
    }
    let wrong = |source| ListenError::Passed { count, source };
    let listener =
        passed.take_unix_listener(0).map_err(|error| wrong(Some(error)))?.ok_or_else(|| wrong(None))?;
    let address = listener.local_addr().map_err(|error| wrong(Some(error)))?;
    if address.as_pathname() != Some(configured) {
        let configured = configured.to_owned();
        return Err(ListenError::Elsewhere { passed: format!("{address:?}"), configured });
    }
    listener.set_nonblocking(true).map_err(|error| wrong(Some(error)))?;
    let listener = UnixListener::from_std(listener).map_err(|error| wrong(Some(error)))?;
    Ok(Some(Listening { listener, made: None }))
}

/// Binds the socket with these permission bits, making its folder (0700) when there is none.
pub(super) fn bind(path: &Path, mode: u32) -> Result<Listening, ListenError> {
    let system = |source| ListenError::System { path: path.to_owned(), source };
    let folder = path.parent().unwrap_or(Path::new("/"));
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(system)?;
    remove_stale(path)?;
    let listener = bind_below(folder, path).map_err(system)?;
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).map_err(system)?;
    listener.set_nonblocking(true).map_err(system)?;
    let listener = UnixListener::from_std(listener).map_err(system)?;
    Ok(Listening { listener, made: Some(path.to_owned()) })
}

fn remove_stale(path: &Path) -> Result<(), ListenError> {
    let system = |source| ListenError::System { path: path.to_owned(), source };
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(system(error)),
        Ok(metadata) if !metadata.file_type().is_socket() => {
            return Err(ListenError::NotASocket(path.to_owned()));
        }
        Ok(_) => {}
    }
    let deadline = Instant::now() + LEFT_BEHIND;
    loop {
        match std::os::unix::net::UnixStream::connect(path) {
            Ok(_) if Instant::now() >= deadline => return Err(ListenError::InUse(path.to_owned())),
            Ok(_) => std::thread::park_timeout(LOOK_AGAIN),
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                return fs::remove_file(path).map_err(system);
            }
            Err(error) => return Err(system(error)),
        }
    }
}

/// By way of the folder's descriptor when the path is too long for an address (108 bytes, unix(7)).
fn bind_below(folder: &Path, path: &Path) -> io::Result<std::os::unix::net::UnixListener> {
    use std::os::fd::AsRawFd;
    if path.as_os_str().len() < 108 {
        return std::os::unix::net::UnixListener::bind(path);
    }
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let folder = fs::File::open(folder)?;
    let by_descriptor = format!("/proc/self/fd/{}", folder.as_raw_fd());
    std::os::unix::net::UnixListener::bind(Path::new(&by_descriptor).join(name))
}

impl tokio_stream::Stream for Listening {
    type Item = io::Result<Connection>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            let stream = match self.listener.poll_accept(context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Err(error)) => return Poll::Ready(Some(Err(error))),
                Poll::Ready(Ok((stream, _))) => stream,
            };
            match Peer::of(&stream) {
                Ok(peer) => return Poll::Ready(Some(Ok(Connection { stream, peer }))),
                // Who cannot be told is not served.
                Err(error) => tracing::warn!(error = %error, "connection refused: caller unknown"),
            }
        }
    }
}

/// An accepted connection.
#[derive(Debug)]
pub(super) struct Connection {
    stream: UnixStream,
    peer: Peer,
}

impl Connected for Connection {
    type ConnectInfo = Peer;

    fn connect_info(&self) -> Peer {
        self.peer.clone()
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
