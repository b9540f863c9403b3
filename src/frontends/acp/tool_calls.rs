//! Tool calls on their way to the editor, with the terminals that are shown in them.
//!
//! What an agent says of a tool call goes on as it came unless one of the gateway's terminals is in it. From then on
//! the editor is also sent what the terminal shows, until the command has ended. Whatever changes and whatever is sent is
//! done under one lock, so that the editor never sees an older snapshot after a newer one.
//!
//! An output snapshot is sent no oftener than a person can see, and not at all while too much waits for the editor. The
//! last snapshot is always sent. A gateway that is away is waited for, for as long as the terminal is shown.

use std::{sync::Arc, time::Duration};

use agent_client_protocol_schema::v1::SessionId;
use bytes::Bytes;
use serde_json::value::RawValue;
use tokio::{
    sync::Mutex,
    time::{sleep, timeout},
};
use tonic::Code;

use super::{
    bypass_detector::BypassDetected,
    handshake::{Handshake, TerminalDisplay},
    lines::{self, RawObject},
    terminal::{
        content::{self, Block, SHOWN_BYTES},
        terminal::{AcpTerminal, OutputDelta},
        terminals::AcpTerminals,
    },
    tool_call_state::{self, ParsedUpdate, ShownTerminal, ToolCallState},
};
use crate::{
    json_rpc::{Disconnected, LineSender},
    proto::v1::Bypass,
};

/// When more than this waits for the editor, no snapshot of a running command's output is added.
const CONGESTED_BYTES: usize = 1 << 20;
/// At most this often a terminal is shown again.
const SHOW_INTERVAL: Duration = Duration::from_millis(200);
/// How long an update waits for the last output of commands that have ended.
const CATCH_UP_TIMEOUT: Duration = Duration::from_secs(2);
/// How often it is seen whether a gateway that is away has come back.
const GATEWAY_RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// The tool calls of one connection.
#[derive(Debug)]
pub(super) struct ToolCalls {
    pub(super) editor: LineSender,
    terminals: AcpTerminals,
    pub(super) handshake: Arc<Handshake>,
    pub(super) state: Mutex<ToolCallState>,
}

impl ToolCalls {
    pub(super) fn new(editor: LineSender, terminals: AcpTerminals, handshake: Arc<Handshake>) -> Arc<Self> {
        Arc::new(Self { editor, terminals, handshake, state: Mutex::default() })
    }

    /// Passes a `session/update` on, rewritten where a terminal is in it. `on_bypass` is called before the editor hears of a tool
    /// call that has bypassed the gateway.
    pub(super) async fn forward_update(
        self: &Arc<Self>,
        line: &Bytes,
        params: &RawValue,
        on_bypass: impl FnOnce(),
    ) -> Result<(), Disconnected> {
        let Some(parsed) = ParsedUpdate::read(params) else {
            return self.editor.send(line.clone()).await;
        };
        let session = parsed.session.clone();
        self.catch_up(&session, Some(&parsed.tool_call)).await;
        let mut state = self.state.lock().await;
        let bypass = state.bypass_detector.observe(parsed.observation());
        if bypass == Some(BypassDetected) {
            on_bypass();
        }
        let (lines, new) = self.apply(&mut state, parsed, line);
        for line in lines {
            self.editor.send(line).await?;
        }
        drop(state);
        for terminal in new {
            tokio::spawn(self.clone().follow(session.clone(), terminal));
        }
        if bypass.is_some() {
            self.terminals.report_bypass(&session, Bypass::CommandRun).await;
        }
        Ok(())
    }

    /// A question of the agent's own, with the terminals in it as text.
    pub(super) async fn forward_permission_request(
        &self,
        line: &Bytes,
        params: Option<&RawValue>,
    ) -> Result<(), Disconnected> {
        let rewritten = match params {
            Some(params) => self.rewrite_permission_request(line, params).await,
            None => None,
        };
        self.editor.send(rewritten.map_or_else(|| line.clone(), Bytes::from)).await
    }

    /// A terminal was asked for, in a session that is known.
    pub(super) async fn terminal_requested(&self, session: &SessionId) {
        if self.terminals.workspace_of(session).is_some() {
            self.state.lock().await.bypass_detector.terminal_requested(&session.0);
        }
    }

    /// A session is over.
    pub(super) async fn remove_session(&self, session: &SessionId) {
        self.state.lock().await.remove_session(session);
    }

    /// Takes an update in, and says what the editor is to be sent for it, and which terminals are new to it.
    fn apply(
        &self,
        state: &mut ToolCallState,
        parsed: ParsedUpdate<'_>,
        line: &Bytes,
    ) -> (Vec<Bytes>, Vec<Arc<AcpTerminal>>) {
        let fields = state.update(&parsed);
        let Some(blocks) = parsed.content.as_deref() else { return (vec![line.clone()], Vec::new()) };
        let ids: Vec<&str> = blocks.iter().filter_map(Block::terminal).collect();
        if ids.is_empty() {
            return (vec![line.clone()], Vec::new());
        }
        let mut new = Vec::new();
        for id in ids {
            if state.shown(&parsed.session, id).is_none()
                && let Some(terminal) = self.terminals.find_to_show(&parsed.session, id)
            {
                new.push(terminal.clone());
                state.add_shown(&parsed.session, ShownTerminal::new(terminal, parsed.tool_call.clone()));
            }
        }
        let lines = match self.handshake.display() {
            TerminalDisplay::Terminal => {
                tool_call_state::announcement_lines(state, parsed, line, (&fields, &new))
            }
            TerminalDisplay::Text => {
                let content = state.as_text(&parsed.session, parsed.content.as_deref().unwrap_or_default());
                vec![parsed.with_content(line, &content)]
            }
        };
        (lines, new)
    }

    async fn rewrite_permission_request(&self, line: &Bytes, params: &RawValue) -> Option<Vec<u8>> {
        let mut params = RawObject::parse(params)?;
        let session = SessionId::new(params.text("sessionId")?);
        let raw = params.get("toolCall")?.to_owned();
        let mut tool_call = RawObject::parse(&raw)?;
        let blocks = content::blocks(tool_call.get("content")?)?;
        if !blocks.iter().any(|block| block.terminal().is_some()) {
            return None;
        }
        let state = self.state.lock().await;
        let known = |id: &str| state.shown(&session, id).is_some();
        let all_known = blocks.iter().filter_map(Block::terminal).all(known);
        if self.handshake.display() == TerminalDisplay::Terminal && all_known {
            return None;
        }
        let content = state.as_text(&session, &blocks);
        tool_call.set("content", &content);
        params.set("toolCall", &tool_call);
        lines::with_params(line, &params)
    }
}

impl ToolCalls {
    /// Sends the editor the ends that are known and that it was not told of: of one tool call, or of a whole session.
    /// An agent may be done with a command, its tool call and its session before the next look at the terminal.
    pub(super) async fn catch_up(&self, session: &SessionId, tool_call: Option<&str>) {
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
    pub(super) async fn follow(self: Arc<Self>, session: SessionId, terminal: Arc<AcpTerminal>) {
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
                && (has_ended || self.editor.waiting_bytes() <= CONGESTED_BYTES)
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
