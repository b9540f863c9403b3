//! A client of `provost exec-server`, played by the test: messages of JSON on its stdio or by a websocket. Nothing here waits without a
//! deadline.

use std::{
    path::{Path, PathBuf},
    process::{Command, ExitStatus},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::socket::Socket;
use crate::support::{Gateway, StdioServer, directory_with_workspace};

/// A server and its client.
pub(crate) struct Peer {
    server: Server,
    last_id: u64,
    /// Notifications that have come, in order.
    pub(crate) seen: Vec<Value>,
    /// The workspace.
    pub(crate) workspace: PathBuf,
    directory: Option<TempDir>,
}

/// By what the messages come and go.
enum Server {
    Stdio(StdioServer),
    Socket(Box<Socket>),
}

/// All that a process has written, and how it ended.
#[derive(Debug, Default)]
pub(crate) struct Ended {
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) pty: String,
    pub(crate) exit_code: i64,
}

impl Peer {
    /// A server at a gateway, whose client has done the handshake.
    pub(crate) fn at(gateway: &Gateway) -> Self {
        let mut peer = Self::start(gateway);
        let answer = peer.ask("initialize", json!({ "clientName": "tester" }));
        assert!(answer["result"]["sessionId"].as_str().expect("a text").starts_with("sess_"), "{answer}");
        peer.send(&json!({ "method": "initialized" }));
        peer
    }

    /// A server at a gateway, to which nothing was said.
    pub(crate) fn start(gateway: &Gateway) -> Self {
        let (directory, workspace) = directory_with_workspace();
        let mut command = Command::new(env!("CARGO_BIN_EXE_provost"));
        command.args(["exec-server", "--gateway", &format!("unix:{}", gateway.socket.display()), "--root"]);
        let server = StdioServer::start(command.arg(&workspace));
        let server = Server::Stdio(server);
        Self { server, last_id: 0, seen: Vec::new(), workspace, directory: Some(directory) }
    }

    /// A server on stdio, with this workspace, to which nothing was said.
    pub(crate) fn with(server: StdioServer, workspace: PathBuf) -> Self {
        let server = Server::Stdio(server);
        Self { server, last_id: 0, seen: Vec::new(), workspace, directory: None }
    }

    /// A websocket on which nothing was said, to a server with this workspace.
    pub(crate) fn over(socket: Socket, workspace: PathBuf) -> Self {
        let server = Server::Socket(Box::new(socket));
        Self { server, last_id: 0, seen: Vec::new(), workspace, directory: None }
    }

    fn stdio(&self) -> &StdioServer {
        match &self.server {
            Server::Stdio(server) => server,
            Server::Socket(_) => panic!("the server is not this client's child"),
        }
    }

    /// The websocket.
    pub(crate) fn socket(&mut self) -> &mut Socket {
        match &mut self.server {
            Server::Socket(socket) => socket,
            Server::Stdio(_) => panic!("the client is on stdio"),
        }
    }

    /// The process id of the server.
    pub(crate) fn pid(&self) -> u32 {
        self.stdio().pid()
    }

    /// A path next to the workspace, where no command may write.
    pub(crate) fn outside(&self, name: &str) -> PathBuf {
        let directory = self.directory.as_ref().expect("the client is on stdio");
        directory.path().canonicalize().expect("it is there").join(name)
    }

    /// The result of a request that must succeed.
    pub(crate) fn result(&mut self, method: &str, params: Value) -> Value {
        let answer = self.ask(method, params);
        assert!(answer.get("error").is_none(), "{method}: {answer}");
        answer["result"].clone()
    }

    /// The error of a request that must fail.
    pub(crate) fn error(&mut self, method: &str, params: Value) -> Value {
        let answer = self.ask(method, params);
        assert!(answer.get("result").is_none(), "{method}: {answer}");
        answer["error"].clone()
    }

    pub(crate) fn ask(&mut self, method: &str, params: Value) -> Value {
        let id = self.begin(method, params);
        self.answer(id)
    }

    /// Sends a request; its id.
    pub(crate) fn begin(&mut self, method: &str, params: Value) -> u64 {
        self.last_id += 1;
        self.send(&json!({ "id": self.last_id, "method": method, "params": params }));
        self.last_id
    }

    /// The answer to the request of this id, which may have come while something else was waited for. Notifications that come before
    /// it are kept.
    pub(crate) fn answer(&mut self, id: u64) -> Value {
        if let Some(at) = self.seen.iter().position(|message| message["id"] == id) {
            return self.seen.remove(at);
        }
        loop {
            let message = self.receive();
            if message["id"] == id {
                return message;
            }
            let is_asked = message["id"].as_u64().is_some_and(|id| id <= self.last_id);
            assert!(is_asked || message.get("method").is_some(), "the answer to nothing: {message}");
            self.seen.push(message);
        }
    }

    fn receive(&mut self) -> Value {
        match &mut self.server {
            Server::Stdio(server) => server.receive(),
            Server::Socket(socket) => socket.receive(),
        }
    }

    /// An answer that is to no request.
    pub(crate) fn stray(&mut self) -> Value {
        loop {
            let message = self.receive();
            if message["id"] == -1 {
                return message;
            }
            self.seen.push(message);
        }
    }

    pub(crate) fn send(&mut self, message: &Value) {
        self.send_line(&message.to_string());
    }

    pub(crate) fn send_line(&mut self, line: &str) {
        match &mut self.server {
            Server::Stdio(server) => server.send_line(line),
            Server::Socket(socket) => socket.send(line),
        }
    }

    /// The parameters of `process/start` for a command in the workspace.
    pub(crate) fn command(&self, name: &str, argv: &[&str]) -> Value {
        json!({ "processId": name, "argv": argv, "cwd": uri(&self.workspace), "env": {}, "tty": false, "arg0": null })
    }

    /// Runs a line of sh to its end.
    pub(crate) fn line(&mut self, name: &str, line: &str) -> Ended {
        let params = self.command(name, &["sh", "-c", line]);
        self.result("process/start", params);
        self.ended(name)
    }

    /// Waits for the end of a process. Checks the order and the numbers of what comes.
    pub(crate) fn ended(&mut self, name: &str) -> Ended {
        let is_closed =
            |seen: &Value| seen["method"] == "process/closed" && seen["params"]["processId"] == name;
        while !self.seen.iter().any(is_closed) {
            let message = self.receive();
            self.seen.push(message);
        }
        let (mut ended, mut seq, mut has_exited) = (Ended::default(), 0, false);
        for message in self.seen.iter().filter(|message| message["params"]["processId"] == name) {
            let params = &message["params"];
            seq += 1;
            assert_eq!(params["seq"], seq, "numbers have no gaps: {message}");
            match message["method"].as_str().expect("a method") {
                "process/output" => {
                    assert!(!has_exited, "output comes before the exit");
                    let text = text(&params["chunk"]);
                    match params["stream"].as_str().expect("a stream") {
                        "stdout" => ended.stdout.push_str(&text),
                        "stderr" => ended.stderr.push_str(&text),
                        _ => ended.pty.push_str(&text),
                    }
                }
                "process/exited" => {
                    has_exited = true;
                    ended.exit_code = params["exitCode"].as_i64().expect("a number");
                }
                _ => assert!(has_exited, "the close comes last"),
            }
        }
        ended
    }

    /// Waits until a process has written this.
    pub(crate) fn until_written(&mut self, name: &str, wanted: &str) {
        loop {
            let outputs = self.seen.iter().filter(|message| message["method"] == "process/output");
            let outputs = outputs.filter(|message| message["params"]["processId"] == name);
            let written: String = outputs.map(|message| text(&message["params"]["chunk"])).collect();
            if written.contains(wanted) {
                return;
            }
            let message = self.receive();
            self.seen.push(message);
        }
    }

    /// Closes the server's stdin, as a client that goes away does.
    pub(crate) fn leave(self) -> ExitStatus {
        match self.server {
            Server::Stdio(server) => server.leave(),
            Server::Socket(_) => panic!("the server is not this client's child"),
        }
    }
}

/// A `file:` URI of a path without special characters.
pub(crate) fn uri(path: &Path) -> String {
    format!("file://{}", path.display())
}

pub(crate) fn encoded(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// The text that base64 carries.
pub(crate) fn text(encoded: &Value) -> String {
    let bytes = STANDARD.decode(encoded.as_str().expect("a text")).expect("base64");
    String::from_utf8(bytes).expect("the tests write UTF-8")
}
