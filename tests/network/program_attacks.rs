//! Attacks on rules by program: who hides that it has a connection, or looks like a program that may have it.

use std::fs;

use provost::proto::v1::Network;

use crate::{
    fixture::Fixture,
    programs::file_of,
    sockets::{Sockets, let_in},
    support::{EndOfInput, Session, code, is_root, skip},
};

const SCRIPT: &str = include_str!("program_attacks.py");

/// What a sandbox may refuse altogether.
const MAY_NOT_RUN: [&str; 3] = ["a copy in memory", "MPTCP", "IPv6"];

fn rule(program: &str) -> String {
    format!(
        "[[connect]]\nid = 'own'\ndecision = 'allow'\nhost = ['own.test']\naddress = ['127.83.0.0/16']\n\
         port = [18080]\n{program}"
    )
}

/// The name of each attack, and what came of it.
async fn attacks(fixture: &Fixture, session: &Session) -> Vec<(String, String)> {
    fs::write(session.workspace.join("attacks.py"), SCRIPT).expect("a file");
    let done = fixture.command(session, Network::Proxy, "python3").args(["attacks.py"]).finish().await;
    let text = done.text();
    let pair = |line: &str| line.split_once(": ").map(|(name, what)| (name.to_owned(), what.to_owned()));
    let pairs: Vec<_> = text.lines().filter_map(pair).collect();
    assert_eq!(pairs.len(), 11, "{text}");
    pairs
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_program_has_the_connection_of_another_one_by_hiding_or_by_its_looks() {
    if !is_root() {
        return skip("without a cgroup the processes of a sandbox are not known");
    }
    let fixture = Fixture::start();
    let session = Session::open(&fixture.gateway).await;
    let policy = fixture.policy_text();
    // Where the rule names no program, all of them reach the host.
    fixture.reload(&format!("{policy}\n{}", rule("")));
    for (name, what) in attacks(&fixture, &session).await {
        // What cannot be run at all is no attack.
        assert!(
            what == "200" || (what.starts_with("not run") && MAY_NOT_RUN.contains(&name.as_str())),
            "{name}: {what}"
        );
    }
    let program = format!("program = ['{}']\n", file_of("curl"));
    fixture.reload(&format!("{policy}\n{}", rule(&program)));
    for (name, what) in attacks(&fixture, &session).await {
        match name.as_str() {
            "allowed" => assert_eq!(what, "200"),
            _ => assert!(what == "403" || what.starts_with("not run"), "{name}: {what}"),
        }
    }
    session.close().await;
    fixture.gateway.stop();
}

/// Connects to the socket, gives the connection to a child, and becomes a program that has only another socket.
const GIVEN_AWAY: &str = "
import os, socket, sys
connection = socket.socket(socket.AF_UNIX)
connection.settimeout(30)
connection.connect('/run/host/open')
def served():
    try:
        connection.sendall(b'who\\n')
        return 'served' if connection.recv(4096).startswith(b'SERVED') else 'closed'
    except OSError:
        return 'closed'
print('first', served(), flush=True)
kept, gone = socket.socketpair()
kept.set_inheritable(True)
if os.fork():
    connection.close()
    gone.close()
    os.dup2(os.open('/dev/null', os.O_RDONLY), 0)
    os.execv(sys.argv[1], ['sleep', '600'])
kept.close()
gone.close()
sys.stdin.readline()
print('then', served(), flush=True)
os.kill(os.getppid(), 15)
";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_to_a_socket_is_that_of_all_its_holders() {
    if !is_root() {
        return skip("without a cgroup the processes of a sandbox are not known");
    }
    let fixture = Fixture::start();
    let sockets = Sockets::start(&["open.sock"]);
    let open = sockets.at("open.sock");
    let rule = |programs: &str| {
        format!("[[connect]]\nid = 'open'\ndecision = 'allow'\nunix = ['{}']\n{programs}", open.display())
    };
    let mut policy: toml::Table = fixture.policy_text().parse().expect("it is TOML");
    let network = policy["profile"]["workspace"]["network"].as_table_mut().expect("a network");
    network.insert("on_reload".to_owned(), "close".into());
    fixture.reload(&toml::to_string(&policy).expect("it can be written"));
    let_in(&fixture, &[("open", &open)], "");
    let policy = fixture.policy_text();
    let session = Session::open(&fixture.gateway).await;
    let (sleep, python) = (file_of("sleep"), file_of("python3"));
    for (programs, then) in [
        (format!("program = ['{python}']\n"), "then served"),
        (format!("program = ['{sleep}']\n"), "then closed"),
    ] {
        fixture.reload(&format!("{policy}\n{}", rule("")));
        let command = fixture.command(&session, Network::Proxy, "python3").args(["-c", GIVEN_AWAY, &sleep]);
        let terminal = command.stdin().create().await;
        terminal.until("first served").await;
        // It has become the other program when that shows.
        wait_for_sleep(&fixture, &session).await;
        fixture.reload(&format!("{policy}\n{}", rule(&programs)));
        if then == "then closed" {
            crate::support::eventually("the connection is closed", || {
                let ended = fixture.records("connection_ended");
                ended.into_iter().find(|one| {
                    one["failure"].as_str().is_some_and(|failure| failure.starts_with("closed by rule"))
                })
            })
            .await;
        }
        terminal.write(b"\n", EndOfInput::After).await.expect("it reads");
        terminal.until(then).await;
        terminal.wait().await;
        terminal.release().await;
    }
    session.close().await;
    fixture.gateway.stop();
}

/// Waits until a process of the session is the other program.
async fn wait_for_sleep(fixture: &Fixture, session: &Session) {
    let line = "until grep -qs '^sleep$' /proc/[0-9]*/comm; do :; done";
    let done = fixture.command(session, Network::Proxy, "bash").args(["-c", line]).finish().await;
    assert_eq!(code(&done.outcome), 0, "{}", done.text());
}
