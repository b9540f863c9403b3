//! What a command does not read of its stdin is there for who comes next, through every front end of the command line.

use std::{
    fs,
    io::{Read, Write},
    os::{fd::OwnedFd, unix::net::UnixStream},
    process::{Command, Stdio},
    sync::Arc,
};

use crate::{
    cli::{
        fixture::{Place, Running, code, shown, stdout},
        serving::Gateway,
    },
    support::stdin_scripts::SCRIPTS,
};

/// Ways to run arguments, as a function of bash.
const EMBEDDED: &str = r#"run() { "$PROVOST" run --policies "$POLICIES" -- "$@"; }"#;
const BY_GATEWAY: &str = r#"run() { "$PROVOST" run -- "$@"; }"#;
const IN_SESSION: &str = r#"run() { "$PROVOST" exec "$SESSION" -- "$@"; }"#;
const AS_SHELL: &str = r#"run() { local l; printf -v l '%q ' "$@"; "$SHELL_PROGRAM" -c "$l"; }"#;

fn bash(place: &Place, run: &str, script: &str) -> Command {
    let mut bash = Command::new("bash");
    bash.arg("-c").arg(format!("{run}\nexport -f run\n{script}")).current_dir(place.work());
    bash.env("PROVOST", env!("CARGO_BIN_EXE_provost")).env_remove("PROVOST_GATEWAY");
    bash.env("SHELL_PROGRAM", env!("CARGO_BIN_EXE_provost-shell")).env("POLICIES", place.policies());
    bash.env("PROVOST_SHELL_ROOT", place.work()).stdin(Stdio::null());
    bash
}

#[test]
fn nothing_is_taken_of_stdin_that_the_command_does_not_read() {
    let place = Place::new();
    let gateway = Gateway::start(&place);
    let provost = |arguments: &[&str]| {
        let mut provost = place.provost();
        provost.args(arguments).env("PROVOST_GATEWAY", gateway.address()).output().expect("provost starts")
    };
    let started = provost(&["run", "-d", "--session", "named", "--", "sleep", "600"]);
    assert_eq!(code(&started), 0, "{}", shown(&started));
    let listed = provost(&["ps", "--output", "json"]);
    let listed: serde_json::Value = serde_json::from_slice(&listed.stdout).expect("it is JSON");
    let session = listed[0]["session_id"].as_str().expect("a session").to_owned();
    for run in [EMBEDDED, BY_GATEWAY, IN_SESSION, AS_SHELL] {
        for (what, script, expected) in SCRIPTS {
            let mut bash = bash(&place, run, script);
            if run != EMBEDDED {
                bash.env("PROVOST_GATEWAY", gateway.address());
            }
            let output = bash.env("SESSION", &session).output().expect("bash starts");
            assert_eq!(stdout(&output), expected, "{what} by {run}: {}", shown(&output));
        }
    }
    gateway.stop();
}

#[test]
fn what_is_refused_of_stdin_stays() {
    let place = Place::new();
    let script = r#"printf 'x\n' | { "$PROVOST" run -n --policies "$POLICIES" -- cat; cat; }"#;
    assert_eq!(stdout(&bash(&place, EMBEDDED, script).output().expect("bash starts")), "x\n");
}

#[test]
fn a_socket_keeps_what_the_command_does_not_read_and_its_flags() {
    let place = Place::new();
    for is_blocking in [true, false] {
        let (mut ours, theirs) = UnixStream::pair().expect("a pair can be made");
        theirs.set_nonblocking(!is_blocking).expect("it is ours");
        ours.write_all(b"one\ntwo\n").expect("it is read");
        let given = OwnedFd::from(theirs.try_clone().expect("it can be copied"));
        let mut run = place.run(&[], &["sh", "-c", "read -r l; echo \"in $l\""]);
        let output = run.stdin(given).output().expect("provost starts");
        assert_eq!(stdout(&output), "in one\n", "{}", shown(&output));
        let mut left = [0; 64];
        let count = (&theirs).read(&mut left).expect("something is there");
        assert_eq!(&left[..count], b"two\n");
        let flags = nix::fcntl::fcntl(&theirs, nix::fcntl::FcntlArg::F_GETFL).expect("it is ours");
        assert_eq!(flags & nix::libc::O_NONBLOCK == 0, is_blocking);
    }
}

/// A gateway takes as stdin what can only be read. Everything else it closes, and the caller writes the input as before.
#[test]
fn a_gateway_takes_no_stdin_that_could_be_written_to() {
    use provost::{
        client,
        proto::v1::{self, create_terminal_request::Command, run_response::Event},
    };
    let place = Place::new();
    let gateway = Gateway::start(&place);
    let file = place.path().join("file");
    fs::write(&file, "read\n").expect("it can be made");
    let open = |write| fs::OpenOptions::new().read(true).write(write).open(&file).expect("it is ours");
    let (socket, _other) = UnixStream::pair().expect("a pair can be made");
    let (reader, mut writer) = std::io::pipe().expect("a pipe can be made");
    let by_number = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&reader));
    let reopened = fs::OpenOptions::new().read(true).write(true).open(by_number);
    writer.write_all(b"given\n").expect("the pipe has room");
    drop(writer);
    let offered: [(&str, OwnedFd, bool); 5] = [
        ("a socket", socket.into(), false),
        ("a file", open(false).into(), false),
        ("a file for writing", open(true).into(), false),
        ("both ends of a pipe", reopened.expect("it is ours").into(), false),
        ("the end of a pipe", reader.into(), true),
    ];
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("it starts");
    runtime.block_on(async {
        for (what, descriptor, is_taken) in offered {
            let client = client::connect_giving(&gateway.address(), Some(Arc::new(descriptor))).await;
            let mut client = client.expect("the gateway serves");
            let root = place.work().display().to_string();
            let session = v1::CreateSessionRequest { roots: vec![root], ..Default::default() };
            let session = client.sessions.create_session(session).await.expect("it opens").into_inner();
            let session = session.session.expect("a session").id;
            let create = v1::CreateTerminalRequest {
                session_id: session.clone(),
                command: Some(Command::Program("cat".to_owned())),
                stdin_mode: v1::StdinMode::Open.into(),
                stdin_given: true,
                ..Default::default()
            };
            let run = v1::RunRequest { create: Some(create), resumable: false };
            let mut events = client.terminals.run(run).await.expect("it starts").into_inner();
            let Some(Event::Started(started)) =
                events.message().await.expect("it goes on").and_then(|e| e.event)
            else {
                panic!("{what}: no start");
            };
            assert_eq!(started.stdin_given, is_taken, "{what}");
            let write = v1::WriteInputRequest {
                terminal_id: started.id,
                data: "written\n".into(),
                eof: true,
                ..Default::default()
            };
            assert_eq!(client.terminals.write_input(write).await.is_err(), is_taken, "{what}");
            let mut printed = Vec::new();
            while let Some(event) = events.message().await.expect("it goes on") {
                if let Some(Event::Chunk(chunk)) = event.event {
                    printed.extend_from_slice(&chunk.data);
                }
            }
            let expected: &[u8] = if is_taken { b"given\n" } else { b"written\n" };
            assert_eq!(printed, expected, "{what}");
            let close = v1::CloseSessionRequest { session_id: session };
            client.sessions.close_session(close).await.expect("it closes");
        }
    });
    gateway.stop();
}

/// An asynchronous parent's streams: what does not block is waited for.
#[test]
fn streams_that_do_not_block_lose_nothing() {
    let place = Place::new();
    let noise: Vec<u8> = (0..1_000_000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 11) as u8).collect();
    for (is_stdout, script) in [(true, "echo ready; cat"), (false, "echo ready >&2; cat >&2")] {
        let (mut ours, theirs) = UnixStream::pair().expect("a pair can be made");
        let (mut output, to) = UnixStream::pair().expect("a pair can be made");
        theirs.set_nonblocking(true).expect("it is ours");
        to.set_nonblocking(true).expect("it is ours");
        let mut run = place.run(&[], &["sh", "-c", script]);
        run.stdin(OwnedFd::from(theirs));
        if is_stdout {
            run.stdout(OwnedFd::from(to)).stderr(Stdio::null());
        } else {
            run.stderr(OwnedFd::from(to)).stdout(Stdio::null());
        }
        let mut running = Running::start(&mut run);
        drop(run);
        // Until then there is nothing to read.
        let mut got = Vec::new();
        while !got.ends_with(b"ready\n") {
            let mut byte = [0];
            output.read_exact(&mut byte).expect("the command says that it runs");
            got.extend(byte);
        }
        got.clear();
        let written = noise.clone();
        let feeder = std::thread::spawn(move || {
            ours.write_all(&written).expect("it is read");
            ours.shutdown(std::net::Shutdown::Write).expect("it is open");
            ours
        });
        output.read_to_end(&mut got).expect("it can be read");
        // A notice may come after it.
        assert!(got.starts_with(&noise), "{script}: {} bytes", got.len());
        assert_eq!(running.end().code(), Some(0));
        feeder.join().expect("all was read");
    }
}
