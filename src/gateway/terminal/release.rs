//! Releasing terminals: by their caller, with their session, or because nobody released them in time.
//!
//! A release that has begun is completed even when its caller disconnects or the supervisor does not answer.

use std::{sync::Arc, time::Duration};

use crate::{
    failpoint,
    proto::supervisor::StopCause,
    session::Session,
    terminal::{
        audit::{recorder::Recorder, records::KillReason},
        control,
        counters::TerminalCounters,
        errors::{OperationError, TerminalReleased},
        run_to_completion::run_to_completion,
        state::{claim::Claim, registry::Registry, terminal::Terminal},
    },
};

/// Stops the command if it runs, and frees everything. Answers when nothing is left. Of many who ask, one
/// succeeds. Once begun, it is done even when the caller goes away.
pub async fn release(
    registry: &Arc<Registry>,
    recorder: &Recorder,
    terminal: &Arc<Terminal>,
    grace: Option<Duration>,
    cause: StopCause,
) -> Result<(), OperationError> {
    if terminal.end_claims.claim_release() == Claim::Taken {
        return Err(TerminalReleased.into());
    }
    let (registry, recorder, terminal) = (registry.clone(), recorder.clone(), terminal.clone());
    run_to_completion(
        async move { release_claimed(&registry, &recorder, &terminal, grace, cause).await },
        |_| async {},
    )
    .await
}

async fn release_claimed(
    registry: &Registry,
    recorder: &Recorder,
    terminal: &Arc<Terminal>,
    grace: Option<Duration>,
    cause: StopCause,
) -> Result<(), OperationError> {
    failpoint::reach("release.claimed");
    if !terminal.stage().is_over() {
        stop_or_kill(recorder, terminal, grace, cause).await?;
        failpoint::reach("release.stopped");
        terminal.wait_over().await;
    }
    // A terminal that never started is gone already.
    let Some(exited) = terminal.take_exited() else { return Err(TerminalReleased.into()) };
    failpoint::reach("release.over");
    let released = exited.release(terminal.id).await;
    terminal.terminal_log().remove(terminal.id);
    failpoint::reach("release.forgotten");
    registry.remove(terminal);
    terminal.mark_released(released.outcome);
    failpoint::reach("release.done");
    Ok(())
}

/// Releases finished terminals that nobody has released for that long.
pub async fn collect_finished(
    registry: &Arc<Registry>,
    recorder: &Recorder,
    counters: &TerminalCounters,
    finished_for: Duration,
) {
    let is_old =
        |terminal: &Arc<Terminal>| terminal.finished_at().is_some_and(|at| at.elapsed() >= finished_for);
    for terminal in registry.all().into_iter().filter(is_old) {
        if release(registry, recorder, &terminal, None, StopCause::Killed).await.is_ok() {
            counters.collected.inc();
            tracing::info!(terminal.id = %terminal.id, "finished terminal collected");
        }
    }
}

/// Stops and releases every terminal of a session that nobody creates in any more.
pub async fn release_all(
    registry: &Arc<Registry>,
    recorder: &Recorder,
    session: &Session,
    grace: Option<Duration>,
) {
    let terminals = registry.list(session.principal, Some(session.id));
    let mut releasing = tokio::task::JoinSet::new();
    for terminal in terminals {
        let (registry, recorder) = (registry.clone(), recorder.clone());
        releasing.spawn(async move {
            if release(&registry, &recorder, &terminal, grace, StopCause::Shutdown).await.is_err() {
                // Another call is releasing it, and will finish.
                terminal.wait_released().await;
            }
        });
    }
    releasing.join_all().await;
}

/// Stops the command. Where the supervisor refuses that, its sandbox is killed: the command ends either way.
async fn stop_or_kill(
    recorder: &Recorder,
    terminal: &Arc<Terminal>,
    grace: Option<Duration>,
    cause: StopCause,
) -> Result<(), TerminalReleased> {
    // Not on the supervisor's time.
    terminal.wait_settled().await;
    let reason = if cause == StopCause::Shutdown { KillReason::Shutdown } else { KillReason::Release };
    let problem = match control::stop(recorder, terminal, grace, cause, reason).await {
        Ok(()) => return Ok(()),
        Err(OperationError::Released(released)) => return Err(released),
        Err(error) => error.to_string(),
    };
    if let Some(live) = terminal.live() {
        tracing::error!(sandbox.id = live.sandbox.id(), terminal.id = %terminal.id, problem, "cannot stop a command: its sandbox is killed");
        live.sandbox.kill().await;
    }
    Ok(())
}
