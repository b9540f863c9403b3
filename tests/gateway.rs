//! The gateway, from outside: the real binary, a real client, and what each call promises.
//!
//! One gateway for each test, in a directory of its own. What the sandbox confines is tested elsewhere.

use std::{
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use nix::sys::signal::Signal;
use provost::{
    client::{self, Client},
    proto::v1::*,
};
use tokio::time::timeout;
use tonic::{Code, Status};
use tonic_types::StatusExt;

/// Nothing here takes longer, on a machine under load.
const LIMIT: Duration = Duration::from_secs(120);

struct Gateway {
    process: Child,
    directory: tempfile::TempDir,
}

impl Gateway {
    async fn start(config: &str) -> Self {
        Self::start_with(config, |policy| policy).await
    }

    async fn start_with(config: &str, change: impl FnOnce(String) -> String) -> Self {
        let directory = tempfile::Builder::new().prefix("provost-gw-").tempdir().unwrap();
        std::fs::create_dir(directory.path().join("work")).unwrap();
        std::fs::write(directory.path().join("provost.toml"), config).unwrap();
        let shipped = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/policies/default.toml"));
        std::fs::create_dir(directory.path().join("policies")).unwrap();
        std::fs::write(directory.path().join("policies/default.toml"), change(shipped.unwrap())).unwrap();
        let gateway = Self { process: Self::launch(directory.path()), directory };
        let deadline = Instant::now() + LIMIT;
        while let Err(error) = client::connect(&gateway.address()).await {
            assert!(Instant::now() < deadline, "the gateway does not answer: {error}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        gateway
    }

    fn launch(directory: &Path) -> Child {
        Command::new(env!("CARGO_BIN_EXE_provost"))
            .arg("serve")
            .arg("--config")
            .arg(directory.join("provost.toml"))
            .arg("--listen")
            .arg(format!("unix:{}", directory.join("provost.sock").display()))
            .arg("--state")
            .arg(directory.join("state"))
            .arg("--policies")
            .arg(directory.join("policies"))
            .stdin(Stdio::null())
            .spawn()
            .unwrap()
    }

    fn address(&self) -> String {
        format!("unix:{}", self.directory.path().join("provost.sock").display())
    }

    fn work(&self) -> PathBuf {
        self.directory.path().join("work")
    }

    fn sandboxes(&self) -> usize {
        std::fs::read_dir(self.directory.path().join("state/sandboxes")).map_or(0, Iterator::count)
    }

    async fn session(&self) -> Session {
        let mut client = client::connect(&self.address()).await.unwrap();
        let roots = vec![self.work().display().to_string()];
        let request = CreateSessionRequest { roots, ..Default::default() };
        let id = client
            .sessions
            .create_session(request)
            .await
            .unwrap()
            .into_inner()
            .session
            .expect("it is set")
            .id;
        Session { client, id }
    }

    fn signal(&self, signal: Signal) {
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(self.process.id().cast_signed()), signal).unwrap();
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        if self.process.try_wait().is_ok_and(|status| status.is_none()) {
            self.signal(Signal::SIGINT);
        }
        let _ = self.process.wait();
    }
}

struct Session {
    client: Client,
    id: String,
}

impl Session {
    fn line(&self, line: &str) -> CreateTerminalRequest {
        CreateTerminalRequest {
            session_id: self.id.clone(),
            command: Some(create_terminal_request::Command::ShellLine(line.into())),
            kill_grace: Some(prost_types::Duration { seconds: 1, nanos: 0 }),
            ..Default::default()
        }
    }

    fn command(&self, argv: &[&str]) -> CreateTerminalRequest {
        CreateTerminalRequest {
            session_id: self.id.clone(),
            command: Some(create_terminal_request::Command::Program(argv[0].into())),
            args: argv[1..].iter().map(|&word| word.into()).collect(),
            ..Default::default()
        }
    }

    async fn create(&mut self, request: CreateTerminalRequest) -> Result<Terminal, Status> {
        let created = timeout(LIMIT, self.client.terminals.create_terminal(request)).await.unwrap();
        created.map(|response| response.into_inner().terminal.unwrap())
    }

    async fn wait(&mut self, terminal: &Terminal) -> WaitForExitResponse {
        let waiting = self.client.terminals.wait_for_exit(exit_of(terminal));
        timeout(LIMIT, waiting).await.unwrap().unwrap().into_inner()
    }

    async fn output(&mut self, terminal: &Terminal, as_text: bool) -> GetOutputResponse {
        let request = GetOutputRequest { terminal_id: terminal.id.clone(), as_text, ..Default::default() };
        self.client.terminals.get_output(request).await.unwrap().into_inner()
    }

    async fn kill(&mut self, terminal: &Terminal, seconds: i64) {
        let grace = Some(prost_types::Duration { seconds, nanos: 0 });
        let request = KillTerminalRequest { terminal_id: terminal.id.clone(), grace, ..Default::default() };
        self.client.terminals.kill_terminal(request).await.unwrap();
    }

    async fn release(&mut self, terminal: &Terminal) -> Result<(), Status> {
        let request = ReleaseTerminalRequest { terminal_id: terminal.id.clone(), ..Default::default() };
        timeout(LIMIT, self.client.terminals.release_terminal(request)).await.unwrap().map(drop)
    }

    async fn stream(&mut self, terminal: &Terminal, offset: u64) -> tonic::Streaming<StreamOutputResponse> {
        let request = StreamOutputRequest {
            terminal_id: terminal.id.clone(),
            offset,
            follow: true,
            ..Default::default()
        };
        self.client.terminals.stream_output(request).await.unwrap().into_inner()
    }

    async fn run(&mut self, request: CreateTerminalRequest) -> (Vec<u8>, Terminal) {
        let request = RunRequest { create: Some(request) };
        let mut events = self.client.terminals.run(request).await.unwrap().into_inner();
        let (mut bytes, mut finished) = (Vec::new(), None);
        while let Some(event) = timeout(LIMIT, events.message()).await.unwrap().unwrap() {
            match event.event.unwrap() {
                run_response::Event::Started(_) => {}
                run_response::Event::Chunk(chunk) => {
                    assert_eq!(chunk.offset, bytes.len() as u64);
                    bytes.extend_from_slice(&chunk.data);
                }
                run_response::Event::Finished(terminal) => finished = Some(terminal),
            }
        }
        (bytes, finished.expect("the last event"))
    }

    async fn until_output(&mut self, terminal: &Terminal, text: &str) {
        let mut stream = self.stream(terminal, 0).await;
        let mut seen = String::new();
        while !seen.contains(text) {
            let event = timeout(LIMIT, stream.message()).await.unwrap().unwrap().expect("more output");
            if let Some(stream_output_response::Event::Chunk(chunk)) = event.event {
                seen.push_str(&String::from_utf8_lossy(&chunk.data));
            }
        }
    }
}

fn named(terminal: &Terminal) -> GetTerminalRequest {
    GetTerminalRequest { terminal_id: terminal.id.clone(), session_id: String::new() }
}

fn exit_of(terminal: &Terminal) -> WaitForExitRequest {
    WaitForExitRequest { terminal_id: terminal.id.clone(), session_id: String::new() }
}

fn reason(status: &Status) -> String {
    status.get_details_error_info().unwrap_or_else(|| panic!("{status:?} has no details")).reason
}

fn exit_code(outcome: &Outcome) -> Option<u32> {
    match outcome.end {
        Some(outcome::End::ExitCode(code)) => Some(code),
        Some(outcome::End::Signal(_)) | None => None,
    }
}

#[tokio::test]
async fn a_command_runs_and_its_output_and_exit_come_back() {
    let gateway = Gateway::start("").await;
    let mut session = gateway.session().await;
    let (bytes, finished) = session.run(session.line("echo out; echo err >&2; exit 3")).await;
    assert_eq!(bytes, b"out\nerr\n");
    assert_eq!(finished.state(), TerminalState::Released);
    let outcome = finished.outcome.unwrap();
    assert_eq!((exit_code(&outcome), outcome.cause(), outcome.survivors), (Some(3), ExitCause::Exited, 0));
    let receipt = finished.receipt.unwrap();
    assert!(receipt.no_new_privs && receipt.seccomp_mode == 2, "{receipt:?}");
    assert_eq!(receipt.capabilities["CapEff"], "0000000000000000");
}

#[tokio::test]
async fn a_terminal_lives_from_create_to_release_and_then_is_not_found() {
    let gateway = Gateway::start("").await;
    let mut session = gateway.session().await;
    let terminal = session.create(session.line("echo hi; exit 7")).await.unwrap();
    assert!(matches!(terminal.state(), TerminalState::Running | TerminalState::Finished), "{terminal:?}");
    let ended = session.wait(&terminal).await;
    assert_eq!(ended.state(), TerminalState::Finished);
    assert_eq!(exit_code(ended.outcome.as_ref().unwrap()), Some(7));
    assert_eq!(session.wait(&terminal).await.outcome, ended.outcome, "a late waiter gets the same");
    assert_eq!(session.output(&terminal, false).await.data, &b"hi\n"[..]);
    assert_eq!(session.output(&terminal, true).await.text, "hi\n");
    session.release(&terminal).await.unwrap();
    assert_eq!(session.release(&terminal).await.unwrap_err().code(), Code::NotFound);
    assert_eq!(
        session.client.terminals.get_terminal(named(&terminal)).await.unwrap_err().code(),
        Code::NotFound
    );
}

#[tokio::test]
async fn spawn_errors_are_told_apart() {
    let gateway = Gateway::start("").await;
    let mut session = gateway.session().await;
    let work = gateway.work();
    std::fs::write(work.join("plain"), "x").unwrap();
    std::fs::write(work.join("script"), "#!/no/such/interpreter\n").unwrap();
    let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(work.join("script"), executable).unwrap();
    for (command, code, expected) in [
        ("no-such-command", Code::FailedPrecondition, "COMMAND_NOT_FOUND"),
        ("./no-such-file", Code::FailedPrecondition, "COMMAND_NOT_FOUND"),
        ("./plain", Code::FailedPrecondition, "NOT_EXECUTABLE"),
        ("./script", Code::FailedPrecondition, "BAD_INTERPRETER"),
    ] {
        let status = session.create(session.command(&[command])).await.unwrap_err();
        assert_eq!((status.code(), reason(&status).as_str()), (code, expected), "{command}: {status:?}");
    }
    let cwd = |path: &str| CreateTerminalRequest {
        cwd: work.join(path).display().to_string(),
        ..session.command(&["true"])
    };
    let (gone, file) = (cwd("gone"), cwd("plain"));
    assert_eq!(reason(&session.create(gone).await.unwrap_err()), "CWD_GONE");
    assert_eq!(reason(&session.create(file).await.unwrap_err()), "CWD_NOT_A_DIRECTORY");
    let long = session.command(&["true", &"x".repeat(2 << 20)]);
    let status = session.create(long).await.unwrap_err();
    assert_eq!((status.code(), reason(&status).as_str()), (Code::InvalidArgument, "ARGUMENT_LIST_TOO_LONG"));
    let list = ListTerminalsRequest::default();
    assert!(session.client.terminals.list_terminals(list).await.unwrap().into_inner().terminals.is_empty());
}

#[tokio::test]
async fn policy_denials_name_their_rule_and_bad_fields_their_field() {
    let gateway = Gateway::start("").await;
    let mut session = gateway.session().await;
    let env = |name: &str| vec![EnvVar { name: name.into(), value: "x".into() }];
    for (request, rule) in [
        (
            CreateTerminalRequest { env: env("LD_PRELOAD"), ..session.command(&["true"]) },
            "profile.workspace.environment.deny:LD_*",
        ),
        (CreateTerminalRequest { cwd: "/etc".into(), ..session.command(&["true"]) }, "session.roots"),
        (CreateTerminalRequest { profile: "none".into(), ..session.command(&["true"]) }, "profile.exists"),
        (
            CreateTerminalRequest {
                profile: "offline".into(),
                network: Network::Host.into(),
                ..session.command(&["true"])
            },
            "profile.offline.network.choices",
        ),
    ] {
        let status = session.create(request).await.unwrap_err();
        assert_eq!(status.code(), Code::PermissionDenied);
        assert_eq!(status.get_details_error_info().unwrap().metadata["rule"], rule);
    }
    for (request, field) in [
        (session.command(&[""]), "command"),
        (session.command(&["a\0b"]), "command"),
        (session.command(&["a", "b\0"]), "args[0]"),
        (CreateTerminalRequest { cwd: "work".into(), ..session.command(&["true"]) }, "cwd"),
        (CreateTerminalRequest { env: env("A=B"), ..session.command(&["true"]) }, "env[0].name"),
        (CreateTerminalRequest { network: 77, ..session.command(&["true"]) }, "network"),
    ] {
        let status = session.create(request).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument);
        assert_eq!(status.get_details_bad_request().unwrap().field_violations[0].field, field);
    }
}

#[tokio::test]
async fn ids_that_name_nothing_are_refused_alike() {
    let gateway = Gateway::start("").await;
    let mut session = gateway.session().await;
    let mut answers = Vec::new();
    for id in ["", "term_", "term_01ARZ3NDEKTSV4RRFFQ69G5FAV", "x", "sess_01ARZ3NDEKTSV4RRFFQ69G5FAV"] {
        let request = GetTerminalRequest { terminal_id: id.into(), session_id: String::new() };
        let status = session.client.terminals.get_terminal(request).await.unwrap_err();
        answers.push((status.code(), status.message().to_owned(), reason(&status)));
    }
    answers.dedup();
    assert_eq!(answers.len(), 1);
    assert_eq!(answers[0].0, Code::NotFound);
}

#[tokio::test]
async fn a_request_id_makes_one_process_however_often_it_comes() {
    let gateway = Gateway::start("").await;
    let session = gateway.session().await;
    let request =
        CreateTerminalRequest { request_id: "once".into(), ..session.line("echo started >> log; sleep 60") };
    let creates = (0..100).map(|_| {
        let (mut client, request) = (session.client.clone(), request.clone());
        tokio::spawn(async move {
            client
                .terminals
                .create_terminal(request)
                .await
                .unwrap()
                .into_inner()
                .terminal
                .expect("it is set")
                .id
        })
    });
    let mut ids = Vec::new();
    for create in creates.collect::<Vec<_>>() {
        ids.push(create.await.unwrap());
    }
    ids.dedup();
    assert_eq!(ids.len(), 1);
    let mut session = session;
    let terminal = Terminal { id: ids[0].clone(), ..Default::default() };
    session.kill(&terminal, 0).await;
    session.wait(&terminal).await;
    assert_eq!(std::fs::read_to_string(gateway.work().join("log")).unwrap(), "started\n");
}

#[tokio::test]
async fn kill_ends_what_ignores_term_and_wait_honours_its_deadline() {
    let gateway = Gateway::start("").await;
    let mut session = gateway.session().await;
    let terminal =
        session.create(session.line("trap '' TERM; echo ready; while :; do sleep 1; done")).await.unwrap();
    session.until_output(&terminal, "ready").await;
    // On a busy host the client's own clock may be the first, and then says Cancelled.
    let mut is_answered = false;
    for _ in 0..50 {
        let mut request = tonic::Request::new(exit_of(&terminal));
        request.metadata_mut().insert("grpc-timeout", "100m".parse().unwrap());
        let status = session.client.terminals.wait_for_exit(request).await.unwrap_err();
        assert!(matches!(status.code(), Code::DeadlineExceeded | Code::Cancelled), "{status:?}");
        is_answered = status.code() == Code::DeadlineExceeded;
        if is_answered {
            break;
        }
    }
    assert!(is_answered, "the gateway never answers in time");
    session.kill(&terminal, 0).await;
    let outcome = session.wait(&terminal).await.outcome.unwrap();
    assert_eq!(outcome.cause(), ExitCause::Killed);
    assert_eq!(outcome.end, Some(outcome::End::Signal("SIGKILL".into())));
    session.kill(&terminal, 0).await;
    assert_eq!(session.wait(&terminal).await.outcome.unwrap(), outcome);
}

#[tokio::test]
async fn a_stream_resumes_at_an_offset_and_counts_its_gaps() {
    let gateway = Gateway::start("").await;
    let mut session = gateway.session().await;
    let terminal = session
        .create(CreateTerminalRequest { output_byte_limit: Some(1000), ..session.line("seq 1 300000") })
        .await
        .unwrap();
    session.wait(&terminal).await;
    let whole: String = (1..=300_000).map(|n| format!("{n}\n")).collect();
    let mut stream = session.stream(&terminal, 10).await;
    let mut at = 10;
    let mut gaps = 0;
    while let Some(event) = stream.message().await.unwrap() {
        match event.event.unwrap() {
            stream_output_response::Event::Gap(gap) => {
                assert_eq!(gap.from_offset, at);
                gaps += 1;
                at = gap.to_offset;
            }
            stream_output_response::Event::Chunk(chunk) => {
                assert_eq!(chunk.offset, at);
                at += chunk.data.len() as u64;
                assert_eq!(chunk.data, whole.as_bytes()[chunk.offset as usize..at as usize]);
            }
            stream_output_response::Event::End(end) => {
                assert_eq!(end.next_offset, whole.len() as u64);
                assert_eq!(end.state(), TerminalState::Finished);
            }
        }
    }
    assert_eq!((at, gaps), (whole.len() as u64, 1));
    let polled = session.output(&terminal, false).await;
    assert_eq!(polled.data, whole.as_bytes()[whole.len() - 1000..]);
    assert!(polled.truncated);
}

#[tokio::test]
async fn output_limits_of_nothing_of_one_and_of_everything_hold() {
    let gateway = Gateway::start("").await;
    let mut session = gateway.session().await;
    for (limit, expected, truncated) in [(0, "", true), (1, "\n", true), (u64::MAX, "abc\n", false)] {
        let request = CreateTerminalRequest { output_byte_limit: Some(limit), ..session.line("echo abc") };
        let terminal = session.create(request).await.unwrap();
        session.wait(&terminal).await;
        let output = session.output(&terminal, true).await;
        assert_eq!((output.text.as_str(), output.truncated), (expected, truncated), "{limit}");
        session.release(&terminal).await.unwrap();
    }
}

#[tokio::test]
async fn a_run_loses_nothing_of_a_flood() {
    let gateway = Gateway::start("").await;
    let mut session = gateway.session().await;
    let (bytes, _) = session.run(session.line("seq 1 2000000")).await;
    let whole: String = (1..=2_000_000).map(|n| format!("{n}\n")).collect();
    assert!(bytes == whole.as_bytes(), "{} bytes of {}", bytes.len(), whole.len());
}

#[tokio::test]
async fn stdin_is_written_and_closed() {
    let gateway = Gateway::start("").await;
    let mut session = gateway.session().await;
    let request = CreateTerminalRequest { stdin_mode: StdinMode::Open.into(), ..session.command(&["cat"]) };
    let terminal = session.create(request).await.unwrap();
    let write = |data: &'static [u8], eof| WriteInputRequest {
        terminal_id: terminal.id.clone(),
        data: data.into(),
        eof,
        ..Default::default()
    };
    assert_eq!(
        session.client.terminals.write_input(write(b"one ", false)).await.unwrap().into_inner().written_bytes,
        4
    );
    session.client.terminals.write_input(write(b"two", true)).await.unwrap();
    assert_eq!(exit_code(&session.wait(&terminal).await.outcome.unwrap()), Some(0));
    assert_eq!(session.output(&terminal, true).await.text, "one two");
    let status = session.client.terminals.write_input(write(b"x", false)).await.unwrap_err();
    assert_eq!(status.code(), Code::FailedPrecondition);
}

#[tokio::test]
async fn a_release_of_a_running_command_ends_waits_and_streams() {
    let gateway = Gateway::start("").await;
    let mut session = gateway.session().await;
    let terminal = session.create(session.line("echo ready; sleep 60")).await.unwrap();
    session.until_output(&terminal, "ready").await;
    let mut stream = session.stream(&terminal, 0).await;
    let (mut client, request) = (session.client.clone(), exit_of(&terminal));
    let waiting = tokio::spawn(async move { client.terminals.wait_for_exit(request).await });
    // Wait until the wait is under way, as far as can be told: the stream's first event comes after it.
    stream.message().await.unwrap();
    session.release(&terminal).await.unwrap();
    let waited = timeout(LIMIT, waiting).await.unwrap().unwrap();
    match waited {
        Ok(answer) => assert_eq!(answer.into_inner().outcome.unwrap().cause(), ExitCause::Killed),
        Err(status) => assert_eq!(status.code(), Code::NotFound, "came after the release"),
    }
    let mut last = None;
    while let Some(event) = timeout(LIMIT, stream.message()).await.unwrap().unwrap() {
        last = event.event;
    }
    assert!(matches!(last, Some(stream_output_response::Event::End(_))), "{last:?}");
}

#[tokio::test]
async fn a_lost_sandbox_ends_its_terminals_without_a_code_and_the_next_command_gets_a_new_one() {
    let gateway = Gateway::start("").await;
    let mut session = gateway.session().await;
    let terminal = session.create(session.line("sleep 60")).await.unwrap();
    let supervisor = children_of(gateway.process.id());
    assert_eq!(supervisor.len(), 1);
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(supervisor[0]), Signal::SIGKILL).unwrap();
    let outcome = session.wait(&terminal).await.outcome.unwrap();
    assert_eq!((outcome.end, outcome.cause), (None, ExitCause::SandboxLost.into()));
    let (bytes, finished) = session.run(session.line("echo again")).await;
    assert_eq!((bytes.as_slice(), exit_code(&finished.outcome.unwrap())), (&b"again\n"[..], Some(0)));
    session.release(&terminal).await.unwrap();
}

/// Without the launcher that waits for the next launch, which is in no sandbox, and without one that has just ended.
fn children_of(pid: u32) -> Vec<i32> {
    let namespace = |pid: i32| std::fs::read_link(format!("/proc/{pid}/ns/pid")).ok();
    let mut children = Vec::new();
    for task in std::fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten() {
        let text = std::fs::read_to_string(task.path().join("children")).unwrap_or_default();
        children.extend(text.split_whitespace().map(|pid| pid.parse::<i32>().unwrap()));
    }
    let own = namespace(pid.cast_signed());
    children.retain(|child| namespace(*child).is_some_and(|of| Some(of) != own));
    children
}

#[tokio::test]
async fn a_closed_session_leaves_nothing() {
    let gateway = Gateway::start("").await;
    let mut session = gateway.session().await;
    let terminal = session.create(session.line("trap '' TERM; setsid sleep 60 & sleep 60")).await.unwrap();
    assert_eq!((gateway.sandboxes(), children_of(gateway.process.id()).len()), (1, 1));
    let close = CloseSessionRequest { session_id: session.id.clone() };
    timeout(LIMIT, session.client.sessions.close_session(close.clone())).await.unwrap().unwrap();
    assert_eq!((gateway.sandboxes(), children_of(gateway.process.id()).len()), (0, 0));
    assert_eq!(
        session.client.terminals.get_terminal(named(&terminal)).await.unwrap_err().code(),
        Code::NotFound
    );
    assert_eq!(session.client.sessions.close_session(close).await.unwrap_err().code(), Code::NotFound);
    let status = session.create(session.command(&["true"])).await.unwrap_err();
    assert_eq!(status.code(), Code::NotFound);
}

#[tokio::test]
async fn a_run_whose_caller_goes_away_is_stopped_and_released() {
    let gateway = Gateway::start("").await;
    let mut session = gateway.session().await;
    let mut watching = session
        .client
        .terminals
        .watch_terminals(WatchTerminalsRequest { session_id: session.id.clone() })
        .await
        .unwrap()
        .into_inner();
    let request = RunRequest { create: Some(session.line("sleep 60")) };
    let mut events = session.client.terminals.run(request).await.unwrap().into_inner();
    assert!(matches!(events.message().await.unwrap().unwrap().event, Some(run_response::Event::Started(_))));
    drop(events);
    let mut states = Vec::new();
    while states.last() != Some(&TerminalState::Released) {
        let change = timeout(LIMIT, watching.message()).await.unwrap().unwrap().unwrap();
        let terminal = change.terminal.unwrap();
        states.push(terminal.state());
    }
    assert!(states.contains(&TerminalState::Running), "{states:?}");
    let list = session.client.terminals.list_terminals(ListTerminalsRequest::default()).await.unwrap();
    assert!(list.into_inner().terminals.is_empty());
}

#[tokio::test]
async fn caps_refuse_creates_and_never_a_kill() {
    let gateway = Gateway::start("[caps]\nlive_terminals_per_session = 1\n").await;
    let mut session = gateway.session().await;
    let first = session.create(session.line("sleep 60")).await.unwrap();
    let status = session.create(session.line("true")).await.unwrap_err();
    assert_eq!((status.code(), reason(&status).as_str()), (Code::ResourceExhausted, "QUOTA"));
    assert_eq!(
        status.get_details_quota_failure().unwrap().violations[0].subject,
        "live_terminals_per_session"
    );
    session.kill(&first, 0).await;
    session.wait(&first).await;
    session.create(session.line("true")).await.unwrap();
}

#[test]
fn a_state_directory_of_an_older_build_is_refused_with_what_to_do() {
    let directory = tempfile::Builder::new().prefix("provost-gw-").tempdir().unwrap();
    let state = directory.path().join("state");
    // Builds before format 2 made this directory, and no file `format`.
    std::fs::create_dir_all(state.join("sessions")).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_provost"))
        .arg("serve")
        .arg("--listen")
        .arg(format!("unix:{}", directory.path().join("provost.sock").display()))
        .arg("--state")
        .arg(&state)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{said}");
    assert!(said.contains("has format 1, and this build uses format 2"), "{said}");
    assert!(said.contains("stop that build with SIGINT"), "{said}");
    assert!(!state.join("format").exists(), "the directory is left as it is");
}

#[tokio::test]
async fn finished_terminals_that_nobody_releases_are_collected() {
    let gateway = Gateway::start("finished_kept = \"200ms\"\n").await;
    let mut session = gateway.session().await;
    let mut watching = session
        .client
        .terminals
        .watch_terminals(WatchTerminalsRequest::default())
        .await
        .unwrap()
        .into_inner();
    let terminal = session.create(session.line("true")).await.unwrap();
    loop {
        let change = timeout(LIMIT, watching.message()).await.unwrap().unwrap().unwrap();
        let seen = change.terminal.unwrap();
        if seen.id == terminal.id && seen.state() == TerminalState::Released {
            break;
        }
    }
    assert_eq!(session.release(&terminal).await.unwrap_err().code(), Code::NotFound);
}

#[tokio::test]
async fn two_gateways_never_share_a_state_directory_and_a_drained_one_leaves_nothing() {
    let mut gateway = Gateway::start("").await;
    let mut session = gateway.session().await;
    session.create(session.line("sleep 60")).await.unwrap();
    let mut second = Command::new(env!("CARGO_BIN_EXE_provost"))
        .args(["serve", "--listen"])
        .arg(format!("unix:{}", gateway.directory.path().join("other.sock").display()))
        .arg("--state")
        .arg(gateway.directory.path().join("state"))
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    assert!(!second.wait().unwrap().success());
    gateway.signal(Signal::SIGINT);
    let deadline = Instant::now() + LIMIT;
    let status = loop {
        if let Some(status) = gateway.process.try_wait().unwrap() {
            break status;
        }
        assert!(Instant::now() < deadline, "the gateway does not end");
        tokio::time::sleep(Duration::from_millis(10)).await;
    };
    assert!(status.success(), "{status}");
    assert_eq!(gateway.sandboxes(), 0);
    assert!(!gateway.directory.path().join("provost.sock").exists());
}

fn has_ended(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.is_empty() || stat.contains(") Z ")
}

fn send(pid: i32, signal: Signal) {
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), signal).unwrap();
}

#[tokio::test]
async fn a_release_succeeds_although_the_supervisor_hangs() {
    let gateway = Gateway::start("").await;
    let mut session = gateway.session().await;
    let terminal = session.create(session.line("sleep 60")).await.unwrap();
    let supervisor = children_of(gateway.process.id())[0];
    send(supervisor, Signal::SIGSTOP);
    let (mut client, request) = (session.client.clone(), exit_of(&terminal));
    let waiting = tokio::spawn(async move { client.terminals.wait_for_exit(request).await });
    session.release(&terminal).await.unwrap();
    assert!(has_ended(supervisor));
    if let Ok(answer) = timeout(LIMIT, waiting).await.unwrap().unwrap() {
        assert_eq!(answer.into_inner().outcome.unwrap().cause(), ExitCause::Killed);
    }
    assert_eq!(session.release(&terminal).await.unwrap_err().code(), Code::NotFound);
    let (bytes, _) = session.run(session.line("echo again")).await;
    assert_eq!(bytes, b"again\n");
}

#[tokio::test]
async fn a_second_signal_ends_a_gateway_that_drains() {
    let mut gateway = Gateway::start("").await;
    let mut session = gateway.session().await;
    let grace = Some(prost_types::Duration { seconds: 600, nanos: 0 });
    let line = session.line("trap '' TERM; echo ready; while :; do sleep 1; done");
    let terminal = session.create(CreateTerminalRequest { kill_grace: grace, ..line }).await.unwrap();
    session.until_output(&terminal, "ready").await;
    gateway.signal(Signal::SIGINT);
    let deadline = Instant::now() + LIMIT;
    loop {
        let refused = session.create(session.line("true")).await.err();
        if refused.is_some_and(|status| status.code() == Code::Unavailable) {
            break;
        }
        assert!(Instant::now() < deadline, "the gateway does not drain");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(gateway.process.try_wait().unwrap().is_none(), "it waits for the command's grace");
    gateway.signal(Signal::SIGINT);
    let deadline = Instant::now() + LIMIT;
    while gateway.process.try_wait().unwrap().is_none() {
        assert!(Instant::now() < deadline, "the gateway does not end");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(gateway.sandboxes(), 0);
}

#[tokio::test]
async fn terminals_that_are_isolated_from_one_another_have_sandboxes_of_their_own() {
    let isolate = |policy: String| policy.replace("isolation = \"session\"", "isolation = \"terminal\"");
    let gateway = Gateway::start_with("", isolate).await;
    let mut session = gateway.session().await;
    let first = session.create(session.line("echo ready; exec sleep 60")).await.unwrap();
    let second = session.create(session.line("echo ready; exec sleep 60")).await.unwrap();
    assert_eq!((gateway.sandboxes(), children_of(gateway.process.id()).len()), (2, 2));
    session.kill(&first, 0).await;
    assert_eq!(session.wait(&first).await.outcome.unwrap().cause(), ExitCause::Killed);
    session.release(&first).await.unwrap();
    assert_eq!(gateway.sandboxes(), 1, "its sandbox went with it, and no other");
    session.until_output(&second, "ready").await;
    session.release(&second).await.unwrap();
    assert_eq!((gateway.sandboxes(), children_of(gateway.process.id()).len()), (0, 0));
    assert_eq!(
        session.create(session.command(&["no-such"])).await.unwrap_err().code(),
        Code::FailedPrecondition
    );
    assert_eq!(gateway.sandboxes(), 0, "a refused spawn takes its sandbox along");
}

/// More than any ring of these tests holds.
const FLOOD: &str = "head -c 2000000 /dev/zero";

fn blocking(line: CreateTerminalRequest) -> CreateTerminalRequest {
    CreateTerminalRequest { overflow: Overflow::Block.into(), output_byte_limit: Some(1000), ..line }
}

#[tokio::test]
async fn a_run_loses_nothing_whoever_reads_along() {
    let gateway = Gateway::start("").await;
    let mut session = gateway.session().await;
    let line = session.line(&format!("sleep 0.2; {FLOOD}"));
    let line = CreateTerminalRequest { output_byte_limit: Some(1000), ..line };
    let request = RunRequest { create: Some(line) };
    let mut events = session.client.terminals.run(request).await.unwrap().into_inner();
    let started = match events.message().await.unwrap().unwrap().event.unwrap() {
        run_response::Event::Started(terminal) => terminal,
        other => panic!("{other:?}"),
    };
    // One that goes after its first piece, and one that stays.
    let mut first = session.stream(&started, 0).await;
    let mut second = session.stream(&started, 0).await;
    first.message().await.unwrap();
    drop(first);
    let along =
        tokio::spawn(async move { while second.message().await.is_ok_and(|event| event.is_some()) {} });
    let mut at = 0;
    while let Some(event) = timeout(LIMIT, events.message()).await.unwrap().unwrap() {
        if let Some(run_response::Event::Chunk(chunk)) = event.event {
            assert_eq!(chunk.offset, at);
            at += chunk.data.len() as u64;
        }
    }
    assert_eq!(at, 2_000_000);
    timeout(LIMIT, along).await.unwrap().unwrap();
}

#[tokio::test]
async fn each_stream_of_a_blocking_terminal_waits_for_a_reader_of_its_own() {
    let gateway = Gateway::start("").await;
    let mut session = gateway.session().await;
    let line = session.line(&format!("{FLOOD} >&2; {FLOOD}; {FLOOD} >&2"));
    let request = CreateTerminalRequest { output_mode: OutputMode::Split.into(), ..blocking(line) };
    let terminal = session.create(request).await.unwrap();
    let mut read = Vec::new();
    for (stream, expected) in [(OutputStream::Stdout, 2_000_000), (OutputStream::Stderr, 4_000_000)] {
        let request = StreamOutputRequest {
            terminal_id: terminal.id.clone(),
            stream: stream.into(),
            follow: true,
            ..Default::default()
        };
        let mut events = session.client.terminals.stream_output(request).await.unwrap().into_inner();
        read.push(tokio::spawn(async move {
            let mut at = 0;
            while let Some(event) = events.message().await.unwrap() {
                match event.event.unwrap() {
                    stream_output_response::Event::Chunk(chunk) => {
                        assert_eq!(chunk.offset, at);
                        at += chunk.data.len() as u64;
                    }
                    stream_output_response::Event::Gap(gap) => panic!("{gap:?}"),
                    stream_output_response::Event::End(_) => {}
                }
            }
            assert_eq!(at, expected);
        }));
    }
    for reading in read {
        timeout(LIMIT, reading).await.unwrap().unwrap();
    }
    assert_eq!(exit_code(&session.wait(&terminal).await.outcome.unwrap()), Some(0));
}

#[tokio::test]
async fn no_stream_waits_for_a_reader_after_the_last_one_has_gone() {
    let gateway = Gateway::start("").await;
    let mut session = gateway.session().await;
    let line = session.line(&format!("{FLOOD}; {FLOOD} >&2"));
    let request = CreateTerminalRequest { output_mode: OutputMode::Split.into(), ..blocking(line) };
    let terminal = session.create(request).await.unwrap();
    let mut stream = session.stream(&terminal, 0).await;
    assert!(matches!(
        timeout(LIMIT, stream.message()).await.unwrap().unwrap().unwrap().event,
        Some(stream_output_response::Event::Chunk(_))
    ));
    drop(stream);
    assert_eq!(exit_code(&session.wait(&terminal).await.outcome.unwrap()), Some(0));
    // Nor for one that wants none of it.
    let terminal = session.create(blocking(session.line(FLOOD))).await.unwrap();
    let _stream = session.stream(&terminal, 1 << 40).await;
    assert_eq!(exit_code(&session.wait(&terminal).await.outcome.unwrap()), Some(0));
}

#[tokio::test]
async fn links_to_a_working_directory_tell_nothing_of_what_is_outside() {
    let gateway = Gateway::start("").await;
    let mut session = gateway.session().await;
    let work = gateway.work().canonicalize().unwrap();
    std::fs::create_dir_all(work.join("deep/inner")).unwrap();
    for (target, link) in [
        ("/etc", "out"),
        ("/no/such/directory", "nowhere"),
        ("..", "up"),
        ("deep/inner", "near"),
        ("gone", "dangling"),
    ] {
        std::os::unix::fs::symlink(target, work.join(link)).unwrap();
    }
    let cwd = |session: &Session, name: &str| CreateTerminalRequest {
        cwd: work.join(name).display().to_string(),
        ..session.command(&["pwd"])
    };
    let mut answers = Vec::new();
    for out in ["out", "nowhere", "out/gone", "up"] {
        let status = session.create(cwd(&session, out)).await.unwrap_err();
        let rule = status.get_details_error_info().unwrap().metadata["rule"].clone();
        answers.push((
            status.code(),
            reason(&status),
            rule,
            status.message().replace(&format!("/{out} "), ""),
        ));
    }
    answers.dedup();
    assert_eq!(answers.len(), 1, "{answers:?}");
    assert_eq!((answers[0].0, answers[0].2.as_str()), (Code::PermissionDenied, "session.roots"));
    let (bytes, _) = session.run(cwd(&session, "near")).await;
    assert_eq!(String::from_utf8_lossy(&bytes).trim(), work.join("deep/inner").display().to_string());
    assert_eq!(reason(&session.create(cwd(&session, "dangling")).await.unwrap_err()), "CWD_GONE");
}

#[tokio::test]
async fn a_repeated_request_for_a_session_answers_with_the_first() {
    let gateway = Gateway::start("").await;
    let mut session = gateway.session().await;
    let request = CreateSessionRequest {
        roots: vec![gateway.work().display().to_string()],
        request_id: "same".into(),
        lifetime: Lifetime::OwnerProcess.into(),
        ..Default::default()
    };
    let first = session
        .client
        .sessions
        .create_session(request.clone())
        .await
        .unwrap()
        .into_inner()
        .session
        .expect("it is set");
    let second = session
        .client
        .sessions
        .create_session(request)
        .await
        .unwrap()
        .into_inner()
        .session
        .expect("it is set");
    assert_eq!(first.id, second.id);
    assert_eq!(second.lifetime(), Lifetime::OwnerProcess);
}
