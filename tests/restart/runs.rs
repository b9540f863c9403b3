//! A foreground `provost run` over restarts of its gateway: no byte of output or input is missing, none comes twice.

use std::{
    fs,
    io::{Read, Write},
    process::{Child, ChildStdout, Command, Stdio},
    time::{Duration, Instant},
};

use nix::sys::signal::Signal;
use tonic::{Streaming, transport::Channel};

use crate::support::{
    Caller, Gateway, Options, Process, Refusal, Session, add_rule,
    api::{
        Approval, ApprovalDecision, ListApprovalsRequest, ReleaseTerminalRequest, ResolveApprovalRequest,
        ResumeRunRequest, ResumeRunResponse, RunRequest, RunResponse, Terminal, TerminalState,
        approvals_client::ApprovalsClient, resume_run_response, run_response,
    },
    code, eventually, within,
};

/// How a gateway ends.
#[derive(Debug, Clone, Copy)]
enum End {
    Killed,
    Asked,
}

fn restart(gateway: &Gateway, end: End) {
    match end {
        End::Killed => gateway.crash(),
        End::Asked => {
            gateway.signal(Signal::SIGTERM);
            assert!(gateway.wait().success());
        }
    }
    gateway.start_again();
}

fn short_drain() -> Options {
    Options { config: Some("drain = \"100ms\"".into()), ..Options::default() }
}

/// `provost run COMMAND`, with pipes.
fn run(gateway: &Gateway, workspace: &std::path::Path, command: &[&str], stdin: Stdio) -> Child {
    Command::new(env!("CARGO_BIN_EXE_provost"))
        .args(["run", "--gateway", &format!("unix:{}", gateway.socket.display())])
        .args(command)
        .current_dir(workspace)
        .env_remove("PROVOST_GATEWAY")
        .stdin(stdin)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("provost can be started")
}

fn read_to(stdout: &mut ChildStdout, read: &mut Vec<u8>, length: usize) {
    let mut bytes = vec![0; 64 << 10];
    while read.len() < length {
        let count = stdout.read(&mut bytes).expect("a pipe can be read");
        assert!(count > 0, "it ended after {} bytes", read.len());
        read.extend_from_slice(&bytes[..count]);
    }
}

fn numbers(to: u32) -> Vec<u8> {
    (1..=to).fold(String::new(), |text, number| text + &format!("{number}\n")).into_bytes()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_foreground_run_loses_and_doubles_no_output_however_its_gateway_ends() {
    let gateway = Gateway::start_with(short_drain());
    let workspace = tempfile::tempdir().expect("a directory can be made");
    let script = "seq 3000000 & seq 300000 >&2; wait; exit 7";
    let mut child = run(&gateway, workspace.path(), &["sh", "-c", script], Stdio::null());
    let mut stderr = child.stderr.take().expect("it is piped");
    let errors = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        stderr.read_to_end(&mut bytes).expect("a pipe can be read");
        bytes
    });
    let mut stdout = child.stdout.take().expect("it is piped");
    let mut read = Vec::new();
    for end in [End::Killed, End::Asked, End::Killed, End::Killed] {
        // It goes on in between, at a reader that is slow.
        let until = read.len() + 3_000_000;
        read_to(&mut stdout, &mut read, until);
        restart(&gateway, end);
    }
    stdout.read_to_end(&mut read).expect("a pipe can be read");
    assert_eq!(child.wait().expect("it is ours").code(), Some(7));
    assert_eq!(read.len(), numbers(3_000_000).len());
    assert!(read == numbers(3_000_000), "other bytes on stdout");
    let errors = errors.join().expect("it does not panic");
    assert!(
        errors == numbers(300_000),
        "other bytes on stderr: {}",
        String::from_utf8_lossy(&errors[errors.len().saturating_sub(200)..])
    );
    gateway.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_foreground_run_is_given_its_whole_input_once_however_its_gateway_ends() {
    let gateway = Gateway::start_with(short_drain());
    let workspace = tempfile::tempdir().expect("a directory can be made");
    let mut child = run(&gateway, workspace.path(), &["cat"], Stdio::piped());
    let mut stdin = child.stdin.take().expect("it is piped");
    let typing =
        std::thread::spawn(move || stdin.write_all(&numbers(1_000_000)).expect("it takes its input"));
    let mut stdout = child.stdout.take().expect("it is piped");
    let mut read = Vec::new();
    for end in [End::Killed, End::Asked, End::Killed] {
        let until = read.len() + 500_000;
        read_to(&mut stdout, &mut read, until);
        restart(&gateway, end);
    }
    stdout.read_to_end(&mut read).expect("a pipe can be read");
    typing.join().expect("all of it is taken");
    assert_eq!(child.wait().expect("it is ours").code(), Some(0));
    assert!(read == numbers(1_000_000), "{} bytes and not {}", read.len(), numbers(1_000_000).len());
    gateway.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_foreground_run_that_ends_with_no_gateway_there_has_its_last_bytes_and_its_status() {
    let gateway = Gateway::start();
    let workspace = tempfile::tempdir().expect("a directory can be made");
    let marker = "ends-without-a-gateway";
    let script = "echo begun; while [ ! -e go ]; do sleep 0.05; done; echo last; exit 5";
    let mut child = run(&gateway, workspace.path(), &["sh", "-c", script, marker], Stdio::null());
    let mut stdout = child.stdout.take().expect("it is piped");
    let mut read = Vec::new();
    read_to(&mut stdout, &mut read, "begun\n".len());
    gateway.crash();
    fs::write(workspace.path().join("go"), "").expect("the workspace is ours");
    eventually("the command has ended", || {
        let commands = Process::all_marked(marker).into_iter();
        (commands.filter(|process| !process.command_line().contains("provost")).count() == 0).then_some(())
    })
    .await;
    assert!(child.try_wait().expect("it is ours").is_none(), "it waits for a gateway");
    gateway.start_again();
    stdout.read_to_end(&mut read).expect("a pipe can be read");
    assert_eq!(String::from_utf8_lossy(&read), "begun\nlast\n");
    assert_eq!(child.wait().expect("it is ours").code(), Some(5));
    gateway.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_signal_to_a_foreground_run_reaches_its_command_after_a_restart() {
    let gateway = Gateway::start();
    let workspace = tempfile::tempdir().expect("a directory can be made");
    let script = "trap 'echo caught; exit 3' INT; echo begun; while :; do sleep 0.05 & wait $!; done";
    let mut child = run(&gateway, workspace.path(), &["sh", "-c", script], Stdio::null());
    let mut stdout = child.stdout.take().expect("it is piped");
    let mut read = Vec::new();
    read_to(&mut stdout, &mut read, "begun\n".len());
    gateway.crash();
    let pid = nix::unistd::Pid::from_raw(child.id().cast_signed());
    nix::sys::signal::kill(pid, Signal::SIGINT).expect("it is ours");
    gateway.start_again();
    stdout.read_to_end(&mut read).expect("a pipe can be read");
    assert_eq!(String::from_utf8_lossy(&read), "begun\ncaught\n");
    assert_eq!(child.wait().expect("it is ours").code(), Some(3));
    gateway.stop();
}

/// Begins a resumable run, and reads until it has started.
async fn begin(session: &Session, marker: &str) -> (Terminal, Streaming<RunResponse>) {
    let create = session.idle(marker).into_request();
    let request = RunRequest { create: Some(create), resumable: true };
    let mut terminals = session.caller.terminals.clone();
    let mut events = within("a run", terminals.run(request)).await.expect("it runs").into_inner();
    let first =
        within("its start", events.message()).await.expect("it goes on").and_then(|event| event.event);
    match first {
        Some(run_response::Event::Started(terminal)) => (terminal, events),
        other => panic!("{other:?}"),
    }
}

async fn resume(caller: &Caller, terminal: &Terminal) -> Result<Streaming<ResumeRunResponse>, Refusal> {
    let request = ResumeRunRequest { terminal_id: terminal.id.clone(), ..Default::default() };
    let mut terminals = caller.terminals.clone();
    within("a resumed run", terminals.resume_run(request))
        .await
        .map(|run| run.into_inner())
        .map_err(Refusal::from)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_awaits_its_caller_for_ten_seconds_and_has_one() {
    let gateway = Gateway::start();
    let mut session = Session::open(&gateway).await;
    let marker = session.marker();
    let (resumed, first) = begin(&session, &marker).await;
    let abandoned_marker = format!("{marker}-abandoned");
    let (abandoned, second) = begin(&session, &abandoned_marker).await;
    let refused = resume(&session.caller, &resumed).await.expect_err("its caller is there");
    assert_eq!(refused.reason, "RUN_NOT_AWAITED");
    gateway.crash();
    drop((first, second));
    let begun = Instant::now();
    gateway.start_again();
    session.go_on(&gateway.caller().await);
    let stranger = gateway.caller_as(4_242).await;
    let refused = resume(&stranger, &resumed).await.expect_err("another user's");
    assert_eq!(refused.reason, "TERMINAL_NOT_FOUND");
    let mut events = resume(&session.caller, &resumed).await.expect("its caller is awaited");
    let event = within("the first event", events.message()).await.expect("it goes on").and_then(|e| e.event);
    assert!(matches!(event, Some(resume_run_response::Event::Resumed(_))), "{event:?}");
    let refused = resume(&session.caller, &resumed).await.expect_err("its caller is back");
    assert_eq!(refused.reason, "RUN_NOT_AWAITED");
    eventually("the end of the run that nobody comes back to", || {
        Process::all_marked(&abandoned_marker).is_empty().then_some(())
    })
    .await;
    assert!(begun.elapsed() >= Duration::from_secs(10), "not before its time: {:?}", begun.elapsed());
    let gone = resume(&session.caller, &abandoned).await.expect_err("it was released");
    assert!(["TERMINAL_NOT_FOUND", "RUN_NOT_AWAITED"].contains(&&*gone.reason), "{gone:?}");

    // The other one has its caller, and goes on; it ends with its caller as every run.
    assert!(!Process::all_marked(&marker).is_empty(), "it goes on");
    drop(events);
    eventually("the end of the run", || Process::all_marked(&marker).is_empty().then_some(())).await;
    session.close().await;
    gateway.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_end_of_a_run_can_be_asked_for_again_until_its_caller_releases_it() {
    let gateway = Gateway::start();
    let mut session = Session::open(&gateway).await;
    let create = session.sh("echo all; exit 4").into_request();
    let request = RunRequest { create: Some(create), resumable: true };
    let mut terminals = session.caller.terminals.clone();
    let mut events = within("a run", terminals.run(request)).await.expect("it runs").into_inner();
    let mut last = None;
    while let Some(event) = within("an event", events.message()).await.expect("it goes on") {
        last = event.event;
    }
    let Some(run_response::Event::Finished(terminal)) = last else { panic!("{last:?}") };
    assert_eq!(terminal.state(), TerminalState::Finished);
    // Its caller has received nothing of it.
    gateway.crash();
    gateway.start_again();
    session.go_on(&gateway.caller().await);
    let mut events = resume(&session.caller, &terminal).await.expect("its caller is awaited");
    let (mut output, mut finished) = (Vec::new(), None);
    while let Some(event) = within("an event", events.message()).await.expect("it goes on") {
        match event.event {
            Some(resume_run_response::Event::Chunk(chunk)) => output.extend_from_slice(&chunk.data),
            Some(resume_run_response::Event::Finished(terminal)) => finished = Some(terminal),
            Some(resume_run_response::Event::Resumed(_)) | None => {}
        }
    }
    assert_eq!(output, b"all\n");
    let outcome = finished.and_then(|terminal| terminal.outcome).expect("it has ended");
    assert_eq!(code(&outcome), 4);
    let request = ReleaseTerminalRequest { terminal_id: terminal.id.clone(), ..Default::default() };
    let mut terminals = session.caller.terminals.clone();
    within("the release", terminals.release_terminal(request)).await.expect("its caller releases it");
    let gone = resume(&session.caller, &terminal).await.expect_err("it is released");
    assert_eq!(gone.reason, "TERMINAL_NOT_FOUND");
    session.close().await;
    gateway.stop();
}

fn with_question(policy: &mut toml::Table) {
    add_rule(policy, "id = 'careful'\ndecision = 'ask'\nargv = ['sh', '-c', '**']\nreason = 'ask first'");
}

/// The one question that is open, once there is one.
async fn open_question(gateway: &Gateway) -> (ApprovalsClient<Channel>, Approval) {
    let mut approvals = ApprovalsClient::new(gateway.caller().await.channel());
    let asked = within("a question", async {
        loop {
            let request = ListApprovalsRequest { pending_only: true, ..Default::default() };
            let listed = approvals.list_approvals(request).await.expect("they can be listed");
            if let Some(approval) = listed.into_inner().approvals.pop() {
                return approval;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    (approvals, asked)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_foreground_run_that_waits_for_an_answer_is_asked_about_again_after_a_restart() {
    let gateway = Gateway::start_with(Options { policy: Some(with_question), ..short_drain() });
    let workspace = tempfile::tempdir().expect("a directory can be made");
    let script = "echo once >>ran; echo done; exit 6";
    let command = ["--on-ask", "wait", "--", "sh", "-c", script];
    let mut child = run(&gateway, workspace.path(), &command, Stdio::null());
    for end in [End::Killed, End::Asked] {
        open_question(&gateway).await;
        restart(&gateway, end);
        assert!(child.try_wait().expect("it is ours").is_none(), "it waits");
    }
    let (mut approvals, asked) = open_question(&gateway).await;
    assert!(!workspace.path().join("ran").exists(), "nothing has run");
    let request = ResolveApprovalRequest {
        approval_id: asked.id,
        decision: ApprovalDecision::Approve.into(),
        ..Default::default()
    };
    within("an answer", approvals.resolve_approval(request)).await.expect("it is open");
    let mut output = String::new();
    child.stdout.take().expect("it is piped").read_to_string(&mut output).expect("a pipe can be read");
    assert_eq!(child.wait().expect("it is ours").code(), Some(6));
    assert_eq!(output, "done\n");
    assert_eq!(fs::read_to_string(workspace.path().join("ran")).expect("it ran"), "once\n");
    gateway.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_is_sent_again_is_one_run_with_one_caller() {
    let gateway = Gateway::start();
    let mut session = Session::open(&gateway).await;
    let marker = session.marker();
    let mut create = session.idle(&marker).into_request();
    create.request_id = "the-run".into();
    let send = async |session: &Session| {
        let request = RunRequest { create: Some(create.clone()), resumable: true };
        let mut terminals = session.caller.terminals.clone();
        let mut events = within("a run", terminals.run(request)).await.map_err(Refusal::from)?.into_inner();
        let first = within("its start", events.message()).await.map_err(Refusal::from)?;
        match first.and_then(|event| event.event) {
            Some(run_response::Event::Started(terminal)) => Ok::<_, Refusal>((terminal, events)),
            other => panic!("{other:?}"),
        }
    };
    let (first, events) = send(&session).await.expect("it runs");
    let refused = send(&session).await.expect_err("it has its caller");
    assert_eq!(refused.reason, "RUN_NOT_AWAITED");
    gateway.crash();
    drop(events);
    gateway.start_again();
    session.go_on(&gateway.caller().await);
    let (second, events) = send(&session).await.expect("it is awaited");
    assert_eq!(second.id, first.id, "it is the same run");
    let refused = send(&session).await.expect_err("it has its caller");
    assert_eq!(refused.reason, "RUN_NOT_AWAITED");
    // What a create has made under an id is no run.
    let mut other = session.idle(&marker).into_request();
    other.request_id = "no-run".into();
    let mut terminals = session.caller.terminals.clone();
    within("a terminal", terminals.create_terminal(other.clone())).await.expect("it is created");
    let request = RunRequest { create: Some(other), resumable: true };
    let refused = within("a refusal", terminals.run(request)).await.map_err(Refusal::from);
    assert_eq!(refused.expect_err("it is no run").reason, "RUN_NOT_AWAITED");
    drop(events);
    session.close().await;
    gateway.stop();
}
