//! Tool calls on their way to the editor, with the terminals that are shown in them.
//!
//! What an agent says of a tool call goes on as it came unless one of the gateway's terminals is in it. From then on
//! the editor is also sent what the terminal shows, until the command has ended. Whatever changes and whatever is sent is
//! done under one lock, so that the editor never sees an older picture after a newer one.

use std::sync::Arc;

use agent_client_protocol_schema::v1::SessionId;
use bytes::Bytes;
use serde_json::value::RawValue;
use tokio::sync::Mutex;

use super::{
    content::{self, Block},
    delegation::{RanBeside, ShowsTerminal, Update},
    fields::Fields,
    framing::{Gone, Outbox},
    handshake::{Display, Handshake},
    lines,
    shown::{self, Memory, Shown},
    terminal::Terminal,
    terminals::Terminals,
};

/// The longest id of a session or a tool call that is remembered; what has a longer one goes on as it came.
const ID_MAX_BYTES: usize = 1 << 10;

/// The tool calls of one connection.
#[derive(Debug)]
pub(super) struct ToolCalls {
    pub(super) editor: Outbox,
    terminals: Terminals,
    pub(super) handshake: Arc<Handshake>,
    pub(super) memory: Mutex<Memory>,
}

/// One update of a tool call, as far as it matters.
pub(super) struct Said<'a> {
    pub(super) session: SessionId,
    pub(super) tool_call: String,
    pub(super) is_new: bool,
    pub(super) params: Fields<'a>,
    pub(super) update: Fields<'a>,
    pub(super) content: Option<Vec<Block>>,
}

impl ToolCalls {
    pub(super) fn new(editor: Outbox, terminals: Terminals, handshake: Arc<Handshake>) -> Arc<Self> {
        Arc::new(Self { editor, terminals, handshake, memory: Mutex::default() })
    }

    /// Passes a `session/update` on, rewritten where a terminal is in it.
    pub(super) async fn pass_update(
        self: &Arc<Self>,
        line: &Bytes,
        params: &RawValue,
    ) -> Result<Option<RanBeside>, Gone> {
        let Some(said) = Said::read(params) else {
            self.editor.send(line.clone()).await?;
            return Ok(None);
        };
        let session = said.session.clone();
        self.catch_up(&session, Some(&said.tool_call)).await;
        let mut memory = self.memory.lock().await;
        let ran_beside = memory.delegation.observe(said.as_seen());
        let (lines, new) = self.take(&mut memory, said, line);
        for line in lines {
            self.editor.send(line).await?;
        }
        drop(memory);
        for terminal in new {
            tokio::spawn(self.clone().follow(session.clone(), terminal));
        }
        if ran_beside.is_some() {
            self.terminals.report_ran_beside(&session).await;
        }
        Ok(ran_beside)
    }

    /// A question of the agent's own, with the terminals in it as text.
    pub(super) async fn pass_question(&self, line: &Bytes, params: Option<&RawValue>) -> Result<(), Gone> {
        let rewritten = match params {
            Some(params) => self.rewrite_question(line, params).await,
            None => None,
        };
        self.editor.send(rewritten.map_or_else(|| line.clone(), Bytes::from)).await
    }

    /// A terminal was asked for, in a session that is known.
    pub(super) async fn asked_for_terminal(&self, session: &SessionId) {
        if self.terminals.workspace_of(session).is_some() {
            self.memory.lock().await.delegation.asked_for_terminal(&session.0);
        }
    }

    /// A session is over.
    pub(super) async fn forget(&self, session: &SessionId) {
        self.memory.lock().await.forget(session);
    }

    /// Takes an update in, and says what the editor is to be sent for it, and which terminals are new to it.
    fn take(&self, memory: &mut Memory, said: Said<'_>, line: &Bytes) -> (Vec<Bytes>, Vec<Arc<Terminal>>) {
        let fields = memory.learn(&said);
        let Some(blocks) = said.content.as_deref() else { return (vec![line.clone()], Vec::new()) };
        let ids: Vec<&str> = blocks.iter().filter_map(Block::terminal).collect();
        if ids.is_empty() {
            return (vec![line.clone()], Vec::new());
        }
        let mut new = Vec::new();
        for id in ids {
            if memory.shown(&said.session, id).is_none()
                && let Some(terminal) = self.terminals.find_to_show(&said.session, id)
            {
                new.push(terminal.clone());
                memory.show(&said.session, Shown::new(terminal, said.tool_call.clone()));
            }
        }
        let lines = match self.handshake.display() {
            Display::Terminal => shown::announced(memory, said, line, (&fields, &new)),
            Display::Text => {
                let content = memory.as_text(&said.session, said.content.as_deref().unwrap_or_default());
                vec![said.with_content(line, &content)]
            }
        };
        (lines, new)
    }

    async fn rewrite_question(&self, line: &Bytes, params: &RawValue) -> Option<Vec<u8>> {
        let mut params = Fields::of(params)?;
        let session = SessionId::new(params.text("sessionId")?);
        let raw = params.get("toolCall")?.to_owned();
        let mut tool_call = Fields::of(&raw)?;
        let blocks = content::blocks(tool_call.get("content")?)?;
        if !blocks.iter().any(|block| block.terminal().is_some()) {
            return None;
        }
        let memory = self.memory.lock().await;
        let known = |id: &str| memory.shown(&session, id).is_some();
        let all_known = blocks.iter().filter_map(Block::terminal).all(known);
        if self.handshake.display() == Display::Terminal && all_known {
            return None;
        }
        let content = memory.as_text(&session, &blocks);
        tool_call.set("content", &content);
        params.set("toolCall", &tool_call);
        lines::with_params(line, &params)
    }
}

impl<'a> Said<'a> {
    /// None where it is of no tool call.
    fn read(params: &'a RawValue) -> Option<Self> {
        // Most updates are text, and are not looked into.
        memchr::memmem::find(params.get().as_bytes(), b"tool_call")?;
        let params = Fields::of(params)?;
        let update = Fields::of(params.borrowed("update")?)?;
        let kind = update.text("sessionUpdate")?;
        let is_new = kind == "tool_call";
        if !is_new && kind != "tool_call_update" {
            return None;
        }
        let session = SessionId::new(params.text("sessionId")?);
        let tool_call = update.text("toolCallId")?;
        if session.0.len() > ID_MAX_BYTES || tool_call.len() > ID_MAX_BYTES {
            return None;
        }
        let content = update.get("content").and_then(content::blocks);
        Some(Self { session, tool_call, is_new, params, update, content })
    }

    fn as_seen(&self) -> Update<'_> {
        let shows = self.content.iter().flatten().any(|block| block.terminal().is_some());
        Update {
            session: &self.session.0,
            tool_call: &self.tool_call,
            kind: self.update.plain_text("kind"),
            status: self.update.plain_text("status"),
            shows_terminal: if shows { ShowsTerminal::Yes } else { ShowsTerminal::No },
        }
    }

    fn with_content(mut self, line: &Bytes, content: &[Box<RawValue>]) -> Bytes {
        self.update.set("content", &content);
        self.whole(line)
    }

    /// The message that it came in, with the update as it is now.
    pub(super) fn whole(mut self, line: &Bytes) -> Bytes {
        self.params.set("update", &self.update);
        lines::with_params(line, &self.params).map_or_else(|| line.clone(), Bytes::from)
    }
}
