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

use tokio::{
    sync::{Notify, mpsc, oneshot},
    time::sleep,
};

use super::{
    end_report::EndReport,
    limits::{MAX_STREAMS, VERDICT_TIMEOUT},
    program,
};
use crate::{
    link::{Connection, LinkError, Peer},
    proto::net::{
        Attempt, FromNet, Question, Ready, Reevaluate, ToNet, Verdict, Withdrawn, from_net::Message,
        question::About, to_net, verdict,
    },
    wire::{MAX_MESSAGE_BYTES, net::MAX_CONNECTIONS},
};

/// Messages that wait to be written: each connection and each request of HTTP/2 has one question, one that was taken back and one end
/// at most.
const MAX_QUEUED_MESSAGES: usize = 3 * (MAX_CONNECTIONS + MAX_STREAMS);

/// A verdict, and the sockets that came with it.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) verdict: verdict::Verdict,
    pub(super) sockets: Vec<OwnedFd>,
    /// The report about what the verdict allows to be carried: nobody may take it any more, because the program has gone.
    pub(super) report: Option<EndReport>,
}

/// The gateway has not answered, or is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the gateway does not answer")]
pub(super) struct NoVerdict;

/// The questions that wait for a verdict.
#[derive(Debug)]
pub(super) struct GatewayLink {
    outgoing: mpsc::Sender<Message>,
    pending: Mutex<HashMap<u64, Pending>>,
    last_number: AtomicU64,
    reevaluate: Notify,
    /// The generation of the policy by which open connections are to be judged again.
    generation: AtomicU64,
}

/// A question without a verdict.
#[derive(Debug)]
struct Pending {
    /// `None`: nobody waits for it any more.
    answer: Option<oneshot::Sender<Answer>>,
    attempt: Attempt,
    /// Says that it waits for a person; `None`: that is known.
    waits: Option<oneshot::Sender<()>>,
}

impl GatewayLink {
    /// Starts to write. Says that the process is ready.
    pub(super) fn start(socket: UnixStream, ready: Ready) -> io::Result<(Arc<Self>, VerdictReceiver)> {
        let connection = Arc::new(Connection::new(Peer::Gateway, socket, MAX_MESSAGE_BYTES)?);
        let (sender, messages) = mpsc::channel(MAX_QUEUED_MESSAGES);
        tokio::spawn(send(connection.clone(), messages));
        let link = Arc::new(Self {
            outgoing: sender,
            pending: Mutex::default(),
            last_number: AtomicU64::new(0),
            reevaluate: Notify::new(),
            generation: AtomicU64::new(0),
        });
        // The channel is empty.
        let _ = link.outgoing.try_send(Message::Ready(ready));
        Ok((link.clone(), VerdictReceiver { link, connection }))
    }

    /// Asks the gateway. Where a person is asked that may take long: the question is taken back when the program closes its
    /// connection, or when this is dropped.
    pub(super) async fn ask(
        &self,
        attempt: &Attempt,
        about: About,
        program: program::Waiting<'_>,
    ) -> Result<Answer, NoVerdict> {
        let number = self.last_number.fetch_add(1, Relaxed) + 1;
        let (answer, mut answered) = oneshot::channel();
        let (waits, mut waiting) = oneshot::channel();
        let pending = Pending { answer: Some(answer), attempt: attempt.clone(), waits: Some(waits) };
        self.lock().insert(number, pending);
        let mut forget = ForgetOnDrop { link: self, number, is_asked: false };
        let question = Question { number, attempt: Some(attempt.clone()), about: Some(about) };
        if self.outgoing.send(Message::Question(question)).await.is_err() {
            return Err(NoVerdict);
        }
        forget.is_asked = true;
        tokio::select! {
            biased;
            answer = &mut answered => return answer.map_err(|_| NoVerdict),
            Ok(()) = &mut waiting => {}
            () = sleep(VERDICT_TIMEOUT) => return Err(NoVerdict),
        }
        // The gateway ends every question of a person in time, or ends with this process.
        tokio::select! {
            biased;
            answer = answered => answer.map_err(|_| NoVerdict),
            () = program::gone(program) => Err(NoVerdict),
        }
    }

    /// A connection is open that this policy has allowed: another one may have come meanwhile.
    pub(super) fn opened_under(&self, generation: u64) {
        if generation < self.generation.load(Relaxed) {
            self.reevaluate.notify_one();
        }
    }

    /// Resolves when another policy is in force.
    pub(super) async fn wait_reevaluate(&self) {
        self.reevaluate.notified().await;
    }

    /// For something that was allowed, and has failed for this reason so far.
    pub(super) fn end_report(&self, attempt: Attempt, connection_id: String, failure: &str) -> EndReport {
        EndReport::new(self.outgoing.clone(), attempt, connection_id, failure)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Pending>> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The verdict about a question whose asker is gone is waited for, because it may allow something; a person is not asked it any more.
struct ForgetOnDrop<'a> {
    link: &'a GatewayLink,
    number: u64,
    /// There will be a verdict.
    is_asked: bool,
}

impl Drop for ForgetOnDrop<'_> {
    fn drop(&mut self) {
        if !self.is_asked {
            self.link.lock().remove(&self.number);
            return;
        }
        let is_withdrawn = self.link.lock().get_mut(&self.number).is_some_and(|pending| {
            pending.answer = None;
            pending.waits.is_none()
        });
        if is_withdrawn {
            // There is room for it; see `MAX_QUEUED_MESSAGES`.
            let _ = self.link.outgoing.try_send(Message::Withdrawn(Withdrawn { number: self.number }));
        }
    }
}

/// Writes messages, one after the other. Returns when the gateway has closed the socket.
async fn send(connection: Arc<Connection<FromNet, ToNet>>, mut messages: mpsc::Receiver<Message>) {
    let sending = async {
        while let Some(message) = messages.recv().await {
            match connection.send(&FromNet { message: Some(message) }, &[]) {
                Ok(_) => {}
                Err(LinkError::TooLong(..)) => continue,
                // The reader sees the same end.
                Err(_) => return,
            }
            if connection.wait_drained().await.is_err() {
                return;
            }
        }
    };
    tokio::select! {
        () = sending => {}
        _ = connection.keep_writing() => {}
    }
}

/// The gateway's half of the socket.
pub(super) struct VerdictReceiver {
    link: Arc<GatewayLink>,
    connection: Arc<Connection<FromNet, ToNet>>,
}

impl VerdictReceiver {
    /// Passes verdicts on. Returns when the gateway has closed the socket, or says what cannot be understood.
    pub(super) async fn receive(self) {
        while let Ok(Some((message, sockets))) = self.connection.next().await {
            let (number, verdict) = match message.message {
                Some(to_net::Message::Verdict(Verdict { number, verdict: Some(verdict) })) => {
                    (number, verdict)
                }
                Some(to_net::Message::Reevaluate(Reevaluate { generation })) => {
                    self.link.generation.fetch_max(generation, Relaxed);
                    self.link.reevaluate.notify_one();
                    continue;
                }
                Some(to_net::Message::Verdict(_) | to_net::Message::Setup(_)) | None => return,
            };
            if let verdict::Verdict::Waiting(_) = verdict {
                let waits = self.link.lock().get_mut(&number).and_then(|pending| pending.waits.take());
                // The asker may have given up.
                let _ = waits.map(|waits| waits.send(()));
                continue;
            }
            let asked = self.link.lock().remove(&number);
            if let Some(Pending { answer, attempt, waits: _ }) = asked {
                let report = match &verdict {
                    verdict::Verdict::Dial(dial) => {
                        let id = dial.connection_id.clone();
                        Some(self.link.end_report(attempt, id, "the program has gone"))
                    }
                    _ => None,
                };
                let answered = Answer { verdict, sockets, report };
                // Likewise; then what was allowed ends here.
                if let Some(answer) = answer {
                    let _ = answer.send(answered);
                }
            }
        }
    }
}
