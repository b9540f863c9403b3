//! Sandboxes of a gateway that is gone: reached by their sockets, and ended.
//!
//! Speaks just enough of the control protocol to say so, without a runtime. It takes nothing over.

use std::{
    fs::File,
    io::{self, Read, Write},
    os::{fd::AsRawFd, unix::net::UnixStream},
    path::Path,
    time::Duration,
};

use super::control;
use crate::{
    proto::supervisor::{Hello, Shutdown, ToSupervisor, to_supervisor::Request},
    wire,
};

/// How long the sandboxes of a dead gateway may take to end.
const SWEEP_LIMIT: Duration = Duration::from_secs(5);

/// Asks a supervisor to end, and waits until it has: its socket closes with it.
pub fn end(folder: &Path) -> io::Result<()> {
    let opened = File::open(folder)?;
    let path = format!("/proc/self/fd/{}/control.sock", opened.as_raw_fd());
    let mut socket = UnixStream::connect(path)?;
    socket.set_read_timeout(Some(SWEEP_LIMIT))?;
    let hello = Hello { lowest_version: control::VERSIONS.0, highest_version: control::VERSIONS.1 };
    for (sequence, request) in [(1, Request::Hello(hello)), (2, Request::Shutdown(Shutdown { grace_ms: 0 }))]
    {
        let message = ToSupervisor { sequence, request: Some(request) };
        let frame = wire::encode(&message, 0).map_err(io::Error::other)?;
        socket.write_all(&frame)?;
    }
    let mut answers = [0; 4096];
    while socket.read(&mut answers)? > 0 {}
    Ok(())
}
