//! The gateway under measurement, which the harness of the tests starts, and the calls that are measured.
//!
//! The calls go by the client that everybody has, and not by the harness's, whose checks and deadlines would be in the figures.

use std::{path::PathBuf, sync::Arc};

use provost::{
    client::{self, Client},
    proto::v1::{
        CloseSessionRequest, CreateSessionRequest, CreateTerminalRequest, Outcome, ReleaseTerminalRequest,
        RunRequest, WaitForExitRequest, create_terminal_request, outcome, run_response,
    },
};
use provost_test_support::{Gateway, Options};

/// The binary under measurement.
pub(crate) const PROVOST: &str = env!("CARGO_BIN_EXE_provost");

/// Starts one as a person does, and returns when it answers.
pub(crate) fn start() -> Arc<Gateway> {
    start_with(Options::default())
}

/// As [`start`], with these options besides.
pub(crate) fn start_with(options: Options) -> Arc<Gateway> {
    let home = std::env::var("HOME").map(|home| ("HOME".to_owned(), home));
    let gateway =
        Gateway::start_with(Options { without_group: true, env: home.into_iter().collect(), ..options });
    std::fs::create_dir(workspace(&gateway)).expect("the workspace can be made");
    gateway
}

/// The directory that sessions work in.
pub(crate) fn workspace(gateway: &Gateway) -> PathBuf {
    gateway.directory().join("work")
}

/// A connection of its own.
pub(crate) async fn connect(gateway: &Gateway) -> Client {
    client::connect(&gateway.address()).await.expect("the gateway listens")
}

/// Opens a session; its id.
pub(crate) async fn open_session(gateway: &Gateway, client: &mut Client) -> String {
    open_session_in(client, workspace(gateway)).await
}

/// Opens a session in a directory; its id.
pub(crate) async fn open_session_in(client: &mut Client, root: PathBuf) -> String {
    let request =
        CreateSessionRequest { roots: vec![root.display().to_string()], ..CreateSessionRequest::default() };
    let answer = client.sessions.create_session(request).await.expect("a session");
    answer.into_inner().session.expect("it is set").id
}

/// Closes a session.
pub(crate) async fn close_session(client: &mut Client, session_id: &str) {
    let request = CloseSessionRequest { session_id: session_id.to_owned() };
    client.sessions.close_session(request).await.expect("the session closes");
}

/// A request for a command.
pub(crate) fn command(session_id: &str, argv: &[&str]) -> CreateTerminalRequest {
    CreateTerminalRequest {
        session_id: session_id.to_owned(),
        command: Some(create_terminal_request::Command::Program(argv[0].to_owned())),
        args: argv[1..].iter().map(|word| (*word).to_owned()).collect(),
        ..Default::default()
    }
}

/// Create, then WaitForExit. The terminal's id.
pub(crate) async fn create_and_wait(client: &mut Client, request: CreateTerminalRequest) -> String {
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
pub(crate) async fn release(client: &mut Client, terminal_id: String) {
    let request = ReleaseTerminalRequest { terminal_id, session_id: String::new(), grace: None };
    client.terminals.release_terminal(request).await.expect("the terminal is released");
}

/// Run, to the end of its stream. The bytes that came.
pub(crate) async fn run(client: &mut Client, request: CreateTerminalRequest) -> u64 {
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
