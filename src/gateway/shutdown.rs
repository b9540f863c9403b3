//! The signals that end a gateway, and what they ask for; and the state of this process, reported to the service manager that started it.
//!
//! SIGTERM drains: no new command starts, waits and streams are served for as long as the drain may take, and then the commands are left
//! running or stopped, as the configuration says. SIGINT, from a person at a terminal, stops all commands now. A second signal of either
//! kind ends the gateway at once.

use std::convert::Infallible;

use sd_notify::NotifyState;
use serde::Deserialize;
use tokio::signal::unix::Signal;
use tokio_util::sync::CancellationToken;

/// What becomes of commands when the gateway is told to stop by SIGTERM.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnStop {
    /// They go on under their supervisors, and the next gateway adopts them.
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
    /// With `drain`: to stop all commands now, even if callers wait, and whatever the configuration says.
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

/// Cancels the tokens that the signals stand for. Never ends.
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

/// Notifies the service manager, if it has asked for that (sd_notify(3)).
pub(super) fn notify_systemd(state: NotifyState<'_>) {
    if let Err(error) = sd_notify::notify(&[state]) {
        tracing::warn!(error = %error, "cannot tell the service manager");
    }
}
