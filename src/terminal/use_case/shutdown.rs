//! What a gateway that ends asks of its terminals, and what it leaves.

use std::sync::Arc;

use crate::{
    proto::supervisor::StopCause,
    terminal::{
        spec::Backpressure,
        state::{registry::Terminals, stage::Stage, terminal::Terminal, waiters::Waiters},
    },
};

impl Terminals {
    /// Who waits for a terminal.
    pub fn waiters(&self) -> &Waiters {
        self.all_waiters()
    }

    /// How many commands run.
    pub fn live_count(&self) -> u64 {
        self.all().iter().filter(|terminal| matches!(terminal.stage(), Stage::Running)).count() as u64
    }

    /// Ends what was run for one call each: its caller cannot come back to it. Answers when all of it is gone.
    pub async fn end_runs(self: &Arc<Self>) {
        let mut ending = tokio::task::JoinSet::new();
        let is_run = |terminal: &Arc<Terminal>| terminal.spec.backpressure == Backpressure::ForRun;
        for terminal in self.all().into_iter().filter(is_run) {
            let this = self.clone();
            ending.spawn(async move {
                if this.release(&terminal, None, StopCause::Killed).await.is_err() {
                    // Somebody else is at it, and will come to the end of it.
                    terminal.wait_released().await;
                }
            });
        }
        ending.join_all().await;
    }
}
