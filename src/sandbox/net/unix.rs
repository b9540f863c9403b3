//! Connections of programs to a listener in the place of a unix socket of the host.
//!
//! They are judged by their path and carried as bytes. The host's socket is never inside: its peer is the gateway, with the caller's
//! identity, and descriptors that either side sends are dropped.

use std::sync::Arc;

use tokio::net::UnixStream;

use super::{
    connector::{Connector, attempt},
    idle,
    program::ProgramEnd,
};
use crate::{network::socket_path::SOCKET_PREFIX, proto::net::Protocol};

/// Serves one program. It has been accepted already: what is refused is closed.
pub(super) async fn serve(connector: Arc<Connector>, program: UnixStream, path: String) {
    let end = ProgramEnd::of_unix(&program);
    let asked = attempt(format!("{SOCKET_PREFIX}{path}").as_bytes(), 0, Protocol::Unix, &end);
    if let Ok(upstream) = connector.connect_socket(asked, &program).await {
        idle::copy(program, upstream).await;
    }
}
