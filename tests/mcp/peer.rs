//! A client of `provost mcp`, played by the test: lines of JSON on its stdio. Nothing here waits without a deadline.

use std::{
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, ExitStatus, Stdio},
    sync::mpsc::{self, Receiver},
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::Gateway;

/// How long anything may take on a loaded machine.
const TIMEOUT: Duration = Duration::from_secs(120);

/// A server and its client.
pub(crate) struct Peer {
    child: Child,
    to: Option<ChildStdin>,
    from: Receiver<Value>,
    last_id: u64,
    /// What the server has sent that is no answer: requests and notifications.
    pub(crate) unasked: Vec<Value>,
    /// The workspace.
    pub(crate) workspace: PathBuf,
    _directory: TempDir,
}

impl Peer {
    /// A server at a gateway, initialized by a client that offers nothing.
    pub(crate) fn at(gateway: &Gateway) -> Self {
        Self::with(gateway, &[], json!({}))
    }

    /// A server at a gateway, with more options, initialized by a client with these capabilities.
    pub(crate) fn with(gateway: &Gateway, options: &[&str], capabilities: Value) -> Self {
        let gateway = format!("unix:{}", gateway.socket.display());
        let start = |workspace: &Path| {
            let mut command = Command::new(env!("CARGO_BIN_EXE_provost"));
            command.args(["mcp", "--gateway", &gateway, "--root"]).arg(workspace).args(options);
            command
        };
        Self::start(start, capabilities)
    }

    /// The server that a command starts for a workspace, initialized by a client with these capabilities.
    pub(crate) fn start(command: impl FnOnce(&Path) -> Command, capabilities: Value) -> Self {
        let directory =
            tempfile::Builder::new().prefix("provost-mcp-").tempdir().expect("a temporary directory");
        let workspace = directory.path().canonicalize().expect("it is there").join("workspace");
        std::fs::create_dir(&workspace).expect("a workspace");
        let mut child = command(&workspace)
            .env_remove("PROVOST_GATEWAY")
            // Nobody's gateway but an embedded one, unless an option names it.
            .env("XDG_RUNTIME_DIR", directory.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .expect("provost can be started");
        let stdout = child.stdout.take().expect("its stdout is piped");
        let (give, from) = mpsc::sync_channel(1_024);
        thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                let message = serde_json::from_str(&line).expect("stdout carries nothing but the protocol");
                if give.send(message).is_err() {
                    return;
                }
            }
        });
        let to = child.stdin.take();
        let mut peer =
            Self { child, to, from, last_id: 0, unasked: Vec::new(), workspace, _directory: directory };
        let params = json!({
            "protocolVersion": "2025-06-18",
            "capabilities": capabilities,
            "clientInfo": { "name": "tester", "version": "1" },
        });
        let answer = peer.ask("initialize", params);
        assert_eq!(answer["result"]["serverInfo"]["name"], "provost", "{answer}");
        peer.send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
        peer
    }

    /// The process id of the server.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The text of a tool's result.
    pub(crate) fn text(&mut self, tool: &str, arguments: Value) -> String {
        text(&self.tool(tool, arguments)).to_owned()
    }

    /// The result of a tool.
    pub(crate) fn tool(&mut self, tool: &str, arguments: Value) -> Value {
        let answer = self.ask("tools/call", json!({ "name": tool, "arguments": arguments }));
        answer["result"].clone()
    }

    /// The answer to a request.
    pub(crate) fn ask(&mut self, method: &str, params: Value) -> Value {
        let id = self.begin(method, params);
        self.answer(id)
    }

    /// Sends a request; its id.
    pub(crate) fn begin(&mut self, method: &str, params: Value) -> u64 {
        self.last_id += 1;
        self.send(&json!({ "jsonrpc": "2.0", "id": self.last_id, "method": method, "params": params }));
        self.last_id
    }

    /// The answer to the request of this id. What else comes is kept.
    pub(crate) fn answer(&mut self, id: u64) -> Value {
        loop {
            let message = self.receive();
            if message["id"] == id && message.get("method").is_none() {
                return message;
            }
            self.unasked.push(message);
        }
    }

    /// The next message.
    pub(crate) fn receive(&self) -> Value {
        self.from.recv_timeout(TIMEOUT).expect("the server sends something")
    }

    /// Sends a message.
    pub(crate) fn send(&mut self, message: &Value) {
        let to = self.to.as_mut().expect("stdin is open");
        writeln!(to, "{message}").expect("the server reads");
    }

    /// Closes the server's stdin, as a client that goes away does.
    pub(crate) fn leave(mut self) -> ExitStatus {
        drop(self.to.take());
        let begun = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().expect("it is our child") {
                return status;
            }
            assert!(begun.elapsed() < TIMEOUT, "the server does not end");
            thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The text of a result.
pub(crate) fn text(result: &Value) -> &str {
    result["content"][0]["text"].as_str().expect("a result has a text")
}

/// A command's id, as `_meta` has it.
pub(crate) fn id(result: &Value) -> String {
    result["_meta"]["provost"]["id"].as_str().expect("a result has an id").to_owned()
}

/// A `file:` URI.
pub(crate) fn uri(path: &Path) -> String {
    format!("file://{}", path.display())
}
