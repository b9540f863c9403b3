//! All terminals of the gateway, and what can be asked of them.
//!
//! A terminal exists only for the principal of its session. What was begun on a caller's behalf is completed or
//! undone when the caller goes away: nothing here is left half done.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::{
    sync::{OnceCell, broadcast},
    time::timeout,
};
use tokio_util::sync::CancellationToken;

use super::{
    AskError, Attendance, Caps, CreateError, Gone, NewRequest, Recorder, TerminalId,
    counters::Counters,
    judging,
    quota::{Counts, Ledger},
    records::{self, Ending},
    terminal::{Claim, Stage, Terminal},
    uninterrupted::uninterrupted,
};
use crate::{
    approval::Book,
    failpoint,
    policy::{InForce, explain::Explanation},
    proto::supervisor::{StopCause, WriteStdin},
    sandbox::{control::ControlError, handle::RequestError, programs::Remembered},
    session::{Principal, Session, SessionId, Site},
};

/// Changes that a slow watcher may be behind before it is told everything anew.
const CHANGES_HELD: usize = 1_024;
/// How long a supervisor may take to say that it stops a command that is released.
const STOP_LIMIT: Duration = Duration::from_secs(10);

pub(super) type Attempt = Arc<OnceCell<Result<Arc<Terminal>, Arc<CreateError>>>>;

/// The table of terminals.
#[derive(Debug)]
pub struct Terminals {
    site: Site,
    policy: Arc<InForce>,
    remembered: Remembered,
    approvals: Arc<Book>,
    ledger: Arc<Ledger>,
    recorder: Recorder,
    counters: Arc<Counters>,
    changes: broadcast::Sender<Arc<Terminal>>,
    by_id: Mutex<BTreeMap<TerminalId, Arc<Terminal>>>,
    by_request: Mutex<HashMap<(SessionId, String), Attempt>>,
    draining: CancellationToken,
    attendance: Attendance,
}

impl Terminals {
    /// An empty table. What becomes of the terminals is written down by `recorder`.
    pub fn new(
        site: Site,
        policy: Arc<InForce>,
        approvals: Arc<Book>,
        caps: Caps,
        recorder: Recorder,
    ) -> Arc<Self> {
        Arc::new(Self {
            site,
            policy,
            remembered: Remembered::default(),
            approvals,
            ledger: Ledger::new(caps),
            recorder,
            counters: Arc::default(),
            changes: broadcast::Sender::new(CHANGES_HELD),
            by_id: Mutex::default(),
            by_request: Mutex::default(),
            draining: CancellationToken::new(),
            attendance: Attendance::default(),
        })
    }

    /// The caller's terminal of that id, of that session when one is named. `None` for a malformed, unknown,
    /// released or foreign one, without a difference.
    pub fn find(&self, principal: Principal, id: &str, session: &str) -> Option<Arc<Terminal>> {
        let id = TerminalId::parse(id)?;
        let terminal = self.lock().get(&id).cloned()?;
        let session_fits = session.is_empty() || SessionId::parse(session) == Some(terminal.session.id);
        (terminal.session.principal == principal && session_fits).then_some(terminal)
    }

    /// The caller's terminals, oldest first; of one session when it is named.
    pub fn list(&self, principal: Principal, session: Option<SessionId>) -> Vec<Arc<Terminal>> {
        let of_session = |terminal: &Terminal| session.is_none_or(|session| terminal.session.id == session);
        self.lock()
            .values()
            .filter(|terminal| terminal.session.principal == principal && of_session(terminal))
            .cloned()
            .collect()
    }

    /// Terminals whose state has changed, from now on.
    pub fn changes(&self) -> broadcast::Receiver<Arc<Terminal>> {
        self.changes.subscribe()
    }

    /// Begins to stop the command. That it has ended is no error.
    pub async fn kill(&self, terminal: &Terminal, grace: Option<Duration>) -> Result<(), AskError> {
        self.stop(terminal, grace, StopCause::Killed, Ending::Kill).await
    }

    async fn stop(
        &self,
        terminal: &Terminal,
        grace: Option<Duration>,
        cause: StopCause,
        ending: Ending,
    ) -> Result<(), AskError> {
        match terminal.settled().await {
            Stage::Created | Stage::Running => {}
            Stage::Finished(_) => return Ok(()),
            Stage::Released(_) => return Err(Gone.into()),
        }
        let Some(live) = terminal.live() else { return Err(Gone.into()) };
        self.recorder.note(&records::kill_asked(terminal, ending, grace));
        failpoint::reach("kill.recorded");
        let stopped = live.sandbox.stop(terminal.id.to_string(), cause, grace).await;
        failpoint::reach("kill.answered");
        match stopped {
            // A sandbox that is lost takes its commands with it.
            Ok(()) | Err(RequestError::Control(ControlError::Lost)) => Ok(()),
            Err(RequestError::Control(error)) => Err(error.into()),
            Err(RequestError::Errno(errno)) => Err(AskError::Errno(errno)),
        }
    }

    /// Stops the command. Where the supervisor does not do that, its sandbox is killed: the command ends either way.
    async fn stop_surely(
        &self,
        terminal: &Terminal,
        grace: Option<Duration>,
        cause: StopCause,
    ) -> Result<(), Gone> {
        // Not on the supervisor's time.
        terminal.settled().await;
        let ending = if cause == StopCause::Shutdown { Ending::Shutdown } else { Ending::Release };
        let problem = match timeout(STOP_LIMIT, self.stop(terminal, grace, cause, ending)).await {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(AskError::Gone(gone))) => return Err(gone),
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("no answer within {} s", STOP_LIMIT.as_secs()),
        };
        if let Some(live) = terminal.live() {
            tracing::error!(sandbox.id = live.sandbox.id(), terminal.id = %terminal.id, problem, "cannot stop a command: its sandbox is killed");
            live.sandbox.kill().await;
        }
        Ok(())
    }

    /// Sends a signal to the main process's group.
    pub async fn signal(&self, terminal: &Terminal, signal: i32) -> Result<(), AskError> {
        let sandbox = self.running(terminal).await?;
        self.recorder.note(&records::signal(terminal, signal));
        match sandbox.signal(terminal.id.to_string(), signal).await {
            Ok(()) => Ok(()),
            Err(RequestError::Errno(libc::ENOENT | libc::ESRCH)) => Err(AskError::Ended),
            Err(RequestError::Errno(errno)) => Err(AskError::Errno(errno)),
            Err(RequestError::Control(error)) => Err(error.into()),
        }
    }

    /// Writes to the command's stdin; how many bytes it took. Fewer than all: the command has closed it.
    pub async fn write(
        &self,
        terminal: &Terminal,
        data: prost::bytes::Bytes,
        end: EndOfInput,
    ) -> Result<u64, AskError> {
        let sandbox = self.running(terminal).await?;
        let terminal_id = terminal.id.to_string();
        let request = WriteStdin { terminal_id, data, eof: end == EndOfInput::AfterThis };
        let written = sandbox.write_stdin(request).await?;
        match written.errno {
            0 | libc::EPIPE => Ok(written.written),
            libc::EBADF => Err(AskError::StdinClosed),
            libc::ENOENT => Err(AskError::Ended),
            errno => Err(AskError::Errno(errno)),
        }
    }

    async fn running(&self, terminal: &Terminal) -> Result<Arc<crate::sandbox::handle::Sandbox>, AskError> {
        match terminal.settled().await {
            Stage::Finished(_) => Err(AskError::Ended),
            Stage::Released(_) => Err(Gone.into()),
            Stage::Created | Stage::Running => {
                terminal.live().map(|live| live.sandbox.clone()).ok_or(AskError::Gone(Gone))
            }
        }
    }

    /// Stops the command if it runs, and frees everything. Answers when nothing is left. Of many who ask, one
    /// succeeds. Once begun, it is done even when the caller goes away.
    pub async fn release(
        self: &Arc<Self>,
        terminal: &Arc<Terminal>,
        grace: Option<Duration>,
        cause: StopCause,
    ) -> Result<(), AskError> {
        if terminal.claim_release() == Claim::Taken {
            return Err(Gone.into());
        }
        let (this, terminal) = (self.clone(), terminal.clone());
        uninterrupted(async move { this.release_claimed(&terminal, grace, cause).await }, |_| async {}).await
    }

    async fn release_claimed(
        &self,
        terminal: &Arc<Terminal>,
        grace: Option<Duration>,
        cause: StopCause,
    ) -> Result<(), AskError> {
        failpoint::reach("release.claimed");
        if !terminal.stage().is_over() {
            self.stop_surely(terminal, grace, cause).await?;
            failpoint::reach("release.stopped");
            terminal.over().await;
        }
        // A terminal that never started is gone already.
        let Some(exited) = terminal.take_exited() else { return Err(Gone.into()) };
        failpoint::reach("release.over");
        let released = exited.release(terminal).await;
        failpoint::reach("release.forgotten");
        self.lock().remove(&terminal.id);
        if let Some(request_id) = &terminal.request_id {
            self.lock_requests().remove(&(terminal.session.id, request_id.clone()));
        }
        terminal.released(released.outcome);
        failpoint::reach("release.done");
        Ok(())
    }

    /// Releases finished terminals that nobody has released for that long.
    pub async fn collect(self: &Arc<Self>, finished_for: Duration) {
        let old: Vec<_> = self
            .lock()
            .values()
            .filter(|terminal| terminal.finished_at().is_some_and(|at| at.elapsed() >= finished_for))
            .cloned()
            .collect();
        for terminal in old {
            if self.release(&terminal, None, StopCause::Killed).await.is_ok() {
                self.counters.collected.one();
                tracing::info!(terminal.id = %terminal.id, "finished terminal collected");
            }
        }
    }

    /// Stops and releases every terminal of a session that nobody creates in any more.
    pub async fn release_all(self: &Arc<Self>, session: &Session, grace: Option<Duration>) {
        let terminals = self.list(session.principal, Some(session.id));
        let mut releasing = tokio::task::JoinSet::new();
        for terminal in terminals {
            let this = self.clone();
            releasing.spawn(async move {
                if this.release(&terminal, grace, StopCause::Shutdown).await.is_err() {
                    // Somebody else is at it, and will come to the end of it.
                    terminal.gone().await;
                }
            });
        }
        releasing.join_all().await;
    }

    /// Lets no new terminal begin.
    pub fn drain(&self) {
        self.draining.cancel();
    }

    /// Waits until no new one may begin.
    pub(super) async fn draining(&self) {
        self.draining.cancelled().await;
    }

    /// Whether new ones may begin.
    pub fn is_draining(&self) -> bool {
        self.draining.is_cancelled()
    }

    /// What a session has.
    pub fn counts(&self, session: SessionId) -> Counts {
        self.ledger.of_session(session)
    }

    /// What all sessions have.
    pub fn counts_of_all(&self) -> Counts {
        self.ledger.of_all()
    }

    /// What has become of sessions, requests and terminals.
    pub fn counters(&self) -> &Arc<Counters> {
        &self.counters
    }

    /// What would become of a request, and why.
    pub fn explain(&self, new: &NewRequest) -> Explanation {
        judging::explain(&self.policy.current(), &new.session, &new.request, &self.remembered)
    }

    /// Where sandboxes are built, and what has become of them.
    pub fn site(&self) -> &Site {
        &self.site
    }

    /// What persons are asked.
    pub fn approvals(&self) -> &Arc<Book> {
        &self.approvals
    }

    pub(super) fn remembered(&self) -> &Remembered {
        &self.remembered
    }

    /// Writes down what happens.
    pub fn recorder(&self) -> &Recorder {
        &self.recorder
    }

    /// Takes in a terminal that is there already.
    pub(super) fn insert(&self, terminal: &Arc<Terminal>) {
        self.lock().insert(terminal.id, terminal.clone());
        if let Some(request_id) = terminal.request_id.clone() {
            let attempt = Arc::new(OnceCell::new_with(Some(Ok(terminal.clone()))));
            self.lock_requests().insert((terminal.session.id, request_id), attempt);
        }
    }

    pub(super) fn all(&self) -> Vec<Arc<Terminal>> {
        self.lock().values().cloned().collect()
    }

    pub(super) fn attending(&self) -> &Attendance {
        &self.attendance
    }

    pub(super) fn ledger(&self) -> &Arc<Ledger> {
        &self.ledger
    }

    pub(super) fn changes_sender(&self) -> &broadcast::Sender<Arc<Terminal>> {
        &self.changes
    }

    /// The policy that judges.
    pub fn policy(&self) -> &InForce {
        &self.policy
    }

    pub(super) fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<TerminalId, Arc<Terminal>>> {
        self.by_id.lock().expect("no code panics while it holds the table of terminals")
    }

    pub(super) fn lock_requests(&self) -> std::sync::MutexGuard<'_, HashMap<(SessionId, String), Attempt>> {
        self.by_request.lock().expect("no code panics while it holds the table of requests")
    }
}

/// Whether more input may come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndOfInput {
    /// Close stdin after this.
    AfterThis,
    /// More may come.
    NotYet,
}
