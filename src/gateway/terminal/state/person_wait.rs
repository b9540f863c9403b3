//! Lets a command's idle clocks stand still while it waits for a person's answer: the supervisor's, and the gateway's own.

use std::sync::Arc;

use super::terminal::Terminal;

/// One question that waits, until it is dropped.
#[derive(Debug)]
pub(in crate::terminal) struct PersonWait(Arc<Terminal>);

impl PersonWait {
    /// From now on the command is not idle.
    pub(in crate::terminal) fn begin(terminal: &Arc<Terminal>) -> Self {
        if terminal.person_waits.add() {
            tell(terminal.clone());
        }
        Self(terminal.clone())
    }
}

impl Drop for PersonWait {
    fn drop(&mut self) {
        if self.0.person_waits.remove() {
            tell(self.0.clone());
        }
    }
}

/// Tells the supervisor how it is. One that does not answer ends the command by its own clock.
fn tell(terminal: Arc<Terminal>) {
    if terminal.spec.time_limits.idle.is_none() {
        return;
    }
    tokio::spawn(async move {
        let _telling = terminal.person_waits.telling().await;
        let waits = terminal.person_waits.any();
        let Some(live) = terminal.live() else { return };
        if let Err(error) = live.sandbox.hold_idle_clock(terminal.id.to_string(), waits).await
            && !terminal.stage().is_over()
        {
            tracing::warn!(terminal.id = %terminal.id, %error, "the supervisor does not hold an idle clock");
        }
    });
}
