//! What callers do with a command that runs: signal it, write to it, change the size of its pseudo-terminal, connect to a port on the
//! loopback of its sandbox.
//!
//! The supervisor is asked, and its answer returned. Its end is in `end`.

use std::{
    collections::HashMap,
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    os::fd::OwnedFd,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use bytes::Bytes;
use tokio::{
    net::{TcpSocket, TcpStream},
    time::timeout,
};
use ulid::Ulid;

use crate::{
    journal::{ForwardEndedRecord, ForwardRecord, Record},
    policy::PtySize,
    proto::supervisor::WriteStdin,
    sandbox::{
        SocketFamily,
        control::{handle::Sandbox, requests::RequestError},
    },
    session::Principal,
    terminal::{
        errors::{ForwardError, OperationError, TerminalReleased},
        recorder::Recorder,
        records,
        stage::Stage,
        state::Terminal,
    },
};

/// Whether more input may come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EndOfInput {
    /// Close stdin after this.
    AfterThis,
    /// More may come.
    NotYet,
}

impl Terminal {
    /// Sends a signal to the main process's group.
    pub(crate) async fn signal(&self, signal: i32) -> Result<(), OperationError> {
        let sandbox = self.running().await?;
        self.recorder.record_or_count(&records::signal_sent(self.subject(), signal));
        answered(sandbox.signal(self.id.to_string(), signal).await)
    }

    /// Writes to the command's stdin; how many bytes it took. Fewer than all: the command has closed it. With an offset, the data
    /// stands there of all the input: what was taken before is skipped.
    ///
    /// # Errors
    /// [`OperationError::LineRunning`]: while a line runs in a kept shell, the input is the line's.
    pub(crate) async fn write(
        &self,
        offset: Option<u64>,
        data: Bytes,
        end: EndOfInput,
    ) -> Result<u64, OperationError> {
        match &self.kept_shell {
            Some(shell) if !shell.admits_others() => Err(OperationError::LineRunning),
            Some(_) | None => self.write_stdin(offset, data, end).await,
        }
    }

    /// As [`Self::write`], whoever holds the input.
    pub(in crate::terminal) async fn write_stdin(
        &self,
        offset: Option<u64>,
        data: Bytes,
        end: EndOfInput,
    ) -> Result<u64, OperationError> {
        let sandbox = self.running().await?;
        let terminal_id = self.id.to_string();
        let request = WriteStdin { terminal_id, data, eof: end == EndOfInput::AfterThis, offset };
        let written = sandbox.write_stdin(request).await?;
        match written.errno {
            0 | libc::EPIPE => Ok(written.written),
            libc::EBADF => Err(OperationError::StdinClosed),
            libc::ENOENT => Err(OperationError::Ended),
            libc::EINVAL if offset.is_some() => Err(OperationError::InputGap),
            errno => Err(OperationError::Errno(errno)),
        }
    }

    /// Changes the size of a pseudo-terminal; its foreground process group gets SIGWINCH.
    pub(crate) async fn resize(&self, size: PtySize) -> Result<(), OperationError> {
        if self.pty_size().is_none() {
            return Err(OperationError::NoPty);
        }
        let sandbox = self.running().await?;
        answered(sandbox.resize(self.id.to_string(), size).await)?;
        self.pty.set(size);
        Ok(())
    }

    /// The sandbox of a command that runs.
    pub(in crate::terminal) async fn running(&self) -> Result<Arc<Sandbox>, OperationError> {
        match self.wait_settled().await {
            Stage::Finished(_) => Err(OperationError::Ended),
            Stage::Released(_) => Err(TerminalReleased.into()),
            Stage::Created | Stage::Running => {
                self.live().map(|live| live.sandbox.clone()).ok_or(OperationError::Released(TerminalReleased))
            }
        }
    }
}

/// What a supervisor has answered about a terminal that runs.
pub(in crate::terminal) fn answered<T>(answer: Result<T, RequestError>) -> Result<T, OperationError> {
    answer.map_err(|error| match error {
        RequestError::Errno(libc::ENOENT | libc::ESRCH) => OperationError::Ended,
        RequestError::Errno(libc::ENOTTY) => OperationError::NoPty,
        RequestError::Errno(errno) => OperationError::Errno(errno),
        RequestError::Control(error) => error.into(),
    })
}

/// Forwarded connections of one principal at once.
const CONNECTIONS_MAX: usize = 256;
/// How long a program inside may take to accept.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// The forwarded connections of a gateway.
#[derive(Debug, Default)]
pub(crate) struct Forwards {
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

    /// Connects to a port on the loopback of a terminal's sandbox, and to nothing else. The supervisor makes the socket, because a socket is
    /// of the network in which it was made, and the gateway connects it. It is in the journal before it is tried.
    ///
    /// # Errors
    /// [`ForwardError`].
    pub(crate) async fn connect(
        self: &Arc<Self>,
        terminal: &Terminal,
        port: u16,
    ) -> Result<Forwarded, ForwardError> {
        let sandbox = terminal.running().await?;
        let principal = terminal.session.principal;
        let place = self.take_place(principal)?;
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
        terminal.recorder.record_all_within_share(&[Record::Forward(record)]).await?;
        let mut traffic = Traffic {
            record: ended,
            began: Instant::now(),
            recorder: terminal.recorder.clone(),
            _place: place,
        };
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
}

/// An open connection to a port inside. Its end is in the journal.
#[derive(Debug)]
pub(crate) struct Forwarded {
    /// To the program inside.
    pub stream: TcpStream,
    /// What has gone through it.
    pub traffic: Traffic,
}

/// Counts what goes through a connection, and writes that down when it is dropped.
#[derive(Debug)]
pub(crate) struct Traffic {
    record: ForwardEndedRecord,
    began: Instant,
    recorder: Recorder,
    _place: Place,
}

impl Traffic {
    /// Bytes from the caller.
    pub(crate) fn sent(&mut self, bytes: usize) {
        self.record.sent_bytes += bytes as u64;
    }

    /// Bytes to the caller.
    pub(crate) fn received(&mut self, bytes: usize) {
        self.record.received_bytes += bytes as u64;
    }
}

impl Drop for Traffic {
    fn drop(&mut self) {
        self.record.duration_ms = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.recorder.record_or_count(&Record::ForwardEnded(self.record.clone()));
    }
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
