//! The terminals of a gateway, as the API and the gateway use them. Each method calls a use case with the parts that it
//! needs.

use std::{collections::HashSet, io, os::fd::OwnedFd, sync::Arc, time::Duration};

use tokio::sync::broadcast;

use super::{
    audit::recorder::{RecordedExits, Recorder},
    counters::{CloseReason, TerminalCounters},
    errors::{
        CreateError, ForwardError, OpenSessionError, OperationError, ResolveApprovalError, RunLineError,
        ScreenAccessError,
    },
    id::TerminalId,
    quotas::Quotas,
    state::{
        quota_tracker::QuotaUsage, terminal::Terminal, terminal_log::TerminalLogError, waiters::Waiters,
    },
    use_case::{
        adopt::{AdoptError, SandboxStatuses},
        close_session,
        context::TerminalContext,
        control::{self, EndOfInput},
        explain,
        forward::{self, Forwarded},
        new_request::NewRequest,
        open_session, release, resolve_approval,
        run::Run,
        run_line::{NewLine, ShellStatus},
        running_line::RunningLine,
        shutdown,
    },
};
use crate::{
    approval::{Answer, Approval, ApprovalId, ApprovalStore},
    display::picture::Picture,
    policy::{ActivePolicy, PtySize, explain::Explanation},
    pool::PoolError,
    proto::supervisor::StopCause,
    sandbox::{adopt::AdoptableSandbox, screen_link::ScreenLink},
    session::{LaunchContext, NewSession, Peer, Principal, Session, SessionId, Sessions},
};

/// The terminals of a gateway.
#[derive(Debug)]
pub struct Terminals {
    context: Arc<TerminalContext>,
}

impl Terminals {
    /// No terminals yet. What becomes of them is recorded by `recorder`.
    pub fn new(
        launch_context: LaunchContext,
        policy: Arc<ActivePolicy>,
        approvals: Arc<ApprovalStore>,
        quotas: Quotas,
        recorder: Recorder,
    ) -> Arc<Self> {
        let context = TerminalContext::new(launch_context, policy, approvals, quotas, recorder);
        Arc::new(Self { context })
    }

    /// The caller's terminal of that id, of that session when one is named. `None` for a malformed, unknown,
    /// released or foreign one, without a difference.
    pub fn find(&self, principal: Principal, id: &str, session: &str) -> Option<Arc<Terminal>> {
        self.context.registry().find(principal, id, session)
    }

    /// The primary terminal of a session: the chosen one, else the oldest pseudo-terminal that is not released.
    pub fn primary(&self, session: SessionId) -> Option<TerminalId> {
        self.context.registry().primary(session)
    }

    /// Makes a terminal the primary one of its session.
    ///
    /// # Errors
    /// It has pipes.
    pub fn set_primary(&self, terminal: &Terminal) -> Result<(), OperationError> {
        if terminal.pty_size().is_none() {
            return Err(OperationError::NoPty);
        }
        self.context.registry().set_primary(terminal);
        Ok(())
    }

    /// The caller's terminals, oldest first; of one session when it is named.
    pub fn list(&self, principal: Principal, session: Option<SessionId>) -> Vec<Arc<Terminal>> {
        self.context.registry().list(principal, session)
    }

    /// As [`Self::list`], those after one that was listed before.
    pub fn list_after(
        &self,
        principal: Principal,
        session: Option<SessionId>,
        after: Option<TerminalId>,
    ) -> Vec<Arc<Terminal>> {
        self.context.registry().list_after(principal, session, after)
    }

    /// Terminals whose state has changed, from now on.
    pub fn changes(&self) -> broadcast::Receiver<Arc<Terminal>> {
        self.context.registry().changes()
    }

    /// Creates a terminal, or finds the one that the same request created. A caller that goes away meanwhile has
    /// either the one terminal of its request id, or none.
    pub async fn create(&self, new: NewRequest) -> Result<Arc<Terminal>, Arc<CreateError>> {
        self.context.create(new).await
    }

    /// Explains what policy would decide about a request.
    ///
    /// # Errors
    /// When the file systems of the caller do not answer.
    pub async fn explain(&self, new: &NewRequest) -> Result<Explanation, PoolError> {
        let launch_context = self.context.launch_context();
        explain::explain(self.context.policy(), self.context.program_cache(), launch_context, new).await
    }

    /// A run of a terminal that was just created for it.
    pub fn run(&self, terminal: Arc<Terminal>) -> Run {
        Run::new(self.context.registry().clone(), self.context.recorder().clone(), terminal)
    }

    /// Begins to stream a resumable run, whose request may have been sent before.
    ///
    /// # Errors
    /// [`OperationError::RunNotAwaited`].
    pub fn take_run(&self, terminal: Arc<Terminal>) -> Result<Run, OperationError> {
        Run::take(self.context.registry().clone(), self.context.recorder().clone(), terminal)
    }

    /// Goes on with a resumable run of an earlier gateway, from these offsets of stdout and stderr on.
    ///
    /// # Errors
    /// [`OperationError::RunNotAwaited`].
    pub fn resume_run(&self, terminal: Arc<Terminal>, offsets: [u64; 2]) -> Result<Run, OperationError> {
        Run::resume(self.context.registry().clone(), self.context.recorder().clone(), terminal, offsets)
    }

    /// Begins to stop the command: it ends, whatever its supervisor does. That it has ended is no error.
    pub async fn kill(
        &self,
        terminal: &Arc<Terminal>,
        grace: Option<Duration>,
    ) -> Result<(), OperationError> {
        control::kill(self.context.recorder(), terminal, grace).await
    }

    /// Sends a signal to the main process's group.
    pub async fn signal(&self, terminal: &Terminal, signal: i32) -> Result<(), OperationError> {
        control::signal(self.context.recorder(), terminal, signal).await
    }

    /// Writes to the command's stdin; how many bytes it took. Fewer than all: the command has closed it.
    pub async fn write(
        &self,
        terminal: &Terminal,
        data: prost::bytes::Bytes,
        end: EndOfInput,
    ) -> Result<u64, OperationError> {
        control::check_input_free(terminal)?;
        control::write_stdin(terminal, None, data, end).await
    }

    /// As [`Self::write`], of data that stands at this offset of all the input: what was taken before is skipped.
    pub async fn write_at(
        &self,
        terminal: &Terminal,
        offset: u64,
        data: prost::bytes::Bytes,
        end: EndOfInput,
    ) -> Result<u64, OperationError> {
        control::check_input_free(terminal)?;
        control::write_stdin(terminal, Some(offset), data, end).await
    }

    /// Runs a line in a kept shell. Returns when the shell is about to begin it.
    pub async fn run_line(
        &self,
        terminal: &Arc<Terminal>,
        new: NewLine,
    ) -> Result<RunningLine, RunLineError> {
        self.context.run_line(terminal, new).await
    }

    /// Writes to what a line runs.
    pub async fn write_line_input(
        &self,
        terminal: &Terminal,
        line_id: &str,
        data: prost::bytes::Bytes,
        end: EndOfInput,
    ) -> Result<(), OperationError> {
        self.context.write_line_input(terminal, line_id, data, end).await
    }

    /// Sends SIGINT to what runs in the foreground of a kept shell.
    pub async fn interrupt_line(&self, terminal: &Terminal) -> Result<(), OperationError> {
        self.context.interrupt_line(terminal).await
    }

    /// What a kept shell does.
    pub async fn shell_status(&self, terminal: &Arc<Terminal>) -> Result<ShellStatus, OperationError> {
        self.context.shell_status(terminal).await
    }

    /// Changes the size of a pseudo-terminal; its foreground process group gets SIGWINCH.
    pub async fn resize(&self, terminal: &Terminal, size: PtySize) -> Result<(), OperationError> {
        control::resize(terminal, size).await
    }

    /// Connects to a port on the loopback of a terminal's sandbox.
    ///
    /// # Errors
    /// [`ForwardError`].
    pub async fn forward(&self, terminal: &Terminal, port: u16) -> Result<Forwarded, ForwardError> {
        forward::connect(self.context.forwards(), self.context.recorder(), terminal, port).await
    }

    /// The link that has a terminal's screen.
    ///
    /// # Errors
    /// [`ScreenAccessError`].
    pub async fn screen(&self, terminal: &Terminal) -> Result<Arc<ScreenLink>, ScreenAccessError> {
        terminal.wait_settled().await;
        self.context.screens().link(terminal).await
    }

    /// The screen of a terminal as all that was written before shows it, and the link that has it.
    ///
    /// # Errors
    /// [`ScreenAccessError`].
    pub async fn screen_snapshot(
        &self,
        terminal: &Terminal,
    ) -> Result<(Arc<ScreenLink>, Arc<Picture>), ScreenAccessError> {
        terminal.wait_settled().await;
        self.context.screens().snapshot(terminal).await
    }

    /// Stops the command if it runs, and frees everything. Answers when nothing is left. Of many who ask, one
    /// succeeds. Once begun, it is done even when the caller goes away.
    pub async fn release(
        &self,
        terminal: &Arc<Terminal>,
        grace: Option<Duration>,
        cause: StopCause,
    ) -> Result<(), OperationError> {
        release::release(self.context.registry(), self.context.recorder(), terminal, grace, cause).await
    }

    /// Releases finished terminals that nobody has released for that long.
    pub async fn collect_finished(&self, finished_for: Duration) {
        let (registry, recorder) = (self.context.registry(), self.context.recorder());
        release::collect_finished(registry, recorder, self.context.counters(), finished_for).await;
    }

    /// Answers a question. Of many who answer, one succeeds. An approval counts when it is in the journal; a denial
    /// counts in any case. Once begun, it is done even when the caller goes away.
    pub async fn resolve(&self, id: ApprovalId, answer: Answer) -> Result<Approval, ResolveApprovalError> {
        resolve_approval::resolve(self.context.approvals(), self.context.recorder(), id, answer).await
    }

    /// Opens a session for the caller, and counts it.
    pub async fn open_session(
        &self,
        sessions: &Arc<Sessions>,
        peer: &Peer,
        new: NewSession,
    ) -> Result<Arc<Session>, OpenSessionError> {
        open_session::open(sessions, &self.context, peer, new).await
    }

    /// Closes a session. Answers when nothing of it is left, and goes on when nobody waits for the answer any more.
    /// `grace`: between TERM and KILL; absent: each terminal's own.
    pub async fn close_session(
        &self,
        sessions: &Arc<Sessions>,
        session: &Arc<Session>,
        reason: CloseReason,
        grace: Option<Duration>,
    ) {
        close_session::close(&self.context, sessions, session, reason, grace).await;
    }

    /// Closes a session when the process that opened it has ended.
    ///
    /// # Errors
    /// When the process cannot be watched.
    pub fn end_session_with_process(
        &self,
        sessions: Arc<Sessions>,
        session: Arc<Session>,
        process: &OwnedFd,
    ) -> io::Result<()> {
        close_session::end_with_process(self.context.clone(), sessions, session, process)
    }

    /// Adopts a sandbox of a session, with all its terminals. Answers with their number.
    ///
    /// # Errors
    /// [`AdoptError`]: nothing was adopted.
    pub fn adopt(
        &self,
        session: &Arc<Session>,
        found: AdoptableSandbox,
        recorded_exits: &mut RecordedExits,
    ) -> Result<usize, AdoptError> {
        self.context.adopt(session, found, recorded_exits)
    }

    /// Reads which terminals a session had, before any of its sandboxes is adopted.
    ///
    /// # Errors
    /// [`TerminalLogError`]: some may be missing. The file was put aside.
    pub fn restore_log(&self, session: &Session) -> Result<(), TerminalLogError> {
        self.context.restore_log(session)
    }

    /// Removes the terminal logs of sessions that are not among these. The names of those that were put aside as damaged.
    ///
    /// # Errors
    /// When the directory cannot be read.
    pub fn remove_stale_logs(&self, sessions: &HashSet<String>) -> io::Result<Vec<String>> {
        self.context.remove_stale_logs(sessions)
    }

    /// Settles what stands in a session's terminal log and was not found in a sandbox, after all sandboxes were looked at.
    /// How many commands have ended with their sandboxes.
    pub fn settle_log(
        &self,
        session: &Arc<Session>,
        statuses: &SandboxStatuses,
        recorded_exits: &mut RecordedExits,
    ) -> usize {
        self.context.settle_log(session, statuses, recorded_exits)
    }

    /// Lets no new terminal begin.
    pub fn drain(&self) {
        self.context.drain();
    }

    /// Whether new terminals are refused.
    pub fn is_draining(&self) -> bool {
        self.context.is_draining()
    }

    /// Commands that wait for their readers go on waiting when this gateway ends.
    pub fn leave_holds(&self) {
        shutdown::leave_holds(self.context.registry());
    }

    /// Ends what was run for one call each: its caller cannot come back to it. Answers when all of it is gone.
    pub async fn end_runs(&self) {
        shutdown::end_runs(self.context.registry(), self.context.recorder()).await;
    }

    /// How many commands run.
    pub fn live_count(&self) -> u64 {
        shutdown::live_count(self.context.registry())
    }

    /// The callers who wait for a terminal.
    pub fn waiters(&self) -> &Waiters {
        self.context.waiters()
    }

    /// What a session has of its quotas.
    pub fn session_usage(&self, session: SessionId) -> QuotaUsage {
        self.context.session_usage(session)
    }

    /// What all sessions have of their quotas.
    pub fn total_usage(&self) -> QuotaUsage {
        self.context.total_usage()
    }

    /// The counters of sessions, requests and terminals.
    pub fn counters(&self) -> &Arc<TerminalCounters> {
        self.context.counters()
    }

    /// Where sandboxes are built, and what has become of them.
    pub fn launch_context(&self) -> &LaunchContext {
        self.context.launch_context()
    }

    /// The questions that persons are asked.
    pub fn approvals(&self) -> &Arc<ApprovalStore> {
        self.context.approvals()
    }

    /// The recorder of what happens.
    pub fn recorder(&self) -> &Recorder {
        self.context.recorder()
    }

    /// The policy in force.
    pub fn policy(&self) -> &ActivePolicy {
        self.context.policy()
    }
}
