//! One end of a JSON-RPC connection, one message a line: calls with ids of any type, answers given by a table, and
//! a record of every line that came.
//!
//! It is strict about what comes in (a line that is no JSON-RPC message, an answer to nothing: both are kept as
//! unexpected) and free in what it sends, for some cases send what no correct peer would.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader},
    sync::{Mutex as AsyncMutex, Notify, oneshot},
};

use super::fault::{Fault, Refusal};

/// Messages that are kept for cases to look at; past this the oldest go.
const RECORD_LINES: usize = 4096;
/// The longest line that is read. A longer one ends the connection.
const LINE_MAX_BYTES: u64 = 64 << 20;
/// Unexpected messages that are kept; more of them say nothing more.
const UNEXPECTED_MAX: usize = 16;

/// What a peer does with a request that comes in.
pub(super) enum Response {
    /// Answers with this result.
    Result(Value),
    /// Answers with this error.
    Error(i64, &'static str),
    /// The case answers.
    Deferred,
}

/// Answers requests: method and parameters to what is done.
pub(super) type Responder = Box<dyn Fn(&str, &Value) -> Response + Send + Sync>;

/// One end of a connection.
pub(super) struct JsonRpcPeer {
    writer: AsyncMutex<Option<Box<dyn AsyncWrite + Send + Unpin>>>,
    state: Mutex<PeerState>,
    pub(super) changed: Notify,
    responder: Responder,
    pub(super) answer_timeout: Duration,
}

#[derive(Default)]
pub(super) struct PeerState {
    next_id: u64,
    /// By the id's JSON text, so that `1` and `"1"` are two.
    pending: HashMap<String, oneshot::Sender<Result<Value, Refusal>>>,
    pub(super) received: Vec<ReceivedMessage>,
    pub(super) dropped: usize,
    pub(super) unexpected: Vec<String>,
    pub(super) has_ended: bool,
}

/// A request or notification that came in.
#[derive(Debug, Clone)]
pub(super) struct ReceivedMessage {
    /// The line, as it came.
    pub(super) line: String,
    /// The message.
    pub(super) message: Value,
}

impl ReceivedMessage {
    /// Its method.
    pub(super) fn method(&self) -> &str {
        self.message["method"].as_str().unwrap_or_default()
    }

    /// Its parameters.
    pub(super) fn params(&self) -> &Value {
        &self.message["params"]
    }
}

impl JsonRpcPeer {
    /// Begins to read, and answers requests by the table. `answer_timeout` is how long answers and messages may take.
    pub(super) fn start(
        reader: impl AsyncRead + Send + Unpin + 'static,
        writer: impl AsyncWrite + Send + Unpin + 'static,
        responder: Responder,
        answer_timeout: Duration,
    ) -> Arc<Self> {
        let peer = Arc::new(Self {
            writer: AsyncMutex::new(Some(Box::new(writer))),
            state: Mutex::default(),
            changed: Notify::new(),
            responder,
            answer_timeout,
        });
        tokio::spawn(peer.clone().read(BufReader::new(reader)));
        peer
    }

    async fn read(self: Arc<Self>, mut reader: impl AsyncBufReadExt + Unpin) {
        let mut line = Vec::new();
        loop {
            line.clear();
            match (&mut reader).take(LINE_MAX_BYTES).read_until(b'\n', &mut line).await {
                Ok(0) | Err(_) => break,
                Ok(_) => {}
            }
            if line.len() as u64 == LINE_MAX_BYTES {
                self.record_unexpected(format!("a line of more than {LINE_MAX_BYTES} bytes"));
                break;
            }
            let Ok(text) = std::str::from_utf8(&line) else {
                self.record_unexpected(format!(
                    "a line that is not UTF-8: {}",
                    String::from_utf8_lossy(&line)
                ));
                continue;
            };
            self.handle_line(text.trim_end_matches('\n')).await;
        }
        self.end();
    }

    fn end(&self) {
        let mut state = self.state();
        state.has_ended = true;
        state.pending.clear();
        drop(state);
        self.changed.notify_waiters();
    }

    async fn handle_line(&self, line: &str) {
        let message: Value = match serde_json::from_str(line) {
            Ok(message) => message,
            Err(error) => {
                return self
                    .record_unexpected(format!("a line that is not JSON ({error}): {}", shortened(line)));
            }
        };
        if message["jsonrpc"] != "2.0" {
            return self.record_unexpected(format!("not JSON-RPC 2.0: {}", shortened(line)));
        }
        let id = message.get("id").cloned();
        if message.get("method").is_none() {
            return self.handle_answer(id, &message, line);
        }
        let response = id
            .is_some()
            .then(|| (self.responder)(message["method"].as_str().unwrap_or_default(), &message["params"]));
        self.record(ReceivedMessage { line: line.to_owned(), message });
        match (response, id) {
            (Some(Response::Result(result)), Some(id)) => self.answer(&id, result).await,
            (Some(Response::Error(code, message)), Some(id)) => {
                self.send(&json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": message}}))
                    .await;
            }
            _ => {}
        }
    }

    fn record(&self, received: ReceivedMessage) {
        let mut state = self.state();
        if state.received.len() == RECORD_LINES {
            state.received.remove(0);
            state.dropped += 1;
        }
        state.received.push(received);
        drop(state);
        self.changed.notify_waiters();
    }

    fn handle_answer(&self, id: Option<Value>, message: &Value, line: &str) {
        let waiting = id.and_then(|id| self.state().pending.remove(&id.to_string()));
        let Some(waiting) = waiting else {
            return self.record_unexpected(format!("an answer to no request: {}", shortened(line)));
        };
        let answer = match (message.get("result"), message.get("error")) {
            (Some(result), None) => Ok(result.clone()),
            (None, Some(error)) => match (error["code"].as_i64(), error["message"].as_str()) {
                (Some(code), Some(text)) => {
                    Err(Refusal { code, message: text.to_owned(), data: error.get("data").cloned() })
                }
                _ => {
                    return self
                        .record_unexpected(format!("an error without code or message: {}", shortened(line)));
                }
            },
            _ => {
                return self.record_unexpected(format!(
                    "an answer must have a result or an error: {}",
                    shortened(line)
                ));
            }
        };
        // Who asked may have given up.
        let _ = waiting.send(answer);
    }

    /// Asks, and waits for the answer.
    pub(super) async fn call(&self, method: &str, params: Value) -> Result<Result<Value, Refusal>, Fault> {
        let id = self.fresh_id();
        self.call_with_id(id, method, params).await
    }

    /// Asks under an id of the caller's choice.
    pub(super) async fn call_with_id(
        &self,
        id: Value,
        method: &str,
        params: Value,
    ) -> Result<Result<Value, Refusal>, Fault> {
        let asked = self.send_request(&id, method, params).await?;
        self.answer_to(method, asked).await
    }

    /// Sends a request; its answer is waited for with [`Self::answer_to`].
    pub(super) async fn send_request(
        &self,
        id: &Value,
        method: &str,
        params: Value,
    ) -> Result<PendingAnswer, Fault> {
        let asked = self.expect_answer(id)?;
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})).await;
        Ok(asked)
    }

    /// Waits for the answer to a request that the case sends as a line of its own.
    pub(super) fn expect_answer(&self, id: &Value) -> Result<PendingAnswer, Fault> {
        let (sender, receiver) = oneshot::channel();
        let mut state = self.state();
        if state.has_ended {
            return Err(Fault::Ended("nothing can be asked"));
        }
        state.pending.insert(id.to_string(), sender);
        Ok(PendingAnswer(receiver))
    }

    /// Waits for the answer to a request that was sent before.
    pub(super) async fn answer_to(
        &self,
        what: &str,
        asked: PendingAnswer,
    ) -> Result<Result<Value, Refusal>, Fault> {
        match tokio::time::timeout(self.answer_timeout, asked.0).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(_)) => Err(Fault::Ended("an answer was still expected")),
            Err(_) => {
                Err(Fault::Silent { what: format!("the answer to {what}"), waited: self.answer_timeout })
            }
        }
    }

    /// An id that was not used.
    pub(super) fn fresh_id(&self) -> Value {
        let mut state = self.state();
        state.next_id += 1;
        json!(state.next_id)
    }

    /// Sends a notification.
    pub(super) async fn notify(&self, method: &str, params: Value) {
        self.send(&json!({"jsonrpc": "2.0", "method": method, "params": params})).await;
    }

    /// Answers a request.
    pub(super) async fn answer(&self, id: &Value, result: Value) {
        self.send(&json!({"jsonrpc": "2.0", "id": id, "result": result})).await;
    }

    /// Sends a message.
    pub(super) async fn send(&self, message: &Value) {
        self.send_line(message.to_string().as_bytes()).await;
    }

    /// Sends a line as it is. An end that is gone is noticed by its reader; one that does not read loses us.
    pub(super) async fn send_line(&self, line: &[u8]) {
        let mut writer = self.writer.lock().await;
        let Some(open) = writer.as_mut() else { return };
        let mut whole = Vec::with_capacity(line.len() + 1);
        whole.extend_from_slice(line);
        whole.push(b'\n');
        let writing = async {
            open.write_all(&whole).await?;
            open.flush().await
        };
        if tokio::time::timeout(self.answer_timeout, writing).await.is_err() {
            *writer = None;
            self.record_unexpected(format!("nothing was read for {:?}", self.answer_timeout));
        }
    }

    /// Closes the sending direction: to the other side, this end is gone.
    pub(super) async fn hang_up(&self) {
        if let Some(mut writer) = self.writer.lock().await.take() {
            let _ = writer.shutdown().await;
        }
    }

    /// How long answers and messages may take.
    pub(super) fn answer_timeout(&self) -> Duration {
        self.answer_timeout
    }

    /// Whether the other side has ended the connection.
    pub(super) fn has_ended(&self) -> bool {
        self.state().has_ended
    }

    /// What came and should not have, up to now.
    pub(super) fn unexpected(&self) -> Vec<String> {
        self.state().unexpected.clone()
    }

    fn record_unexpected(&self, what: String) {
        let mut state = self.state();
        if state.unexpected.len() < UNEXPECTED_MAX {
            state.unexpected.push(what);
        }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, PeerState> {
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// A request under way.
pub(super) struct PendingAnswer(oneshot::Receiver<Result<Value, Refusal>>);

/// A place in the record of what came in.
#[derive(Debug, Clone, Copy)]
pub(super) struct Mark(pub(super) usize);

impl Mark {
    /// Before everything.
    pub(super) const START: Self = Self(0);
}

fn shortened(line: &str) -> String {
    line.chars().take(200).collect()
}
