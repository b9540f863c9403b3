//! What is remembered of tool calls and of the terminals in them, and what an editor is shown of both.
//!
//! Bounded in every direction: the oldest calls and terminals go first, long fields and long content are not kept. What
//! was forgotten stays with the editor as it was last shown. Nothing is sent from here, and nobody is asked.

use std::sync::Arc;

use agent_client_protocol_schema::v1::{CLIENT_METHOD_NAMES, SessionId, TerminalExitStatus};
use bytes::Bytes;
use serde_json::{json, value::RawValue};

use super::{
    bypass_detector::{BoundedMap, BypassDetector, ShowsTerminal, ToolCallObservation},
    handshake::TerminalDisplay,
    lines::{self, RawObject},
    terminal::{
        content::{self, Block, SHOWN_BYTES},
        terminal::{AcpTerminal, OutputDelta},
    },
};

/// Tool calls that are remembered; the oldest go first.
const TOOL_CALLS_MAX: usize = 1_024;
/// What is remembered of a tool call's fields, and of what its content holds other than terminals.
const TOOL_CALL_MAX_BYTES: usize = 64 << 10;
/// Terminals that are remembered as shown; the oldest go first.
const SHOWN_MAX: usize = 512;
/// The longest id of a session or a tool call that is remembered; what has a longer one goes on as it came.
const ID_MAX_BYTES: usize = 1 << 10;

/// All that is remembered of one connection.
#[derive(Debug, Default)]
pub(super) struct ToolCallState {
    tool_calls: BoundedMap<(String, String), ToolCall>,
    shown: BoundedMap<(String, String), ShownTerminal>,
    pub(super) bypass_detector: BypassDetector,
}

/// What is known of a tool call.
#[derive(Debug, Default)]
struct ToolCall {
    /// What was said of it, the newest of each field, but for its content and what is too much.
    fields: RawObject<'static>,
    /// Empty where no terminal is in it.
    content: Vec<Block>,
}

/// A terminal that the editor was shown.
#[derive(Debug)]
pub(super) struct ShownTerminal {
    pub(super) terminal: Arc<AcpTerminal>,
    /// The tool call in which it was first.
    tool_call: String,
    /// How much of its output the editor has been told of.
    pub(super) produced: u64,
    /// Its end, once the editor has been told of it.
    pub(super) exit: Option<TerminalExitStatus>,
}

impl ShownTerminal {
    pub(super) fn new(terminal: Arc<AcpTerminal>, tool_call: String) -> Self {
        Self { terminal, tool_call, produced: 0, exit: None }
    }
}

impl ToolCallState {
    /// A terminal of this session, if it was shown.
    pub(super) fn shown(&self, session: &SessionId, id: &str) -> Option<&ShownTerminal> {
        self.shown.get(&key(session, id))
    }

    /// Remembers that a terminal is shown from now on.
    pub(super) fn add_shown(&mut self, session: &SessionId, shown: ShownTerminal) {
        self.shown.insert(key(session, &shown.terminal.id), shown, SHOWN_MAX);
    }

    /// Takes in what is said of a tool call, and gives all that is known of it.
    pub(super) fn update(&mut self, parsed: &ParsedUpdate<'_>) -> RawObject<'static> {
        let call = self.tool_calls.entry(key(&parsed.session, &parsed.tool_call), TOOL_CALLS_MAX);
        if parsed.is_new {
            *call = ToolCall::default();
        }
        call.fields.merge(&parsed.update.clone().without("content").without("_meta").into_owned());
        call.fields.truncate_to(TOOL_CALL_MAX_BYTES);
        if let Some(content) = &parsed.content {
            call.content = content_to_keep(content);
        }
        call.fields.clone()
    }

    /// Terminals of a session, or of one tool call in it, that have ended and whose end the editor was not told of, with
    /// how much of their output it was.
    pub(super) fn unreported(
        &self,
        session: &SessionId,
        tool_call: Option<&str>,
    ) -> Vec<(Arc<AcpTerminal>, u64)> {
        let is_in_call = |id: &str| match tool_call {
            Some(tool_call) => {
                self.tool_calls.get(&key(session, tool_call)).is_some_and(|call| call.shows(id))
            }
            None => true,
        };
        let untold = self.shown.iter().filter(|((of, id), shown)| {
            **of == *session.0 && shown.exit.is_none() && shown.terminal.has_ended() && is_in_call(id)
        });
        untold.map(|(_, shown)| (shown.terminal.clone(), shown.produced)).collect()
    }

    /// The messages that tell the editor what is new since `produced`; none where another task sent them
    /// meanwhile, and nothing at all where the terminal is not shown any more.
    pub(super) fn update_lines(
        &mut self,
        session: &SessionId,
        id: &str,
        (produced, delta): (u64, &OutputDelta),
        display: TerminalDisplay,
    ) -> Option<Vec<Vec<u8>>> {
        let shown = self.shown.get_mut(&key(session, id))?;
        if shown.produced != produced || shown.exit.is_some() {
            return Some(Vec::new());
        }
        shown.produced = delta.produced;
        shown.exit.clone_from(&delta.exit);
        let updates: Vec<(&str, serde_json::Value)> = match display {
            TerminalDisplay::Terminal => {
                let output = (!delta.text.is_empty()).then(|| content::terminal_output(id, &delta.text));
                let exit = delta.exit.as_ref().map(|exit| content::terminal_exit(id, exit));
                let of = &*shown.tool_call;
                output.into_iter().chain(exit).map(|meta| (of, json!({ "_meta": meta }))).collect()
            }
            TerminalDisplay::Text => {
                let calls =
                    self.tool_calls.iter().filter(|((of, _), call)| **of == *session.0 && call.shows(id));
                let updates = calls.map(|((_, tool_call), call)| {
                    (&**tool_call, json!({ "content": self.as_text(session, &call.content) }))
                });
                updates.collect()
            }
        };
        let line = |(tool_call, mut update): (&str, serde_json::Value)| {
            update["sessionUpdate"] = "tool_call_update".into();
            update["toolCallId"] = tool_call.into();
            let params = json!({ "sessionId": session, "update": update });
            lines::notification_line(CLIENT_METHOD_NAMES.session_update, &params)
        };
        Some(updates.into_iter().map(line).collect())
    }

    /// A content list with text in the place of terminals.
    pub(super) fn as_text(&self, session: &SessionId, blocks: &[Block]) -> Vec<Box<RawValue>> {
        let text = |block: &Block| match block {
            Block::Other(raw) => raw.clone(),
            Block::Terminal(id) => match self.shown(session, id) {
                Some(shown) => {
                    content::text_block(&shown.terminal.cached_tail(SHOWN_BYTES), shown.exit.as_ref())
                }
                None => content::text_block("", None),
            },
        };
        blocks.iter().map(text).collect()
    }

    /// A session is over.
    pub(super) fn remove_session(&mut self, session: &SessionId) {
        self.bypass_detector.remove_session(&session.0);
        self.tool_calls.retain(|(of, _)| **of != *session.0);
        self.shown.retain(|(of, _)| **of != *session.0);
    }
}

impl ToolCall {
    fn shows(&self, id: &str) -> bool {
        self.content.iter().any(|block| block.terminal() == Some(id))
    }
}

/// Content is kept to be sent again with a new snapshot, if it holds a terminal and not too much else.
fn content_to_keep(content: &[Block]) -> Vec<Block> {
    let shows_terminal = content.iter().any(|block| block.terminal().is_some());
    let length: usize = content.iter().map(Block::length).sum();
    if shows_terminal && length <= TOOL_CALL_MAX_BYTES { content.to_vec() } else { Vec::new() }
}

/// What an editor that shows terminals itself is sent: it learns of one by the `_meta` of a `tool_call` and by nothing
/// else, so an update in which one is new becomes a `tool_call` with all that is known of it.
pub(super) fn announcement_lines(
    state: &ToolCallState,
    mut parsed: ParsedUpdate<'_>,
    line: &Bytes,
    (known, new): (&RawObject<'static>, &[Arc<AcpTerminal>]),
) -> Vec<Bytes> {
    let blocks = parsed.content.take().unwrap_or_default();
    // Ours by its form, and known to nobody: the editor would drop the whole update for it.
    let blocks: Vec<Box<RawValue>> = blocks
        .into_iter()
        .map(|block| match block {
            Block::Other(raw) => raw,
            Block::Terminal(id) if state.shown(&parsed.session, &id).is_some() => {
                serde_json::value::to_raw_value(&json!({ "type": "terminal", "terminalId": id }))
                    .expect("plain values are always JSON")
            }
            Block::Terminal(_) => content::text_block("", None),
        })
        .collect();
    parsed.update.set("content", &blocks);
    let Some((last, others)) = new.split_last() else { return vec![parsed.into_line(line)] };
    let mut lines: Vec<Bytes> = Vec::with_capacity(new.len());
    for other in others {
        let params =
            UpdateParams { session_id: &parsed.session, update: &with_announcement(known.clone(), other) };
        lines.push(lines::notification_line(CLIENT_METHOD_NAMES.session_update, &params).into());
    }
    let mut whole = known.clone();
    whole.merge(&parsed.update.into_owned());
    parsed.update = with_announcement(whole, last);
    lines.push(parsed.into_line(line));
    lines
}

/// A tool call with what announces a terminal.
fn with_announcement(mut update: RawObject<'static>, terminal: &AcpTerminal) -> RawObject<'static> {
    if update.get("title").is_none() {
        update.set("title", &"Terminal");
    }
    let meta = content::with_terminal_info(update.get("_meta"), &terminal.id, &terminal.cwd);
    update.set("sessionUpdate", &"tool_call");
    update.set("_meta", &meta);
    update
}

#[derive(serde::Serialize)]
#[serde(rename_all = "camelCase")]
struct UpdateParams<'a> {
    session_id: &'a SessionId,
    update: &'a RawObject<'a>,
}

fn key(session: &SessionId, id: &str) -> (String, String) {
    (session.0.to_string(), id.to_owned())
}

/// One update of a tool call, as far as it matters.
pub(super) struct ParsedUpdate<'a> {
    pub(super) session: SessionId,
    pub(super) tool_call: String,
    pub(super) is_new: bool,
    pub(super) params: RawObject<'a>,
    pub(super) update: RawObject<'a>,
    pub(super) content: Option<Vec<Block>>,
}

impl<'a> ParsedUpdate<'a> {
    /// None where it is of no tool call.
    pub(super) fn read(params: &'a RawValue) -> Option<Self> {
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
    fn into_line(mut self, line: &Bytes) -> Bytes {
        self.params.set("update", &self.update);
        lines::with_params(line, &self.params).map_or_else(|| line.clone(), Bytes::from)
    }
}
