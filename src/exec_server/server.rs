//! The server that a client talks to: the handshake, and which method does what.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::{OnceCell, OwnedSemaphorePermit, Semaphore};

use super::{
    ExecServerOptions, file_status,
    files::Files,
    handles::Handles,
    lines::{Disconnected, LineSender},
    message::{self, ErrorCode, Incoming, RpcError},
    processes::Processes,
    session::ExecSession,
    uri,
};
use crate::client::RetryingClient;

/// Requests of the client that are under way at once.
pub const CALLS_MAX: usize = 128;
/// The bytes of their messages together. What comes after waits to be read.
pub const CALL_BYTES_MAX: usize = 64 << 20;
/// File operations that are under way at once; more wait for their turn.
pub const FILE_CALLS_MAX: usize = 8;
/// Shells that the client is told of, by the first of them that the sandbox has.
const SHELLS: [(&str, &str); 2] = [("bash", "/bin/bash"), ("sh", "/bin/sh")];

/// Serves one client.
#[derive(Debug)]
pub(super) struct Server {
    client: RetryingClient,
    options: ExecServerOptions,
    to: LineSender,
    opened: Option<Arc<Opened>>,
    is_initialized: bool,
    calls: Arc<Semaphore>,
    call_bytes: Arc<Semaphore>,
}

/// What a request under way takes.
#[derive(Debug)]
struct Place {
    _call: OwnedSemaphorePermit,
    _bytes: OwnedSemaphorePermit,
}

/// What there is once the session is open.
#[derive(Debug)]
struct Opened {
    session: Arc<ExecSession>,
    processes: Processes,
    files: Files,
    handles: Handles,
    file_calls: Semaphore,
    shell: OnceCell<(&'static str, &'static str)>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct InitializeParams {
    #[serde(default)]
    client_name: String,
    #[serde(default)]
    resume_session_id: Option<String>,
}

impl Server {
    pub(super) fn new(client: RetryingClient, options: ExecServerOptions, to: LineSender) -> Self {
        let calls = Arc::new(Semaphore::new(CALLS_MAX));
        let call_bytes = Arc::new(Semaphore::new(CALL_BYTES_MAX));
        Self { client, options, to, opened: None, is_initialized: false, calls, call_bytes }
    }

    /// Ends the session with all that runs in it.
    pub(super) async fn close(&self) {
        if let Some(opened) = &self.opened {
            opened.session.close().await;
        }
    }

    /// Takes a line of the client.
    pub(super) async fn take(&mut self, line: &[u8]) -> Result<(), Disconnected> {
        if line.iter().all(u8::is_ascii_whitespace) {
            return Ok(());
        }
        match message::parse(line) {
            Ok(Incoming::Request { id, method, params }) => {
                self.request(id, &method, params, line.len()).await
            }
            Ok(Incoming::Notification { method }) if method == "initialized" => {
                self.is_initialized = self.opened.is_some();
                Ok(())
            }
            Ok(Incoming::Notification { method }) => {
                self.to.send(message::answer_to_none(unknown_method(&method))).await
            }
            Err(error) => self.to.send(message::answer_to_none(error)).await,
        }
    }

    /// Answers to a line that was too long to be read.
    pub(super) async fn refuse_line(&self) -> Result<(), Disconnected> {
        let problem = format!("a message has at most {} bytes", super::LINE_MAX_BYTES);
        let error = RpcError::new(ErrorCode::InvalidRequest, "MESSAGE_TOO_LONG", &problem);
        self.to.send(message::answer_to_none(error)).await
    }

    async fn request(
        &mut self,
        id: Value,
        method: &str,
        params: Value,
        bytes: usize,
    ) -> Result<(), Disconnected> {
        if method == "initialize" {
            let answered = self.initialize(params).await;
            return self.to.send(message::answer(id, answered)).await;
        }
        let opened = match &self.opened {
            Some(opened) if self.is_initialized => opened.clone(),
            Some(_) | None => {
                let problem = "the client has not sent initialize and initialized";
                let error = RpcError::new(ErrorCode::InvalidRequest, "NOT_INITIALIZED", problem);
                return self.to.send(message::answer(id, Err(error))).await;
            }
        };
        if method == "process/write" {
            // Here, and not in a task: writes keep their order.
            return self.to.send(message::answer(id, opened.processes.write(params))).await;
        }
        let Ok(call) = self.calls.clone().try_acquire_owned() else {
            let error = RpcError::too_many("requests", CALLS_MAX);
            return self.to.send(message::answer(id, Err(error))).await;
        };
        let bytes = u32::try_from(bytes.clamp(1, CALL_BYTES_MAX)).unwrap_or(u32::MAX);
        let bytes = self.call_bytes.clone().acquire_many_owned(bytes).await.map_err(|_| Disconnected)?;
        let place = Place { _call: call, _bytes: bytes };
        let (method, to) = (method.to_owned(), self.to.clone());
        tokio::spawn(async move { opened.answer(id, &method, params, to, place).await });
        Ok(())
    }

    async fn initialize(&mut self, params: Value) -> Result<Value, RpcError> {
        let invalid = |problem: &str| RpcError::new(ErrorCode::InvalidRequest, "BAD_ARGUMENT", problem);
        let params: InitializeParams = message::params(params)?;
        if self.opened.is_some() {
            return Err(invalid("initialize was sent before"));
        }
        if params.resume_session_id.is_some() {
            return Err(invalid("resumeSessionId: a session ends with its server, and cannot be resumed"));
        }
        let session = ExecSession::open(self.client.clone(), &self.options, &params.client_name).await?;
        let session = Arc::new(session);
        let session_id = session.id.clone();
        let opened = Arc::new(Opened {
            processes: Processes::new(session.clone(), self.options.env_names.clone()),
            files: Files::new(session.clone()),
            handles: Handles::new(),
            file_calls: Semaphore::new(FILE_CALLS_MAX),
            shell: OnceCell::new(),
            session,
        });
        self.opened = Some(opened.clone());
        Ok(json!({ "sessionId": session_id, "environmentInfo": opened.info().await }))
    }
}

impl Opened {
    /// Answers a request, and follows the process that it has started.
    async fn answer(self: Arc<Self>, id: Value, method: &str, params: Value, to: LineSender, place: Place) {
        if method == "process/start" {
            let (answered, started) = match self.processes.start(params).await {
                Ok((answer, started)) => (Ok(answer), Some(started)),
                Err(error) => (Err(error), None),
            };
            let sent = to.send(message::answer(id, answered)).await;
            drop(place);
            // A process that the client does not learn of is dropped, and so stopped.
            if let (Ok(()), Some(started)) = (sent, started) {
                started.follow(to).await;
            }
            return;
        }
        // Held until the answer is in the queue: it can be as large as a file.
        let _turn = match method.starts_with("fs/") {
            true => self.file_calls.acquire().await.ok(),
            false => None,
        };
        let answered = self.call(method, params).await;
        let _ = to.send(message::answer(id, answered)).await;
        drop(place);
    }

    async fn call(&self, method: &str, params: Value) -> Result<Value, RpcError> {
        match method {
            "environment/info" => Ok(self.info().await),
            "environment/status" => Ok(json!({ "status": "ready" })),
            "process/read" => self.processes.read(params).await,
            "process/signal" => self.processes.signal(params).await,
            "process/terminate" => self.processes.terminate(params).await,
            "fs/readFile" => self.files.read_file(params).await,
            "fs/writeFile" => self.files.write_file(params).await,
            "fs/createDirectory" => self.files.create_directory(params).await,
            "fs/getMetadata" => self.files.get_metadata(params).await,
            "fs/canonicalize" => self.files.canonicalize(params).await,
            "fs/readDirectory" => self.files.read_directory(params).await,
            "fs/walk" => self.files.walk(params).await,
            "fs/remove" => self.files.remove(params).await,
            "fs/copy" => self.files.copy(params).await,
            "fs/open" => self.handles.open(&self.files, params).await,
            "fs/readBlock" => self.handles.read_block(&self.files, params).await,
            "fs/close" => self.handles.close(params),
            "http/request" => Err(RpcError::new(
                ErrorCode::Refused,
                "HTTP_REFUSED",
                "this server sends no HTTP requests for its client: a command in the sandbox can, as far as the policy lets it",
            )),
            _ => Err(unknown_method(method)),
        }
    }

    async fn info(&self) -> Value {
        let find = async {
            for (name, path) in SHELLS {
                if file_status::status(&self.session, path).await.is_ok_and(|status| status.is_file()) {
                    return (name, path);
                }
            }
            SHELLS[SHELLS.len() - 1]
        };
        let (name, path) = *self.shell.get_or_init(|| find).await;
        json!({
            "shell": { "name": name, "path": path },
            "cwd": uri::of_path(&self.session.directory),
            "platformOs": "linux",
            "tempDir": uri::of_path("/tmp"),
        })
    }
}

fn unknown_method(method: &str) -> RpcError {
    let method = crate::printable::bounded_line(method, 80).into_owned();
    RpcError::new(ErrorCode::MethodNotFound, "UNKNOWN_METHOD", &format!("this server has no method {method}"))
}
