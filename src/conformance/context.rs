//! What a case works with: an agent with a session and a workspace, in the middle of a prompt, and the five terminal
//! requests as it would send them. Terminals that a case leaves behind are released after it.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use serde_json::{Map, Value, json};

use super::{
    backend::{self, Backend, BackendError, BackendLauncher},
    fault::{Fault, Refusal, ensure},
    fifo_probe::FifoProbe,
    peer::{JsonRpcPeer, ReceivedMessage},
    roles::EditorKind,
};

/// The agent's side of a session, and the editor's where the suite plays both.
#[derive(Clone)]
pub(super) struct TestContext(Arc<Inner>);

struct Inner {
    agent: Arc<JsonRpcPeer>,
    editor: Option<Arc<JsonRpcPeer>>,
    session: String,
    directory: PathBuf,
    terminals: Mutex<Vec<String>>,
    launcher: Option<BackendLauncher>,
    own_backend: Mutex<Option<Backend>>,
}

/// What `terminal/output` answers.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct TerminalOutput {
    /// The text.
    pub(super) text: String,
    /// Whether its beginning was dropped.
    pub(super) truncated: bool,
    /// How the command ended, when it has.
    pub(super) exit: Option<ExitStatus>,
}

/// An exit status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ExitStatus {
    /// The code.
    pub(super) code: Option<u64>,
    /// The signal.
    pub(super) signal: Option<String>,
}

impl ExitStatus {
    /// By itself, with this code.
    pub(super) fn with_code(code: u64) -> Self {
        Self { code: Some(code), signal: None }
    }

    fn parse(value: &Value) -> Result<Self, Fault> {
        let code = match &value["exitCode"] {
            Value::Null => None,
            code => match code.as_u64().filter(|code| u32::try_from(*code).is_ok()) {
                Some(code) => Some(code),
                None => return Err(Fault::Unmet(format!("exitCode is no unsigned 32-bit number: {code}"))),
            },
        };
        let signal = match &value["signal"] {
            Value::Null => None,
            Value::String(signal) => Some(signal.clone()),
            other => return Err(Fault::Unmet(format!("signal is no text: {other}"))),
        };
        Ok(Self { code, signal })
    }
}

impl TestContext {
    /// A session in any editor, which the agent was started by.
    pub(super) fn inside(agent: Arc<JsonRpcPeer>, session: String, directory: PathBuf) -> Self {
        Self(Arc::new(Inner {
            agent,
            editor: None,
            session,
            directory,
            terminals: Mutex::default(),
            launcher: None,
            own_backend: Mutex::default(),
        }))
    }

    /// A new session of a backend.
    pub(super) async fn open(backend: &Backend, launch: &BackendLauncher) -> Result<Self, Fault> {
        let stage = Self::of(backend, launch).await?;
        let directory = backend.sessions.directory(stage.session());
        ensure!(
            directory.as_deref() == Some(stage.directory()),
            "session/new did not reach the agent with its cwd"
        );
        Ok(stage)
    }

    async fn of(backend: &Backend, launch: &BackendLauncher) -> Result<Self, Fault> {
        let (session, directory) = new_session(&backend.editor, &backend.workspace()).await?;
        Ok(Self(Arc::new(Inner {
            agent: backend.agent.clone(),
            editor: Some(backend.editor.clone()),
            session,
            directory,
            terminals: Mutex::default(),
            launcher: Some(launch.clone()),
            own_backend: Mutex::default(),
        })))
    }

    /// A session of a further backend that has another editor; it ends with [`Prompt::end`].
    pub(super) async fn with_editor(&self, editor: EditorKind) -> Result<Self, Fault> {
        let launch = self.0.launcher.as_ref().ok_or(Fault::Ended("this case needs a backend command"))?;
        let backend = launch.start(editor).await.map_err(|error| match error {
            BackendError::Start { source, .. } => Fault::Workspace(source),
            BackendError::Initialize { fault, .. } => fault,
        })?;
        let stage = Self::of(&backend, launch).await?;
        *lock(&stage.0.own_backend) = Some(backend);
        Ok(stage)
    }

    /// A further session of the same backend, or one that was made up where there is none.
    pub(super) async fn other_session(&self) -> Result<String, Fault> {
        match &self.0.editor {
            Some(editor) => {
                let workspace = self.0.directory.parent().unwrap_or(&self.0.directory);
                Ok(new_session(editor, workspace).await?.0)
            }
            None => Ok(format!("{}-other", self.0.session)),
        }
    }

    /// The agent's end.
    pub(super) fn agent(&self) -> &JsonRpcPeer {
        &self.0.agent
    }

    /// The editor's end.
    pub(super) fn editor(&self) -> Result<&JsonRpcPeer, Fault> {
        self.0.editor.as_deref().ok_or(Fault::Ended("this case needs the editor's side"))
    }

    /// The session's id.
    pub(super) fn session(&self) -> &str {
        &self.0.session
    }

    /// The session's working directory.
    pub(super) fn directory(&self) -> &Path {
        &self.0.directory
    }

    /// A FIFO probe in the session's directory.
    pub(super) fn fifo_probe(&self) -> Result<FifoProbe, Fault> {
        Ok(FifoProbe::create_in(&self.0.directory, self.slow_timeout())?)
    }

    /// How long what is slow by its nature may take.
    pub(super) fn slow_timeout(&self) -> Duration {
        backend::slow(self.0.agent.answer_timeout())
    }

    /// Sends a request and gives the answer, whichever it is.
    pub(super) async fn call(&self, method: &str, params: Value) -> Result<Result<Value, Refusal>, Fault> {
        self.0.agent.call(method, params).await
    }

    /// Sends a request that must succeed.
    pub(super) async fn ask(&self, method: &str, params: Value) -> Result<Value, Fault> {
        self.call(method, params)
            .await?
            .map_err(|refusal| Fault::Refused { method: method.to_owned(), refusal })
    }

    /// Sends a request that must be refused, but not as "authentication required".
    pub(super) async fn refused(&self, method: &str, params: Value) -> Result<Refusal, Fault> {
        match self.call(method, params.clone()).await? {
            Ok(result) => {
                if let Some(id) = result["terminalId"].as_str() {
                    lock(&self.0.terminals).push(id.to_owned());
                }
                Err(Fault::Unmet(format!("{method} {params} was answered with {result}, not with an error")))
            }
            Err(refusal) => {
                ensure!(refusal.code != -32000, "{method}: -32000 means \"authentication required\"");
                Ok(refusal)
            }
        }
    }

    /// The parameters of a create: `given`, with the session where it names none.
    pub(super) fn creating(&self, given: Value) -> Value {
        let mut params = Map::from_iter([("sessionId".to_owned(), json!(self.0.session))]);
        if let Value::Object(given) = given {
            params.extend(given);
        }
        Value::Object(params)
    }

    /// `terminal/create`.
    pub(super) async fn create(&self, given: Value) -> Result<String, Fault> {
        let result = self.ask("terminal/create", self.creating(given)).await?;
        self.created(&result)
    }

    /// The id in the answer to a create, remembered so that the terminal is released after the case.
    pub(super) fn created(&self, result: &Value) -> Result<String, Fault> {
        let id = result["terminalId"].as_str().unwrap_or_default();
        ensure!(!id.is_empty(), "terminalId is no text, or empty: {result}");
        lock(&self.0.terminals).push(id.to_owned());
        Ok(id.to_owned())
    }

    /// `terminal/create` of a shell script.
    pub(super) async fn script(&self, script: &str) -> Result<String, Fault> {
        self.create(json!({"command": "sh", "args": ["-c", script]})).await
    }

    /// Runs a shell script to its end and gives its output, which must be whole.
    pub(super) async fn output_of(&self, script: &str) -> Result<String, Fault> {
        let id = self.script(script).await?;
        self.wait(&id).await?;
        Ok(self.output(&id).await?.text)
    }

    /// Parameters that name a terminal.
    pub(super) fn naming(&self, id: &str) -> Value {
        json!({"sessionId": self.0.session, "terminalId": id})
    }

    /// `terminal/output`.
    pub(super) async fn output(&self, id: &str) -> Result<TerminalOutput, Fault> {
        let result = self.ask("terminal/output", self.naming(id)).await?;
        let Some(text) = result["output"].as_str() else {
            return Err(Fault::Unmet(format!("output is no text: {}", result["output"])));
        };
        let Some(truncated) = result["truncated"].as_bool() else {
            return Err(Fault::Unmet(format!("truncated is no boolean: {}", result["truncated"])));
        };
        let exit = match &result["exitStatus"] {
            Value::Null => None,
            status @ Value::Object(_) => Some(ExitStatus::parse(status)?),
            other => return Err(Fault::Unmet(format!("exitStatus is no object: {other}"))),
        };
        Ok(TerminalOutput { text: text.to_owned(), truncated, exit })
    }

    /// `terminal/wait_for_exit`.
    pub(super) async fn wait(&self, id: &str) -> Result<ExitStatus, Fault> {
        let result = self.ask("terminal/wait_for_exit", self.naming(id)).await?;
        ensure!(result.is_object(), "the answer is no object: {result}");
        ExitStatus::parse(&result)
    }

    /// `terminal/kill`.
    pub(super) async fn kill(&self, id: &str) -> Result<Value, Fault> {
        self.ask("terminal/kill", self.naming(id)).await
    }

    /// `terminal/release`.
    pub(super) async fn release(&self, id: &str) -> Result<Value, Fault> {
        let result = self.ask("terminal/release", self.naming(id)).await?;
        lock(&self.0.terminals).retain(|known| known != id);
        Ok(result)
    }

    /// Polls until the output has `text` in it.
    pub(super) async fn until(&self, id: &str, text: &str) -> Result<TerminalOutput, Fault> {
        let begun = tokio::time::Instant::now();
        loop {
            let output = self.output(id).await?;
            if output.text.contains(text) {
                return Ok(output);
            }
            if begun.elapsed() > self.0.agent.answer_timeout() {
                let what = format!("{text:?} in the output, which is {:?}", shortened(&output.text));
                return Err(Fault::Silent { what, waited: begun.elapsed() });
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Begins a prompt from the editor's side; the agent holds it.
    pub(super) async fn begin_prompt(&self) -> Result<Prompt, Fault> {
        let editor = self.editor()?;
        let mark = self.0.agent.mark();
        let params =
            json!({"sessionId": self.0.session, "prompt": [{"type": "text", "text": "run the case"}]});
        let asked = editor.send_request(&editor.fresh_id(), "session/prompt", params).await?;
        let received = self
            .0
            .agent
            .wait_for_message("session/prompt at the agent", mark, |message| {
                message.method() == "session/prompt"
            })
            .await?;
        Ok(Prompt { received, asked })
    }

    /// Releases what the case left behind, and ends what it had of its own.
    pub(super) async fn cleanup(&self) {
        let left = std::mem::take(&mut *lock(&self.0.terminals));
        for id in left {
            // What was released, or never lived, is refused: that is for the cases about it.
            let _ = self.call("terminal/release", self.naming(&id)).await;
        }
        let own = lock(&self.0.own_backend).take();
        if let Some(backend) = own {
            backend.close().await;
        }
    }
}

/// A prompt under way.
pub(super) struct Prompt {
    received: ReceivedMessage,
    asked: super::peer::PendingAnswer,
}

impl Prompt {
    /// Ends it as an agent does, and waits for the editor to hear of it.
    pub(super) async fn end(self, stage: &TestContext) -> Result<(), Fault> {
        stage.agent().answer(&self.received.message["id"], json!({"stopReason": "end_turn"})).await;
        let answer = stage.editor()?.answer_to("session/prompt", self.asked).await?;
        let reason =
            answer.map_err(|refusal| Fault::Refused { method: "session/prompt".to_owned(), refusal })?;
        ensure!(reason["stopReason"] == "end_turn", "the editor got {reason} for the prompt");
        Ok(())
    }
}

/// Opens a session with a directory of its own.
async fn new_session(editor: &JsonRpcPeer, workspace: &Path) -> Result<(String, PathBuf), Fault> {
    let directory = workspace.join(format!("session-{}", editor.fresh_id()));
    fs::create_dir(&directory)?;
    let answer = editor.call("session/new", json!({"cwd": directory, "mcpServers": []})).await?;
    let answer = answer.map_err(|refusal| Fault::Refused { method: "session/new".to_owned(), refusal })?;
    match answer["sessionId"].as_str() {
        Some(id) => Ok((id.to_owned(), directory)),
        None => Err(Fault::Unmet(format!("session/new was answered with {answer}"))),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The beginning of a text, for a sentence about it.
pub(super) fn shortened(text: &str) -> String {
    let mut short: String = text.chars().take(200).collect();
    if short.len() < text.len() {
        short.push_str("...");
    }
    short
}
