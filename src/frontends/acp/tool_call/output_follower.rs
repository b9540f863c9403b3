//! Terminals that an editor shows, followed until they have ended.
//!
//! An output snapshot is sent no oftener than a person can see, and not at all while too much waits for the editor. The
//! last snapshot is always sent. A gateway that is away is waited for, for as long as the terminal is shown.

use std::{sync::Arc, time::Duration};

use agent_client_protocol_schema::v1::SessionId;
use tokio::time::{sleep, timeout};
use tonic::Code;

use super::tool_calls::ToolCalls;
use crate::acp::{
    terminal::{
        content::SHOWN_BYTES,
        terminal::{AcpTerminal, OutputDelta},
    },
    wire::framing::Disconnected,
};

/// At most this often a terminal is shown again.
const SHOW_INTERVAL: Duration = Duration::from_millis(200);
/// How long an update waits for the last output of commands that have ended.
const CATCH_UP_TIMEOUT: Duration = Duration::from_secs(2);
/// How often it is seen whether a gateway that is away has come back.
const GATEWAY_RETRY_INTERVAL: Duration = Duration::from_secs(1);

impl ToolCalls {
    /// Sends the editor the ends that are known and that it was not told of: of one tool call, or of a whole session.
    /// An agent may be done with a command, its tool call and its session before the next look at the terminal.
    pub(in crate::acp) async fn catch_up(&self, session: &SessionId, tool_call: Option<&str>) {
        let ended = self.state.lock().await.unreported(session, tool_call);
        let sending = async {
            for (terminal, produced) in ended {
                if let Ok(delta) = terminal.output_since(produced, SHOWN_BYTES).await {
                    // The next sender notices that the editor is gone.
                    let _ = self.send_update(session, &terminal.id, produced, &delta).await;
                }
            }
        };
        let _ = timeout(CATCH_UP_TIMEOUT, sending).await;
    }

    /// Sends the editor what a terminal shows, until it has ended.
    pub(in crate::acp) async fn follow(self: Arc<Self>, session: SessionId, terminal: Arc<AcpTerminal>) {
        loop {
            let Some(produced) = self.sent_output(&session, &terminal.id).await else { return };
            let delta = match terminal.output_since(produced, SHOWN_BYTES).await {
                Ok(delta) => delta,
                Err(status) if status.code() == Code::NotFound => return,
                // It is away, or hangs: the next look may do better.
                Err(_) => {
                    sleep(GATEWAY_RETRY_INTERVAL).await;
                    continue;
                }
            };
            let has_ended = delta.exit.is_some();
            let is_new = has_ended || delta.produced != produced;
            // A snapshot can wait; the last one cannot.
            if is_new
                && (has_ended || !self.editor.is_congested())
                && self.send_update(&session, &terminal.id, produced, &delta).await.is_err()
            {
                return;
            }
            if has_ended {
                // This task or another has reported the end: the next look shows which.
                continue;
            }
            sleep(SHOW_INTERVAL).await;
            if terminal.wait_for_change().await.is_err_and(|status| status.code() == Code::NotFound) {
                // Its session is gone: one last look at what is known.
                let Some(produced) = self.sent_output(&session, &terminal.id).await else { return };
                if let Ok(delta) = terminal.output_since(produced, SHOWN_BYTES).await {
                    let _ = self.send_update(&session, &terminal.id, produced, &delta).await;
                }
                return;
            }
        }
    }

    /// How much of a terminal's output the editor was told of; none when it was told of its end, too, or is not any more.
    async fn sent_output(&self, session: &SessionId, id: &str) -> Option<u64> {
        let state = self.state.lock().await;
        let shown = state.shown(session, id)?;
        shown.exit.is_none().then_some(shown.produced)
    }

    /// Sends what is new since `produced`, unless another task has sent it meanwhile.
    async fn send_update(
        &self,
        session: &SessionId,
        id: &str,
        produced: u64,
        delta: &OutputDelta,
    ) -> Result<(), Disconnected> {
        let mut state = self.state.lock().await;
        let lines = state
            .update_lines(session, id, (produced, delta), self.handshake.display())
            .ok_or(Disconnected)?;
        for line in lines {
            self.editor.send(line).await?;
        }
        Ok(())
    }
}
