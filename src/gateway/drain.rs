//! The drain of a gateway: it waits for callers, then leaves the commands to the next gateway or stops them.

use std::time::Duration;

use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::sync::CancellationToken;

use super::{
    composition::Gateway,
    journal_lifecycle::DrainOutcome,
    shutdown::{OnStop, ShutdownSignal},
};
use crate::terminal::CloseReason;

/// However long was waited for callers: commands that are stopped have this time at least.
const STOP_TIMEOUT_MIN: Duration = Duration::from_secs(5);
/// How long the runs of callers that go away with the gateway may take to end, before they are left to the next one.
const RUNS_END_TIMEOUT: Duration = Duration::from_secs(5);

impl Gateway {
    /// The end of all that was begun. The API answers meanwhile.
    pub(super) async fn drain(&self, shutdown: &ShutdownSignal) -> DrainOutcome {
        let deadline = Instant::now() + self.drain_timeout;
        tokio::select! {
            in_time = timeout_at(deadline, self.terminals.waiters().wait_until_none()) => if in_time.is_err() {
                tracing::info!("the drain has taken its time: waits and streams end");
            },
            () = shutdown.stop.cancelled() => {}
            () = shutdown.force.cancelled() => {}
        }
        if self.on_stop == OnStop::Leave && !shutdown.stop.is_cancelled() {
            return self.leave_running(&shutdown.force).await;
        }
        let remaining = deadline.saturating_duration_since(Instant::now()).max(STOP_TIMEOUT_MIN);
        self.stop_sessions(remaining, &shutdown.force).await
    }

    /// Leaves what runs to the next gateway, but for what was run for callers that cannot come back.
    async fn leave_running(&self, force: &CancellationToken) -> DrainOutcome {
        self.terminals.leave_holds();
        tokio::select! {
            in_time = timeout(RUNS_END_TIMEOUT, self.terminals.end_runs()) => if in_time.is_err() {
                tracing::warn!("runs do not end: the next gateway will end them");
            },
            () = force.cancelled() => {}
        }
        DrainOutcome::LeftRunning { live_terminals: self.terminals.live_count() }
    }

    /// Closes every session: in good order for as long as that may take, then by force.
    async fn stop_sessions(&self, limit: Duration, force: &CancellationToken) -> DrainOutcome {
        let outcome;
        let graceful = timeout(limit, self.close_sessions(None));
        tokio::select! {
            in_time = graceful => {
                if in_time.is_ok() {
                    return DrainOutcome::InOrder;
                }
                tracing::warn!("drain took too long: killing what is left");
                outcome = DrainOutcome::TimedOut;
            }
            () = force.cancelled() => outcome = DrainOutcome::Forced,
        }
        let mut killing = tokio::task::JoinSet::new();
        for session in self.sessions.all() {
            killing.spawn(async move { session.sandboxes.kill().await });
        }
        killing.join_all().await;
        self.close_sessions(Some(Duration::ZERO)).await;
        outcome
    }

    async fn close_sessions(&self, grace: Option<Duration>) {
        let mut closing = tokio::task::JoinSet::new();
        for session in self.sessions.all() {
            let (terminals, sessions) = (self.terminals.clone(), self.sessions.clone());
            closing.spawn(async move {
                terminals.close_session(&sessions, &session, CloseReason::Shutdown, grace).await
            });
        }
        closing.join_all().await;
    }
}
