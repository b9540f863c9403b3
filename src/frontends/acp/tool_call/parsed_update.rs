//! An update of a tool call, taken apart as far as the shim needs it, and put together again.

use agent_client_protocol_schema::v1::SessionId;
use bytes::Bytes;
use serde_json::value::RawValue;

use super::bypass_detector::{ShowsTerminal, ToolCallObservation};
use crate::acp::{
    terminal::content::{self, Block},
    wire::{encode, raw_object::RawObject},
};

/// The longest id of a session or a tool call that is remembered; what has a longer one goes on as it came.
const ID_MAX_BYTES: usize = 1 << 10;

/// One update of a tool call, as far as it matters.
pub(in crate::acp) struct ParsedUpdate<'a> {
    pub(in crate::acp) session: SessionId,
    pub(super) tool_call: String,
    pub(super) is_new: bool,
    pub(in crate::acp) params: RawObject<'a>,
    pub(in crate::acp) update: RawObject<'a>,
    pub(in crate::acp) content: Option<Vec<Block>>,
}

impl<'a> ParsedUpdate<'a> {
    /// None where it is of no tool call.
    pub(in crate::acp) fn read(params: &'a RawValue) -> Option<Self> {
        // Most updates are text, and are not looked into.
        memchr::memmem::find(params.get().as_bytes(), b"tool_call")?;
        let params = RawObject::parse(params)?;
        let update = RawObject::parse(params.borrowed("update")?)?;
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

    pub(super) fn observation(&self) -> ToolCallObservation<'_> {
        let shows = self.content.iter().flatten().any(|block| block.terminal().is_some());
        ToolCallObservation {
            session: &self.session.0,
            tool_call: &self.tool_call,
            kind: self.update.unescaped_text("kind"),
            status: self.update.unescaped_text("status"),
            shows_terminal: if shows { ShowsTerminal::Yes } else { ShowsTerminal::No },
        }
    }

    pub(super) fn with_content(mut self, line: &Bytes, content: &[Box<RawValue>]) -> Bytes {
        self.update.set("content", &content);
        self.into_line(line)
    }

    /// The message that it came in, with the update as it is now.
    pub(super) fn into_line(mut self, line: &Bytes) -> Bytes {
        self.params.set("update", &self.update);
        encode::with_params(line, &self.params).map_or_else(|| line.clone(), Bytes::from)
    }
}
