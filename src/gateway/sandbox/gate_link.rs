//! The gateway's links to the gates: the processes that evaluate every exec in a sandbox.
//!
//! [`Gates`] has them all, and sends them the policy. A link announces terminals before their commands are spawned. Its task passes the gate's
//! reports to an observer, one after another, and confirms each when the observer has written it into the journal: so an exec that is refused
//! fails only after the journal has the refusal, and reports are never confirmed out of order. A link decides nothing and records nothing
//! itself. One that has ended is not made again: the sandbox then takes no new commands.

use std::{
    collections::{HashMap, HashSet},
    fmt,
    path::Path,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures_util::future::BoxFuture;
use tokio::{sync::watch, time::timeout};

use crate::{
    link::{Connection, LinkError, Peer},
    policy::{
        ActivePolicy, PolicySet,
        command::known_directories::{self, KnownByPattern},
    },
    proto::gate::{
        AddTerminal, Answer, FromGate, Hello, HelloResponse, KnownDirectory, PolicyFile, Recorded,
        RemoveTerminal, Report, SetPolicy, ToGate, answer::Verdict, from_gate, to_gate::Message,
    },
    sandbox::process_links::{self, GATE_HELLO_TIMEOUT},
    sys::fdpass::Flushed,
    wire::{self, gate::VERSIONS},
};

/// Bytes that may be queued for a gate that does not read, before the last message. Two policies fit.
const MAX_QUEUED_BYTES: usize = 2 * wire::MAX_MESSAGE_BYTES;
/// How long a spawn may wait for a gate that does not read.
const SEND_TIMEOUT: Duration = Duration::from_secs(5);
/// How long the end of a sandbox waits for the last reports of its gate.
const LAST_REPORTS_TIMEOUT: Duration = Duration::from_secs(2);
/// How long the end of a command waits for reports that were made while no gateway was there.
const BACKLOG_TIMEOUT: Duration = Duration::from_secs(5);

/// Whose sandbox a gate is in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct GateOwner {
    /// The sandbox.
    pub sandbox_id: String,
    /// Its session.
    pub session_id: String,
    /// The user id of the session's principal.
    pub uid: u32,
}

/// Takes the reports of all gates.
pub(crate) trait GateObserver: Send + Sync + fmt::Debug {
    /// Writes a report down. Resolves when the journal has it, however long that takes: the gate is told then, and until
    /// then it lets the exec wait.
    fn record(&self, link: Arc<GateLink>, report: Report) -> BoxFuture<'_, ()>;

    /// A gate is gone. Called once for each sandbox.
    fn lost(&self, owner: &GateOwner);
}

/// The gates of a gateway.
#[derive(Debug)]
pub(crate) struct Gates {
    policy: Arc<PolicyEncoder>,
    observer: OnceLock<Arc<dyn GateObserver>>,
    /// As many as there are sandboxes.
    links: Mutex<Vec<Weak<GateLink>>>,
}

impl Gates {
    /// None yet. They are sent this policy.
    pub(crate) fn new(policy: Arc<ActivePolicy>) -> Arc<Self> {
        Arc::new(Self {
            policy: Arc::new(PolicyEncoder::new(policy)),
            observer: OnceLock::new(),
            links: Mutex::default(),
        })
    }

    /// Sets the observer of all reports, before any gate is connected.
    ///
    /// # Panics
    /// When there is one already.
    pub(crate) fn set_observer(&self, observer: Arc<dyn GateObserver>) {
        self.observer
            .set(observer)
            .expect("the observer of the gates is set once, by the terminals' context");
    }

    /// Sends the policy in force to all gates. What is spawned afterwards is announced behind it.
    pub(crate) fn push_policy(&self) {
        let policy = match self.policy.current() {
            Ok(policy) => policy,
            // A spawn is refused with the same error: it would be evaluated under the policy before.
            Err(error) => {
                tracing::error!(%error, "the gates keep the policy before");
                return;
            }
        };
        let links: Vec<_> = self.lock().iter().filter_map(Weak::upgrade).collect();
        links.iter().for_each(|link| link.push_policy(&policy));
    }

    /// Links a gate: it gets the policy, and its reports are taken.
    ///
    /// # Errors
    /// When the policy cannot be sent, or nobody would take its reports.
    pub(crate) fn link(&self, owner: GateOwner, hello: GateHello) -> Result<Arc<GateLink>, LinkError> {
        let observer = self.observer.get().ok_or(LinkError::Unobserved(Peer::Gate))?;
        let link = GateLink::start(&self.policy, observer, owner, hello)?;
        let mut links = self.lock();
        links.retain(|link| link.strong_count() > 0);
        links.push(Arc::downgrade(&link));
        Ok(link)
    }

    /// A sandbox was found without its gate.
    pub(crate) fn report_lost(&self, owner: &GateOwner) {
        if let Some(observer) = self.observer.get() {
            observer.lost(owner);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Weak<GateLink>>> {
        self.links.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A gate that has answered the greeting. Dropping this leaves it alone.
#[derive(Debug)]
pub(crate) struct GateHello {
    connection: Connection<ToGate, FromGate>,
    answer: HelloResponse,
}

impl GateHello {
    /// Connects to the gate of a sandbox.
    ///
    /// # Errors
    /// [`LinkError`].
    pub(crate) async fn greet(socket: &Path, sandbox_id: &str) -> Result<Self, LinkError> {
        let connection = process_links::connect(Peer::Gate, socket, MAX_QUEUED_BYTES)?;
        let (lowest_version, highest_version) = VERSIONS;
        let hello = Message::Hello(Hello { lowest_version, highest_version });
        connection.send(&ToGate { message: Some(hello) }, &[])?;
        let answer = Peer::Gate.within(GATE_HELLO_TIMEOUT, hello_answer(&connection)).await?;
        if answer.sandbox_id != sandbox_id {
            return Err(LinkError::WrongSandbox(Peer::Gate, answer.sandbox_id));
        }
        Ok(Self { connection, answer })
    }
}

/// The gate's first message.
async fn hello_answer(connection: &Connection<ToGate, FromGate>) -> Result<HelloResponse, LinkError> {
    loop {
        match connection.next().await?.map(|(received, _)| received.message) {
            Some(Some(from_gate::Message::Hello(answer))) => {
                Peer::Gate.check_version(VERSIONS, answer.version)?;
                return Ok(answer);
            }
            Some(Some(_)) => return Err(LinkError::UnexpectedMessage(Peer::Gate)),
            // A message of a newer gate is ignored.
            Some(None) => {}
            None => return Err(LinkError::Lost(Peer::Gate)),
        }
    }
}

/// A link.
#[derive(Debug)]
pub(crate) struct GateLink {
    owner: GateOwner,
    connection: Connection<ToGate, FromGate>,
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
    /// The generation of the policy that it was sent last; 0: none was.
    policy_sent: Mutex<u64>,
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
    fn start(
        policy: &Arc<PolicyEncoder>,
        observer: &Arc<dyn GateObserver>,
        owner: GateOwner,
        hello: GateHello,
    ) -> Result<Arc<Self>, LinkError> {
        let GateHello { connection, answer } = hello;
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
            // The generation that the gate names may be another gateway's: they all count from 1.
            policy_sent: Mutex::new(0),
            directories_sent: Mutex::default(),
        });
        link.send_policy(&policy.current()?)?;
        tokio::spawn(link.clone().serve());
        Ok(link)
    }

    /// Whose sandbox it is.
    pub(crate) fn owner(&self) -> &GateOwner {
        &self.owner
    }

    /// Whether a report was made before this gateway came: another one may have recorded it.
    pub(crate) fn is_backlog(&self, report: u64) -> bool {
        report <= self.last_before
    }

    /// Whether the gate answers, as far as is known.
    pub(crate) fn is_up(&self) -> bool {
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
    /// [`LinkError`]: nothing may be spawned for the terminal.
    pub(crate) async fn add_terminal(&self, mut terminal: AddTerminal) -> Result<(), LinkError> {
        if !self.is_up() {
            return Err(LinkError::Lost(Peer::Gate));
        }
        let policy = self.policy.current()?;
        let id = terminal.terminal_id.clone();
        self.lock_announced().insert(id);
        terminal.directories = self.new_directories();
        self.send_policy(&policy)?;
        match self.send(Message::AddTerminal(terminal))? {
            Flushed::All => Ok(()),
            Flushed::Blocked => Peer::Gate.within(SEND_TIMEOUT, self.connection.wait_drained()).await,
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
        // A gate that is gone has nothing more to report.
        let _ = self.send(Message::RemoveTerminal(RemoveTerminal { terminal_id }));
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
    pub(crate) fn has_backlog(&self) -> bool {
        self.progress.borrow().is_behind(self.backlog_until)
    }

    /// Waits for a bounded time until they are.
    pub(crate) async fn wait_backlog(&self) {
        let mut progress = self.progress.subscribe();
        let confirmed = progress.wait_for(|now| !now.is_behind(self.backlog_until));
        if timeout(BACKLOG_TIMEOUT, confirmed).await.is_err() {
            tracing::warn!(sandbox.id = %self.owner.sandbox_id, "the gate's earlier reports were not recorded in time");
        }
    }

    /// Answers a question of the gate's.
    pub(crate) fn answer(&self, report: u64, verdict: Verdict) {
        let answer = Answer { number: report, verdict: verdict.into() };
        if let Err(error) = self.send(Message::Answer(answer)) {
            tracing::warn!(sandbox.id = %self.owner.sandbox_id, %error, "an answer does not reach its gate");
        }
    }

    /// Waits until the connection has ended.
    pub(crate) async fn ended(&self) {
        let mut progress = self.progress.subscribe();
        // The sender is a field of `self`, so it cannot be dropped.
        let _ = progress.wait_for(|now| now.has_ended).await;
    }

    fn push_policy(&self, policy: &PolicyFrame) {
        if let Err(error) = self.send_policy(policy)
            && self.is_up()
        {
            tracing::error!(sandbox.id = %self.owner.sandbox_id, %error, "a gate keeps the policy before");
        }
    }

    /// Sends a policy, unless this one or a later one was sent: what is sent afterwards is read under it.
    fn send_policy(&self, policy: &PolicyFrame) -> Result<(), LinkError> {
        let mut sent = self.policy_sent.lock().unwrap_or_else(PoisonError::into_inner);
        if policy.generation > *sent {
            self.connection.send_encoded(&policy.bytes)?;
            *sent = policy.generation;
        }
        Ok(())
    }

    fn send(&self, message: Message) -> Result<Flushed, LinkError> {
        self.connection.send(&ToGate { message: Some(message) }, &[])
    }

    /// The link's task: until the gate has closed the connection, or is gone.
    async fn serve(self: Arc<Self>) {
        let writing = async {
            // What a gate has sent before its end is taken all the same.
            let _ = self.connection.keep_writing().await;
            std::future::pending::<std::convert::Infallible>().await
        };
        let ended = tokio::select! {
            ended = self.receive() => ended,
            never = writing => match never {},
        };
        if let Err(error) = ended {
            tracing::error!(sandbox.id = %self.owner.sandbox_id, %error, "the connection to a gate has ended");
        }
        self.connection.end();
        self.progress.send_modify(|now| now.has_ended = true);
    }

    async fn receive(self: &Arc<Self>) -> Result<(), LinkError> {
        while let Some((received, _)) = self.connection.next().await? {
            match received.message {
                Some(from_gate::Message::Report(report)) => self.take_report(report).await,
                Some(from_gate::Message::PolicyInForce(loaded)) if loaded.failure.is_empty() => {
                    tracing::debug!(sandbox.id = %self.owner.sandbox_id, policy.generation = loaded.generation, "in force at the gate");
                }
                Some(from_gate::Message::PolicyInForce(refused)) => {
                    tracing::error!(sandbox.id = %self.owner.sandbox_id, policy.generation = refused.generation, problem = refused.failure, "the gate keeps the policy before");
                }
                Some(from_gate::Message::TerminalRemoved(removed)) => {
                    self.lock_announced().remove(&removed.terminal_id);
                    self.progress.send_modify(|now| now.removed += 1);
                }
                Some(from_gate::Message::Hello(_)) => return Err(LinkError::UnexpectedMessage(Peer::Gate)),
                // A message of a newer gate is ignored.
                None => {}
            }
        }
        Ok(())
    }

    async fn take_report(self: &Arc<Self>, report: Report) {
        let number = report.number;
        self.observer.record(self.clone(), report).await;
        // A gate that is gone need not know.
        let _ = self.send(Message::Recorded(Recorded { number }));
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

/// A policy, as a frame.
#[derive(Debug, Clone)]
struct PolicyFrame {
    generation: u64,
    bytes: Arc<[u8]>,
}

/// Encodes the policy in force, when first asked for.
#[derive(Debug)]
struct PolicyEncoder {
    active: Arc<ActivePolicy>,
    encoded: Mutex<Option<PolicyFrame>>,
}

impl PolicyEncoder {
    fn new(active: Arc<ActivePolicy>) -> Self {
        Self { active, encoded: Mutex::default() }
    }

    /// What the directories of its rules are: their number, with its generation, and all of them.
    fn directories(&self) -> ((u64, usize), Arc<KnownByPattern>) {
        let policy = self.active.current();
        let (count, known) = policy.known_directories().all();
        ((policy.generation(), count), known)
    }

    /// The policy in force.
    fn current(&self) -> Result<PolicyFrame, LinkError> {
        // Every change of it is one assignment.
        let mut encoded = self.encoded.lock().unwrap_or_else(PoisonError::into_inner);
        let policy = self.active.current();
        match &*encoded {
            Some(frame) if frame.generation == policy.generation() => Ok(frame.clone()),
            Some(_) | None => {
                let frame = encode(&policy)?;
                *encoded = Some(frame.clone());
                Ok(frame)
            }
        }
    }
}

fn encode(policy: &PolicySet) -> Result<PolicyFrame, LinkError> {
    let generation = policy.generation();
    let files = policy.texts().iter();
    let files = files.map(|file| PolicyFile { name: file.name.clone(), text: file.text.clone() }).collect();
    let message = ToGate { message: Some(Message::SetPolicy(SetPolicy { generation, files })) };
    let bytes =
        wire::encode(&message, 0).map_err(|error| LinkError::TooLong(Peer::Gate, "the policy", error))?;
    Ok(PolicyFrame { generation, bytes: bytes.into() })
}
