//! Terminals that an editor shows, followed until they have ended.
//!
//! A picture is sent no oftener than a person can see, and not at all while too much waits for the editor; the last one
//! always. A gateway that is away is waited for, for as long as the terminal is shown.

use std::{sync::Arc, time::Duration};

use agent_client_protocol_schema::v1::SessionId;
use tokio::time::{sleep, timeout};
use tonic::Code;

use super::{
    content::SHOWN_BYTES,
    framing::Gone,
    terminal::{News, Terminal},
    tool_calls::ToolCalls,
};

/// At most this often a terminal is shown anew.
const SHOW_INTERVAL: Duration = Duration::from_millis(200);
/// How long an update waits for the last output of commands that have ended.
const CATCH_UP: Duration = Duration::from_secs(2);
/// How often it is seen whether a gateway that is away has come back.
const LOOK_FOR_GATEWAY: Duration = Duration::from_secs(1);

impl ToolCalls {
    /// Sends the editor the ends that are known and that it was not told of: of one tool call, or of a whole session.
    /// An agent may be done with a command, its tool call and its session before the next look at the terminal.
    pub(super) async fn catch_up(&self, session: &SessionId, tool_call: Option<&str>) {
        let ended = self.memory.lock().await.untold(session, tool_call);
        let telling = async {
            for (terminal, produced) in ended {
                if let Ok(news) = terminal.news(produced, SHOWN_BYTES).await {
                    // An editor that is gone is noticed by whoever sends next.
                    let _ = self.show(session, &terminal.id, produced, &news).await;
                }
            }
        };
        let _ = timeout(CATCH_UP, telling).await;
    }

    /// Sends the editor what a terminal shows, until it has ended.
    pub(super) async fn follow(self: Arc<Self>, session: SessionId, terminal: Arc<Terminal>) {
        loop {
            let Some(produced) = self.told(&session, &terminal.id).await else { return };
            let news = match terminal.news(produced, SHOWN_BYTES).await {
                Ok(news) => news,
                Err(status) if status.code() == Code::NotFound => return,
                // It is away, or hangs: the next look may do better.
                Err(_) => {
                    sleep(LOOK_FOR_GATEWAY).await;
                    continue;
                }
            };
            let has_ended = news.exit.is_some();
            let is_new = has_ended || news.produced != produced;
            // A picture can wait; the last one cannot.
            if is_new
                && (has_ended || !self.editor.is_crowded())
                && self.show(&session, &terminal.id, produced, &news).await.is_err()
            {
                return;
            }
            if has_ended {
                // Told by this or by somebody else: the next look says which.
                continue;
            }
            sleep(SHOW_INTERVAL).await;
            if terminal.changed().await.is_err_and(|status| status.code() == Code::NotFound) {
                // Its session is gone: one last look at what is known.
                let Some(produced) = self.told(&session, &terminal.id).await else { return };
                if let Ok(news) = terminal.news(produced, SHOWN_BYTES).await {
                    let _ = self.show(&session, &terminal.id, produced, &news).await;
                }
                return;
            }
        }
    }

    /// How much of a terminal's output the editor was told of; none when it was told of its end, too, or is not any more.
    async fn told(&self, session: &SessionId, id: &str) -> Option<u64> {
        let memory = self.memory.lock().await;
        let shown = memory.shown(session, id)?;
        shown.exit.is_none().then_some(shown.produced)
    }

    /// Sends what is new since `produced`, unless somebody else has told of it meanwhile.
    async fn show(&self, session: &SessionId, id: &str, produced: u64, news: &News) -> Result<(), Gone> {
        let mut memory = self.memory.lock().await;
        let lines = memory.tell(session, id, (produced, news), self.handshake.display()).ok_or(Gone)?;
        for line in lines {
            self.editor.send(line).await?;
        }
        Ok(())
    }
}
