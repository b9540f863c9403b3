//! Which message goes where.
//!
//! Whatever is not named here goes on as it came, byte for byte, in order. What the agent asks of terminals is
//! answered here and never reaches the editor; nor does anything from the agent that could be read as such a request
//! by somebody less strict: it is refused to the agent instead of being passed on.

use std::sync::Arc;

use agent_client_protocol_schema::v1::{
    AGENT_METHOD_NAMES, CLIENT_METHOD_NAMES, Error, ErrorCode, SessionId,
};
use bytes::Bytes;
use serde_json::value::RawValue;

use super::{
    asked::AskedOfAgent,
    calls::Calls,
    fields::Fields,
    framing::{Frame, Gone, LINE_MAX_BYTES, Outbox},
    handshake::Handshake,
    lines,
    message::{self, Message, Parsed, Unreadable},
    permission::Permissions,
    subagents,
    terminals::Terminals,
    tool_calls::ToolCalls,
};

/// The method that takes a request back; stable, and without a name in the protocol's table.
const CANCEL_REQUEST: &str = "$/cancel_request";
/// Methods of this kind are never the editor's.
const TERMINAL_PREFIX: &str = "terminal/";
/// What the person who started this is told of an agent that does not ask for terminals.
const RAN_BESIDE: &str = "notice: this agent has run a command itself instead of asking for a terminal: that command \
                          was neither judged nor confined. To confine the whole agent, start it with `provost acp \
                          --confine-agent`";

/// Tells the person who started this something, in one line.
pub type Note = Arc<dyn Fn(&str) + Send + Sync>;

/// The one between an editor and an agent.
pub(super) struct Shim {
    editor: Outbox,
    agent: Outbox,
    terminals: Terminals,
    permissions: Arc<Permissions>,
    tool_calls: Arc<ToolCalls>,
    note: Note,
    asked: Arc<AskedOfAgent>,
    calls: Arc<Calls>,
}

/// What of a message matters here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Whose {
    /// To be looked at.
    Ours,
    /// To go on as it is.
    Theirs,
}

impl Shim {
    /// `permissions` are those that `terminals` ask.
    pub(super) fn new(
        (editor, agent): (Outbox, Outbox),
        terminals: Terminals,
        permissions: Arc<Permissions>,
        note: Note,
    ) -> Arc<Self> {
        let handshake = Arc::new(Handshake::default());
        let tool_calls = ToolCalls::new(editor.clone(), terminals.clone(), handshake.clone());
        let asked = AskedOfAgent::new(handshake, terminals.clone(), tool_calls.clone(), permissions.clone());
        let calls = Calls::new(agent.clone(), terminals.clone());
        Arc::new(Self { editor, agent, terminals, permissions, tool_calls, note, asked, calls })
    }

    /// Takes what the editor sent.
    pub(super) async fn take_from_editor(self: &Arc<Self>, frame: Frame) -> Result<(), Gone> {
        let line = match frame {
            Frame::Line(line) => line,
            Frame::TooLong(beginning) => {
                return self.refuse_too_long(&beginning, &self.editor, &self.agent).await;
            }
        };
        match message::parse(&line) {
            Ok(Parsed::One(message)) => self.route_from_editor(&line, message).await,
            Ok(Parsed::Batch(parts)) => {
                if parts.iter().any(|part| self.is_for_us(part, Self::of_editor)) {
                    for part in parts {
                        let line = line_of(part);
                        match message::parse_one(part.get()) {
                            Ok(message) => self.route_from_editor(&line, message).await?,
                            Err(_) => self.agent.send(line).await?,
                        }
                    }
                    return Ok(());
                }
                self.agent.send(line).await
            }
            // The agent says what is wrong with it as it would without us.
            Err(_) => self.agent.send(line).await,
        }
    }

    /// Takes what the agent sent.
    pub(super) async fn take_from_agent(self: &Arc<Self>, frame: Frame) -> Result<(), Gone> {
        let line = match frame {
            Frame::Line(line) => one_line(line),
            Frame::TooLong(beginning) => {
                return self.refuse_too_long(&beginning, &self.agent, &self.editor).await;
            }
        };
        match message::parse(&line) {
            Ok(Parsed::One(message)) => self.route_from_agent(&line, message).await,
            Ok(Parsed::Batch(parts)) => {
                let parsed: Result<Vec<_>, Unreadable> =
                    parts.iter().map(|part| Ok((*part, message::parse_one(part.get())?))).collect();
                match parsed {
                    Ok(parsed) if parsed.is_empty() => {
                        self.refuse_from_agent(&line, None, "an empty batch").await
                    }
                    Ok(parsed) if parsed.iter().any(|(_, message)| self.of_agent(message) == Whose::Ours) => {
                        for (part, message) in parsed {
                            self.route_from_agent(&line_of(part), message).await?;
                        }
                        Ok(())
                    }
                    Ok(_) => self.editor.send(line).await,
                    Err(error) => self.refuse_from_agent(&line, None, &error.to_string()).await,
                }
            }
            // Nothing was said.
            Err(_) if line.trim_ascii().is_empty() => Ok(()),
            Err(Unreadable::Shape { id }) => {
                let why = "neither a request nor a notification nor an answer";
                self.refuse_from_agent(&line, id.as_deref(), why).await
            }
            Err(error @ (Unreadable::Utf8(_) | Unreadable::Json(_))) => {
                // Whoever waits for the answer to a garbled request is told, where the id can be made out.
                let (id, _) = message::glance(&line);
                self.refuse_from_agent(&line, id.as_deref(), &error.to_string()).await
            }
        }
    }

    fn is_for_us(&self, part: &RawValue, whose: impl Fn(&Self, &Message<'_>) -> Whose) -> bool {
        message::parse_one(part.get()).is_ok_and(|message| whose(self, &message) == Whose::Ours)
    }

    fn of_editor(&self, message: &Message<'_>) -> Whose {
        match message {
            Message::Request { method, .. } => whose(AskedOfAgent::matters(method)),
            Message::Notification { method, .. } => whose(method == AGENT_METHOD_NAMES.session_cancel),
            Message::Response { id, .. } => whose(self.permissions.are_asked(id)),
        }
    }

    fn of_agent(&self, message: &Message<'_>) -> Whose {
        match message {
            Message::Request { method, .. } | Message::Notification { method, .. } => {
                let names = &CLIENT_METHOD_NAMES;
                whose(
                    method.starts_with(TERMINAL_PREFIX)
                        || method == CANCEL_REQUEST
                        || method == names.session_update
                        || method == names.session_request_permission,
                )
            }
            Message::Response { id, .. } => whose(self.asked.awaits(id)),
        }
    }

    async fn route_from_editor(self: &Arc<Self>, line: &Bytes, message: Message<'_>) -> Result<(), Gone> {
        if self.of_editor(&message) == Whose::Theirs {
            return self.agent.send(line.clone()).await;
        }
        match message {
            Message::Request { id, method, params } => {
                let rewritten = self.asked.ask(line, id, &method, params);
                self.agent.send(rewritten.map_or_else(|| line.clone(), Bytes::from)).await
            }
            // The agent did not ask, and is not answered.
            Message::Response { id, result } => {
                self.permissions.answered(id, result);
                Ok(())
            }
            Message::Notification { params, .. } => {
                self.agent.send(line.clone()).await?;
                if let Some(session) = params.and_then(Fields::of).and_then(|params| params.text("sessionId"))
                {
                    self.permissions.cancel(&SessionId::new(session));
                }
                Ok(())
            }
        }
    }

    async fn route_from_agent(self: &Arc<Self>, line: &Bytes, message: Message<'_>) -> Result<(), Gone> {
        match message {
            Message::Request { id, method, params } if method.starts_with(TERMINAL_PREFIX) => {
                self.call(id, &method, params).await
            }
            Message::Notification { method, .. } if method.starts_with(TERMINAL_PREFIX) => {
                tracing::warn!(
                    method = &*method,
                    "a terminal method without an id wants no answer and gets nothing"
                );
                Ok(())
            }
            Message::Notification { method, params }
                if method == CANCEL_REQUEST && self.calls.cancel(params) =>
            {
                Ok(())
            }
            Message::Notification { method, params: Some(params) }
                if method == CLIENT_METHOD_NAMES.session_update =>
            {
                if let Some(announced) = subagents::announced(params) {
                    self.terminals.announce(announced);
                }
                let ran_beside = self.tool_calls.pass_update(line, params).await?;
                if ran_beside.is_some() {
                    (self.note)(RAN_BESIDE);
                    tracing::warn!("the agent has run a command itself instead of asking for a terminal");
                }
                Ok(())
            }
            Message::Request { method, params, .. }
                if method == CLIENT_METHOD_NAMES.session_request_permission =>
            {
                self.tool_calls.pass_question(line, params).await
            }
            Message::Response { id, result } => self.answered(line, id, result).await,
            Message::Request { .. } | Message::Notification { .. } => self.editor.send(line.clone()).await,
        }
    }

    /// Passes an answer of the agent's on, after what it means here has been done.
    async fn answered(&self, line: &Bytes, id: &RawValue, result: Option<&RawValue>) -> Result<(), Gone> {
        match self.asked.answered(id, result).await {
            Ok(()) => self.editor.send(line.clone()).await,
            Err(error) => self.editor.send(lines::error_line(Some(id), &error)).await,
        }
    }

    /// Answers a terminal request, which the editor never sees.
    async fn call(&self, id: &RawValue, method: &str, params: Option<&RawValue>) -> Result<(), Gone> {
        if method == CLIENT_METHOD_NAMES.terminal_create
            && let Some(session) = params.and_then(Fields::of).and_then(|params| params.text("sessionId"))
        {
            self.tool_calls.asked_for_terminal(&SessionId::new(session)).await;
        }
        self.calls.begin(id, method, params).await
    }

    /// Refuses to pass on what the agent sent. Something that prints to stdout is told so, and nothing breaks.
    async fn refuse_from_agent(&self, line: &[u8], id: Option<&RawValue>, why: &str) -> Result<(), Gone> {
        let beginning = String::from_utf8_lossy(&line[..line.len().min(200)]);
        tracing::warn!(
            why,
            beginning = &*beginning,
            "a line of the agent's is no message, and was not passed on"
        );
        let code = if id.is_some() { ErrorCode::InvalidRequest } else { ErrorCode::ParseError };
        let error = Error::new(code.into(), format!("This line was not passed on: {why}."));
        self.agent.send(lines::error_line(id, &error)).await
    }

    /// A message that is too long: whoever waits for it is told.
    async fn refuse_too_long(&self, beginning: &[u8], from: &Outbox, to: &Outbox) -> Result<(), Gone> {
        let (id, method) = message::glance(beginning);
        tracing::warn!(method, limit_bytes = LINE_MAX_BYTES, "a message was too long, and was not passed on");
        let text = format!("A message may have at most {LINE_MAX_BYTES} bytes; this one was not passed on.");
        let error = Error::new(ErrorCode::InvalidRequest.into(), text);
        match (id, method) {
            // The other side waits for this answer.
            (Some(id), None) => to.send(lines::error_line(Some(&id), &error)).await,
            (id, _) => from.send(lines::error_line(id.as_deref(), &error)).await,
        }
    }
}

fn whose(ours: bool) -> Whose {
    if ours { Whose::Ours } else { Whose::Theirs }
}

fn line_of(part: &RawValue) -> Bytes {
    let mut line = part.get().replace(['\n', '\r'], " ").into_bytes();
    line.push(b'\n');
    line.into()
}

/// A carriage return between tokens is white space to JSON and a line end to some editors, which would read what
/// stands between two of them as a message of its own. In a string it cannot stand as it is.
fn one_line(line: Bytes) -> Bytes {
    let line_end = if line.ends_with(b"\r\n") { 2 } else { 1 };
    let end = line.len().saturating_sub(line_end);
    if memchr::memchr(b'\r', &line[..end]).is_none() {
        return line;
    }
    let mut plain = line.to_vec();
    for byte in &mut plain[..end] {
        if *byte == b'\r' {
            *byte = b' ';
        }
    }
    plain.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_carriage_return_inside_a_message_is_a_space() {
        let plain = |text: &'static str| one_line(Bytes::from_static(text.as_bytes()));
        assert_eq!(plain("{}\r\n"), "{}\r\n");
        assert_eq!(plain("{\r\"a\":1\r}\r\n"), "{ \"a\":1 }\r\n");
        assert_eq!(plain("\n"), "\n");
        assert_eq!(plain("\r\n"), "\r\n");
    }

    #[test]
    fn methods_of_the_stable_table_are_what_they_are_known_as() {
        assert!(CLIENT_METHOD_NAMES.terminal_create.starts_with(TERMINAL_PREFIX));
        assert!(AskedOfAgent::matters("session/new") && !AskedOfAgent::matters("session/prompt"));
    }
}
