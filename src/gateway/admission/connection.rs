//! A connection: the credentials of its user, its slot in the user's share, how fast it is read, and the processor time that it
//! takes.
//!
//! It is not read while the frames of its user cost more than allowed; the full socket buffer then slows the client
//! down. Before a read it waits once, and not for long, for what its user owes of processor time. It is read in small pieces, because
//! all that a read has brought is worked off in one go. A connection that does not start with HTTP/2 in time is closed.
//!
//! With its first byte it may bring a descriptor that a command of its caller is to read (docs/internals/decisions/0470). It is kept if it can only be
//! read and to close it never waits; no other one is kept, and what comes later is closed by the kernel.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    pin::Pin,
    sync::{
        Arc,
        atomic::Ordering::{AcqRel, Acquire},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use nix::fcntl::{FcntlArg, OFlag, SealFlag, fcntl};
use tokio::{
    io::{AsyncRead, AsyncWrite, Interest, ReadBuf},
    net::UnixStream,
    time::{Sleep, sleep},
};
use tonic::transport::server::Connected;

use super::{
    connection_clock::ConnectionClock,
    frames::FrameMeter,
    goaway::send_goaway,
    shares::{Admission, ConnectionRefusal, ConnectionSlot},
};
use crate::{
    session::{GivenInput, Peer, Principal},
    sys::fdpass,
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
}
