//! Knows whether a program still waits, without reading what it has sent.

use std::time::Duration;

use tokio::{io::Interest, net::TcpStream, time::sleep};

/// How often it is looked: what a program has sent and nobody reads keeps its socket ready.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);

/// Resolves when the program has closed its connection, or its half of it. Never for one that is watched elsewhere.
pub(super) async fn gone(program: Option<&TcpStream>) {
    let Some(program) = program else { return std::future::pending().await };
    loop {
        match program.ready(Interest::READABLE).await {
            Ok(ready) if !ready.is_read_closed() => sleep(LOOK_INTERVAL).await,
            Ok(_) | Err(_) => return,
        }
    }
}
