//! Which message goes where.
//!
//! Whatever is not named here goes on as it came, byte for byte, in order. What the agent asks of terminals is
//! answered here and never reaches the editor; nor does anything from the agent that could be read as such a request
//! by a less strict editor: it is refused to the agent instead of being passed on.

use std::sync::Arc;

use agent_client_protocol_schema::v1::{
    AGENT_METHOD_NAMES, CLIENT_METHOD_NAMES, Error, ErrorCode, SessionId,
};
use bytes::Bytes;
use serde_json::value::RawValue;

use super::{
    agent_requests::{AgentRequests, Completion},
    approval::PermissionRequests,
    coverage::{AgentCoverage, NotCovered},
    handshake::Handshake,
    in_flight::InFlightRequests,
    lines::{self, RawObject},
    sessions,
    terminal::terminals::AcpTerminals,
    tool_calls::ToolCalls,
};
use crate::json_rpc::{self, Disconnected, InputLine, LineSender, Message, MessageError, ParsedLine, Peeked};

/// The longest message, in bytes, with its line end. Longer ones are refused.
pub const LINE_MAX_BYTES: usize = 16 << 20;
/// The method that takes a request back; stable, and without a name in the protocol's table.
const CANCEL_REQUEST: &str = "$/cancel_request";
/// Methods of this kind are never the editor's.
const TERMINAL_PREFIX: &str = "terminal/";

/// The one between an editor and an agent.
pub(super) struct Shim {
    editor: LineSender,
    agent: LineSender,
    terminals: AcpTerminals,
    permissions: Arc<PermissionRequests>,
    tool_calls: Arc<ToolCalls>,
    coverage: Arc<AgentCoverage>,
    handshake: Arc<Handshake>,
    agent_requests: Arc<AgentRequests>,
    in_flight: Arc<InFlightRequests>,
}

/// What of a message matters here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Disposition {
    /// To be looked at.
    Handle,
    /// To go on as it is.
    Forward,
}

impl Shim {
    /// `permissions` are those that `terminals` ask.
    pub(super) fn new(
        (editor, agent): (LineSender, LineSender),
        terminals: AcpTerminals,
        permissions: Arc<PermissionRequests>,
        coverage: Arc<AgentCoverage>,
    ) -> Arc<Self> {
        let handshake = Arc::new(Handshake::default());
        let tool_calls = ToolCalls::new(editor.clone(), terminals.clone(), handshake.clone());
        let asked = AgentRequests::new(
            handshake.clone(),
            terminals.clone(),
            tool_calls.clone(),
            permissions.clone(),
            coverage.clone(),
        );
        let calls = InFlightRequests::new(agent.clone(), terminals.clone());
        Arc::new(Self {
            editor,
            agent,
            terminals,
            permissions,
            tool_calls,
            coverage,
            handshake,
            agent_requests: asked,
            in_flight: calls,
        })
    }

    /// Takes what the editor sent.
    pub(super) async fn handle_editor_line(self: &Arc<Self>, frame: InputLine) -> Result<(), Disconnected> {
        let line = match frame {
            InputLine::Complete(line) => line,
            InputLine::Unfinished(rest) => with_end(&rest),
            InputLine::TooLong { beginning, .. } => {
                return self.refuse_too_long(&beginning, &self.editor, &self.agent).await;
            }
        };
        match json_rpc::parse(&line) {
            Ok(ParsedLine::One(message)) => self.route_from_editor(&line, message).await,
            Ok(ParsedLine::Batch(parts)) => {
                if parts.iter().any(|part| self.is_handled(part, Self::editor_disposition)) {
                    for part in parts {
                        let line = batch_part_line(part);
                        match json_rpc::parse_one(part.get()) {
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
    pub(super) async fn handle_agent_line(self: &Arc<Self>, frame: InputLine) -> Result<(), Disconnected> {
        let line = match frame {
            InputLine::Complete(line) => without_carriage_returns(line),
            InputLine::Unfinished(rest) => without_carriage_returns(with_end(&rest)),
            InputLine::TooLong { beginning, .. } => {
                return self.refuse_too_long(&beginning, &self.agent, &self.editor).await;
            }
        };
        match json_rpc::parse(&line) {
            Ok(ParsedLine::One(message)) => self.route_from_agent(&line, message).await,
            Ok(ParsedLine::Batch(parts)) => {
                let parsed: Result<Vec<_>, MessageError> =
                    parts.iter().map(|part| Ok((*part, json_rpc::parse_one(part.get())?))).collect();
                match parsed {
                    Ok(parsed) if parsed.is_empty() => {
                        self.refuse_from_agent(&line, None, "an empty batch").await
                    }
                    Ok(parsed)
                        if parsed
                            .iter()
                            .any(|(_, message)| self.agent_disposition(message) == Disposition::Handle) =>
                    {
                        for (part, message) in parsed {
                            self.route_from_agent(&batch_part_line(part), message).await?;
                        }
                        Ok(())
                    }
                    Ok(_) => self.editor.send(line).await,
                    Err(error) => self.refuse_from_agent(&line, None, &error.to_string()).await,
                }
            }
            // Nothing was said.
            Err(_) if line.trim_ascii().is_empty() => Ok(()),
            Err(MessageError::Shape { id }) => {
                let problem = "neither a request nor a notification nor an answer";
                self.refuse_from_agent(&line, id.as_deref(), problem).await
            }
            Err(error @ (MessageError::Utf8(_) | MessageError::Json(_))) => {
                // The sender of a garbled request gets an error, where the id can be made out.
                let id = Peeked::of(&line).id.filter(|id| json_rpc::is_id(id));
                self.refuse_from_agent(&line, id, &error.to_string()).await
            }
        }
    }

    fn is_handled(&self, part: &RawValue, whose: impl Fn(&Self, &Message<'_>) -> Disposition) -> bool {
        json_rpc::parse_one(part.get()).is_ok_and(|message| whose(self, &message) == Disposition::Handle)
    }

    fn editor_disposition(&self, message: &Message<'_>) -> Disposition {
        match message {
            Message::Request { method, .. } => disposition(AgentRequests::is_tracked(method)),
            Message::Notification { method, .. } => disposition(method == AGENT_METHOD_NAMES.session_cancel),
            Message::Response { id, .. } => disposition(self.permissions.is_own_id(id)),
        }
    }

    fn agent_disposition(&self, message: &Message<'_>) -> Disposition {
        match message {
            Message::Request { method, .. } | Message::Notification { method, .. } => {
                let names = &CLIENT_METHOD_NAMES;
                disposition(
                    method.starts_with(TERMINAL_PREFIX)
                        || method == CANCEL_REQUEST
                        || !self.handshake.is_later()
                            && (method == names.session_update || method == names.session_request_permission),
                )
            }
            Message::Response { id, .. } => disposition(self.agent_requests.is_pending(id)),
        }
    }

    async fn route_from_editor(
        self: &Arc<Self>,
        line: &Bytes,
        message: Message<'_>,
    ) -> Result<(), Disconnected> {
        if self.editor_disposition(&message) == Disposition::Forward {
            return self.agent.send(line.clone()).await;
        }
        match message {
            Message::Request { id, method, params } => {
                let rewritten = self.agent_requests.register(line, id, &method, params).await;
                self.agent.send(rewritten.map_or_else(|| line.clone(), Bytes::from)).await
            }
            // The agent did not ask, and is not answered.
            Message::Response { id, result } => {
                self.permissions.resolve(id, result);
                Ok(())
            }
            Message::Notification { params, .. } => {
                self.agent.send(line.clone()).await?;
                if let Some(session) =
                    params.and_then(RawObject::parse).and_then(|params| params.text("sessionId"))
                {
                    self.permissions.cancel(&SessionId::new(session));
                }
                Ok(())
            }
        }
    }

    async fn route_from_agent(
        self: &Arc<Self>,
        line: &Bytes,
        message: Message<'_>,
    ) -> Result<(), Disconnected> {
        match message {
            Message::Request { id, method, params } if method.starts_with(TERMINAL_PREFIX) => {
                self.answer_terminal_request(id, &method, params).await
            }
            Message::Notification { method, .. } if method.starts_with(TERMINAL_PREFIX) => {
                tracing::warn!(
                    method = &*method,
                    "a terminal method without an id wants no answer and gets nothing"
                );
                Ok(())
            }
            Message::Notification { method, params }
                if method == CANCEL_REQUEST && self.in_flight.cancel(params) =>
            {
                Ok(())
            }
            Message::Notification { method, params: Some(params) }
                if method == CLIENT_METHOD_NAMES.session_update =>
            {
                if let Some(announced) = sessions::parse_announcement(params) {
                    self.terminals.register_subagent(announced);
                }
                let on_bypass = || self.coverage.is_lacking(NotCovered::CommandRun);
                self.tool_calls.forward_update(line, params, on_bypass).await
            }
            Message::Request { method, params, .. }
                if method == CLIENT_METHOD_NAMES.session_request_permission =>
            {
                self.tool_calls.forward_permission_request(line, params).await
            }
            Message::Response { id, result } => self.forward_answer(line, id, result).await,
            Message::Request { .. } | Message::Notification { .. } => self.editor.send(line.clone()).await,
        }
    }

    /// Passes an answer of the agent's on, after what it means here has been done.
    async fn forward_answer(
        &self,
        line: &Bytes,
        id: &RawValue,
        result: Option<&RawValue>,
    ) -> Result<(), Disconnected> {
        match self.agent_requests.complete(line, id, result).await {
            Completion::Forward => self.editor.send(line.clone()).await,
            Completion::Answer(error) => self.editor.send(lines::error_line(Some(id), &error)).await,
            Completion::AskAgain(request) => self.agent.send(request).await,
        }
    }

    /// Answers a terminal request, which the editor never sees.
    async fn answer_terminal_request(
        &self,
        id: &RawValue,
        method: &str,
        params: Option<&RawValue>,
    ) -> Result<(), Disconnected> {
        if method == CLIENT_METHOD_NAMES.terminal_create
            && let Some(session) =
                params.and_then(RawObject::parse).and_then(|params| params.text("sessionId"))
        {
            self.tool_calls.terminal_requested(&SessionId::new(session)).await;
        }
        self.in_flight.begin(id, method, params).await
    }

    /// Refuses to pass on what the agent sent. Something that prints to stdout is told so, and nothing breaks.
    async fn refuse_from_agent(
        &self,
        line: &[u8],
        id: Option<&RawValue>,
        problem: &str,
    ) -> Result<(), Disconnected> {
        let beginning = String::from_utf8_lossy(&line[..line.len().min(200)]);
        tracing::warn!(
            problem,
            beginning = &*beginning,
            "a line of the agent's is no message, and was not passed on"
        );
        let code = if id.is_some() { ErrorCode::InvalidRequest } else { ErrorCode::ParseError };
        let error = Error::new(code.into(), format!("This line was not passed on: {problem}."));
        self.agent.send(lines::error_line(id, &error)).await
    }

    /// A message that is too long: the side that waits for it gets an error.
    async fn refuse_too_long(
        &self,
        beginning: &[u8],
        from: &LineSender,
        to: &LineSender,
    ) -> Result<(), Disconnected> {
        let seen = Peeked::of(beginning);
        let id = seen.id.filter(|id| json_rpc::is_id(id));
        let method = seen.method_name();
        tracing::warn!(method, limit_bytes = LINE_MAX_BYTES, "a message was too long, and was not passed on");
        let text = format!("A message may have at most {LINE_MAX_BYTES} bytes; this one was not passed on.");
        let error = Error::new(ErrorCode::InvalidRequest.into(), text);
        // What has a method is no answer, whatever that is.
        match (id, seen.method) {
            // The other side waits for this answer.
            (Some(id), None) => to.send(lines::error_line(Some(id), &error)).await,
            (id, _) => from.send(lines::error_line(id, &error)).await,
        }
    }
}

fn disposition(ours: bool) -> Disposition {
    if ours { Disposition::Handle } else { Disposition::Forward }
}

fn batch_part_line(part: &RawValue) -> Bytes {
    let mut line = part.get().replace(['\n', '\r'], " ").into_bytes();
    line.push(b'\n');
    line.into()
}

/// The last line of one who has gone away.
fn with_end(rest: &[u8]) -> Bytes {
    [rest, b"\n"].concat().into()
}

/// A carriage return between tokens is white space to JSON and a line end to some editors, which would read what
/// stands between two of them as a message of its own. In a string it cannot stand as it is.
fn without_carriage_returns(line: Bytes) -> Bytes {
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
        let plain = |text: &'static str| without_carriage_returns(Bytes::from_static(text.as_bytes()));
        assert_eq!(plain("{}\r\n"), "{}\r\n");
        assert_eq!(plain("{\r\"a\":1\r}\r\n"), "{ \"a\":1 }\r\n");
        assert_eq!(plain("\n"), "\n");
        assert_eq!(plain("\r\n"), "\r\n");
    }

    #[test]
    fn methods_of_the_stable_table_are_what_they_are_known_as() {
        assert!(CLIENT_METHOD_NAMES.terminal_create.starts_with(TERMINAL_PREFIX));
        assert!(AgentRequests::is_tracked("session/new") && !AgentRequests::is_tracked("session/prompt"));
    }
}
