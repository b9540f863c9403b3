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

use super::{Gateway, journaling::Drained, tell_systemd};
use crate::terminal::closing::{self, Why};

/// However long was waited for callers: commands that are stopped have this time at least.
const STOP_AT_LEAST: Duration = Duration::from_secs(5);
/// How long the runs of callers that go away with the gateway may take to end, before they are left to the next one.
const RUNS_END: Duration = Duration::from_secs(5);

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
pub(super) struct Orders {
    /// To begin nothing new, and to end when nobody waits any more.
    pub(super) drain: CancellationToken,
    /// With `drain`: to stop all commands now, whoever waits and whatever the configuration says.
    pub(super) stop: CancellationToken,
    /// To end at once.
    pub(super) hurry: CancellationToken,
}

impl Orders {
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
    orders: &Orders,
) -> Infallible {
    let first = next_signal(terminate, interrupt).await;
    tracing::info!("draining");
    tell_systemd(sd_notify::NotifyState::Stopping);
    match first {
        Told::Terminate => orders.drain.cancel(),
        Told::Interrupt => orders.stop_all(),
    }
    next_signal(terminate, interrupt).await;
    tracing::warn!("second signal: ending at once");
    orders.hurry.cancel();
    std::future::pending().await
}

enum Told {
    Terminate,
    Interrupt,
}

async fn next_signal(terminate: &mut Signal, interrupt: &mut Signal) -> Told {
    tokio::select! {
        _ = terminate.recv() => Told::Terminate,
        _ = interrupt.recv() => Told::Interrupt,
    }
}

impl Gateway {
    /// The end of all that was begun. The API answers meanwhile.
    pub(super) async fn wind_up(&self, orders: &Orders) -> Drained {
        let deadline = Instant::now() + self.drain_limit;
        tokio::select! {
            in_time = timeout_at(deadline, self.terminals.attendance().nobody()) => if in_time.is_err() {
                tracing::info!("the drain has taken its time: waits and streams end");
            },
            () = orders.stop.cancelled() => {}
            () = orders.hurry.cancelled() => {}
        }
        if self.on_stop == OnStop::Leave && !orders.stop.is_cancelled() {
            return self.leave(&orders.hurry).await;
        }
        let left = deadline.saturating_duration_since(Instant::now()).max(STOP_AT_LEAST);
        self.end_sessions(left, &orders.hurry).await
    }

    /// Leaves what runs to the next gateway, but for what was run for callers that cannot come back.
    async fn leave(&self, hurry: &CancellationToken) -> Drained {
        tokio::select! {
            in_time = timeout(RUNS_END, self.terminals.end_runs()) => if in_time.is_err() {
                tracing::warn!("runs do not end: the next gateway will end them");
            },
            () = hurry.cancelled() => {}
        }
        Drained::Left { live_terminals: self.terminals.live() }
    }

    /// Closes every session: in good order for as long as that may take, then by force.
    async fn end_sessions(&self, limit: Duration, hurry: &CancellationToken) -> Drained {
        let drained;
        let gentle = timeout(limit, self.close_sessions(None));
        tokio::select! {
            in_time = gentle => {
                if in_time.is_ok() {
                    return Drained::InOrder;
                }
                tracing::warn!("drain took too long: killing what is left");
                drained = Drained::TooSlow;
            }
            () = hurry.cancelled() => drained = Drained::Hurried,
        }
        let mut killing = tokio::task::JoinSet::new();
        for session in self.sessions.all() {
            killing.spawn(async move { session.sandboxes.kill().await });
        }
        killing.join_all().await;
        self.close_sessions(Some(Duration::ZERO)).await;
        drained
    }

    async fn close_sessions(&self, grace: Option<Duration>) {
        let mut closing = tokio::task::JoinSet::new();
        for session in self.sessions.all() {
            let (terminals, sessions) = (self.terminals.clone(), self.sessions.clone());
            closing.spawn(async move {
                closing::close(&terminals, &sessions, &session, Why::Shutdown, grace).await
            });
        }
        closing.join_all().await;
    }
}
