//! A connection to a gateway, over its unix socket; calls over an outage of the gateway; and what the front ends say alike.
//!
//! It starts nothing and keeps no state of sessions or terminals.

#![forbid(unsafe_code)]

mod advice;
mod denial;
mod end_lines;
mod ended;
mod front_end;
mod giving_stream;
mod new_terminal;
mod refusal;
mod retrying;
mod run_stream;
mod ssh_agent;
mod unreachable;

use std::{
    io,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    sync::Arc,
};

use giving_stream::GivingStream;
use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tonic::transport::{Channel, Endpoint, Uri};

use crate::proto::v1::{
    approvals_client::ApprovalsClient, audit_client::AuditClient, policies_client::PoliciesClient,
    screens_client::ScreensClient, sessions_client::SessionsClient, terminals_client::TerminalsClient,
};

pub use advice::{advice_when_denied, advice_when_not_started};
pub use denial::{denial_json, denial_line, denial_lines, hint_json, network_cause};
pub use end_lines::{end_lines, workspace_lines, workspace_shortfall_line};
pub use ended::{ended_json, ended_line};
pub use front_end::FrontEnd;
pub use new_terminal::{keep_umask, new_terminal, session_in_bytes, terminal_in_bytes};
pub use refusal::{
    bad_field_of, detail_of, details_of, message_with_field, message_with_rule, reason_of, reason_or_code_of,
};
pub use retrying::{Attempts, RetryingClient, is_unanswered, may_have_been_received};
pub use run_stream::RunStream;
pub use ssh_agent::ssh_agent_socket;
pub use unreachable::{offers_proxy, unreachable_json};

/// How much of one stream may be under way before the reader has taken it. Large, for bulk output.
const STREAM_WINDOW_BYTES: u32 = 4 << 20;
/// Of all streams of a connection together.
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
