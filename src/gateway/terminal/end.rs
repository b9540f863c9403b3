//! The end of a terminal: by its caller, with its session, with who is attached to it, or by a time limit. This is the one file with the
//! gateway's clocks of an end.
//!
//! The supervisor ends commands, and has clocks of its own. When it has not reported an end in time after the grace, the gateway kills the
//! command's cgroup itself, and then the sandbox's first process, with which the kernel ends the whole sandbox. It does nothing while the
//! supervisor is in time. A release that has begun is completed even when its caller disconnects or the supervisor does not answer.

use std::{sync::Arc, time::Duration};

use tokio::{
    sync::watch,
    task::JoinSet,
    time::{Instant, timeout, timeout_at},
};

use crate::{
    failpoint,
    link::LinkError,
    proto::{supervisor::StopCause, v1::ExitCause},
    sandbox::control::requests::RequestError,
    session::Session,
    terminal::{
        errors::{OperationError, TerminalReleased},
        live::Live,
        outcome,
        records::{self, KillReason},
        spec::{Backpressure, TimeLimits, WhenLeft},
        stage::{Claim, Stage},
        state::Terminal,
        terminals::{Terminals, run_to_completion},
    },
};

/// How long after its grace an end may take to be reported, before the gateway kills the command's cgroup: the supervisor may be
/// stopped, or hang. The scan of the workspace that follows a report is not in it.
const END_REPORT_TIMEOUT: Duration = Duration::from_secs(5);

/// How long after that before the gateway kills the sandbox. Longer than the supervisor takes to give up by itself: it knows
/// more, and a machine with much to end may be slow.
const CGROUP_KILL_TIMEOUT: Duration = Duration::from_secs(10);

/// How long nobody may be attached to a terminal that ends with those who are, before the command is stopped. A caller may be on the way
/// to this gateway from the one before.
const LEFT_FOR: Duration = Duration::from_secs(10);

/// How often in the time that a command may write nothing the gateway looks whether it has.
const IDLE_CHECKS: u32 = 4;

/// A deadline that is no more than this before one that is set is the same.
const DEADLINE_TOLERANCE: Duration = Duration::from_secs(1);

/// When a deadline applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EnforceWhen {
    /// Whatever the command is doing.
    Always,
    /// Only while one of its processes lives: what it has written may wait for its reader beyond its limits.
    WhileProcessesLive,
}

impl Terminal {
    /// Begins to stop the command: it ends, whatever its supervisor does. That it has ended is no error.
    pub(crate) async fn kill(self: &Arc<Self>, grace: Option<Duration>) -> Result<(), OperationError> {
        self.stop(grace, StopCause::Killed, KillReason::Kill).await
    }

    async fn stop(
        self: &Arc<Self>,
        grace: Option<Duration>,
        cause: StopCause,
        reason: KillReason,
    ) -> Result<(), OperationError> {
        match self.wait_settled().await {
            Stage::Created | Stage::Running => {}
            Stage::Finished(_) => return Ok(()),
            Stage::Released(_) => return Err(TerminalReleased.into()),
        }
        let Some(live) = self.live() else { return Err(TerminalReleased.into()) };
        self.end_claims.set_cause(outcome::cause_of_stop(cause));
        self.enforce_end_within(grace);
        let record = records::kill_requested(self.subject(), reason, grace);
        match self.end_claims.claim_first_kill() {
            Claim::Granted => self.recorder.record_best_effort(&record),
            Claim::Taken => self.recorder.record_or_count(&record),
        }
        failpoint::reach("kill.recorded");
        let stopped = live.sandbox.stop(self.id.to_string(), cause, grace).await;
        failpoint::reach("kill.answered");
        match stopped {
            // A sandbox that is lost takes its commands with it.
            Ok(()) | Err(RequestError::Control(LinkError::Lost(_))) => Ok(()),
            // It has not been asked to end, and must all the same.
            Err(RequestError::Control(LinkError::TimedOut(_))) => {
                self.enforce_end_by(Instant::now());
                Ok(())
            }
            Err(RequestError::Control(error)) => Err(error.into()),
            Err(RequestError::Errno(errno)) => Err(OperationError::Errno(errno)),
        }
    }

    /// Stops the command. Where the supervisor refuses that, its sandbox is killed: the command ends either way.
    async fn stop_or_kill(
        self: &Arc<Self>,
        grace: Option<Duration>,
        cause: StopCause,
    ) -> Result<(), TerminalReleased> {
        // Not on the supervisor's time.
        self.wait_settled().await;
        let reason = if cause == StopCause::Shutdown { KillReason::Shutdown } else { KillReason::Release };
        let problem = match self.stop(grace, cause, reason).await {
            Ok(()) => return Ok(()),
            Err(OperationError::Released(released)) => return Err(released),
            Err(error) => error.to_string(),
        };
        if let Some(live) = self.live() {
            tracing::error!(sandbox.id = live.sandbox.id(), terminal.id = %self.id, problem, "cannot stop a command: its sandbox is killed");
            live.sandbox.kill().await;
        }
        Ok(())
    }

    /// Holds the command to its limits, from now on. A gateway that has taken it over counts from there: its supervisor,
    /// which knows better, ends it earlier.
    pub(in crate::terminal) fn enforce_time_limits(self: &Arc<Self>) {
        if self.stage().is_over() {
            return;
        }
        let TimeLimits { limit, idle, grace } = self.spec.time_limits;
        if let Some(limit) = limit {
            tokio::spawn(enforce_limit(self.clone(), limit, grace));
        }
        if let Some(idle) = idle {
            tokio::spawn(enforce_idle(self.clone(), idle, grace));
        }
    }

    /// Has the command ended when this grace and a bound are over.
    fn enforce_end_within(self: &Arc<Self>, grace: Option<Duration>) {
        let grace = grace.unwrap_or(self.spec.time_limits.grace);
        self.enforce_end_by(Instant::now() + grace.saturating_add(END_REPORT_TIMEOUT));
    }

    fn enforce_end_by(self: &Arc<Self>, at: Instant) {
        if self.end_claims.shorten_deadline(at.into_std(), DEADLINE_TOLERANCE) {
            tokio::spawn(enforce(self.clone(), at, EnforceWhen::Always));
        }
    }
}

async fn enforce_limit(terminal: Arc<Terminal>, limit: Duration, grace: Duration) {
    if timeout(limit, terminal.wait_end_reported()).await.is_err() {
        set_limit_cause(&terminal, ExitCause::TimeLimit);
        let at = Instant::now() + grace.saturating_add(END_REPORT_TIMEOUT);
        enforce(terminal, at, EnforceWhen::WhileProcessesLive).await;
    }
}

async fn enforce(terminal: Arc<Terminal>, at: Instant, when: EnforceWhen) {
    if timeout_at(at, terminal.wait_end_reported()).await.is_err() {
        force_kill(&terminal, when).await;
    }
}

/// Looks a few times in each window whether anything was written, because nothing notifies of it.
async fn enforce_idle(terminal: Arc<Terminal>, idle: Duration, grace: Duration) {
    let window = idle.saturating_add(grace).saturating_add(END_REPORT_TIMEOUT);
    let active = || (terminal.written_bytes(), terminal.person_waits.begun());
    let (mut before, mut since) = (active(), Instant::now());
    while timeout(window / IDLE_CHECKS, terminal.wait_end_reported()).await.is_err() {
        let now = active();
        // What waits for a person is not idle; the supervisor counts the rest of the time.
        if now != before || terminal.person_waits.any() {
            (before, since) = (now, Instant::now());
        } else if since.elapsed() >= window {
            set_limit_cause(&terminal, ExitCause::IdleLimit);
            return force_kill(&terminal, EnforceWhen::WhileProcessesLive).await;
        }
    }
}

/// Its end is this limit's from here on, unless its processes have ended and only its output is still to be read.
fn set_limit_cause(terminal: &Terminal, cause: ExitCause) {
    let runs = |live: &Live| live.sandbox.has_processes_of(&terminal.id.to_string());
    if terminal.live().is_some_and(runs) {
        terminal.end_claims.set_cause(Some(cause));
    }
}

async fn force_kill(terminal: &Arc<Terminal>, when: EnforceWhen) {
    let Some(live) = terminal.live() else { return };
    let (sandbox, id) = (&live.sandbox, terminal.id.to_string());
    if when == EnforceWhen::WhileProcessesLive && !sandbox.has_processes_of(&id) {
        return;
    }
    if terminal.end_claims.claim_force() == Claim::Taken {
        return;
    }
    tracing::error!(sandbox.id = sandbox.id(), terminal.id = %id, "a command was not ended in time by its supervisor: its cgroup is killed");
    sandbox.kill_command(&id).await;
    if timeout(CGROUP_KILL_TIMEOUT, terminal.wait_end_reported()).await.is_ok() {
        return;
    }
    tracing::error!(sandbox.id = sandbox.id(), terminal.id = %id, "a command outlives its kill: its sandbox is killed, and with it the other commands in it");
    sandbox.kill().await;
}

impl Terminals {
    /// Stops the command if it runs, and frees everything. Answers when nothing is left. Of many who ask, one
    /// succeeds. Once begun, it is done even when the caller goes away.
    pub(crate) async fn release(
        self: &Arc<Self>,
        terminal: &Arc<Terminal>,
        grace: Option<Duration>,
        cause: StopCause,
    ) -> Result<(), OperationError> {
        if terminal.end_claims.claim_release() == Claim::Taken {
            return Err(TerminalReleased.into());
        }
        let (this, terminal) = (self.clone(), terminal.clone());
        let work = async move { this.release_claimed(&terminal, grace, cause).await };
        run_to_completion(work, |_| async {}).await
    }

    async fn release_claimed(
        &self,
        terminal: &Arc<Terminal>,
        grace: Option<Duration>,
        cause: StopCause,
    ) -> Result<(), OperationError> {
        failpoint::reach("release.claimed");
        if !terminal.stage().is_over() {
            terminal.stop_or_kill(grace, cause).await?;
            failpoint::reach("release.stopped");
            terminal.wait_over().await;
        }
        // A terminal that never started is gone already.
        let Some(finished) = terminal.take_finished() else { return Err(TerminalReleased.into()) };
        failpoint::reach("release.over");
        let released = finished.release(terminal.id).await;
        terminal.terminal_log().remove(terminal.id);
        failpoint::reach("release.forgotten");
        self.registry.remove(terminal);
        terminal.mark_released(released.outcome);
        failpoint::reach("release.done");
        Ok(())
    }

    /// Releases these terminals at once. Answers when all are gone, also those that another call is releasing.
    async fn release_all(
        self: &Arc<Self>,
        terminals: impl IntoIterator<Item = Arc<Terminal>>,
        grace: Option<Duration>,
        cause: StopCause,
    ) {
        let mut releasing = JoinSet::new();
        for terminal in terminals {
            let this = self.clone();
            releasing.spawn(async move {
                if this.release(&terminal, grace, cause).await.is_err() {
                    // Another call is releasing it, and will finish.
                    terminal.wait_released().await;
                }
            });
        }
        releasing.join_all().await;
    }

    /// Stops and releases every terminal of a session that nobody creates in any more.
    pub(super) async fn release_session(self: &Arc<Self>, session: &Session, grace: Option<Duration>) {
        let terminals = self.registry.list(session.principal, Some(session.id));
        self.release_all(terminals, grace, StopCause::Shutdown).await;
    }

    /// Releases finished terminals that nobody has released for that long.
    pub(crate) async fn collect_finished(self: &Arc<Self>, finished_for: Duration) {
        let is_old =
            |terminal: &Arc<Terminal>| terminal.finished_at().is_some_and(|at| at.elapsed() >= finished_for);
        for terminal in self.registry.all().into_iter().filter(is_old) {
            if self.release(&terminal, None, StopCause::Killed).await.is_ok() {
                self.counters.collected.inc();
                tracing::info!(terminal.id = %terminal.id, "finished terminal collected");
            }
        }
    }

    /// Stops and releases a terminal when nobody has been attached to it for a time, if it is one that ends so. In a session that
    /// goes on (`provost exec -it`, `run -it` with a session's name), the command would run on when its person's process is
    /// killed, and nobody would know of it. Another person who is attached keeps the command, and so does a client that is
    /// stopped (SIGSTOP).
    pub(super) fn stop_when_left(self: &Arc<Self>, terminal: &Arc<Terminal>) {
        if terminal.spec.when_left == WhenLeft::RunsOn {
            return;
        }
        let (this, terminal) = (self.clone(), terminal.clone());
        tokio::spawn(async move {
            tokio::select! {
                () = left_for_long(terminal.watch_attached()) => {
                    tracing::info!(terminal.id = %terminal.id, "nobody is attached any more: it is stopped");
                    // A release by another call is as good.
                    let _ = this.release(&terminal, None, StopCause::Killed).await;
                }
                () = terminal.wait_released() => {}
            }
        });
    }

    /// Commands that wait for their readers go on waiting when this gateway ends.
    pub(crate) fn leave_holds(&self) {
        for terminal in self.registry.all() {
            terminal.holds.leave();
        }
    }

    /// Ends what was run for one call each, but for what is resumable: its caller cannot come back to it. Answers when all of it is
    /// gone.
    pub(crate) async fn end_runs(self: &Arc<Self>) {
        let is_run = |terminal: &Arc<Terminal>| terminal.spec.backpressure == Backpressure::ForRun;
        self.release_all(self.registry.all().into_iter().filter(is_run), None, StopCause::Killed).await;
    }

    /// How many commands run.
    pub(crate) fn live_count(&self) -> u64 {
        let runs = |terminal: &&Arc<Terminal>| matches!(terminal.stage(), Stage::Running);
        self.registry.all().iter().filter(runs).count() as u64
    }
}

async fn left_for_long(mut attached: watch::Receiver<usize>) {
    loop {
        let is_left = attached.wait_for(|attached| *attached == 0).await.is_ok();
        let has_come = timeout(LEFT_FOR, attached.wait_for(|attached| *attached > 0)).await.is_ok();
        if is_left && !has_come {
            return;
        }
    }
}
