//! Answers the questions of one net process until it ends.

use std::{
    collections::{HashMap, HashSet},
    os::fd::OwnedFd,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use futures_util::{FutureExt as _, future, future::BoxFuture};
use tokio::{
    sync::{mpsc, watch},
    task::JoinSet,
};
use tokio_util::sync::CancellationToken;

use super::{
    Asker, ConnectionObserver, ConnectionOrigin, Judged, NetError, NetOwner, NetProcess, Nets, ProgramLook,
    nets::Answer,
};
use crate::{
    link::{LinkError, Peer},
    policy::connect::ConnectingProgram,
    pool::Pool,
    proto::net::{
        Attempt, Denied, Question, Reevaluate, ToNet, Verdict, Withdrawn, from_net::Message, question::About,
        to_net, verdict,
    },
    wire::net::{MAX_CONNECTIONS, MAX_NAME_PORTS},
};

/// How long the program of a connection is taken for the same: the time between two questions about it.
const PROGRAM_KNOWN_FOR: Duration = Duration::from_secs(1);

/// The rule's name of a refusal that no rule made.
const UNAVAILABLE: &str = "network.gateway";

/// The sandbox whose connections are judged.
pub(crate) trait ServedSandbox: Send + Sync {
    /// Which terminal a connection belongs to: of the claim, if it is one of the sandbox's, else the only one that runs.
    fn terminal_of(&self, claimed: &str) -> Option<String>;

    /// Which programs have the connection of an attempt. It is looked for by this user's place there.
    fn program<'a>(
        &'a self,
        attempt: &'a Attempt,
        looks: (&'a Arc<Pool>, u32),
    ) -> BoxFuture<'a, ConnectingProgram>;

    /// TCP sockets of the sandbox's network; `None` where it makes none.
    fn sockets(&self, count: usize) -> BoxFuture<'_, Option<Vec<OwnedFd>>>;
}

impl NetProcess {
    /// Answers its questions. Returns when it has ended, or has said what is no message.
    ///
    /// # Errors
    /// When nobody decides.
    pub(crate) async fn serve(
        &self,
        nets: &Nets,
        owner: &Arc<NetOwner>,
        sandbox: Arc<dyn ServedSandbox>,
        open: &Arc<AllowedConnections>,
    ) -> Result<(), NetError> {
        open.clear();
        let (observer, connection) =
            (nets.observer().ok_or(LinkError::Unobserved(Peer::Net))?, &self.connection);
        // One verdict for each question.
        let (sender, mut verdicts) = mpsc::channel::<Answer>(MAX_CONNECTIONS);
        let (mut policies, judges) = (nets.policies(), observer.clone());
        let write = async {
            loop {
                let (message, sockets) = tokio::select! {
                    Some((verdict, sockets)) = verdicts.recv() => (to_net::Message::Verdict(verdict), sockets),
                    Ok(()) = policies.changed() => {
                        let Some(generation) = judges.judges_open(owner) else { continue };
                        (to_net::Message::Reevaluate(Reevaluate { generation }), Vec::new())
                    }
                    else => return Ok::<(), LinkError>(()),
                };
                connection.send(&ToNet { message: Some(message) }, &sockets)?;
                connection.wait_drained().await?;
            }
        };
        let serving = Serving {
            observer,
            owner: owner.clone(),
            sandbox,
            looks: nets.looks().clone(),
            sender,
            asked: Arc::default(),
            programs: Arc::default(),
            open: open.clone(),
        };
        let read = async {
            let mut judging = JoinSet::new();
            while let Ok(Some((received, _))) = connection.next().await {
                let Some(message) = received.message else { return };
                // No more than a net process can ask at once.
                while judging.len() >= MAX_CONNECTIONS {
                    judging.join_next().await;
                }
                while judging.try_join_next().is_some() {}
                serving.take(message, &mut judging);
            }
        };
        tokio::select! {
            () = read => {}
            _ = write => {}
            _ = connection.keep_writing() => {}
        }
        open.clear();
        Ok(())
    }
}

/// What answering one net process takes.
#[derive(Clone)]
struct Serving {
    observer: Arc<dyn ConnectionObserver>,
    owner: Arc<NetOwner>,
    sandbox: Arc<dyn ServedSandbox>,
    looks: Arc<Pool>,
    sender: mpsc::Sender<Answer>,
    /// The questions that are being answered, as many as there are tasks.
    asked: Arc<Mutex<HashMap<u64, CancellationToken>>>,
    /// By whom a connection was wanted whose name was judged, until its addresses are.
    programs: Arc<Mutex<HashMap<ConnectionEnds, (ProgramLook, Instant)>>>,
    open: Arc<AllowedConnections>,
}

/// The program's end of a connection, and the listener's.
type ConnectionEnds = (String, String);

impl Serving {
    fn take(&self, message: Message, judging: &mut JoinSet<()>) {
        match message {
            Message::Ready(_) => {}
            Message::Ended(ended) => {
                let terminal = self.terminal(ended.attempt.as_ref());
                let id = ended.connection_id.clone();
                self.observer.ended(&self.owner, ended, terminal);
                self.open.ended(&id);
            }
            Message::Withdrawn(Withdrawn { number }) => {
                if let Some(withdrawn) = self.asked().get(&number) {
                    withdrawn.cancel();
                }
            }
            Message::Question(question) => {
                let (serving, number, withdrawn) = (self.clone(), question.number, CancellationToken::new());
                self.asked().insert(number, withdrawn.clone());
                let asker = Asker { number, answers: self.sender.clone(), withdrawn };
                judging.spawn(async move {
                    let answer = serving.answer(question, &asker).await;
                    serving.asked().remove(&number);
                    // The process is gone, and with it the one that asked.
                    let _ = serving.sender.send(answer).await;
                });
            }
        }
    }

    fn terminal(&self, attempt: Option<&Attempt>) -> Option<String> {
        self.sandbox.terminal_of(attempt.map_or("", |attempt| &attempt.terminal_id))
    }

    fn asked(&self) -> std::sync::MutexGuard<'_, HashMap<u64, CancellationToken>> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Which programs have the connection that a question is about: with none yet, any may be meant.
    fn program(&self, question: &Question) -> ProgramLook {
        let any = || future::ready(ConnectingProgram::Any).boxed().shared();
        let Some(attempt) = &question.attempt else { return any() };
        let ends = (attempt.program_end.clone(), attempt.listener_end.clone());
        match &question.about {
            Some(About::Name(_) | About::Bytes(_)) => any(),
            // The name was judged just now.
            Some(About::Addresses(_)) => match self.programs().remove(&ends) {
                Some((look, begun)) if begun.elapsed() < PROGRAM_KNOWN_FOR => look,
                Some(_) | None => self.look(attempt),
            },
            Some(About::Host(_)) => {
                let look = self.look(attempt);
                let mut known = self.programs();
                if known.len() >= MAX_CONNECTIONS {
                    known.clear();
                }
                known.insert(ends, (look.clone(), Instant::now()));
                look
            }
            Some(About::Disagreement(_) | About::BadRequest(_) | About::Open(_)) | None => self.look(attempt),
        }
    }

    /// Begins at once.
    fn look(&self, attempt: &Attempt) -> ProgramLook {
        let (sandbox, looks, uid) = (self.sandbox.clone(), self.looks.clone(), self.owner.uid);
        let attempt = attempt.clone();
        let looking = tokio::spawn(async move { sandbox.program(&attempt, (&looks, uid)).await });
        async move { looking.await.unwrap_or(ConnectingProgram::Unknown) }.boxed().shared()
    }

    fn programs(&self) -> std::sync::MutexGuard<'_, HashMap<ConnectionEnds, (ProgramLook, Instant)>> {
        self.programs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn answer(&self, question: Question, asker: &Asker) -> Answer {
        let number = question.number;
        let mut open_ports = Vec::new();
        if let Some(About::Name(name)) = &question.about {
            open_ports.clone_from(&name.open_ports);
        }
        let terminal = self.terminal(question.attempt.as_ref());
        let program = self.program(&question);
        let Judged { verdict, connection } =
            self.observer.judge(&self.owner, question, ConnectionOrigin { terminal, program }, asker).await;
        if let verdict::Verdict::Dial(dial) = &verdict {
            self.open.allowed(&dial.connection_id);
        }
        let answer = |verdict| Verdict { number, verdict: Some(verdict) };
        let verdict::Verdict::Ports(mut ports) = verdict else {
            return (answer(verdict), connection.into_iter().map(Arc::new).collect());
        };
        ports.ports.truncate(MAX_NAME_PORTS);
        let missing = ports.ports.iter().filter(|port| !open_ports.contains(port)).count();
        let sockets = match missing {
            0 => Some(Vec::new()),
            count => self.sandbox.sockets(count).await,
        };
        match sockets {
            Some(sockets) => {
                (answer(verdict::Verdict::Ports(ports)), sockets.into_iter().map(Arc::new).collect())
            }
            None => {
                let reason = "the sandbox makes no sockets".to_owned();
                (
                    answer(verdict::Verdict::Denied(Denied { rule: UNAVAILABLE.to_owned(), reason })),
                    Vec::new(),
                )
            }
        }
    }
}

/// The connections of a sandbox that were allowed and have not ended, by their ids: its net process is kept until it has reported their ends. One
/// net process has as many as there are places for connections and requests.
#[derive(Debug)]
pub(crate) struct AllowedConnections(watch::Sender<HashSet<String>>);

impl Default for AllowedConnections {
    fn default() -> Self {
        Self(watch::Sender::new(HashSet::new()))
    }
}

impl AllowedConnections {
    pub(super) fn allowed(&self, id: &str) {
        self.0.send_if_modified(|open| open.insert(id.to_owned()));
    }

    pub(super) fn ended(&self, id: &str) {
        self.0.send_if_modified(|open| open.remove(id));
    }

    /// The process that carried them is gone.
    pub(super) fn clear(&self) {
        self.0.send_modify(HashSet::clear);
    }

    /// Resolves when none is open.
    pub(crate) async fn wait_none(&self) {
        // The sender is `self`.
        let _ = self.0.subscribe().wait_for(HashSet::is_empty).await;
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use super::*;

    #[tokio::test]
    async fn the_last_end_is_waited_for() {
        let open = AllowedConnections::default();
        open.wait_none().await;
        open.allowed("a");
        open.allowed("b");
        open.ended("a");
        let mut none = pin!(open.wait_none());
        assert!(futures_util::poll!(none.as_mut()).is_pending());
        open.ended("b");
        none.await;
        open.allowed("c");
        open.clear();
        open.wait_none().await;
    }
}
