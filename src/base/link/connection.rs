//! A connection of a tokio runtime.
//!
//! A message is written to the socket by the task that sends it, so that a question and its answer cost one wake-up each way.
//! Through a task that owned the socket each spawn would cost two more, of 20 to 50 µs on a busy machine. A message is written
//! whole or queued whole, under a lock that is never held across an await, so that a sender that goes away leaves no half of one.
//! What the socket does not take at once is written by [`Connection::keep_writing`], which must run meanwhile. One task at a time
//! receives, with [`Connection::next`]; where messages have numbers, it hands over answers with [`Connection::answered`].

use std::{
    collections::HashMap,
    io,
    marker::PhantomData,
    os::{
        fd::{AsFd as _, OwnedFd},
        unix::net::UnixStream,
    },
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use nix::errno::Errno;
use prost::Message;
use tokio::{
    io::{Interest, unix::AsyncFd},
    sync::{Notify, oneshot},
    time::sleep,
};

use super::{LinkError, Peer, Received};
use crate::{
    sys::{
        async_fd,
        fdpass::{Flushed, FrameReceiver, FrameSender, ReceiveStatus},
    },
    wire,
};

/// How long is waited for a descriptor by which a full socket is watched, where the process has none left, and for what the kernel needs to
/// send a message.
const DESCRIPTOR_INTERVAL: Duration = Duration::from_millis(10);

/// A connection over which `Out` is sent and `In` comes.
#[derive(Debug)]
pub struct Connection<Out, In> {
    peer: Peer,
    socket: AsyncFd<OwnedFd>,
    max_queued_bytes: usize,
    max_waiting: usize,
    outgoing: Mutex<Outgoing<In>>,
    /// What has come and was not taken.
    incoming: Mutex<FrameReceiver>,
    last_sequence: AtomicU64,
    /// Something waits to be written.
    blocked: Notify,
    /// Everything was written, or the connection has ended.
    drained: Notify,
    sends: PhantomData<fn(Out)>,
}

#[derive(Debug)]
struct Outgoing<In> {
    sender: FrameSender,
    /// Those who wait for the answers to requests, by the numbers of these.
    waiting: HashMap<u64, oneshot::Sender<Received<In>>>,
    has_ended: bool,
}

/// How far the queue was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Written {
    All,
    /// The socket takes no more for now.
    UntilFull,
    /// The kernel has no room for the next message for now.
    UntilScarce,
}

impl<Out: Message, In: Message + Default> Connection<Out, In> {
    /// Takes a socket over, and has it watched by the current runtime. When more than `max_queued_bytes` lie unread, before the last message,
    /// nothing more is sent.
    ///
    /// # Errors
    /// When it cannot be made non-blocking, or not be watched.
    pub fn new(peer: Peer, socket: UnixStream, max_queued_bytes: usize) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        Ok(Self {
            peer,
            // Not for writing: who is watched for that is woken whenever the peer reads.
            socket: async_fd::register(socket.into(), Interest::READABLE)?,
            max_queued_bytes,
            max_waiting: usize::MAX,
            outgoing: Mutex::new(Outgoing {
                sender: FrameSender::new(),
                waiting: HashMap::new(),
                has_ended: false,
            }),
            incoming: Mutex::default(),
            last_sequence: AtomicU64::new(0),
            blocked: Notify::new(),
            drained: Notify::new(),
            sends: PhantomData,
        })
    }

    /// Nothing more is sent, either, while so many requests wait for their answers.
    #[must_use]
    pub fn with_max_waiting(self, max_waiting: usize) -> Self {
        Self { max_waiting, ..self }
    }

    /// The number of the next request.
    pub fn next_sequence(&self) -> u64 {
        self.last_sequence.fetch_add(1, Relaxed) + 1
    }

    /// Sends a message. It is on its way, or queued, when this returns.
    ///
    /// # Errors
    /// [`LinkError::Lost`], [`LinkError::TimedOut`] for a peer that does not read, [`LinkError::TooLong`].
    pub fn send(&self, message: &Out, descriptors: &[Arc<OwnedFd>]) -> Result<Flushed, LinkError> {
        self.push(|| self.encode(message, descriptors), descriptors, None)
    }

    /// Sends a message without descriptors that was encoded before.
    ///
    /// # Errors
    /// As of [`Self::send`].
    pub fn send_encoded(&self, frame: &[u8]) -> Result<Flushed, LinkError> {
        self.push(|| Ok(frame.to_vec()), &[], None)
    }

    /// Sends a message with this number. What has the same number is its answer, which comes to the receiver; that fails when the connection
    /// ends. The caller may drop it.
    ///
    /// # Errors
    /// As of [`Self::send`].
    pub fn ask(
        &self,
        sequence: u64,
        message: &Out,
        descriptors: &[Arc<OwnedFd>],
    ) -> Result<oneshot::Receiver<Received<In>>, LinkError> {
        let (asker, answer) = oneshot::channel();
        self.push(|| self.encode(message, descriptors), descriptors, Some((sequence, asker)))?;
        Ok(answer)
    }

    fn encode(&self, message: &Out, descriptors: &[Arc<OwnedFd>]) -> Result<Vec<u8>, LinkError> {
        wire::encode(message, descriptors.len())
            .map_err(|error| LinkError::TooLong(self.peer, "a request", error))
    }

    fn push(
        &self,
        encode: impl FnOnce() -> Result<Vec<u8>, LinkError>,
        descriptors: &[Arc<OwnedFd>],
        asker: Option<(u64, oneshot::Sender<Received<In>>)>,
    ) -> Result<Flushed, LinkError> {
        let mut outgoing = self.outgoing();
        if outgoing.has_ended {
            return Err(LinkError::Lost(self.peer));
        }
        if outgoing.waiting.len() >= self.max_waiting {
            outgoing.waiting.retain(|_, asker| !asker.is_closed());
        }
        if outgoing.sender.queued_bytes() > self.max_queued_bytes
            || outgoing.waiting.len() >= self.max_waiting
        {
            return Err(LinkError::TimedOut(self.peer));
        }
        let frame = encode()?;
        outgoing.waiting.extend(asker);
        outgoing.sender.push(frame, descriptors.to_vec());
        match outgoing.sender.flush(self.socket.as_fd()) {
            Ok(Flushed::All) => Ok(Flushed::All),
            // Who writes meets the same error: it waits, or ends the connection.
            Ok(Flushed::Blocked) | Err(_) => {
                self.blocked.notify_one();
                Ok(Flushed::Blocked)
            }
        }
    }

    /// Waits until the socket has taken everything.
    ///
    /// # Errors
    /// [`LinkError::Lost`].
    pub async fn wait_drained(&self) -> Result<(), LinkError> {
        loop {
            let drained = self.drained.notified();
            if self.outgoing().has_ended {
                return Err(LinkError::Lost(self.peer));
            }
            match self.flush() {
                Ok(Written::All) => return Ok(()),
                Ok(Written::UntilFull | Written::UntilScarce) => self.blocked.notify_one(),
                Err(_) => return Err(LinkError::Lost(self.peer)),
            }
            drained.await;
        }
    }

    /// Writes what waits to be written, whenever the socket takes it. Ends with an error. Cancel-safe: the queue holds what is left.
    pub async fn keep_writing(&self) -> LinkError {
        loop {
            while self.outgoing().sender.queued_bytes() == 0 {
                self.blocked.notified().await;
                // Another sender may have written everything meanwhile: whoever waits for that looks again.
                self.drained.notify_waiters();
            }
            if self.write_queued().await.is_err() {
                return LinkError::Lost(self.peer);
            }
            self.drained.notify_waiters();
        }
    }

    async fn write_queued(&self) -> io::Result<()> {
        let another = self.socket.get_ref().try_clone();
        let watched = another.and_then(|another| Ok(async_fd::register(another, Interest::WRITABLE)?));
        let Ok(watched) = watched else {
            sleep(DESCRIPTOR_INTERVAL).await;
            return Ok(self.flush().map(drop)?);
        };
        loop {
            let mut ready = watched.writable().await?;
            match self.flush()? {
                Written::All => return Ok(()),
                Written::UntilFull => ready.clear_ready(),
                // No event says when there is room.
                Written::UntilScarce => sleep(DESCRIPTOR_INTERVAL).await,
            }
        }
    }

    fn flush(&self) -> Result<Written, Errno> {
        match self.outgoing().sender.flush(self.socket.as_fd()) {
            Ok(Flushed::All) => Ok(Written::All),
            Ok(Flushed::Blocked) => Ok(Written::UntilFull),
            // unix(7): too many descriptors of an ordinary user are on their way; sendmsg(2): the kernel has no memory for the message.
            Err(Errno::ETOOMANYREFS | Errno::ENOBUFS | Errno::ENOMEM) => Ok(Written::UntilScarce),
            Err(errno) => Err(errno),
        }
    }

    /// The next message; `None` when the peer has closed the connection. Cancel-safe: what has come in part is kept.
    ///
    /// # Errors
    /// [`LinkError::Receive`], [`LinkError::UnexpectedMessage`]; the connection cannot be used any more.
    pub async fn next(&self) -> Result<Option<Received<In>>, LinkError> {
        let failed = |error| LinkError::Receive(self.peer, error);
        loop {
            if let Some(frame) = self.incoming().next_frame().map_err(failed)? {
                let message = In::decode(frame.message.as_slice());
                let message = message.map_err(|_| LinkError::UnexpectedMessage(self.peer))?;
                return Ok(Some((message, frame.descriptors)));
            }
            let mut ready = self.socket.readable().await.map_err(|_| LinkError::Lost(self.peer))?;
            let received = self.incoming().fill(self.socket.as_fd()).map_err(failed)?;
            match received {
                ReceiveStatus::Bytes(_) => {}
                ReceiveStatus::Nothing => ready.clear_ready(),
                ReceiveStatus::End => return Ok(None),
            }
        }
    }

    /// Hands an answer to the one who waits for it, and drops it where nobody does any more.
    pub fn answered(&self, sequence: u64, answer: Received<In>) {
        let asker = self.outgoing().waiting.remove(&sequence);
        let _ = asker.map(|asker| asker.send(answer));
    }

    /// Nothing is sent any more, and nobody gets an answer.
    pub fn end(&self) {
        let mut outgoing = self.outgoing();
        outgoing.has_ended = true;
        outgoing.waiting.clear();
        drop(outgoing);
        self.drained.notify_waiters();
    }

    fn outgoing(&self) -> MutexGuard<'_, Outgoing<In>> {
        self.outgoing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn incoming(&self) -> MutexGuard<'_, FrameReceiver> {
        self.incoming.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Waker};

    use tokio::time::timeout;

    use super::*;
    use crate::proto::supervisor::{
        Done, FromSupervisor, Resume, ToSupervisor, WriteStdin, from_supervisor, to_supervisor::Request,
    };

    type Gateway = Connection<ToSupervisor, FromSupervisor>;
    type Supervisor = Connection<FromSupervisor, ToSupervisor>;

    fn pair(max_queued_bytes: usize) -> (Gateway, Supervisor) {
        let (one, other) = UnixStream::pair().unwrap();
        let one = Connection::new(Peer::Supervisor, one, max_queued_bytes).unwrap();
        (one, Connection::new(Peer::Gateway, other, max_queued_bytes).unwrap())
    }

    fn resume(sequence: u64) -> ToSupervisor {
        ToSupervisor { sequence, request: Some(Request::Resume(Resume { terminal_id: "t".into() })) }
    }

    /// More than a socket holds.
    fn long() -> ToSupervisor {
        let data = vec![7; 3 << 20].into();
        let write = WriteStdin { terminal_id: "t".into(), data, eof: false, offset: None };
        ToSupervisor { sequence: 0, request: Some(Request::WriteStdin(write)) }
    }

    #[tokio::test]
    async fn a_message_that_does_not_fit_is_written_when_the_peer_reads() {
        let (gateway, supervisor) = pair(1 << 20);
        assert_eq!(gateway.send(&long(), &[]).unwrap(), Flushed::Blocked);
        let refused = gateway.send(&resume(1), &[]).unwrap_err();
        assert!(matches!(refused, LinkError::TimedOut(Peer::Supervisor)), "{refused}");
        let send = async {
            gateway.wait_drained().await.unwrap();
            gateway.send(&resume(1), &[]).unwrap();
        };
        let receive = async {
            let first = supervisor.next().await.unwrap().unwrap().0;
            (first, supervisor.next().await.unwrap().unwrap().0)
        };
        let ((), (first, second)) = tokio::select! {
            done = async { tokio::join!(send, receive) } => done,
            ended = gateway.keep_writing() => panic!("{ended}"),
        };
        assert_eq!((first, second), (long(), resume(1)));
    }

    #[tokio::test]
    async fn a_send_that_fails_is_known_to_who_writes() {
        let (gateway, supervisor) = pair(1 << 20);
        let mut writes = std::pin::pin!(gateway.keep_writing());
        assert!(writes.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        drop(supervisor);
        // EPIPE.
        assert_eq!(gateway.send(&resume(1), &[]).unwrap(), Flushed::Blocked);
        let ended = timeout(Duration::from_secs(60), writes).await.unwrap();
        assert!(matches!(ended, LinkError::Lost(Peer::Supervisor)), "{ended}");
    }

    #[tokio::test]
    async fn what_another_sender_has_written_is_known_to_those_who_wait() {
        let (gateway, supervisor) = pair(1 << 20);
        assert_eq!(gateway.send(&long(), &[]).unwrap(), Flushed::Blocked);
        let mut waits = std::pin::pin!(gateway.wait_drained());
        let mut context = Context::from_waker(Waker::noop());
        assert!(waits.as_mut().poll(&mut context).is_pending());
        // Another sender's flushes, between which the peer reads.
        let mut receives = std::pin::pin!(supervisor.next());
        while gateway.flush().unwrap() == Written::UntilFull {
            let _ = receives.as_mut().poll(&mut context);
            tokio::task::yield_now().await;
        }
        tokio::select! {
            drained = timeout(Duration::from_secs(60), waits) => drained.unwrap().unwrap(),
            ended = gateway.keep_writing() => panic!("{ended}"),
        }
    }

    #[tokio::test]
    async fn answers_come_to_those_who_have_asked_and_end_with_the_connection() {
        let (gateway, supervisor) = pair(1 << 20);
        let ask = || {
            let sequence = gateway.next_sequence();
            (sequence, gateway.ask(sequence, &resume(sequence), &[]).unwrap())
        };
        let [(first, one), (second, other)] = [ask(), ask()];
        let done = from_supervisor::Message::Done(Done { errno: 1 });
        let null = Arc::new(OwnedFd::from(std::fs::File::open("/dev/null").unwrap()));
        let answer = FromSupervisor { sequence: second, message: Some(done) };
        supervisor.send(&answer, &[null]).unwrap();
        let (message, descriptors) = gateway.next().await.unwrap().unwrap();
        gateway.answered(message.sequence, (message, descriptors));
        let (message, descriptors) = other.await.unwrap();
        assert_eq!((message, descriptors.len()), (answer, 1));
        assert_eq!(supervisor.next().await.unwrap().unwrap().0, resume(first));
        drop(supervisor);
        let gone = gateway.next().await;
        assert!(gone.as_ref().is_err_and(LinkError::is_end) || gone.is_ok_and(|next| next.is_none()));
        gateway.end();
        assert!(one.await.is_err());
        assert!(matches!(gateway.send(&resume(3), &[]), Err(LinkError::Lost(_))));
    }

    #[tokio::test]
    async fn those_who_have_given_up_do_not_count_among_those_who_wait() {
        let (gateway, _supervisor) = pair(1 << 20);
        let gateway = gateway.with_max_waiting(1);
        let waits = gateway.ask(1, &resume(1), &[]).unwrap();
        assert!(matches!(gateway.ask(2, &resume(2), &[]), Err(LinkError::TimedOut(_))));
        drop(waits);
        assert!(gateway.ask(3, &resume(3), &[]).is_ok());
    }
}
