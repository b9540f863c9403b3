//! A connection: the credentials of its user, its slot in the user's share, how fast it is read, and the processor time that it takes.
//!
//! It is not read while the frames of its user cost more than allowed; the full socket buffer then slows the client down. Before a read it
//! waits once, and not for long, for what its user owes of processor time. It is read in small pieces, because all that a read has brought
//! is worked off in one go. A connection that does not start with HTTP/2 in time is closed.
//!
//! With its first byte it may bring a descriptor that a command of its caller is to read (docs/internals/decisions/0470). It is kept if it
//! can only be read and to close it never waits; no other one is kept, and what comes later is closed by the kernel.
//!
//! The HTTP/2 library gives no hook around its work (frames read, written, taken apart and put together), but all of it happens between one
//! read or write of the connection and the next. A read or write that must wait ends the connection's turn on its thread: what the thread
//! does after it is not counted. The costs of frames are added up from the nine bytes of their headers (RFC 9113, 4.1). The library handles
//! the frames, and closes a connection that does not speak HTTP/2.
//!
//! A client whose connection is closed before anything was read from it is sent a GOAWAY frame with the reason, once and without blocking.
//! If it cannot receive that, the connection is closed without a reason.

use std::{
    io,
    os::fd::{AsFd, AsRawFd, OwnedFd},
    pin::Pin,
    sync::{
        Arc,
        atomic::Ordering::{AcqRel, Acquire},
    },
    task::{Context, Poll, ready},
    thread::{self, ThreadId},
    time::Duration,
};

use nix::{
    fcntl::{FcntlArg, OFlag, SealFlag, fcntl},
    sys::socket::{MsgFlags, send},
};
use tokio::{
    io::{AsyncRead, AsyncWrite, Interest, ReadBuf},
    net::UnixStream,
    time::{Sleep, sleep},
};
use tonic::transport::server::Connected;

use super::shares::{Admission, ConnectionRefusal, ConnectionSlot};
use crate::{
    session::{GivenInput, Peer, Principal},
    sys::{fdpass, own_process::thread_cpu_time},
};

/// A client must have begun with HTTP/2 in this time.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// The most that one read brings: some 40 requests in their shortest form.
const READ_BYTES: usize = 4 << 10;

/// Descriptors of one user that were not kept and wait to be closed, each in a thread of its own: a file system may take as long as it
/// likes. With so many, none is received.
const CLOSING_MAX: usize = 4;

/// An accepted connection.
#[derive(Debug)]
pub(in super::super) struct Connection {
    stream: UnixStream,
    peer: Peer,
    slot: ConnectionSlot,
    frames: FrameMeter,
    clock: ConnectionClock,
    /// Until it has begun.
    handshake: Option<Pin<Box<Sleep>>>,
    /// While its user must wait.
    pause: Option<Pin<Box<Sleep>>>,
    /// Whether the next read has waited for the user's debt: a user who is always in debt is read all the same.
    has_waited: bool,
    /// Whether anything was read.
    is_begun: bool,
    given_input: Arc<GivenInput>,
}

impl Connection {
    /// Takes a place for it. `None`: it is refused, counted and closed.
    pub(in super::super) fn admit(admission: &Arc<Admission>, stream: UnixStream) -> Option<Self> {
        let refusals = &admission.counters.connections;
        let unknown = |error: io::Error| {
            // Nobody is served who is not known.
            tracing::debug!(error = %error, "connection refused: caller unknown");
            refusals.inc(ConnectionRefusal::Unknown);
        };
        let principal = Principal::of(&stream).map_err(unknown).ok()?;
        // Before anything is opened for it: a refusal is cheap.
        let place = match admission.admit(principal) {
            Ok(place) => place,
            Err(refusal) => {
                refusals.inc(refusal);
                let message = match refusal {
                    ConnectionRefusal::Rate => "connections are made too fast",
                    _ => "too many connections are open",
                };
                send_goaway(&stream, &format!("{principal}: {message}"));
                return None;
            }
        };
        let given_input = Arc::default();
        let peer = Peer::of(&stream, &given_input).map_err(unknown).ok()?;
        let handshake = Some(Box::pin(sleep(HANDSHAKE_TIMEOUT)));
        let (frames, clock) = (FrameMeter::default(), ConnectionClock::default());
        Some(Self {
            stream,
            peer,
            slot: place,
            frames,
            clock,
            handshake,
            pause: None,
            has_waited: false,
            is_begun: false,
            given_input,
        })
    }

    /// The first read, which may bring a descriptor.
    fn poll_read_first(
        &mut self,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.slot.share.closing.load(Acquire) >= CLOSING_MAX {
            return Pin::new(&mut self.stream).poll_read(context, buffer);
        }
        loop {
            ready!(self.stream.poll_read_ready(context))?;
            let received = self.stream.try_io(Interest::READABLE, || {
                fdpass::receive_bytes(self.stream.as_fd(), buffer.initialize_unfilled())
                    .map_err(io::Error::from)
            });
            match received {
                Ok((count, descriptors)) => {
                    buffer.advance(count);
                    descriptors.into_iter().for_each(|descriptor| self.keep_or_close(descriptor));
                    return Poll::Ready(Ok(()));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }

    fn keep_or_close(&self, descriptor: OwnedFd) {
        let refused = match is_command_input(&descriptor) {
            true => self.given_input.set(Arc::new(descriptor)).err(),
            false => {
                self.close_elsewhere(descriptor);
                None
            }
        };
        // A second one, to close which waits no more than for the first.
        drop(refused);
    }

    /// Closes what may be a file of a file system that does not answer.
    fn close_elsewhere(&self, descriptor: OwnedFd) {
        let share = self.slot.share.clone();
        share.closing.fetch_add(1, AcqRel);
        let closing = std::thread::Builder::new().name("close".to_owned()).spawn(move || {
            drop(descriptor);
            share.closing.fetch_sub(1, AcqRel);
        });
        if let Err(error) = closing {
            // What the thread was given is closed by now.
            self.slot.share.closing.fetch_sub(1, AcqRel);
            tracing::debug!(error = %error, "no thread to close a descriptor in");
        }
    }

    /// Whether it may be read now.
    fn poll_read_allowed(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.pause.is_none()
            && !self.has_waited
            && let Some(debt) = self.slot.share.scheduler.debt()
        {
            self.has_waited = true;
            self.pause = Some(Box::pin(sleep(debt)));
        }
        if let Some(pause) = &mut self.pause {
            ready!(pause.as_mut().poll(context));
            self.pause = None;
        }
        if let Some(limit) = &mut self.handshake
            && limit.as_mut().poll(context).is_ready()
        {
            self.slot.admission.counters.connections.inc(ConnectionRefusal::Handshake);
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        Poll::Ready(Ok(()))
    }

    /// Whether this turn of the connection goes on. If not, it has another one after those that are ready now.
    fn poll_turn(&self, context: &Context<'_>) -> Poll<()> {
        if self.clock.is_over() {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(())
    }

    /// One read or write, which is paid for with what the connection has done since the one before.
    fn poll_timed<T>(
        &mut self,
        context: &mut Context<'_>,
        poll: impl FnOnce(&mut Self, &mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        let spent = self.clock.lap();
        if !spent.is_zero() {
            self.slot.share.scheduler.charge(spent);
        }
        let polled = poll(self, context);
        if polled.is_pending() {
            self.clock.end_turn();
        }
        polled
    }

    fn charge(&mut self, bytes: &[u8]) {
        let units = self.frames.count(bytes);
        if self.frames.has_begun() {
            self.handshake = None;
        }
        if let Some(debt) = self.slot.share.charge_frames(units) {
            self.slot.admission.counters.throttled.inc();
            self.pause = Some(Box::pin(sleep(debt)));
        }
    }
}

/// Whether a command may have it as its stdin: a pipe, or a memory file that nobody can change, opened for reading and nothing else. What
/// could be written to would bypass the rings, the masking and the journal.
fn is_command_input(descriptor: &OwnedFd) -> bool {
    let flags = |asked| fcntl(descriptor, asked);
    let is_read_only = flags(FcntlArg::F_GETFL).is_ok_and(|flags| {
        let flags = OFlag::from_bits_retain(flags);
        flags & OFlag::O_ACCMODE == OFlag::O_RDONLY && !flags.contains(OFlag::O_PATH)
    });
    let sealed = SealFlag::F_SEAL_WRITE | SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_SHRINK;
    let is_sealed =
        || flags(FcntlArg::F_GET_SEALS).is_ok_and(|seals| SealFlag::from_bits_retain(seals).contains(sealed));
    is_read_only && (flags(FcntlArg::F_GETPIPE_SZ).is_ok() || is_sealed())
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
        self.poll_timed(context, |this, context| {
            ready!(this.poll_read_allowed(context))?;
            ready!(this.poll_turn(context));
            let most = buffer.remaining().min(READ_BYTES);
            let mut part = ReadBuf::new(buffer.initialize_unfilled_to(most));
            match this.is_begun {
                true => ready!(Pin::new(&mut this.stream).poll_read(context, &mut part))?,
                false => ready!(this.poll_read_first(context, &mut part))?,
            }
            this.is_begun = true;
            this.has_waited = false;
            this.charge(part.filled());
            let count = part.filled().len();
            buffer.advance(count);
            Poll::Ready(Ok(()))
        })
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_timed(context, |this, context| {
            ready!(this.poll_turn(context));
            Pin::new(&mut this.stream).poll_write(context, bytes)
        })
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_timed(context, |this, context| {
            ready!(this.poll_turn(context));
            Pin::new(&mut this.stream).poll_write_vectored(context, slices)
        })
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

/// After so much of it in one turn a connection lets others have theirs.
const TURN: Duration = Duration::from_micros(100);

/// The clock of one connection.
#[derive(Debug, Default)]
pub(super) struct ConnectionClock {
    /// The thread's time at the last read or write of this turn.
    last: Option<(ThreadId, Duration)>,
    /// Spent in this turn.
    turn: Duration,
}

impl ConnectionClock {
    /// A read or write begins: the time since the one before it in the same turn.
    pub(super) fn lap(&mut self) -> Duration {
        self.lap_at(thread::current().id(), thread_cpu_time())
    }

    /// The turn ends here.
    pub(super) fn end_turn(&mut self) {
        *self = Self::default();
    }

    /// Whether this turn has been long enough.
    pub(super) fn is_over(&self) -> bool {
        self.turn >= TURN
    }

    fn lap_at(&mut self, thread: ThreadId, now: Duration) -> Duration {
        let before = self.last.replace((thread, now));
        let spent = match before {
            Some((same, then)) if same == thread => now.saturating_sub(then),
            // Moved to another thread: its turn had ended, and nothing was seen of that.
            Some(_) => {
                self.turn = Duration::ZERO;
                Duration::ZERO
            }
            None => Duration::ZERO,
        };
        self.turn += spent;
        spent
    }
}

/// The bytes that a client's connection begins with (RFC 9113, 3.4).
const PREFACE_BYTES: usize = 24;
const HEAD_BYTES: usize = 9;
/// A DATA frame shorter than this, which does not end its stream, costs more.
const SMALL_BYTES: u32 = 64;

/// Where in the bytes of a connection a reader is.
#[derive(Debug, Default)]
pub(super) struct FrameMeter {
    preface: usize,
    head: [u8; HEAD_BYTES],
    head_len: usize,
    payload_left: usize,
    begun: bool,
}

impl FrameMeter {
    /// Whether the preface and the head of a first frame have come.
    pub(super) fn has_begun(&self) -> bool {
        self.begun
    }

    /// Goes over bytes that have arrived, and returns what the frames that begin in them cost.
    pub(super) fn count(&mut self, mut bytes: &[u8]) -> u32 {
        let mut units = 0_u32;
        let preface = bytes.len().min(PREFACE_BYTES - self.preface);
        self.preface += preface;
        bytes = &bytes[preface..];
        while !bytes.is_empty() {
            let payload = bytes.len().min(self.payload_left);
            self.payload_left -= payload;
            bytes = &bytes[payload..];
            let head = bytes.len().min(HEAD_BYTES - self.head_len);
            if self.payload_left > 0 || head == 0 {
                continue;
            }
            self.head[self.head_len..self.head_len + head].copy_from_slice(&bytes[..head]);
            self.head_len += head;
            bytes = &bytes[head..];
            if self.head_len == HEAD_BYTES {
                let [high, mid, low, kind, flags, ..] = self.head;
                let length = u32::from_be_bytes([0, high, mid, low]);
                units = units.saturating_add(cost(kind, flags, length));
                self.payload_left = length as usize;
                self.head_len = 0;
                self.begun = true;
            }
        }
        units
    }
}

/// What a frame costs, about in the time that it takes to handle it. Frames that callers need few of cost more than
/// their time.
fn cost(kind: u8, flags: u8, length: u32) -> u32 {
    const END_STREAM: u8 = 1;
    match kind {
        // DATA, and crumbs of it.
        0 if length < SMALL_BYTES && flags & END_STREAM == 0 => 12,
        0 => 1,
        // HEADERS: a call.
        1 => 8,
        // PRIORITY, PING.
        2 | 6 => 5,
        // WINDOW_UPDATE: one for each few pieces of output that a client takes.
        8 => 1,
        // CONTINUATION.
        9 => 5,
        // RST_STREAM, SETTINGS, PUSH_PROMISE, GOAWAY, unknown ones.
        _ => 20,
    }
}

/// ENHANCE_YOUR_CALM (RFC 9113, 7).
const ENHANCE_YOUR_CALM: u32 = 0xb;

/// Sends a server's preface and a GOAWAY with this message.
pub(super) fn send_goaway(socket: &impl AsFd, message: &str) {
    // A client that has gone already is closed as well.
    let _ =
        send(socket.as_fd().as_raw_fd(), &frames(message), MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL);
}

fn frames(message: &str) -> Vec<u8> {
    const SETTINGS: [u8; 9] = [0, 0, 0, 4, 0, 0, 0, 0, 0];
    let length = u32::try_from(8 + message.len()).unwrap_or(u32::MAX).to_be_bytes();
    let mut bytes = SETTINGS.to_vec();
    bytes.extend([length[1], length[2], length[3], 7, 0, 0, 0, 0, 0]);
    bytes.extend(0_u32.to_be_bytes());
    bytes.extend(ENHANCE_YOUR_CALM.to_be_bytes());
    bytes.extend(message.as_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        time::timeout,
    };

    use super::*;

    #[tokio::test]
    async fn a_user_that_is_always_in_debt_waits_before_each_read_and_is_read_all_the_same() {
        let (mut client, server) = UnixStream::pair().unwrap();
        let admission = Admission::new(u32::MAX, 1 << 20);
        let mut connection = Connection::admit(&admission, server).unwrap();
        client.write_all(&vec![0; 2 * READ_BYTES]).await.unwrap();
        let scheduler = connection.slot.share.scheduler.clone();
        scheduler.charge(Duration::from_secs(1));
        let debt = scheduler.debt().unwrap();
        let owing = tokio::spawn(async move {
            loop {
                scheduler.charge(Duration::from_secs(1));
                sleep(Duration::from_millis(1)).await;
            }
        });
        let (begun, mut bytes) = (Instant::now(), vec![0; 3 * READ_BYTES]);
        for _ in 0..2 {
            let count = timeout(Duration::from_secs(60), connection.read(&mut bytes)).await.unwrap().unwrap();
            assert_eq!(count, READ_BYTES, "so much at a time");
        }
        assert!(begun.elapsed() >= debt, "it has waited for {debt:?}, more than once");
        owing.abort();
    }

    #[test]
    fn only_what_one_thread_does_within_a_turn_is_counted() {
        let (mut clock, here) = (ConnectionClock::default(), thread::current().id());
        let elsewhere = thread::spawn(|| thread::current().id()).join().unwrap();
        let at = Duration::from_micros;
        assert_eq!(clock.lap_at(here, at(1_000)), Duration::ZERO, "nothing is known of before");
        assert_eq!(clock.lap_at(here, at(1_060)), at(60));
        assert!(!clock.is_over());
        assert_eq!(clock.lap_at(here, at(1_100)), at(40));
        assert!(clock.is_over());
        clock.end_turn();
        assert_eq!(clock.lap_at(here, at(9_000)), Duration::ZERO, "others had the thread meanwhile");
        assert_eq!(clock.lap_at(here, at(9_100)), at(100));
        assert_eq!(clock.lap_at(elsewhere, at(50)), Duration::ZERO, "another thread has another clock");
        assert_eq!(clock.lap_at(elsewhere, at(60)), at(10));
    }

    fn frame(kind: u8, flags: u8, payload: usize) -> Vec<u8> {
        let length = u32::try_from(payload).unwrap().to_be_bytes();
        let mut bytes = vec![length[1], length[2], length[3], kind, flags, 0, 0, 0, 1];
        bytes.resize(HEAD_BYTES + payload, 0x55);
        bytes
    }

    #[test]
    fn frames_are_counted_alike_however_their_bytes_arrive() {
        let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
        for one in [frame(4, 0, 18), frame(1, 4, 300), frame(0, 0, 1), frame(0, 1, 0), frame(6, 0, 8)] {
            bytes.extend(one);
        }
        let expected = 20 + 8 + 12 + 1 + 5;
        for piece in [1, 2, 7, 24, 33, 1_000] {
            let mut frames = FrameMeter::default();
            let units: u32 = bytes.chunks(piece).map(|chunk| frames.count(chunk)).sum();
            assert_eq!(units, expected, "in pieces of {piece}");
            assert!(frames.has_begun());
        }
    }

    #[test]
    fn a_connection_has_not_begun_before_the_head_of_its_first_frame() {
        let mut frames = FrameMeter::default();
        frames.count(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
        frames.count(&frame(4, 0, 0)[..8]);
        assert!(!frames.has_begun());
    }
}
