//! A connection: the credentials of its user, its slot in the user's share, how fast it is read, and the processor time that it
//! takes.
//!
//! It is not read while the frames of its user cost more than allowed; the full socket buffer then slows the client
//! down. Before a read it waits once, and not for long, for what its user owes of processor time. It is read in small pieces, because
//! all that a read has brought is worked off in one go. A connection that does not start with HTTP/2 in time is closed.

use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
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
use crate::session::{Peer, Principal};

/// A client must have begun with HTTP/2 in this time.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// The most that one read brings: some 40 requests in their shortest form.
const READ_BYTES: usize = 4 << 10;

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
        let peer = Peer::of(&stream).map_err(unknown).ok()?;
        let handshake = Some(Box::pin(sleep(HANDSHAKE_TIMEOUT)));
        let (frames, clock) = (FrameMeter::default(), ConnectionClock::default());
        Some(Self { stream, peer, slot: place, frames, clock, handshake, pause: None, has_waited: false })
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
            ready!(Pin::new(&mut this.stream).poll_read(context, &mut part))?;
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
