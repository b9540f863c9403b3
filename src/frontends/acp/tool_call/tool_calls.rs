//! Tool calls on their way to the editor, with the terminals that are shown in them.
//!
//! What an agent says of a tool call goes on as it came unless one of the gateway's terminals is in it. From then on
//! the editor is also sent what the terminal shows, until the command has ended. Whatever changes and whatever is sent is
//! done under one lock, so that the editor never sees an older snapshot after a newer one.

use std::sync::Arc;

use agent_client_protocol_schema::v1::SessionId;
use bytes::Bytes;
use serde_json::value::RawValue;
use tokio::sync::Mutex;

use super::{
    bypass_detector::BypassDetected,
    parsed_update::ParsedUpdate,
    tool_call_state::{self, ShownTerminal, ToolCallState},
};
use crate::acp::{
    terminal::{
        content::{self, Block},
        terminal::AcpTerminal,
        terminals::AcpTerminals,
    },
    wire::{
        encode,
        framing::{Disconnected, LineSender},
        handshake::{Handshake, TerminalDisplay},
        raw_object::RawObject,
    },
};
use crate::proto::v1::Bypass;

/// The tool calls of one connection.
#[derive(Debug)]
pub(in crate::acp) struct ToolCalls {
    pub(in crate::acp) editor: LineSender,
    terminals: AcpTerminals,
    pub(in crate::acp) handshake: Arc<Handshake>,
    pub(in crate::acp) state: Mutex<ToolCallState>,
}

impl ToolCalls {
    pub(in crate::acp) fn new(
        editor: LineSender,
        terminals: AcpTerminals,
        handshake: Arc<Handshake>,
    ) -> Arc<Self> {
        Arc::new(Self { editor, terminals, handshake, state: Mutex::default() })
    }

    /// Passes a `session/update` on, rewritten where a terminal is in it. `on_bypass` is called before the editor hears of a tool
    /// call that has bypassed the gateway.
    pub(in crate::acp) async fn forward_update(
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
    pub(in crate::acp) async fn forward_permission_request(
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
    pub(in crate::acp) async fn terminal_requested(&self, session: &SessionId) {
        if self.terminals.workspace_of(session).is_some() {
            self.state.lock().await.bypass_detector.terminal_requested(&session.0);
        }
    }

    /// A session is over.
    pub(in crate::acp) async fn remove_session(&self, session: &SessionId) {
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
        encode::with_params(line, &params)
    }
}
