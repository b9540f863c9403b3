//! The link to one gate, from its greeting to its end.
//!
//! A task passes the gate's reports to the observer, one after another, and confirms each when the observer has written it.
//! So an exec that is refused fails only after the journal has the refusal, and reports are never confirmed out of order.
//! A connection that has ended is not made again: the sandbox then takes no new commands.

use std::{
    collections::{HashMap, HashSet},
    fmt,
    path::Path,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures_util::future::BoxFuture;
use tokio::{sync::watch, time::timeout};

use super::{
    connection::GateConnection,
    error::GateError,
    policy_frame::{PolicyEncoder, PolicyFrame},
};
use crate::{
    policy::command::known_directories,
    proto::gate::{
        AddTerminal, Answer, HelloResponse, KnownDirectory, Recorded, RemoveTerminal, Report,
        answer::Verdict, from_gate::Message, to_gate,
    },
    sys::fdpass::{Flushed, FrameReceiver},
};

/// How long a gate may take to answer the greeting.
const HELLO_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a spawn may wait for a gate that does not read.
const SEND_TIMEOUT: Duration = Duration::from_secs(5);
/// How long the end of a sandbox waits for the last reports of its gate.
const LAST_REPORTS_TIMEOUT: Duration = Duration::from_secs(2);
/// How long the end of a command waits for reports that were made while no gateway was there.
const BACKLOG_TIMEOUT: Duration = Duration::from_secs(5);

/// Whose sandbox a gate is in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GateOwner {
    /// The sandbox.
    pub sandbox_id: String,
    /// Its session.
    pub session_id: String,
    /// The user id of the session's principal.
    pub uid: u32,
}

/// Takes the reports of all gates.
pub trait GateObserver: Send + Sync + fmt::Debug {
    /// Writes a report down. Resolves when the journal has it, however long that takes: the gate is told then, and until
    /// then it lets the exec wait.
    fn record(&self, link: Arc<GateLink>, report: Report) -> BoxFuture<'_, ()>;

    /// A gate is gone. Called once for each sandbox.
    fn lost(&self, owner: &GateOwner);
}

/// A gate that has answered the greeting. Dropping this leaves it alone.
#[derive(Debug)]
pub struct GateHello {
    connection: GateConnection,
    receiver: FrameReceiver,
    answer: HelloResponse,
}

impl GateHello {
    /// Connects to the gate of a sandbox.
    ///
    /// # Errors
    /// [`GateError`].
    pub async fn greet(socket: &Path, sandbox_id: &str) -> Result<Self, GateError> {
        let connection = GateConnection::connect(socket)?;
        let mut receiver = FrameReceiver::new();
        let answered = timeout(HELLO_TIMEOUT, connection.hello(&mut receiver)).await;
        let answer = answered.map_err(|_| GateError::TimedOut)??;
        if answer.sandbox_id != sandbox_id {
            return Err(GateError::WrongSandbox(answer.sandbox_id));
        }
        Ok(Self { connection, receiver, answer })
    }
}

/// A link.
#[derive(Debug)]
pub struct GateLink {
    owner: GateOwner,
    connection: GateConnection,
    policy: Arc<PolicyEncoder>,
    observer: Arc<dyn GateObserver>,
    /// The newest report when the link was made.
    last_before: u64,
    /// Those up to this one were not all confirmed when the link was made; 0: all were.
    backlog_until: u64,
    progress: watch::Sender<LinkProgress>,
    /// Terminals that the gate knows.
    announced: Mutex<HashSet<String>>,
    was_reported_lost: AtomicBool,
    /// Generation and number of the directories of rules that it was sent last.
    directories_sent: Mutex<(u64, usize)>,
}

/// What the link's task has done.
#[derive(Debug, Clone, Copy, Default)]
struct LinkProgress {
    /// The number of the last report that was confirmed.
    confirmed: u64,
    /// Terminals whose last report was confirmed.
    removed: u64,
    has_ended: bool,
}

impl GateLink {
    /// Sends the policy, and starts the task that takes the reports.
    ///
    /// # Errors
    /// When the policy cannot be sent.
    pub(super) fn start(
        policy: &Arc<PolicyEncoder>,
        observer: &Arc<dyn GateObserver>,
        owner: GateOwner,
        hello: GateHello,
    ) -> Result<Arc<Self>, GateError> {
        let GateHello { connection, receiver, answer } = hello;
        // The generation that the gate names may be another gateway's: they all count from 1.
        connection.send_policy(&policy.current()?)?;
        let link = Arc::new(Self {
            owner,
            connection,
            policy: policy.clone(),
            observer: observer.clone(),
            last_before: answer.last_report,
            backlog_until: if answer.last_report > answer.last_recorded { answer.last_report } else { 0 },
            progress: watch::Sender::default(),
            announced: Mutex::new(answer.terminal_ids.into_iter().collect()),
            was_reported_lost: AtomicBool::new(false),
            directories_sent: Mutex::default(),
        });
        tokio::spawn(link.clone().serve(receiver));
        Ok(link)
    }

    /// Whose sandbox it is.
    pub fn owner(&self) -> &GateOwner {
        &self.owner
    }

    /// Whether a report was made before this gateway came: another one may have recorded it.
    pub fn is_backlog(&self, report: u64) -> bool {
        report <= self.last_before
    }

    /// Whether the gate answers, as far as is known.
    pub fn is_up(&self) -> bool {
        !self.progress.borrow().has_ended && !self.was_reported_lost.load(Ordering::Acquire)
    }

    /// The supervisor has reported that the gate is gone.
    pub(crate) fn gate_lost(&self) {
        if !self.was_reported_lost.swap(true, Ordering::AcqRel) {
            self.observer.lost(&self.owner);
        }
    }

    /// Announces a terminal, behind the policy in force. Waits for nothing, unless the gate does not read.
    ///
    /// # Errors
    /// [`GateError`]: nothing may be spawned for the terminal.
    pub(crate) async fn add_terminal(&self, mut terminal: AddTerminal) -> Result<(), GateError> {
        if !self.is_up() {
            return Err(GateError::Lost);
        }
        let policy = self.policy.current()?;
        let id = terminal.terminal_id.clone();
        self.lock_announced().insert(id);
        terminal.directories = self.new_directories();
        let message = to_gate::Message::AddTerminal(terminal);
        match self.connection.send_under(&policy, message)? {
            Flushed::All => Ok(()),
            Flushed::Blocked => {
                let drained = timeout(SEND_TIMEOUT, self.connection.wait_drained()).await;
                drained.map_err(|_| GateError::TimedOut)?
            }
        }
    }

    /// All directories of rules, if there are some that the gate was not sent.
    fn new_directories(&self) -> Vec<KnownDirectory> {
        let mut sent = self.directories_sent.lock().unwrap_or_else(PoisonError::into_inner);
        let (number, known) = self.policy.directories();
        if number.1 == 0 || std::mem::replace(&mut *sent, number) == number {
            return Vec::new();
        }
        let of_pattern = |(pattern, directories): (&String, &Vec<known_directories::KnownDirectory>)| {
            let known = directories.iter().map(|one| KnownDirectory {
                pattern: pattern.clone(),
                path: one.path.clone(),
                device: one.id.device,
                inode: one.id.inode,
                left_out_since_ns: one.left_out_since.unwrap_or_default(),
            });
            known.collect::<Vec<_>>()
        };
        known.iter().flat_map(of_pattern).collect()
    }

    /// Nothing more happens in a terminal. Its last report may still come.
    pub(crate) fn remove_terminal(&self, terminal_id: String) {
        let remove = to_gate::Message::RemoveTerminal(RemoveTerminal { terminal_id });
        // A gate that is gone has nothing more to report.
        let _ = self.connection.send(remove);
    }

    /// Removes the terminals that are not among these: their commands were released while no gateway was there.
    pub(crate) fn retain_terminals<V>(&self, known: &HashMap<String, V>) {
        let unknown: Vec<_> =
            self.lock_announced().iter().filter(|id| !known.contains_key(*id)).cloned().collect();
        unknown.into_iter().for_each(|id| self.remove_terminal(id));
    }

    /// Removes all terminals, and waits for a bounded time until their last reports are confirmed. Before a sandbox is
    /// ended in order.
    pub(crate) async fn finish(&self) {
        let open: Vec<_> = self.lock_announced().iter().cloned().collect();
        open.into_iter().for_each(|id| self.remove_terminal(id));
        let mut progress = self.progress.subscribe();
        let finished = progress.wait_for(|now| now.has_ended || self.lock_announced().is_empty());
        if timeout(LAST_REPORTS_TIMEOUT, finished).await.is_err() {
            tracing::warn!(sandbox.id = %self.owner.sandbox_id, "the gate's last reports did not come in time");
        }
    }

    /// Waits for a bounded time until the gate has closed the connection and everything before that is confirmed.
    pub(crate) async fn wait_ended(&self) {
        let mut progress = self.progress.subscribe();
        let _ = timeout(LAST_REPORTS_TIMEOUT, progress.wait_for(|now| now.has_ended)).await;
    }

    /// Whether reports that were made while no gateway was there are still to be confirmed.
    pub fn has_backlog(&self) -> bool {
        self.progress.borrow().is_behind(self.backlog_until)
    }

    /// Waits for a bounded time until they are.
    pub async fn wait_backlog(&self) {
        let mut progress = self.progress.subscribe();
        let confirmed = progress.wait_for(|now| !now.is_behind(self.backlog_until));
        if timeout(BACKLOG_TIMEOUT, confirmed).await.is_err() {
            tracing::warn!(sandbox.id = %self.owner.sandbox_id, "the gate's earlier reports were not recorded in time");
        }
    }

    /// Answers a question of the gate's.
    pub fn answer(&self, report: u64, verdict: Verdict) {
        let answer = Answer { number: report, verdict: verdict.into() };
        if let Err(error) = self.connection.send(to_gate::Message::Answer(answer)) {
            tracing::warn!(sandbox.id = %self.owner.sandbox_id, %error, "an answer does not reach its gate");
        }
    }

    /// Waits until the connection has ended.
    pub async fn ended(&self) {
        let mut progress = self.progress.subscribe();
        // The sender is a field of `self`, so it cannot be dropped.
        let _ = progress.wait_for(|now| now.has_ended).await;
    }

    pub(super) fn push_policy(&self, policy: &PolicyFrame) {
        if let Err(error) = self.connection.send_policy(policy)
            && self.is_up()
        {
            tracing::error!(sandbox.id = %self.owner.sandbox_id, %error, "a gate keeps the policy before");
        }
    }

    /// The link's task: until the gate has closed the connection, or is gone.
    async fn serve(self: Arc<Self>, mut receiver: FrameReceiver) {
        let writing = async {
            // What a gate has sent before its end is taken all the same.
            let _ = self.connection.keep_writing().await;
            std::future::pending::<std::convert::Infallible>().await
        };
        let ended = tokio::select! {
            ended = self.receive(&mut receiver) => ended,
            never = writing => match never {},
        };
        if let Err(error) = ended {
            tracing::error!(sandbox.id = %self.owner.sandbox_id, %error, "the connection to a gate has ended");
        }
        self.connection.end();
        self.progress.send_modify(|now| now.has_ended = true);
    }

    async fn receive(self: &Arc<Self>, receiver: &mut FrameReceiver) -> Result<(), GateError> {
        while let Some(message) = self.connection.next(receiver).await? {
            match message {
                Message::Report(report) => self.take_report(report).await,
                Message::PolicyInForce(loaded) if loaded.failure.is_empty() => {
                    tracing::debug!(sandbox.id = %self.owner.sandbox_id, policy.generation = loaded.generation, "in force at the gate");
                }
                Message::PolicyInForce(refused) => {
                    tracing::error!(sandbox.id = %self.owner.sandbox_id, policy.generation = refused.generation, problem = refused.failure, "the gate keeps the policy before");
                }
                Message::TerminalRemoved(removed) => {
                    self.lock_announced().remove(&removed.terminal_id);
                    self.progress.send_modify(|now| now.removed += 1);
                }
                Message::Hello(_) => return Err(GateError::UnexpectedMessage),
            }
        }
        Ok(())
    }

    async fn take_report(self: &Arc<Self>, report: Report) {
        let number = report.number;
        self.observer.record(self.clone(), report).await;
        // A gate that is gone need not know.
        let _ = self.connection.send(to_gate::Message::Recorded(Recorded { number }));
        self.progress.send_modify(|now| now.confirmed = now.confirmed.max(number));
    }

    fn lock_announced(&self) -> MutexGuard<'_, HashSet<String>> {
        self.announced.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LinkProgress {
    fn is_behind(&self, report: u64) -> bool {
        !self.has_ended && self.confirmed < report
    }
}
