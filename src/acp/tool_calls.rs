//! Tool calls on their way to the editor, with the terminals that are shown in them.
//!
//! What an agent says of a tool call goes on as it came unless one of the gateway's terminals is in it. From then on
//! the editor is also sent what the terminal shows, no oftener than a person can see, until the command has ended; the
//! last text stays. Whatever changes and whatever is sent is done under one lock, so that the editor never sees an
//! older picture after a newer one.

use std::{sync::Arc, time::Duration};

use agent_client_protocol_schema::v1::{CLIENT_METHOD_NAMES, SessionId, TerminalExitStatus};
use bytes::Bytes;
use serde_json::{json, value::RawValue};
use tokio::{
    sync::Mutex,
    time::{sleep, timeout},
};

use super::{
    content::{self, Block, SHOWN_BYTES},
    delegation::{Delegation, RanBeside, ShowsTerminal, Update},
    framing::{Gone, Outbox},
    handshake::{Display, Handshake},
    link,
    message::{self, Fields},
    recent::Recent,
    terminal::{News, Terminal},
    terminals::Terminals,
};

/// Tool calls that are remembered; the oldest go first.
const CALLS_MAX: usize = 1_024;
/// Fields of a tool call that are longer are not remembered.
const FIELD_MAX_BYTES: usize = 16 << 10;
/// Terminals that are remembered as shown; the oldest go first.
const SHOWN_MAX: usize = 512;
/// At most this often a terminal is shown anew.
const SHOW_INTERVAL: Duration = Duration::from_millis(200);
/// How long an update waits for the last output of a command that has ended.
const CATCH_UP: Duration = Duration::from_secs(2);
/// How often it is seen whether a gateway that is away has come back.
const LOOK_FOR_GATEWAY: Duration = Duration::from_secs(1);

/// The tool calls of one connection.
#[derive(Debug)]
pub(super) struct ToolCalls {
    editor: Outbox,
    terminals: Terminals,
    handshake: Arc<Handshake>,
    memory: Mutex<Memory>,
}

#[derive(Debug, Default)]
struct Memory {
    calls: Recent<(String, String), Call>,
    shown: Recent<(String, String), Shown>,
    delegation: Delegation,
}

/// What is known of a tool call.
#[derive(Debug, Default)]
struct Call {
    /// All that was said of it, the newest of each field, but for its content and long ones.
    fields: Fields<'static>,
    content: Vec<Block>,
}

/// A terminal that the editor was shown.
#[derive(Debug)]
struct Shown {
    terminal: Arc<Terminal>,
    /// The tool call in which it was first.
    tool_call: String,
    /// How much of its output the editor has been told of.
    produced: u64,
    /// Its end, once the editor has been told of it.
    exit: Option<TerminalExitStatus>,
}

/// One update of a tool call, as far as it matters.
struct Said<'a> {
    session: SessionId,
    tool_call: String,
    is_new: bool,
    params: Fields<'a>,
    update: Fields<'a>,
    content: Option<Vec<Block>>,
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

    /// A terminal was asked for.
    pub(super) async fn asked_for_terminal(&self, session: &str) {
        self.memory.lock().await.delegation.asked_for_terminal(session);
    }

    /// A session is over.
    pub(super) async fn forget(&self, session: &SessionId) {
        let mut memory = self.memory.lock().await;
        memory.delegation.forget(&session.0);
        memory.calls.retain(|(of, _)| **of != *session.0);
        memory.shown.retain(|(of, _)| **of != *session.0);
    }

    /// Takes an update in, and says what the editor is to be sent for it, and which terminals are new to it.
    fn take(&self, memory: &mut Memory, said: Said<'_>, line: &Bytes) -> (Vec<Bytes>, Vec<Arc<Terminal>>) {
        let key = (said.session.0.to_string(), said.tool_call.clone());
        let call = memory.calls.entry(key, CALLS_MAX);
        call.learn(&said);
        let Some(blocks) = said.content.as_deref() else { return (vec![line.clone()], Vec::new()) };
        let ids: Vec<&str> = blocks.iter().filter_map(Block::terminal).collect();
        if ids.is_empty() {
            return (vec![line.clone()], Vec::new());
        }
        let fields = call.fields.clone();
        let mut new = Vec::new();
        for id in ids {
            let key = (said.session.0.to_string(), id.to_owned());
            if memory.shown.get(&key).is_none()
                && let Some(terminal) = self.terminals.find_to_show(&said.session, id)
            {
                new.push(terminal.clone());
                let shown = Shown { terminal, tool_call: said.tool_call.clone(), produced: 0, exit: None };
                memory.shown.insert(key, shown, SHOWN_MAX);
            }
        }
        let lines = match self.handshake.display() {
            Display::Terminal => announced(memory, said, &fields, &new),
            Display::Text => {
                let content = as_text(memory, &said.session, said.content.as_deref().unwrap_or_default());
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
        let known = |id: &str| memory.shown.get(&(session.0.to_string(), id.to_owned())).is_some();
        let all_known = blocks.iter().filter_map(Block::terminal).all(known);
        if self.handshake.display() == Display::Terminal && all_known {
            return None;
        }
        let content = as_text(&memory, &session, &blocks);
        tool_call.set("content", &content);
        params.set("toolCall", &tool_call);
        message::with_params(line, &params)
    }

    /// Sends the editor the ends that are known and that it was not told of: of one tool call, or of a whole session.
    /// An agent may be done with a command, its tool call and its session before the next look at the terminal.
    pub(super) async fn catch_up(&self, session: &SessionId, tool_call: Option<&str>) {
        let ended: Vec<(Arc<Terminal>, u64)> = {
            let memory = self.memory.lock().await;
            let of_call = |id: &str| match tool_call {
                Some(tool_call) => {
                    let call = memory.calls.get(&(session.0.to_string(), tool_call.to_owned()));
                    call.is_some_and(|call| call.content.iter().any(|block| block.terminal() == Some(id)))
                }
                None => true,
            };
            let untold = memory.shown.iter().filter(|((of, id), shown)| {
                **of == *session.0 && shown.exit.is_none() && shown.terminal.has_ended() && of_call(id)
            });
            untold.map(|(_, shown)| (shown.terminal.clone(), shown.produced)).collect()
        };
        for (terminal, produced) in ended {
            let news = timeout(CATCH_UP, terminal.news(produced, SHOWN_BYTES)).await;
            if let Ok(Ok(news)) = news {
                // An editor that is gone is noticed by whoever sends next.
                let _ = self.show(session, &terminal.id, produced, &news).await;
            }
        }
    }

    /// Sends the editor what a terminal shows, until it has ended.
    async fn follow(self: Arc<Self>, session: SessionId, terminal: Arc<Terminal>) {
        loop {
            let Some(produced) = self.told(&session, &terminal.id).await else { return };
            let news = match terminal.news(produced, SHOWN_BYTES).await {
                Ok(news) => news,
                Err(status) if link::is_no_answer(&status) => {
                    sleep(LOOK_FOR_GATEWAY).await;
                    continue;
                }
                Err(_) => return,
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
            if terminal.changed().await.is_err_and(|status| !link::is_no_answer(&status)) {
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
        let shown = memory.shown.get(&(session.0.to_string(), id.to_owned()))?;
        shown.exit.is_none().then_some(shown.produced)
    }

    /// Sends what is new since `produced`, unless somebody else has told of it meanwhile.
    async fn show(&self, session: &SessionId, id: &str, produced: u64, news: &News) -> Result<(), Gone> {
        let mut memory = self.memory.lock().await;
        let key = (session.0.to_string(), id.to_owned());
        let Some(shown) = memory.shown.get_mut(&key) else { return Err(Gone) };
        if shown.produced != produced || shown.exit.is_some() {
            return Ok(());
        }
        shown.produced = news.produced;
        shown.exit.clone_from(&news.exit);
        let first = shown.tool_call.clone();
        let updates: Vec<(String, serde_json::Value)> = match self.handshake.display() {
            Display::Terminal => {
                let output = (!news.text.is_empty()).then(|| content::terminal_output(id, &news.text));
                let exit = news.exit.as_ref().map(|exit| content::terminal_exit(id, exit));
                output.into_iter().chain(exit).map(|meta| (first.clone(), json!({ "_meta": meta }))).collect()
            }
            Display::Text => {
                let mut updates = Vec::new();
                for ((of, tool_call), call) in memory.calls.iter() {
                    if **of == *session.0 && call.content.iter().any(|block| block.terminal() == Some(id)) {
                        let content = as_text(&memory, session, &call.content);
                        updates.push((tool_call.clone(), json!({ "content": content })));
                    }
                }
                updates
            }
        };
        for (tool_call, mut update) in updates {
            update["sessionUpdate"] = "tool_call_update".into();
            update["toolCallId"] = tool_call.into();
            let params = json!({ "sessionId": session, "update": update });
            self.editor.send(message::notification_line(CLIENT_METHOD_NAMES.session_update, &params)).await?;
        }
        Ok(())
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
        self.params.set("update", &self.update);
        message::with_params(line, &self.params).map_or_else(|| line.clone(), Bytes::from)
    }
}

impl Call {
    fn learn(&mut self, said: &Said<'_>) {
        if said.is_new {
            *self = Self::default();
        }
        let short = said.update.clone().without("content").without("_meta").no_longer_than(FIELD_MAX_BYTES);
        self.fields.merge(&short.into_owned());
        if let Some(raw) = said.update.get("content")
            && let Some(content) = content::blocks(raw)
        {
            self.content = content;
        }
    }
}

impl Block {
    /// The id, of a terminal.
    pub(super) fn terminal(&self) -> Option<&str> {
        match self {
            Self::Terminal(id) => Some(id),
            Self::AsItIs(_) => None,
        }
    }
}

/// What an editor that shows terminals itself is sent: it learns of one by the `_meta` of a `tool_call` and by nothing
/// else, so an update in which one is new becomes a `tool_call` with all that is known of it.
fn announced(memory: &Memory, said: Said<'_>, known: &Fields<'static>, new: &[Arc<Terminal>]) -> Vec<Bytes> {
    let Said { session, mut update, content, .. } = said;
    let id_of = |id: &str| (session.0.to_string(), id.to_owned());
    let blocks = content.unwrap_or_default();
    // Ours by its form, and known to nobody: the editor would drop the whole update for it.
    let blocks: Vec<Box<RawValue>> = blocks
        .into_iter()
        .map(|block| match block {
            Block::AsItIs(raw) => raw,
            Block::Terminal(id) if memory.shown.get(&id_of(&id)).is_some() => {
                serde_json::value::to_raw_value(&json!({ "type": "terminal", "terminalId": id }))
                    .expect("plain values are always JSON")
            }
            Block::Terminal(_) => content::text_block("", None),
        })
        .collect();
    update.set("content", &blocks);
    let mut lines = Vec::new();
    let mut announce = |base: Fields<'_>, terminal: &Terminal| {
        let mut update = base;
        if update.get("title").is_none() {
            update.set("title", &"Terminal");
        }
        let meta = content::with_terminal_info(update.get("_meta"), &terminal.id, &terminal.cwd);
        update.set("sessionUpdate", &"tool_call");
        update.set("_meta", &meta);
        lines.push(update_line(&session, &update));
    };
    match new.split_last() {
        None => lines.push(update_line(&session, &update)),
        Some((last, others)) => {
            for other in others {
                announce(known.clone(), other);
            }
            let mut whole = known.clone().into_owned();
            whole.merge(&update.into_owned());
            announce(whole, last);
        }
    }
    lines
}

/// A content list with text in the place of terminals.
fn as_text(memory: &Memory, session: &SessionId, blocks: &[Block]) -> Vec<Box<RawValue>> {
    let mut content = Vec::with_capacity(blocks.len());
    for block in blocks {
        content.push(match block {
            Block::AsItIs(raw) => raw.clone(),
            Block::Terminal(id) => match memory.shown.get(&(session.0.to_string(), id.clone())) {
                Some(shown) => {
                    let output = shown.terminal.last_seen(SHOWN_BYTES);
                    content::text_block(&output, shown.exit.as_ref())
                }
                None => content::text_block("", None),
            },
        });
    }
    content
}

fn update_line(session: &SessionId, update: &Fields<'_>) -> Bytes {
    let params = UpdateParams { session_id: session, update };
    message::notification_line(CLIENT_METHOD_NAMES.session_update, &params).into()
}

#[derive(serde::Serialize)]
#[serde(rename_all = "camelCase")]
struct UpdateParams<'a> {
    session_id: &'a SessionId,
    update: &'a Fields<'a>,
}
