//! The gateway's unix socket: bound once, or taken from the service manager that bound it; and every connection that
//! `admission` lets in.
//!
//! A socket file of ours that no process holds any more is replaced; any other one is left alone and is an error.

use std::{
    fs, io,
    os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::{Duration, Instant},
};

use tokio::{
    net::{UnixListener, UnixStream},
    time::{Sleep, sleep},
};

use super::{
    admission::{Admission, BACKOFF_MIN, Connection, ConnectionRefusal, DescriptorReserve},
    state_directory::{RELEASE_POLL_INTERVAL, RELEASE_TIMEOUT},
};

/// After so many refused connections the accept loop rests: refusing takes no more than a part of a processor, and who
/// waits to be accepted behind them waits a few milliseconds.
const CONSECUTIVE_REFUSALS_MAX: u32 = 64;
const REFUSAL_PAUSE: Duration = Duration::from_millis(2);

/// Why the gateway cannot listen.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// Another process has a socket there, whether or not it answers.
    #[error("a gateway already listens at {}, or another process holds a socket there", crate::printable::path(.0))]
    InUse(PathBuf),
    /// Another user's socket, whose process has ended.
    #[error(
        "{} is a socket of uid {owner} that nobody holds any more: remove it to listen there",
        crate::printable::path(path)
    )]
    ForeignSocket {
        /// The socket.
        path: PathBuf,
        /// Who owns it.
        owner: u32,
    },
    /// Something that is no socket lies there.
    #[error("{} exists and is not a socket", crate::printable::path(.0))]
    NotASocket(PathBuf),
    /// The system refused.
    #[error("cannot listen at {}", crate::printable::path(path))]
    Io {
        /// The socket.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The service manager passed something else than one listening unix socket.
    #[error("the service manager passed {count} descriptors: one unix stream socket that listens is wanted")]
    WrongDescriptors {
        /// How many.
        count: usize,
        /// What is wrong with the first of several, or the only one.
        #[source]
        source: Option<io::Error>,
    },
    /// The service manager listens elsewhere than the configuration says, where clients would look in vain.
    #[error(
        "the service manager listens at {passed}, the configuration says {}",
        crate::printable::path(configured)
    )]
    AddressMismatch {
        /// The passed socket's address.
        passed: String,
        /// What was configured.
        configured: PathBuf,
    },
}

/// A bound socket; its file goes away with it, unless another process made it.
#[derive(Debug)]
pub(super) struct BoundSocket {
    listener: UnixListener,
    created_file: Option<PathBuf>,
}

impl BoundSocket {
    /// The next connection.
    pub(super) async fn accept(&self) -> io::Result<UnixStream> {
        self.listener.accept().await.map(|(stream, _)| stream)
    }
}

impl Drop for BoundSocket {
    fn drop(&mut self) {
        if let Some(path) = &self.created_file {
            // A failure leaves a stale file, which the next start replaces.
            let _ = fs::remove_file(path);
        }
    }
}

/// The socket that a service manager passed to this process (sd_listen_fds(3)), which must be bound to `configured`;
/// `None` when none was passed. Call it before any process is started: until then the descriptor can be inherited.
pub(super) fn inherited(configured: &Path) -> Result<Option<BoundSocket>, ListenError> {
    let mut passed = listenfd::ListenFd::from_env();
    let count = passed.len();
    if count == 0 {
        return Ok(None);
    }
    if count > 1 {
        return Err(ListenError::WrongDescriptors { count, source: None });
    }
    let wrong = |source| ListenError::WrongDescriptors { count, source };
    let listener =
        passed.take_unix_listener(0).map_err(|error| wrong(Some(error)))?.ok_or_else(|| wrong(None))?;
    let address = listener.local_addr().map_err(|error| wrong(Some(error)))?;
    if address.as_pathname() != Some(configured) {
        let configured = configured.to_owned();
        return Err(ListenError::AddressMismatch { passed: format!("{address:?}"), configured });
    }
    listener.set_nonblocking(true).map_err(|error| wrong(Some(error)))?;
    let listener = UnixListener::from_std(listener).map_err(|error| wrong(Some(error)))?;
    Ok(Some(BoundSocket { listener, created_file: None }))
}

/// Binds the socket with these permission bits, making its directory (0700) when there is none.
pub(super) fn bind(path: &Path, mode: u32) -> Result<BoundSocket, ListenError> {
    let system = |source| ListenError::Io { path: path.to_owned(), source };
    let directory = path.parent().unwrap_or(Path::new("/"));
    fs::DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(system)?;
    remove_stale(path)?;
    let listener = bind_in(directory, path).map_err(system)?;
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).map_err(system)?;
    listener.set_nonblocking(true).map_err(system)?;
    let listener = UnixListener::from_std(listener).map_err(system)?;
    Ok(BoundSocket { listener, created_file: Some(path.to_owned()) })
}

fn remove_stale(path: &Path) -> Result<(), ListenError> {
    let system = |source| ListenError::Io { path: path.to_owned(), source };
    let owner = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(system(error)),
        Ok(metadata) if !metadata.file_type().is_socket() => {
            return Err(ListenError::NotASocket(path.to_owned()));
        }
        Ok(metadata) => metadata.uid(),
    };
    let deadline = Instant::now() + RELEASE_TIMEOUT;
    while is_held(path).map_err(system)? {
        if Instant::now() >= deadline {
            return Err(ListenError::InUse(path.to_owned()));
        }
        std::thread::park_timeout(RELEASE_POLL_INTERVAL);
    }
    if owner != nix::unistd::geteuid().as_raw() {
        return Err(ListenError::ForeignSocket { path: path.to_owned(), owner });
    }
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(system(error)),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Whether a process still holds the socket that was bound there: of whatever type, listening or not, its backlog full
/// or not. A datagram socket is refused only by one that nobody holds (unix(7)), and takes no place in a backlog.
fn is_held(path: &Path) -> io::Result<bool> {
    let probe = std::os::unix::net::UnixDatagram::unbound()?;
    let directory = fs::File::open(path.parent().unwrap_or(Path::new("/")))?;
    match probe.connect(short_path(&directory, path)?) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Ok(false),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        // A process that keeps us out of it may hold it.
        Ok(()) | Err(_) => Ok(true),
    }
}

/// By way of the directory's descriptor when the path is too long for an address (108 bytes, unix(7)).
fn short_path(directory: &fs::File, path: &Path) -> io::Result<PathBuf> {
    use std::os::fd::AsRawFd;
    if path.as_os_str().len() < 108 {
        return Ok(path.to_owned());
    }
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    Ok(Path::new(&format!("/proc/self/fd/{}", directory.as_raw_fd())).join(name))
}

fn bind_in(directory: &Path, path: &Path) -> io::Result<std::os::unix::net::UnixListener> {
    let directory = fs::File::open(directory)?;
    std::os::unix::net::UnixListener::bind(short_path(&directory, path)?)
}

/// A listening socket with the shares of those who connect to it: a stream of admitted connections.
#[derive(Debug)]
pub(super) struct AdmittedConnections {
    socket: BoundSocket,
    admission: Arc<Admission>,
    reserve: DescriptorReserve,
    /// Refused without a rest.
    consecutive_refusals: u32,
    /// While descriptors are short.
    pause: Option<Pin<Box<Sleep>>>,
}

impl AdmittedConnections {
    pub(super) fn new(socket: BoundSocket, admission: Arc<Admission>) -> Self {
        Self { socket, admission, reserve: DescriptorReserve::open(), consecutive_refusals: 0, pause: None }
    }

    /// Refuses one of those who wait, with a descriptor of the reserve, and then lets some time pass: as long as
    /// descriptors are short the socket stays ready, and accepting could not rest.
    fn refuse_for_shortage(&mut self, context: &mut Context<'_>) {
        self.admission.counters.connections.inc(ConnectionRefusal::Descriptors);
        if self.reserve.close_one().is_some() {
            // Dropped, and so closed.
            let _ = self.socket.listener.poll_accept(context);
            self.reserve.refill();
        }
        let wait = self.reserve.next_backoff();
        if wait == BACKOFF_MIN {
            tracing::warn!(open = self.admission.open(), "no descriptors are left: connections are refused");
        }
        self.pause = Some(Box::pin(sleep(wait)));
    }
}

impl tokio_stream::Stream for AdmittedConnections {
    type Item = io::Result<Connection>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        loop {
            if let Some(pause) = &mut this.pause {
                ready!(pause.as_mut().poll(context));
                this.pause = None;
                this.reserve.refill();
            }
            match ready!(this.socket.listener.poll_accept(context)) {
                Ok((stream, _)) => {
                    this.reserve.reset_backoff();
                    if let Some(connection) = Connection::admit(&this.admission, stream) {
                        return Poll::Ready(Some(Ok(connection)));
                    }
                    this.consecutive_refusals += 1;
                    if this.consecutive_refusals >= CONSECUTIVE_REFUSALS_MAX {
                        // Who waits to be accepted goes on waiting in the kernel's order.
                        this.consecutive_refusals = 0;
                        this.pause = Some(Box::pin(sleep(REFUSAL_PAUSE)));
                    }
                }
                Err(error) if DescriptorReserve::is_shortage(&error) => this.refuse_for_shortage(context),
                // A client that has gone before it was accepted, or the like: the next one is as good. Nothing of this
                // kind lasts; should it, it may not take the processor.
                Err(error) => {
                    tracing::debug!(error = %error, "a connection could not be accepted");
                    this.pause = Some(Box::pin(sleep(this.reserve.next_backoff())));
                }
            }
        }
    }
}
