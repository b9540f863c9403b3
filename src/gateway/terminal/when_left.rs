//! Terminals that end with those who are attached to them.

use std::{sync::Arc, time::Duration};

use tokio::{sync::watch, time::timeout};

use crate::{
    proto::supervisor::StopCause,
    terminal::{context::TerminalContext, release::release, spec::WhenLeft, state::terminal::Terminal},
};

/// How long nobody may be attached, before the command is stopped. A caller may be on the way to this gateway from the one before.
const LEFT_FOR: Duration = Duration::from_secs(10);

impl TerminalContext {
    /// Stops and releases a terminal when nobody has been attached to it for a time, if it is one that ends so.
    pub(super) fn stop_when_left(&self, terminal: &Arc<Terminal>) {
        if terminal.spec.when_left == WhenLeft::RunsOn {
            return;
        }
        let (registry, recorder, terminal) =
            (self.registry().clone(), self.recorder().clone(), terminal.clone());
        tokio::spawn(async move {
            tokio::select! {
                () = left_for_long(terminal.watch_attached()) => {
                    tracing::info!(terminal.id = %terminal.id, "nobody is attached any more: it is stopped");
                    // A release by another call is as good.
                    let _ = release(&registry, &recorder, &terminal, None, StopCause::Killed).await;
                }
                () = terminal.wait_released() => {}
            }
        });
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
