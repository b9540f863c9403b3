//! The socket to the gateway: questions with numbers, and their verdicts.

use std::{
    collections::HashMap,
    io,
    os::{fd::OwnedFd, unix::net::UnixStream},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use prost::Message as _;
use tokio::{
    sync::{mpsc, oneshot},
    time::timeout,
};

use super::limits::VERDICT_TIMEOUT;
use crate::{
    proto::net::{
        Attempt, Ended, FromNet, Question, Ready, ToNet, Verdict, from_net::Message, question::About, to_net,
        verdict,
    },
    sys::{fdpass::FrameReceiver, frame_stream::FrameStream},
    wire::{self, net::MAX_CONNECTIONS},
};

/// Messages that wait to be written: each connection has one question and one end at most.
const MAX_QUEUED_MESSAGES: usize = 2 * MAX_CONNECTIONS;

/// A verdict, and the sockets that came with it.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) verdict: verdict::Verdict,
    pub(super) sockets: Vec<OwnedFd>,
}

/// The gateway has not answered, or is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the gateway does not answer")]
pub(super) struct NoVerdict;

/// The questions that wait for a verdict.
#[derive(Debug)]
pub(super) struct GatewayLink {
    outgoing: mpsc::Sender<Message>,
    pending: Mutex<HashMap<u64, oneshot::Sender<Answer>>>,
    last_number: AtomicU64,
}

impl GatewayLink {
    /// Starts to write. Says that the process is ready.
    pub(super) fn start(socket: UnixStream, ready: Ready) -> io::Result<(Arc<Self>, Verdicts)> {
        let stream = Arc::new(FrameStream::new(socket)?);
        let outgoing = stream.clone();
        let (sender, mut messages) = mpsc::channel(MAX_QUEUED_MESSAGES);
        tokio::spawn(async move {
            while let Some(message) = messages.recv().await {
                let Ok(frame) = wire::encode(&FromNet { message: Some(message) }, 0) else { continue };
                // The reader sees the same end.
                if outgoing.send(frame, Vec::new()).await.is_err() {
                    return;
                }
            }
        });
        let link =
            Arc::new(Self { outgoing: sender, pending: Mutex::default(), last_number: AtomicU64::new(0) });
        // The channel is empty.
        let _ = link.outgoing.try_send(Message::Ready(ready));
        Ok((link.clone(), Verdicts { link, stream }))
    }

    /// Asks the gateway.
    pub(super) async fn ask(&self, attempt: &Attempt, about: About) -> Result<Answer, NoVerdict> {
        let number = self.last_number.fetch_add(1, Relaxed) + 1;
        let (sender, receiver) = oneshot::channel();
        self.lock().insert(number, sender);
        let forget = ForgetOnDrop { link: self, number };
        let question = Question { number, attempt: Some(attempt.clone()), about: Some(about) };
        self.outgoing.send(Message::Question(question)).await.map_err(|_| NoVerdict)?;
        let verdict = timeout(VERDICT_TIMEOUT, receiver).await;
        drop(forget);
        verdict.map_err(|_| NoVerdict)?.map_err(|_| NoVerdict)
    }

    /// Reports the end of a connection that was allowed. Called where nothing can wait; there is room for the ends of all.
    pub(super) fn report(&self, ended: Ended) {
        let _ = self.outgoing.try_send(Message::Ended(ended));
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, oneshot::Sender<Answer>>> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A question whose asker is gone has no place in the table.
struct ForgetOnDrop<'a> {
    link: &'a GatewayLink,
    number: u64,
}

impl Drop for ForgetOnDrop<'_> {
    fn drop(&mut self) {
        self.link.lock().remove(&self.number);
    }
}

/// The gateway's half of the socket.
pub(super) struct Verdicts {
    link: Arc<GatewayLink>,
    stream: Arc<FrameStream>,
}

impl Verdicts {
    /// Passes verdicts on. Returns when the gateway has closed the socket, or says what cannot be understood.
    pub(super) async fn receive(self) {
        let mut receiver = FrameReceiver::new();
        while let Ok(Some(frame)) = self.stream.receive(&mut receiver).await {
            let Ok(ToNet {
                message: Some(to_net::Message::Verdict(Verdict { number, verdict: Some(verdict) })),
            }) = ToNet::decode(&frame.message[..])
            else {
                return;
            };
            let asker = self.link.lock().remove(&number);
            if let Some(asker) = asker {
                // The asker may have given up.
                let _ = asker.send(Answer { verdict, sockets: frame.descriptors });
            }
        }
    }
}
