//! Both sides of a shim, played by the test: the editor on its stdio, and the agent through two named pipes.
//!
//! The agent's process is a shell that copies: what the test writes is the agent's stdout, what the agent would read the
//! test reads. Nothing here waits without a deadline.

use std::{
    fs::{File, OpenOptions},
    io::{BufRead, BufReader, Read, Write},
    os::unix::fs::{MetadataExt, chown},
    path::{Path, PathBuf},
    process::{Child, ChildStderr, ChildStdin, Command, ExitStatus, Stdio},
    sync::mpsc::{self, Receiver, RecvTimeoutError},
    thread,
    time::{Duration, Instant},
};

use nix::{sys::stat::Mode, unistd::mkfifo};
use serde_json::{Value, json};
use tempfile::TempDir;

/// How long anything may take on a loaded machine.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(120);
/// Lines that may be there unread; more wait in the pipe: a test that does not listen is an agent that does not read.
const LINES_HELD: usize = 16;
/// Copies both ways, until its stdin ends.
const COPYING_AGENT: &str = r#"cat "$1" & exec cat > "$2""#;

/// A shim with the test on both sides of it.
pub(crate) struct ShimPeer {
    child: Child,
    editor_to: Option<ChildStdin>,
    editor_from: Receiver<String>,
    agent_to: Option<File>,
    agent_from: Receiver<String>,
    stderr: Option<ChildStderr>,
    /// The workspace of the session.
    pub workspace: PathBuf,
    _directory: TempDir,
}

impl ShimPeer {
    /// A shim with these options, and nothing said yet.
    pub(crate) fn start(options: &[&str]) -> Self {
        let directory =
            tempfile::Builder::new().prefix("provost-acp-").tempdir().expect("a temporary directory");
        let workspace = directory.path().join("workspace");
        std::fs::create_dir(&workspace).expect("a workspace");
        let mut command = Command::new(env!("CARGO_BIN_EXE_provost"));
        command.arg("acp").args(options).current_dir(&workspace).env_remove("PROVOST_GATEWAY");
        // Nobody's gateway but an embedded one, unless an option names it.
        command.env("XDG_RUNTIME_DIR", directory.path());
        let pipes = workspace.clone();
        Self::start_as(command, workspace, &pipes, directory)
    }

    /// A shim that this command starts, which is `provost acp` without its agent, and nothing said yet. Its user can reach `pipes` and open
    /// what root makes there.
    pub(crate) fn start_as(
        mut command: Command,
        workspace: PathBuf,
        pipes: &Path,
        directory: TempDir,
    ) -> Self {
        let owner = std::fs::metadata(pipes).expect("it is there").uid();
        let [says, hears] = ["says", "hears"].map(|name| {
            let path = pipes.join(name);
            mkfifo(&path, Mode::from_bits_truncate(0o600)).expect("a named pipe");
            if owner != nix::unistd::geteuid().as_raw() {
                chown(&path, Some(owner), None).expect("root can give a pipe away");
            }
            path
        });
        let mut child = command
            .args(["--", "/bin/sh", "-c", COPYING_AGENT, "sh"])
            .args([&says, &hears])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the shim starts");
        let editor_to = child.stdin.take();
        let editor_from = lines_of(child.stdout.take().expect("its stdout is piped"));
        let stderr = child.stderr.take();
        // Opened for reading too, so that it does not wait for an agent that may never start: fifo(7).
        let agent_to = OpenOptions::new().read(true).write(true).open(&says).expect("the agent's mouth");
        let agent_from = lines_of_file(hears);
        Self {
            child,
            editor_to,
            editor_from,
            agent_to: Some(agent_to),
            agent_from,
            stderr,
            workspace,
            _directory: directory,
        }
    }

    /// As [`ShimPeer::start`], with an initialized connection and the session "s".
    pub(crate) fn in_session(options: &[&str], capabilities: Value) -> Self {
        let mut peer = Self::start(options);
        peer.begin_session(capabilities);
        peer
    }

    /// Initializes the connection, and opens the session "s".
    pub(crate) fn begin_session(&mut self, capabilities: Value) {
        self.editor_sends(json!({"jsonrpc":"2.0","id":0,"method":"initialize",
            "params":{"protocolVersion":1,"clientCapabilities":capabilities}}));
        assert_eq!(self.agent_receives()["params"]["clientCapabilities"]["terminal"], true);
        self.agent_sends(json!({"jsonrpc":"2.0","id":0,"result":{"protocolVersion":1}}));
        assert_eq!(self.editor_receives()["result"]["protocolVersion"], 1);
        self.open_session("s");
    }

    /// Opens a session in the workspace.
    pub(crate) fn open_session(&mut self, id: &str) {
        let params = json!({"cwd":self.workspace,"mcpServers":[]});
        self.editor_asks("session/new", params, json!({"result":{"sessionId":id}}));
    }

    /// The editor asks, the agent answers so, and each hears what the other has said.
    pub(crate) fn editor_asks(&mut self, method: &str, params: Value, mut answer: Value) {
        self.editor_sends(json!({"jsonrpc":"2.0","id":"asked","method":method,"params":params}));
        let received = self.agent_receives();
        assert_eq!((&received["method"], &received["params"]), (&json!(method), &params));
        answer["jsonrpc"] = "2.0".into();
        answer["id"] = "asked".into();
        self.agent_sends(answer.clone());
        assert_eq!(self.editor_receives(), answer);
    }

    /// The agent asks, and gets its answer. Everything else that it hears meanwhile is a mistake.
    pub(crate) fn ask(&mut self, method: &str, params: Value) -> Value {
        self.agent_sends(json!({"jsonrpc":"2.0","id":"ask","method":method,"params":params}));
        let answer = self.agent_receives();
        assert_eq!(answer["id"], "ask", "{answer}");
        answer
    }

    /// Starts a command in session "s", and gives its terminal's id.
    pub(crate) fn create(&mut self, command: &str) -> String {
        self.create_in("s", command)
    }

    /// Starts a command in a session, and gives its terminal's id.
    pub(crate) fn create_in(&mut self, session: &str, command: &str) -> String {
        let answer = self.ask("terminal/create", json!({"sessionId":session,"command":command}));
        let id = answer["result"]["terminalId"].as_str();
        id.unwrap_or_else(|| panic!("not started: {answer}")).to_owned()
    }

    pub(crate) fn editor_sends(&mut self, message: Value) {
        self.editor_writes(format!("{message}\n").as_bytes());
    }

    pub(crate) fn agent_sends(&mut self, message: Value) {
        self.agent_writes(format!("{message}\n").as_bytes());
    }

    pub(crate) fn editor_writes(&mut self, bytes: &[u8]) {
        let to = self.editor_to.as_mut().expect("the editor is there");
        to.write_all(bytes).expect("the shim reads its editor");
    }

    pub(crate) fn agent_writes(&mut self, bytes: &[u8]) {
        let to = self.agent_to.as_mut().expect("the agent is there");
        to.write_all(bytes).expect("the shim reads its agent");
    }

    pub(crate) fn editor_receives(&self) -> Value {
        parsed(&self.editor_receives_line())
    }

    pub(crate) fn agent_receives(&self) -> Value {
        parsed(&self.agent_receives_line())
    }

    pub(crate) fn editor_receives_line(&self) -> String {
        self.editor_from.recv_timeout(TIMEOUT).expect("the editor hears something")
    }

    pub(crate) fn agent_receives_line(&self) -> String {
        self.agent_from.recv_timeout(TIMEOUT).expect("the agent hears something")
    }

    /// What the editor hears until this holds; the last message is the one that it holds of.
    pub(crate) fn editor_receives_until(&self, holds: impl Fn(&Value) -> bool) -> Vec<Value> {
        let mut received = Vec::new();
        loop {
            let message = self.editor_receives();
            let is_last = holds(&message);
            received.push(message);
            if is_last {
                return received;
            }
        }
    }

    /// The editor goes away: its end of the shim's stdin is closed.
    pub(crate) fn editor_disconnects(&mut self) {
        self.editor_to = None;
    }

    /// The agent closes its stdout.
    pub(crate) fn agent_closes_stdout(&mut self) {
        self.agent_to = None;
    }

    /// Waits for the shim's own end, and gives its status and what it said on stderr.
    pub(crate) fn end(mut self) -> (ExitStatus, String) {
        let status = self.wait();
        let mut said = String::new();
        if let Some(stderr) = &mut self.stderr {
            stderr.read_to_string(&mut said).expect("stderr is text");
        }
        (status, said)
    }

    /// The shim's process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    fn wait(&mut self) -> ExitStatus {
        let until = Instant::now() + TIMEOUT;
        // The end of stdout comes with the end of the process.
        loop {
            match self.editor_from.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(_) => {}
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => panic!("the shim does not end"),
            }
        }
        self.child.wait().expect("the shim is our child")
    }
}

impl Drop for ShimPeer {
    fn drop(&mut self) {
        // Ended already, where the test went well.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn parsed(line: &str) -> Value {
    serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))
}

/// The lines of a named pipe, once a process opens it for writing.
fn lines_of_file(path: PathBuf) -> Receiver<String> {
    let (sender, receiver) = mpsc::sync_channel(LINES_HELD);
    thread::spawn(move || {
        let Ok(file) = File::open(path) else { return };
        for line in BufReader::new(file).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    receiver
}

fn lines_of(from: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = mpsc::sync_channel(LINES_HELD);
    thread::spawn(move || {
        for line in BufReader::new(from).lines() {
            let Ok(line) = line else { return };
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    receiver
}
