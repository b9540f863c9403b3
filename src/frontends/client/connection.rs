//! A connection to a gateway, over its unix socket. It starts nothing.
//!
//! Its first byte can bring a descriptor with it: what a command of this process is to read. A gateway that knows nothing of it receives
//! the byte alone.

use std::{
    io::{self, IoSlice},
    os::fd::{AsRawFd, OwnedFd},
    path::{Path, PathBuf},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use hyper_util::rt::TokioIo;
use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
use tokio::{
    io::{AsyncRead, AsyncWrite, Interest, ReadBuf},
    net::UnixStream,
};
use tonic::{
    Code, Status,
    transport::{Channel, Endpoint, Uri},
};

use crate::proto::v1::{
    CloseSessionRequest, approvals_client::ApprovalsClient, audit_client::AuditClient,
    policies_client::PoliciesClient, screens_client::ScreensClient, sessions_client::SessionsClient,
    terminals_client::TerminalsClient,
};

/// How much of one stream may be under way before the reader has taken it. Large, for bulk output.
const STREAM_WINDOW_BYTES: u32 = 4 << 20;
/// How much of all streams of a connection together may be under way.
const CONNECTION_WINDOW_BYTES: u32 = 16 << 20;
/// HTTP/2 frames of this size carry bulk output with few wake-ups.
const FRAME_BYTES: u32 = 256 << 10;
/// The largest message taken from a gateway: a whole retained output at the default ceiling, and a little.
const MESSAGE_BYTES: usize = (64 << 20) + (64 << 10);

/// A connection to a gateway.
#[derive(Debug, Clone)]
pub struct Client {
    /// The sessions service.
    pub sessions: SessionsClient<Channel>,
    /// The terminals service.
    pub terminals: TerminalsClient<Channel>,
    /// The audit service.
    pub audit: AuditClient<Channel>,
    /// The approvals service.
    pub approvals: ApprovalsClient<Channel>,
    /// The policies service.
    pub policies: PoliciesClient<Channel>,
    /// The screens service.
    pub screens: ScreensClient<Channel>,
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The address is not of the form `unix:PATH`.
    #[error("gateway address {0:?} is not of the form unix:PATH")]
    Address(String),
    /// Nothing listens there.
    #[error("cannot connect to the gateway at {}", crate::printable::path(path))]
    Socket {
        /// The socket.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// Something listens, and does not speak HTTP/2.
    #[error("no gateway answers at {}", crate::printable::path(path))]
    Handshake {
        /// The socket.
        path: PathBuf,
        /// Why.
        #[source]
        source: tonic::transport::Error,
    },
}

/// Connects to `unix:PATH`; when it returns, the gateway has answered.
pub async fn connect(uri: &str) -> Result<Client, ConnectError> {
    connect_giving(uri, None).await
}

/// As [`connect`]. Each connection brings this descriptor: what a command reads whose request says so
/// (`CreateTerminalRequest.stdin_given`).
pub async fn connect_giving(uri: &str, given: Option<Arc<OwnedFd>>) -> Result<Client, ConnectError> {
    let path = socket_path(uri)?;
    // The first connection is made here, so that a missing gateway has an exact error.
    let first =
        connect_socket(&path).await.map_err(|source| ConnectError::Socket { path: path.clone(), source })?;
    let first = Arc::new(std::sync::Mutex::new(Some(first)));
    let target = path.clone();
    let connector = tower::service_fn(move |_: Uri| {
        let ready = first.lock().ok().and_then(|mut first| first.take());
        let (target, given) = (target.clone(), given.clone());
        async move {
            let stream = match ready {
                Some(stream) => stream,
                None => connect_socket(&target).await?,
            };
            Ok::<_, io::Error>(TokioIo::new(GivingStream::new(stream, given)))
        }
    });
    // The authority only names the peer in HTTP/2; a unix socket has none.
    let channel = Endpoint::from_static("http://provost.local")
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_frame_size(FRAME_BYTES)
        .connect_with_connector(connector)
        .await
        .map_err(|source| ConnectError::Handshake { path, source })?;
    Ok(Client {
        sessions: SessionsClient::new(channel.clone()).max_decoding_message_size(MESSAGE_BYTES),
        terminals: TerminalsClient::new(channel.clone()).max_decoding_message_size(MESSAGE_BYTES),
        audit: AuditClient::new(channel.clone()).max_decoding_message_size(MESSAGE_BYTES),
        approvals: ApprovalsClient::new(channel.clone()).max_decoding_message_size(MESSAGE_BYTES),
        policies: PoliciesClient::new(channel.clone()).max_decoding_message_size(MESSAGE_BYTES),
        screens: ScreensClient::new(channel).max_decoding_message_size(MESSAGE_BYTES),
    })
}

impl Client {
    /// Closes a session, with all that runs in it. One that is closed already is no error.
    pub async fn close_session(&self, session_id: &str) -> Result<(), Status> {
        let request = CloseSessionRequest { session_id: session_id.to_owned() };
        unless_gone(self.sessions.clone().close_session(request).await)
    }
}

/// What is to be gone may be gone already.
pub(super) fn unless_gone<T>(ended: Result<T, Status>) -> Result<(), Status> {
    match ended {
        Ok(_) => Ok(()),
        Err(status) if status.code() == Code::NotFound => Ok(()),
        Err(status) => Err(status),
    }
}

fn socket_path(uri: &str) -> Result<PathBuf, ConnectError> {
    let path = uri.strip_prefix("unix://").or_else(|| uri.strip_prefix("unix:"));
    match path {
        Some(path) if !path.is_empty() => Ok(PathBuf::from(path)),
        _ => Err(ConnectError::Address(uri.to_owned())),
    }
}

/// By way of its directory's descriptor when the path is too long for an address (108 bytes, unix(7)).
async fn connect_socket(path: &Path) -> io::Result<UnixStream> {
    if path.as_os_str().len() < 108 {
        return UnixStream::connect(path).await;
    }
    let (Some(directory), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let directory = std::fs::File::open(directory)?;
    let by_descriptor = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&directory));
    UnixStream::connect(Path::new(&by_descriptor).join(name)).await
}

/// A connection that has something to give at its first write.
#[derive(Debug)]
struct GivingStream {
    stream: UnixStream,
    given: Option<Arc<OwnedFd>>,
}

impl GivingStream {
    pub(super) fn new(stream: UnixStream, given: Option<Arc<OwnedFd>>) -> Self {
        Self { stream, given }
    }

    fn poll_give(
        &mut self,
        context: &mut Context<'_>,
        bytes: &[u8],
        given: &OwnedFd,
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.stream.poll_write_ready(context))?;
            let sent = self.stream.try_io(Interest::WRITABLE, || {
                let descriptors = [given.as_raw_fd()];
                let message = [ControlMessage::ScmRights(&descriptors)];
                let parts = [IoSlice::new(bytes)];
                let socket = self.stream.as_raw_fd();
                Ok(sendmsg::<()>(socket, &parts, &message, MsgFlags::MSG_NOSIGNAL, None)?)
            });
            match sent {
                Ok(count) => {
                    self.given = None;
                    return Poll::Ready(Ok(count));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

impl AsyncRead for GivingStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for GivingStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.given.clone() {
            Some(given) if !bytes.is_empty() => self.poll_give(context, bytes, &given),
            Some(_) | None => Pin::new(&mut self.stream).poll_write(context, bytes),
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match (self.given.clone(), slices.iter().find(|slice| !slice.is_empty())) {
            (Some(given), Some(bytes)) => self.poll_give(context, bytes, &given),
            (Some(_) | None, _) => Pin::new(&mut self.stream).poll_write_vectored(context, slices),
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_names_a_unix_socket() {
        assert_eq!(socket_path("unix:/run/p.sock").unwrap(), PathBuf::from("/run/p.sock"));
        assert_eq!(socket_path("unix:///run/p.sock").unwrap(), PathBuf::from("/run/p.sock"));
        for bad in ["", "unix:", "http://localhost", "/run/p.sock"] {
            assert!(socket_path(bad).is_err(), "{bad}");
        }
    }
}
