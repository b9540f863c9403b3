//! What a client has in its session, and which method does what there. It outlives the client's connections.

use std::sync::Arc;

use serde_json::{Value, json, value::RawValue};
use tokio::sync::{OnceCell, OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

use super::{
    errors::{ErrorCode, RpcError},
    file_programs,
    files::{Files, Handles},
    follow::{Outlet, StartedProcess},
    message,
    processes::Processes,
    session::ExecSession,
};
use crate::{
    file_uri,
    json_rpc::{Disconnected, LineSender},
};

/// Requests of the client that are under way at once.
pub(super) const CALLS_MAX: usize = 128;
/// The bytes of their messages together. What comes after waits to be read.
pub(super) const CALL_BYTES_MAX: usize = 64 << 20;
/// File operations that are under way at once; more wait for their turn.
pub(super) const FILE_CALLS_MAX: usize = 8;
/// Shells that the client is told of, by the first of them that the sandbox has.
const SHELLS: [(&str, &str); 2] = [("bash", "/bin/bash"), ("sh", "/bin/sh")];

/// A session that is open at the gateway.
#[derive(Debug)]
pub(super) struct OpenSession {
    session: Arc<ExecSession>,
    /// Where its notifications go.
    pub(super) outlet: Outlet,
    processes: Processes,
    files: Files,
    handles: Handles,
    calls: Arc<Semaphore>,
    call_bytes: Arc<Semaphore>,
    file_calls: Semaphore,
    shell: OnceCell<(&'static str, &'static str)>,
    /// Nothing of it is followed any more.
    ended: CancellationToken,
}

/// What a request under way takes.
#[derive(Debug)]
struct Place {
    _call: OwnedSemaphorePermit,
    _bytes: OwnedSemaphorePermit,
}

/// A request of the client.
#[derive(Debug)]
pub(super) struct Call {
    /// As it was written.
    pub(super) id: Box<RawValue>,
    pub(super) method: String,
    pub(super) params: Value,
    /// The bytes of its message.
    pub(super) bytes: usize,
}

impl OpenSession {
    /// A session whose client has this connection.
    pub(super) fn new(session: ExecSession, env_names: Vec<String>, to: LineSender) -> Self {
        let session = Arc::new(session);
        Self {
            outlet: Outlet::new(to),
            processes: Processes::new(session.clone(), env_names),
            files: Files::new(session.clone()),
            handles: Handles::new(),
            calls: Arc::new(Semaphore::new(CALLS_MAX)),
            call_bytes: Arc::new(Semaphore::new(CALL_BYTES_MAX)),
            file_calls: Semaphore::new(FILE_CALLS_MAX),
            shell: OnceCell::new(),
            ended: CancellationToken::new(),
            session,
        }
    }

    /// The gateway's id of it.
    pub(super) fn id(&self) -> &str {
        &self.session.id
    }

    /// Stops and releases everything of it.
    pub(super) async fn close(&self) {
        self.ended.cancel();
        self.session.close().await;
    }

    /// Answers a request to this connection, later; waits as long as too many are under way.
    pub(super) async fn take(self: &Arc<Self>, call: Call, to: LineSender) -> Result<(), Disconnected> {
        if call.method == "process/write" {
            // Here, and not in a task: writes keep their order.
            return to.send(message::answer(&call.id, self.processes.write(call.params))).await;
        }
        let Ok(place) = self.calls.clone().try_acquire_owned() else {
            let error = RpcError::too_many("requests", CALLS_MAX);
            return to.send(message::answer(&call.id, Err(error))).await;
        };
        let bytes = u32::try_from(call.bytes.clamp(1, CALL_BYTES_MAX)).unwrap_or(u32::MAX);
        let bytes = self.call_bytes.clone().acquire_many_owned(bytes).await.map_err(|_| Disconnected)?;
        let place = Place { _call: place, _bytes: bytes };
        let open = self.clone();
        tokio::spawn(async move { open.answer(call, to, place).await });
        Ok(())
    }

    async fn answer(self: Arc<Self>, call: Call, to: LineSender, place: Place) {
        let Call { id, method, params, .. } = call;
        if method == "process/start" {
            return self.start(id, params, to, place).await;
        }
        if method == "process/read" {
            let _ = match self.processes.read(params).await {
                Ok((read, receipt)) => to.send_for_receipt(message::answer(&id, Ok(read)), receipt).await,
                Err(error) => to.send(message::answer(&id, Err(error))).await,
            };
            return drop(place);
        }
        // Held until the answer is in the queue: it can be as large as a file.
        let _turn = match method.starts_with("fs/") {
            true => self.file_calls.acquire().await.ok(),
            false => None,
        };
        let answered = self.call(&method, params).await;
        let _ = to.send(message::answer(&id, answered)).await;
        drop(place);
    }

    /// Starts a process, and follows it to its end.
    async fn start(&self, id: Box<RawValue>, params: Value, to: LineSender, place: Place) {
        let (answered, started): (_, Option<StartedProcess>) = match self.processes.start(params).await {
            Ok((answer, started)) => (Ok(answer), Some(started)),
            Err(error) => (Err(error), None),
        };
        let sent = to.send(message::answer(&id, answered)).await;
        drop((place, to));
        // A process that the client does not learn of is dropped, and so stopped.
        if let (Ok(()), Some(started)) = (sent, started) {
            tokio::select! {
                () = started.follow(&self.outlet) => {}
                () = self.ended.cancelled() => {}
            }
        }
    }

    async fn call(&self, method: &str, params: Value) -> Result<Value, RpcError> {
        match method {
            "environment/info" => self.info().await,
            "environment/status" => Ok(json!({ "status": "ready" })),
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
            _ => Err(RpcError::unknown_method(method)),
        }
    }

    /// What the client is told of its environment.
    ///
    /// # Errors
    /// No command of the session can start. To look for the shell is the first command: it launches the sandbox.
    pub(super) async fn info(&self) -> Result<Value, RpcError> {
        let find = async {
            for (name, path) in SHELLS {
                match file_programs::status(&self.session, path).await {
                    Ok(status) if status.is_file() => return Ok((name, path)),
                    Err(error) if error.code == ErrorCode::Refused && !is_about_one_command(&error) => {
                        return Err(error);
                    }
                    Ok(_) | Err(_) => {}
                }
            }
            Ok(SHELLS[SHELLS.len() - 1])
        };
        let (name, path) = *self.shell.get_or_try_init(|| find).await?;
        Ok(json!({
            "shell": { "name": name, "path": path },
            "cwd": file_uri::of_path(&self.session.directory),
            "platformOs": "linux",
            "tempDir": file_uri::of_path("/tmp"),
        }))
    }
}

/// Whether another command may start all the same: policy refuses this one, or the sandbox does not have it.
fn is_about_one_command(error: &RpcError) -> bool {
    let reasons = [
        "POLICY_DENIED",
        "APPROVAL_REQUIRED",
        "APPROVAL_DENIED",
        "APPROVAL_EXPIRED",
        "COMMAND_NOT_FOUND",
        "TIME_LIMIT",
    ];
    error.data.get("reason").and_then(Value::as_str).is_some_and(|reason| reasons.contains(&reason))
}
