//! The terminals of a gateway that shuts down.

use std::sync::Arc;

use crate::{
    proto::supervisor::StopCause,
    terminal::{
        audit::recorder::Recorder,
        release::release,
        spec::Backpressure,
        state::{registry::Registry, stage::Stage, terminal::Terminal},
    },
};

/// How many commands run.
pub fn live_count(registry: &Registry) -> u64 {
    registry.all().iter().filter(|terminal| matches!(terminal.stage(), Stage::Running)).count() as u64
}

/// Commands that wait for their readers go on waiting when this gateway ends.
pub fn leave_holds(registry: &Registry) {
    for terminal in registry.all() {
        terminal.holds.leave();
    }
}

/// Ends what was run for one call each, but for what is resumable: its caller cannot come back to it. Answers when all of it is
/// gone.
pub async fn end_runs(registry: &Arc<Registry>, recorder: &Recorder) {
    let mut ending = tokio::task::JoinSet::new();
    let is_run = |terminal: &Arc<Terminal>| terminal.spec.backpressure == Backpressure::ForRun;
    for terminal in registry.all().into_iter().filter(is_run) {
        let (registry, recorder) = (registry.clone(), recorder.clone());
        ending.spawn(async move {
            if release(&registry, &recorder, &terminal, None, StopCause::Killed).await.is_err() {
                // Another call is releasing it, and will finish.
                terminal.wait_released().await;
            }
        });
    }
    ending.join_all().await;
}
