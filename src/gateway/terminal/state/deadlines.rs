//! The gateway's own deadlines for the end of a command: after a time limit, an idle limit, a kill, a release, the close
//! of a session, or a drain.
//!
//! The supervisor ends commands. When it has not reported an end in time after the grace, the gateway kills the command's
//! cgroup itself, and then the sandbox's first process, with which the kernel ends the whole sandbox. It does nothing while the
//! supervisor is in time.

use std::{sync::Arc, time::Duration};

use tokio::time::{Instant, timeout, timeout_at};

use super::{claim::Claim, live::Live, terminal::Terminal};
use crate::{proto::v1::ExitCause, terminal::spec::TimeLimits};

/// How long after its grace an end may take to be reported, before the gateway kills the command's cgroup.
const END_REPORT_TIMEOUT: Duration = Duration::from_secs(5);

/// How long after that before the gateway kills the sandbox. Longer than the supervisor takes to give up by itself: it knows
/// more, and a machine with much to end may be slow.
const CGROUP_KILL_TIMEOUT: Duration = Duration::from_secs(10);

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
    pub(in crate::terminal) fn enforce_end_within(self: &Arc<Self>, grace: Option<Duration>) {
        let grace = grace.unwrap_or(self.spec.time_limits.grace);
        self.enforce_end_by(Instant::now() + grace.saturating_add(END_REPORT_TIMEOUT));
    }

    /// Has the command ended at once: its supervisor does not answer.
    pub(in crate::terminal) fn enforce_end_now(self: &Arc<Self>) {
        self.enforce_end_by(Instant::now());
    }

    fn enforce_end_by(self: &Arc<Self>, at: Instant) {
        if self.end_claims.shorten_deadline(at.into_std(), DEADLINE_TOLERANCE) {
            tokio::spawn(enforce(self.clone(), at, EnforceWhen::Always));
        }
    }
}

async fn enforce_limit(terminal: Arc<Terminal>, limit: Duration, grace: Duration) {
    if timeout(limit, terminal.wait_over()).await.is_err() {
        set_limit_cause(&terminal, ExitCause::TimeLimit);
        let at = Instant::now() + grace.saturating_add(END_REPORT_TIMEOUT);
        enforce(terminal, at, EnforceWhen::WhileProcessesLive).await;
    }
}

async fn enforce(terminal: Arc<Terminal>, at: Instant, when: EnforceWhen) {
    if timeout_at(at, terminal.wait_over()).await.is_err() {
        force_kill(&terminal, when).await;
    }
}

/// Looks a few times in each window whether anything was written, because nothing notifies of it.
async fn enforce_idle(terminal: Arc<Terminal>, idle: Duration, grace: Duration) {
    let window = idle.saturating_add(grace).saturating_add(END_REPORT_TIMEOUT);
    let (mut written, mut since) = (terminal.written_bytes(), Instant::now());
    while timeout(window / IDLE_CHECKS, terminal.wait_over()).await.is_err() {
        let now = terminal.written_bytes();
        // What waits for a person is not idle; the supervisor counts the rest of the time.
        if now != written || terminal.person_waits.any() {
            (written, since) = (now, Instant::now());
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
    if timeout(CGROUP_KILL_TIMEOUT, terminal.wait_over()).await.is_ok() {
        return;
    }
    tracing::error!(sandbox.id = sandbox.id(), terminal.id = %id, "a command outlives its kill: its sandbox is killed, and with it the other commands in it");
    sandbox.kill().await;
}
