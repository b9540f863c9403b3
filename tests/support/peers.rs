//! Who a test plays, and whom it plays with, other than a gRPC client: a person who follows a page, a server that speaks lines of JSON on
//! its stdio, and a model on the loopback. Nothing here waits without a deadline.

use std::{
    ffi::OsStr,
    fs,
    io::{BufRead, BufReader, Write},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, ExitStatus, Stdio},
    sync::mpsc::{self, Receiver},
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;
use tempfile::TempDir;

use crate::programs::{built, in_repository};

/// Where a page has a project.
const PROJECT: &str = "/home/me/project";
/// How long anything may take on a loaded machine.
const TIMEOUT: Duration = Duration::from_secs(120);
/// Messages that may be there unread; more wait in the pipe.
const MESSAGES_HELD: usize = 4_096;

/// A person who follows a page: a home, a project, programs of their own, and shells in which what the page shows is run as it stands.
/// Removed with the test.
pub struct Person {
    directory: TempDir,
}

impl Person {
    /// With an empty home and project, and `provost` in the `PATH`.
    #[allow(clippy::new_without_default, reason = "it makes directories")]
    pub fn new() -> Self {
        let directory =
            tempfile::Builder::new().prefix("provost-page-").tempdir().expect("a temporary directory");
        for name in ["home", "project", "bin"] {
            fs::create_dir(directory.path().join(name)).expect("a directory can be made");
        }
        std::os::unix::fs::symlink(built().provost, directory.path().join("bin/provost"))
            .expect("a link can be made");
        Self { directory }
    }

    /// A path of this person: `home`, `project`, `bin`, or below one of them.
    pub fn at(&self, name: &str) -> PathBuf {
        self.directory.path().canonicalize().expect("it is there").join(name)
    }

    /// Puts a shell script into the `PATH`.
    pub fn install(&self, name: &str, script: &str) {
        self.install_as(&self.at("bin").join(name), &format!("#!/bin/sh\n{script}\n"));
    }

    /// Makes a program.
    pub fn install_as(&self, path: &Path, text: &str) {
        fs::write(path, text).expect("a program can be written");
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("it is ours");
    }

    /// Writes a file of the project.
    pub fn write(&self, name: &str, text: &str) {
        let path = self.at("project").join(name);
        fs::create_dir_all(path.parent().expect("it lies in the project")).expect("a directory can be made");
        fs::write(path, text).expect("a file can be written");
    }

    /// What the page shows, in a shell in this person's project, which stands for the page's.
    pub fn shell(&self, lines: &str) -> Command {
        let mut shell = Command::new("bash");
        shell.args(["-ec", &lines.replace(PROJECT, &self.at("project").display().to_string())]);
        shell.current_dir(self.at("project")).stdin(Stdio::null()).env_remove("PROVOST_GATEWAY");
        shell.env("HOME", self.at("home")).env("XDG_RUNTIME_DIR", self.at("home"));
        shell.env("PATH", format!("{}:/usr/local/bin:/usr/bin:/bin", self.at("bin").display()));
        shell
    }
}

/// A temporary directory with a workspace in it, and the workspace's path.
pub fn directory_with_workspace() -> (TempDir, PathBuf) {
    let directory =
        tempfile::Builder::new().prefix("provost-test-").tempdir().expect("a temporary directory");
    let workspace = directory.path().canonicalize().expect("it is there").join("workspace");
    fs::create_dir(&workspace).expect("a workspace");
    (directory, workspace)
}

/// A server that speaks lines of JSON on its stdio; ended with the test.
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

/// A model on the loopback, for agents that are driven by one: a Python program that serves until its stdin ends. Ended with the test.
pub struct Model {
    child: Child,
    /// On the loopback.
    pub port: u16,
}

impl Model {
    /// Starts the program at this path of the repository.
    pub fn start(script: &str, arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Self {
        let mut child = Command::new("python3")
            .arg(in_repository(script))
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("Python is there");
        let mut port = String::new();
        let stdout = child.stdout.take().expect("its stdout is piped");
        BufReader::new(stdout).read_line(&mut port).expect("it says its port");
        Self { child, port: port.trim().parse().expect("a port") }
    }
}

impl Drop for Model {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
