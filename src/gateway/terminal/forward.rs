//! Connects a caller to a port on the loopback of a terminal's sandbox.
//!
//! The supervisor makes the socket, because a socket is of the network in which it was made, and the gateway connects it: to the loopback
//! and to nothing else. It is in the journal before it is tried.

use std::{
    collections::HashMap,
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    os::fd::OwnedFd,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use tokio::{
    net::{TcpSocket, TcpStream},
    time::timeout,
};
use ulid::Ulid;

use crate::{
    journal::{ForwardEndedRecord, ForwardRecord, Record},
    sandbox::{SocketFamily, handle::Sandbox},
    session::Principal,
    terminal::{audit::recorder::Recorder, control, errors::ForwardError, state::terminal::Terminal},
};

/// Forwarded connections of one principal at once.
const CONNECTIONS_MAX: usize = 256;
/// How long a program inside may take to accept.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// The forwarded connections of a gateway.
#[derive(Debug, Default)]
pub(in crate::terminal) struct Forwards {
    open: Mutex<HashMap<Principal, usize>>,
}

/// A place of a principal's.
#[derive(Debug)]
struct Place {
    forwards: Arc<Forwards>,
    principal: Principal,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut open = self.forwards.lock();
        if let Some(count) = open.get_mut(&self.principal) {
            *count -= 1;
            if *count == 0 {
                open.remove(&self.principal);
            }
        }
    }
}

impl Forwards {
    fn lock(&self) -> MutexGuard<'_, HashMap<Principal, usize>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take_place(self: &Arc<Self>, principal: Principal) -> Result<Place, ForwardError> {
        let mut open = self.lock();
        let count = open.entry(principal).or_default();
        if *count >= CONNECTIONS_MAX {
            return Err(ForwardError::TooMany(CONNECTIONS_MAX));
        }
        *count += 1;
        Ok(Place { forwards: self.clone(), principal })
    }
}

/// An open connection to a port inside. Its end is in the journal.
#[derive(Debug)]
pub struct Forwarded {
    /// To the program inside.
    pub stream: TcpStream,
    /// What has gone through it.
    pub traffic: Traffic,
}

/// Counts what goes through a connection, and writes that down when it is dropped.
#[derive(Debug)]
pub struct Traffic {
    record: ForwardEndedRecord,
    began: Instant,
    recorder: Recorder,
    _place: Place,
}

impl Traffic {
    /// Bytes from the caller.
    pub fn sent(&mut self, bytes: usize) {
        self.record.sent_bytes += bytes as u64;
    }

    /// Bytes to the caller.
    pub fn received(&mut self, bytes: usize) {
        self.record.received_bytes += bytes as u64;
    }
}

impl Drop for Traffic {
    fn drop(&mut self) {
        self.record.duration_ms = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.recorder.record_or_count(&Record::ForwardEnded(self.record.clone()));
    }
}

/// Connects to a port of the sandbox's loopback.
pub(in crate::terminal) async fn connect(
    forwards: &Arc<Forwards>,
    recorder: &Recorder,
    terminal: &Terminal,
    port: u16,
) -> Result<Forwarded, ForwardError> {
    let sandbox = control::running(terminal).await?;
    let principal = terminal.session.principal;
    let place = forwards.take_place(principal)?;
    let connection = Ulid::generate().to_string();
    let record = ForwardRecord {
        session: terminal.session.id.to_string(),
        principal: principal.to_string(),
        terminal: terminal.id.to_string(),
        port,
        connection: connection.clone(),
    };
    let ended = ForwardEndedRecord {
        session: record.session.clone(),
        principal: record.principal.clone(),
        terminal: record.terminal.clone(),
        port,
        connection,
        sent_bytes: 0,
        received_bytes: 0,
        duration_ms: 0,
        failure: String::new(),
    };
    recorder.record_all_within_share(&[Record::Forward(record)]).await?;
    let mut traffic =
        Traffic { record: ended, began: Instant::now(), recorder: recorder.clone(), _place: place };
    let loopbacks: [(SocketFamily, IpAddr); 2] = [
        (SocketFamily::Ipv4, Ipv4Addr::LOCALHOST.into()),
        // Where a development server listens that was told "localhost".
        (SocketFamily::Ipv6, Ipv6Addr::LOCALHOST.into()),
    ];
    let mut failure = io::Error::from(io::ErrorKind::ConnectionRefused);
    for (family, address) in loopbacks {
        match dial(&sandbox, family, SocketAddr::new(address, port)).await {
            Ok(Some(stream)) => return Ok(Forwarded { stream, traffic }),
            Ok(None) => {
                "no socket".clone_into(&mut traffic.record.failure);
                return Err(ForwardError::Unavailable);
            }
            Err(error) => failure = error,
        }
    }
    traffic.record.failure = failure.to_string();
    Err(ForwardError::Closed { port, cause: failure })
}

/// `None`: the sandbox makes no sockets.
async fn dial(sandbox: &Sandbox, family: SocketFamily, to: SocketAddr) -> io::Result<Option<TcpStream>> {
    let sockets = sandbox.make_sockets(1, family).await;
    let Some(socket) = sockets.and_then(|mut sockets| sockets.pop()) else { return Ok(None) };
    let stream = timeout(CONNECT_TIMEOUT, unbound(socket).connect(to)).await.map_err(io::Error::from)??;
    let _ = stream.set_nodelay(true);
    Ok(Some(stream))
}

fn unbound(socket: OwnedFd) -> TcpSocket {
    TcpSocket::from_std_stream(socket.into())
}
