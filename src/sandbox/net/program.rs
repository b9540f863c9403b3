//! Knows whether a program still waits, without reading what it has sent.

use std::time::Duration;

use nix::sys::stat::fstat;
use tokio::{
    io::Interest,
    net::{TcpStream, UnixStream},
    time::sleep,
};

/// How often it is looked: what a program has sent and nobody reads keeps its socket ready.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);

/// A program's end of a connection, as the gateway finds it by.
#[derive(Debug, Clone, Default)]
pub(super) struct ProgramEnd {
    /// The terminal that the program says it belongs to.
    pub(super) terminal_id: String,
    /// The program's address, and the listener's that it has come to; empty for a unix socket.
    pub(super) own: String,
    pub(super) listener: String,
    /// The inode of the end of a unix socket that was accepted; 0: it is not known.
    pub(super) socket_inode: u32,
}

impl ProgramEnd {
    /// Describes the program behind a TCP connection.
    pub(super) fn of_tcp(program: &TcpStream) -> Self {
        let text = |address: std::io::Result<std::net::SocketAddr>| {
            address.map(|address| address.to_string()).unwrap_or_default()
        };
        Self { own: text(program.peer_addr()), listener: text(program.local_addr()), ..Self::default() }
    }

    /// Describes the program behind a unix socket.
    pub(super) fn of_unix(program: &UnixStream) -> Self {
        let inode = fstat(program).ok().and_then(|found| u32::try_from(found.st_ino).ok());
        Self { socket_inode: inode.unwrap_or_default(), ..Self::default() }
    }

    /// As a terminal's, as the program says.
    pub(super) fn claiming(&self, terminal_id: String) -> Self {
        Self { terminal_id, ..self.clone() }
    }
}

/// The connection of a program that waits.
#[derive(Debug, Clone, Copy)]
pub(super) enum Waiting<'a> {
    /// To a listener of TCP.
    Tcp(&'a TcpStream),
    /// To a unix socket.
    Unix(&'a UnixStream),
    /// It is watched elsewhere.
    Elsewhere,
}

/// Resolves when the program has closed its connection, or its half of it. Never for one that is watched elsewhere.
pub(super) async fn gone(program: Waiting<'_>) {
    loop {
        let ready = match program {
            Waiting::Tcp(program) => program.ready(Interest::READABLE).await,
            Waiting::Unix(program) => program.ready(Interest::READABLE).await,
            Waiting::Elsewhere => return std::future::pending().await,
        };
        match ready {
            Ok(ready) if !ready.is_read_closed() => sleep(LOOK_INTERVAL).await,
            Ok(_) | Err(_) => return,
        }
    }
}
