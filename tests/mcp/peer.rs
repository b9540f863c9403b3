//! A client of `provost mcp`, played by the test: lines of JSON on its stdio. Nothing here waits without a deadline.

use std::{
    path::{Path, PathBuf},
    process::{Command, ExitStatus},
};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{Gateway, StdioServer, directory_with_workspace};

/// A server and its client.
pub(crate) struct Peer {
    server: StdioServer,
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
        let (directory, workspace) = directory_with_workspace();
        // Nobody's gateway but an embedded one, unless an option names it.
        let server = StdioServer::start(command(&workspace).env("XDG_RUNTIME_DIR", directory.path()));
        let mut peer = Self { server, last_id: 0, unasked: Vec::new(), workspace, _directory: directory };
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
        self.server.pid()
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
        self.server.receive()
    }

    /// Sends a message.
    pub(crate) fn send(&mut self, message: &Value) {
        self.server.send_line(&message.to_string());
    }

    /// Sends a line as it is.
    pub(crate) fn send_line(&mut self, line: &str) {
        self.server.send_line(line);
    }

    /// Closes the server's stdin, as a client that goes away does.
    pub(crate) fn leave(self) -> ExitStatus {
        self.server.leave()
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
