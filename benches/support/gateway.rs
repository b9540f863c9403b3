//! The gateway under measurement: the release binary's `serve`, a private state directory, a client.
//!
//! Uses nothing but what any caller has: the command line and gRPC.

use std::{
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use provost::{
    client::{self, Client},
    proto::v1::{
        CloseSessionRequest, CreateSessionRequest, CreateTerminalRequest, Outcome, ReleaseTerminalRequest,
        RunRequest, WaitForExitRequest, create_terminal_request, outcome, run_response,
    },
};
use tempfile::TempDir;

/// The binary under measurement.
pub const PROVOST: &str = env!("CARGO_BIN_EXE_provost");

/// How long the gateway may take to answer for the first time.
const START_DEADLINE: Duration = Duration::from_secs(20);

/// A running `provost serve`; ended with this value.
#[derive(Debug)]
pub struct Gateway {
    process: Child,
    directory: TempDir,
}

impl Gateway {
    /// Starts one, and answers when it does.
    pub async fn start() -> Self {
        let directory =
            tempfile::Builder::new().prefix("provost-bench-").tempdir().expect("a temporary directory");
        std::fs::create_dir(directory.path().join("work")).expect("the workspace can be made");
        let gateway = Self { process: launch(directory.path()), directory };
        gateway.answers().await;
        gateway
    }

    /// Kills it; what it ran runs on.
    pub fn kill(&mut self) {
        self.process.kill().expect("it is ours");
        self.process.wait().expect("it is ours");
    }

    /// Starts it again on the same directory, and answers when it does.
    pub async fn start_again(&mut self) {
        self.process = launch(self.directory.path());
        self.answers().await;
    }

    async fn answers(&self) {
        let deadline = Instant::now() + START_DEADLINE;
        while let Err(error) = client::connect(&self.address()).await {
            assert!(Instant::now() < deadline, "the gateway does not answer: {error}");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// Where it listens.
    pub fn address(&self) -> String {
        format!("unix:{}", self.directory.path().join("provost.sock").display())
    }

    /// The directory that sessions work in.
    pub fn workspace(&self) -> PathBuf {
        self.directory.path().join("work")
    }

    /// The process.
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// A connection of its own.
    pub async fn connect(&self) -> Client {
        client::connect(&self.address()).await.expect("the gateway listens")
    }

    /// Opens a session; its id.
    pub async fn open_session(&self, client: &mut Client) -> String {
        let roots = vec![self.workspace().display().to_string()];
        let request = CreateSessionRequest { roots, ..Default::default() };
        client
            .sessions
            .create_session(request)
            .await
            .expect("a session")
            .into_inner()
            .session
            .expect("it is set")
            .id
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let pid = nix::unistd::Pid::from_raw(self.process.id().cast_signed());
        // It may have ended by itself; then there is nothing to stop.
        let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGINT);
        let _ = self.process.wait();
    }
}

fn launch(directory: &Path) -> Child {
    Command::new(PROVOST)
        .args(["serve", "--listen", &format!("unix:{}", directory.join("provost.sock").display()), "--state"])
        .arg(directory.join("state"))
        .arg("--policies")
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/policies"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        // Its log, which it writes as it would to a service manager.
        .stderr(Stdio::null())
        .spawn()
        .expect("the binary was built for this benchmark")
}

/// Closes a session.
pub async fn close_session(client: &mut Client, session_id: &str) {
    let request = CloseSessionRequest { session_id: session_id.to_owned() };
    client.sessions.close_session(request).await.expect("the session closes");
}

/// A request for a command.
pub fn command(session_id: &str, argv: &[&str]) -> CreateTerminalRequest {
    CreateTerminalRequest {
        session_id: session_id.to_owned(),
        command: Some(create_terminal_request::Command::Program(argv[0].to_owned())),
        args: argv[1..].iter().map(|word| (*word).to_owned()).collect(),
        ..Default::default()
    }
}

/// Create, then WaitForExit. The terminal's id.
pub async fn create_and_wait(client: &mut Client, request: CreateTerminalRequest) -> String {
    let terminal = client
        .terminals
        .create_terminal(request)
        .await
        .expect("the command starts")
        .into_inner()
        .terminal
        .expect("it is set");
    let request = WaitForExitRequest { terminal_id: terminal.id.clone(), session_id: String::new() };
    let answer = client.terminals.wait_for_exit(request).await.expect("an outcome").into_inner();
    must_have_exited_0(answer.outcome.as_ref());
    terminal.id
}

/// Release.
pub async fn release(client: &mut Client, terminal_id: String) {
    let request = ReleaseTerminalRequest { terminal_id, session_id: String::new(), grace: None };
    client.terminals.release_terminal(request).await.expect("the terminal is released");
}

/// Run, to the end of its stream. The bytes that came.
pub async fn run(client: &mut Client, request: CreateTerminalRequest) -> u64 {
    let request = RunRequest { create: Some(request), resumable: false };
    let mut events = client.terminals.run(request).await.expect("the command runs").into_inner();
    let mut bytes = 0;
    let mut finished = None;
    while let Some(event) = events.message().await.expect("the stream is whole") {
        match event.event {
            Some(run_response::Event::Chunk(chunk)) => bytes += chunk.data.len() as u64,
            Some(run_response::Event::Finished(terminal)) => finished = terminal.outcome,
            Some(run_response::Event::Started(_)) | None => {}
        }
    }
    must_have_exited_0(finished.as_ref());
    bytes
}

/// A figure of commands that failed would be no figure.
fn must_have_exited_0(outcome: Option<&Outcome>) {
    let end = outcome.and_then(|outcome| outcome.end.as_ref());
    assert!(matches!(end, Some(outcome::End::ExitCode(0))), "the command did not exit with 0: {outcome:?}");
}
