//! What is remembered of tool calls and of the terminals in them, and what an editor is shown of both.
//!
//! Bounded in every direction: the oldest calls and terminals go first, long fields and long content are not kept. What
//! was forgotten stays with the editor as it was last shown. Nothing is sent from here, and nobody is asked.

use std::sync::Arc;

use agent_client_protocol_schema::v1::{CLIENT_METHOD_NAMES, SessionId, TerminalExitStatus};
use bytes::Bytes;
use serde_json::{json, value::RawValue};

use super::{
    content::{self, Block, SHOWN_BYTES},
    delegation::Delegation,
    fields::Fields,
    handshake::Display,
    lines,
    recent::Recent,
    terminal::{News, Terminal},
    tool_calls::Said,
};

/// Tool calls that are remembered; the oldest go first.
const CALLS_MAX: usize = 1_024;
/// What is remembered of a tool call's fields, and of what stands beside terminals in its content.
const CALL_MAX_BYTES: usize = 64 << 10;
/// Terminals that are remembered as shown; the oldest go first.
const SHOWN_MAX: usize = 512;

/// All that is remembered of one connection.
#[derive(Debug, Default)]
pub(super) struct Memory {
    calls: Recent<(String, String), Call>,
    shown: Recent<(String, String), Shown>,
    pub(super) delegation: Delegation,
}

/// What is known of a tool call.
#[derive(Debug, Default)]
struct Call {
    /// What was said of it, the newest of each field, but for its content and what is too much.
    fields: Fields<'static>,
    /// Empty where no terminal is in it.
    content: Vec<Block>,
}

/// A terminal that the editor was shown.
#[derive(Debug)]
pub(super) struct Shown {
    pub(super) terminal: Arc<Terminal>,
    /// The tool call in which it was first.
    tool_call: String,
    /// How much of its output the editor has been told of.
    pub(super) produced: u64,
    /// Its end, once the editor has been told of it.
    pub(super) exit: Option<TerminalExitStatus>,
}

impl Shown {
    pub(super) fn new(terminal: Arc<Terminal>, tool_call: String) -> Self {
        Self { terminal, tool_call, produced: 0, exit: None }
    }
}

impl Memory {
    /// A terminal of this session, if it was shown.
    pub(super) fn shown(&self, session: &SessionId, id: &str) -> Option<&Shown> {
        self.shown.get(&key(session, id))
    }

    /// Remembers that a terminal is shown from now on.
    pub(super) fn show(&mut self, session: &SessionId, shown: Shown) {
        self.shown.insert(key(session, &shown.terminal.id), shown, SHOWN_MAX);
    }

    /// Takes in what is said of a tool call, and gives all that is known of it.
    pub(super) fn learn(&mut self, said: &Said<'_>) -> Fields<'static> {
        let call = self.calls.entry(key(&said.session, &said.tool_call), CALLS_MAX);
        if said.is_new {
            *call = Call::default();
        }
        call.fields.merge(&said.update.clone().without("content").without("_meta").into_owned());
        call.fields.keep_within(CALL_MAX_BYTES);
        if let Some(content) = &said.content {
            call.content = worth_keeping(content);
        }
        call.fields.clone()
    }

    /// Terminals of a session, or of one tool call in it, that have ended and whose end the editor was not told of, with
    /// how much of their output it was.
    pub(super) fn untold(&self, session: &SessionId, tool_call: Option<&str>) -> Vec<(Arc<Terminal>, u64)> {
        let is_in_call = |id: &str| match tool_call {
            Some(tool_call) => self.calls.get(&key(session, tool_call)).is_some_and(|call| call.shows(id)),
            None => true,
        };
        let untold = self.shown.iter().filter(|((of, id), shown)| {
            **of == *session.0 && shown.exit.is_none() && shown.terminal.has_ended() && is_in_call(id)
        });
        untold.map(|(_, shown)| (shown.terminal.clone(), shown.produced)).collect()
    }

    /// The messages that tell the editor what is new since `produced`; none where it was told meanwhile by somebody else,
    /// and nothing at all where the terminal is not shown any more.
    pub(super) fn tell(
        &mut self,
        session: &SessionId,
        id: &str,
        (produced, news): (u64, &News),
        display: Display,
    ) -> Option<Vec<Vec<u8>>> {
        let shown = self.shown.get_mut(&key(session, id))?;
        if shown.produced != produced || shown.exit.is_some() {
            return Some(Vec::new());
        }
        shown.produced = news.produced;
        shown.exit.clone_from(&news.exit);
        let updates: Vec<(&str, serde_json::Value)> = match display {
            Display::Terminal => {
                let output = (!news.text.is_empty()).then(|| content::terminal_output(id, &news.text));
                let exit = news.exit.as_ref().map(|exit| content::terminal_exit(id, exit));
                let of = &*shown.tool_call;
                output.into_iter().chain(exit).map(|meta| (of, json!({ "_meta": meta }))).collect()
            }
            Display::Text => {
                let calls = self.calls.iter().filter(|((of, _), call)| **of == *session.0 && call.shows(id));
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
            Block::AsItIs(raw) => raw.clone(),
            Block::Terminal(id) => match self.shown(session, id) {
                Some(shown) => {
                    content::text_block(&shown.terminal.last_seen(SHOWN_BYTES), shown.exit.as_ref())
                }
                None => content::text_block("", None),
            },
        };
        blocks.iter().map(text).collect()
    }

    /// A session is over.
    pub(super) fn forget(&mut self, session: &SessionId) {
        self.delegation.forget(&session.0);
        self.calls.retain(|(of, _)| **of != *session.0);
        self.shown.retain(|(of, _)| **of != *session.0);
    }
}

impl Call {
    fn shows(&self, id: &str) -> bool {
        self.content.iter().any(|block| block.terminal() == Some(id))
    }
}

/// Content is kept to be sent again with a new picture: where there is a terminal, and not too much beside it.
fn worth_keeping(content: &[Block]) -> Vec<Block> {
    let shows_terminal = content.iter().any(|block| block.terminal().is_some());
    let length: usize = content.iter().map(Block::length).sum();
    if shows_terminal && length <= CALL_MAX_BYTES { content.to_vec() } else { Vec::new() }
}

/// What an editor that shows terminals itself is sent: it learns of one by the `_meta` of a `tool_call` and by nothing
/// else, so an update in which one is new becomes a `tool_call` with all that is known of it.
pub(super) fn announced(
    memory: &Memory,
    mut said: Said<'_>,
    line: &Bytes,
    (known, new): (&Fields<'static>, &[Arc<Terminal>]),
) -> Vec<Bytes> {
    let blocks = said.content.take().unwrap_or_default();
    // Ours by its form, and known to nobody: the editor would drop the whole update for it.
    let blocks: Vec<Box<RawValue>> = blocks
        .into_iter()
        .map(|block| match block {
            Block::AsItIs(raw) => raw,
            Block::Terminal(id) if memory.shown(&said.session, &id).is_some() => {
                serde_json::value::to_raw_value(&json!({ "type": "terminal", "terminalId": id }))
                    .expect("plain values are always JSON")
            }
            Block::Terminal(_) => content::text_block("", None),
        })
        .collect();
    said.update.set("content", &blocks);
    let Some((last, others)) = new.split_last() else { return vec![said.whole(line)] };
    let mut lines: Vec<Bytes> = Vec::with_capacity(new.len());
    for other in others {
        let params = UpdateParams { session_id: &said.session, update: &announcing(known.clone(), other) };
        lines.push(lines::notification_line(CLIENT_METHOD_NAMES.session_update, &params).into());
    }
    let mut whole = known.clone();
    whole.merge(&said.update.into_owned());
    said.update = announcing(whole, last);
    lines.push(said.whole(line));
    lines
}

/// A tool call with what announces a terminal.
fn announcing(mut update: Fields<'static>, terminal: &Terminal) -> Fields<'static> {
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
    update: &'a Fields<'a>,
}

fn key(session: &SessionId, id: &str) -> (String, String) {
    (session.0.to_string(), id.to_owned())
}
