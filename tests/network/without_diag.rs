//! Rules by program where the kernel does not find a connection by its ends, and users whose processes are much to look at.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Command,
};

use provost::proto::v1::{Network, TerminalState};

use crate::{
    fixture::Fixture,
    programs::{AFTER_MANY, file_of, finds_connections, rules},
    support::{Session, is_root, skip},
};

/// The gateway's program as on a kernel without sock_diag(7).
fn program_without_diag(directory: &Path) -> PathBuf {
    let program = directory.join("without_tcp_diag.py");
    fs::write(&program, include_str!("without_tcp_diag.py")).expect("a file");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("it is ours");
    program
}

/// Rules by which python alone reaches the host.
fn for_python() -> String {
    rules().replace(&file_of("curl"), &file_of("python3"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_tcp_diag_programs_are_known_while_connections_are_few_and_that_is_said() {
    if !is_root() {
        return skip("without a cgroup the processes of a sandbox are not known");
    }
    const BINARY: &str = env!("CARGO_BIN_EXE_provost");
    let fixture = Fixture::start_by(None, "", |options, directory| {
        options.binary = Some(program_without_diag(directory));
        options.env.push(("PROVOST_TEST_BINARY".to_owned(), BINARY.to_owned()));
    });
    let mut without = Command::new(program_without_diag(fixture.directory.path()));
    without.env("PROVOST_TEST_BINARY", BINARY);
    assert!(!finds_connections(without), "provost doctor says so");

    // Nobody's rules depend on it yet.
    let before = Session::open(&fixture.gateway).await;
    let shortfalls = async |session: &Session| {
        let terminal = fixture.command(session, Network::Proxy, "true").create().await;
        terminal.wait().await;
        terminal.info.receipt.clone().expect("a receipt").shortfalls
    };
    let of_programs = |all: &[String]| all.iter().any(|one| one.starts_with("connection-programs: "));
    assert!(!of_programs(&shortfalls(&before).await));
    before.close().await;

    fixture.reload_with(&for_python());
    let session = Session::open(&fixture.gateway).await;
    assert!(of_programs(&shortfalls(&session).await));
    let recorded = fixture.records("shortfall");
    assert!(recorded.iter().any(|one| one["protection"] == "connection-programs"), "{recorded:#?}");
    let connect = async |past: u64| {
        let command = fixture.command(&session, Network::Proxy, "python3");
        let arguments = ["-c".to_owned(), AFTER_MANY.to_owned(), past.to_string(), "10".to_owned()];
        let text = command.args(arguments).finish().await.text();
        text.split_whitespace().last().expect("a number").parse::<u64>().expect("a number")
    };
    assert_eq!(connect(0).await, 10, "the program is known");
    assert_eq!(connect(5_000).await, 0, "of a table that is too long nothing is known, which restricts");
    session.close().await;
    fixture.gateway.stop();
}

/// Holds so many descriptors in so many processes, and then connects again and again. Says what came of the first ones.
const MANY_DESCRIPTORS: &str = "
import collections, os, socket, sys, time
processes, descriptors = int(sys.argv[1]), int(sys.argv[2])
for _ in range(processes):
    if os.fork() == 0:
        held = [os.dup(0) for _ in range(descriptors)]
        print('held', flush=True)
        time.sleep(600)
        os._exit(0)
sys.stdin.readline()
answers = collections.Counter()
while True:
    peer = socket.create_connection(('127.0.0.1', 3128))
    peer.sendall(b'CONNECT own.test:18080 HTTP/1.1\\r\\nHost: own.test:18080\\r\\n\\r\\n')
    answers[peer.recv(100).split()[1].decode()] += 1
    peer.close()
    if answers.total() == 20:
        print('answers', dict(answers), 'of many', flush=True)
";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_descriptors_of_one_user_leave_another_users_programs_known() {
    if !is_root() {
        return skip("another user's gateway needs root");
    }
    const PROCESSES: usize = 3;
    const DESCRIPTORS: usize = 6_000;
    let fixture = Fixture::start();
    fixture.reload_with(&for_python());
    let hostile = Session::open_as(&fixture.gateway, 54_391).await;
    let other = Session::open_as(&fixture.gateway, 54_392).await;
    let arguments =
        ["-c".to_owned(), MANY_DESCRIPTORS.to_owned(), PROCESSES.to_string(), DESCRIPTORS.to_string()];
    let flood = fixture.command(&hostile, Network::Proxy, "python3").args(arguments).stdin().create().await;
    flood.until(&"held\n".repeat(PROCESSES)).await;
    flood.write(b"\n", crate::support::EndOfInput::NotYet).await.expect("it reads");
    // More than is looked at: its own connections are restricted.
    let text = flood.until("of many").await;
    assert!(text.contains("answers {'403': 20} of many"), "{text}");
    let command = fixture.command(&other, Network::Proxy, "python3");
    let arguments = ["-c".to_owned(), AFTER_MANY.to_owned(), "0".to_owned(), "40".to_owned()];
    let text = command.args(arguments).finish().await.text();
    assert_eq!(text.split_whitespace().last(), Some("40"), "{text}");
    assert_eq!(flood.get().await.expect("it is there").state(), TerminalState::Running, "all the time");
    hostile.close().await;
    other.close().await;
    fixture.gateway.stop();
}
