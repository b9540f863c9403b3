//! How a gateway ends: who is told, who is waited for, and whether what runs is left or stopped.
//!
//! SIGTERM drains: no new command begins, waits and streams are served for as long as the drain may take, and then the
//! commands are left to their supervisors, for the next gateway, or stopped, as the configuration says. SIGINT, from
//! the person who has it in a terminal, stops everything at once. A second signal of either kind is quick.

use std::{convert::Infallible, time::Duration};

use serde::Deserialize;
use tokio::{
    signal::unix::Signal,
    time::{Instant, timeout, timeout_at},
};
use tokio_util::sync::CancellationToken;

use super::{Gateway, journal_lifecycle::DrainOutcome, notify_systemd};
use crate::terminal::CloseReason;

/// However long was waited for callers: commands that are stopped have this time at least.
const STOP_TIMEOUT_MIN: Duration = Duration::from_secs(5);
/// How long the runs of callers that go away with the gateway may take to end, before they are left to the next one.
const RUNS_END_TIMEOUT: Duration = Duration::from_secs(5);

/// What becomes of commands when the gateway is told to stop by SIGTERM.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnStop {
    /// They go on under their supervisors, and the next gateway takes them back.
    #[default]
    Leave,
    /// They are stopped, and their sessions closed.
    Stop,
}

/// What was asked of a gateway that serves.
#[derive(Debug, Clone, Default)]
pub(super) struct ShutdownSignal {
    /// To begin nothing new, and to end when nobody waits any more.
    pub(super) drain: CancellationToken,
    /// With `drain`: to stop all commands now, whoever waits and whatever the configuration says.
    pub(super) stop: CancellationToken,
    /// To end at once.
    pub(super) force: CancellationToken,
}

impl ShutdownSignal {
    /// Stops everything, in order.
    pub(super) fn stop_all(&self) {
        self.stop.cancel();
        self.drain.cancel();
    }
}

/// Turns signals into orders. Never ends.
pub(super) async fn watch_signals(
    terminate: &mut Signal,
    interrupt: &mut Signal,
    shutdown: &ShutdownSignal,
) -> Infallible {
    let first = next_signal(terminate, interrupt).await;
    tracing::info!("draining");
    notify_systemd(sd_notify::NotifyState::Stopping);
    match first {
        StopSignal::Terminate => shutdown.drain.cancel(),
        StopSignal::Interrupt => shutdown.stop_all(),
    }
    next_signal(terminate, interrupt).await;
    tracing::warn!("second signal: ending at once");
    shutdown.force.cancel();
    std::future::pending().await
}

enum StopSignal {
    Terminate,
    Interrupt,
}

async fn next_signal(terminate: &mut Signal, interrupt: &mut Signal) -> StopSignal {
    tokio::select! {
        _ = terminate.recv() => StopSignal::Terminate,
        _ = interrupt.recv() => StopSignal::Interrupt,
    }
}

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
