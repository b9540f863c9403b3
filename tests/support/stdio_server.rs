//! A server that speaks lines of JSON on its stdio, with the test as its client. Nothing here waits without a deadline.

use std::{
    io::{BufRead, BufReader, Write},
    path::PathBuf,
    process::{Child, ChildStdin, Command, ExitStatus, Stdio},
    sync::mpsc::{self, Receiver},
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;
use tempfile::TempDir;

/// How long anything may take on a loaded machine.
const TIMEOUT: Duration = Duration::from_secs(120);
/// Messages that may be there unread; more wait in the pipe.
const MESSAGES_HELD: usize = 4_096;

/// A temporary directory with a workspace in it, and the workspace's path.
pub fn directory_with_workspace() -> (TempDir, PathBuf) {
    let directory =
        tempfile::Builder::new().prefix("provost-test-").tempdir().expect("a temporary directory");
    let workspace = directory.path().canonicalize().expect("it is there").join("workspace");
    std::fs::create_dir(&workspace).expect("a workspace");
    (directory, workspace)
}

/// A server; ended with the test.
pub struct StdioServer {
    child: Child,
    to: Option<ChildStdin>,
    from: Receiver<Value>,
}

impl StdioServer {
    /// Starts the command.
    pub fn start(command: &mut Command) -> Self {
        let mut child = command
            .env_remove("PROVOST_GATEWAY")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .expect("provost can be started");
        let stdout = child.stdout.take().expect("its stdout is piped");
        let (give, from) = mpsc::sync_channel(MESSAGES_HELD);
        thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                let message = serde_json::from_str(&line).expect("stdout carries nothing but the protocol");
                if give.send(message).is_err() {
                    return;
                }
            }
        });
        let to = child.stdin.take();
        Self { child, to, from }
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The next message.
    pub fn receive(&self) -> Value {
        self.from.recv_timeout(TIMEOUT).expect("the server sends something")
    }

    /// Sends a line.
    pub fn send_line(&mut self, line: &str) {
        let to = self.to.as_mut().expect("stdin is open");
        writeln!(to, "{line}").expect("the server reads");
    }

    /// Closes its stdin, as a client that goes away does, and waits for its end.
    pub fn leave(mut self) -> ExitStatus {
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

impl Drop for StdioServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
