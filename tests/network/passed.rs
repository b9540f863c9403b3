//! Sockets that were open before: a caller's own are not inside, and another session's are not reached.

use std::{
    net::TcpStream,
    os::fd::OwnedFd,
    process::{Command, Stdio},
};

use provost::proto::v1::Network;

use crate::{
    fixture::Fixture,
    support::{EndOfInput, Session},
};

/// Uses the socket at descriptor 0 or 9, as a program that was handed it.
const USE: &str = "import socket, sys\n\
    for number in (0, 9):\n    \
    try:\n        \
    peer = socket.socket(fileno=number)\n        \
    peer.sendall(b'GET / HTTP/1.1\\r\\nHost: x\\r\\nConnection: close\\r\\n\\r\\n')\n        \
    print(peer.makefile().read())\n    \
    except OSError as error:\n        \
    print(type(error).__name__)\n";

/// A process of the host, or `provost run`, with a connection to the server as its input and as descriptor 9.
fn with_a_connection(fixture: &Fixture, program: &[&str]) -> String {
    let connect = || {
        let stream = TcpStream::connect((fixture.address.as_str(), 18_080)).expect("the server listens");
        Stdio::from(OwnedFd::from(stream))
    };
    // The shell makes descriptor 9 of its own output, which is another connection.
    let output = Command::new("sh")
        .args(["-c", "exec 9<&0 \"$@\"", "sh"])
        .args(program)
        .current_dir(fixture.directory.path())
        .stdin(connect())
        .output()
        .expect("sh can be started");
    String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_the_caller_has_open_is_not_inside() {
    let fixture = Fixture::start();
    let outside = with_a_connection(&fixture, &["python3", "-c", USE]);
    assert!(outside.contains("SERVED"), "a process of the host can use it: {outside}");
    let gateway = format!("unix:{}", fixture.gateway.socket.display());
    let workspace = tempfile::tempdir().expect("a directory");
    let run = [
        env!("CARGO_BIN_EXE_provost"),
        "run",
        "--gateway",
        &gateway,
        "--root",
        workspace.path().to_str().expect("its path is text"),
        "--network",
        "proxy",
        "--",
        "python3",
        "-c",
        USE,
    ];
    let inside = with_a_connection(&fixture, &run);
    assert!(!inside.contains("SERVED") && inside.contains("OSError"), "{inside}");
    fixture.gateway.stop();
}

/// Has a connection to the server, and gives it to each process that asks, at every kind of socket that another session could find.
const HOLDER: &str = "import socket, sys, threading\n\
    def give(listener):\n    \
    while True:\n        \
    peer, _ = listener.accept()\n        \
    held = socket.create_connection((sys.argv[1], 18080))\n        \
    socket.send_fds(peer, [b'x'], [held.fileno()])\n\
    for name in ('\\0provost-held-' + sys.argv[1], '/tmp/held.sock', sys.argv[2] + '/held.sock'):\n    \
    listener = socket.socket(socket.AF_UNIX)\n    \
    listener.bind(name)\n    \
    listener.listen()\n    \
    threading.Thread(target=give, args=(listener,), daemon=True).start()\n\
    print('up', flush=True)\n\
    sys.stdin.read()\n";

/// Asks for it at each of them, and uses it.
const ASKER: &str = "import socket, sys\n\
    for name in ('\\0provost-held-' + sys.argv[1], '/tmp/held.sock', sys.argv[2] + '/held.sock'):\n    \
    try:\n        \
    peer = socket.socket(socket.AF_UNIX)\n        \
    peer.connect(name)\n        \
    held = socket.socket(fileno=socket.recv_fds(peer, 1, 1)[1][0])\n        \
    held.sendall(b'GET / HTTP/1.1\\r\\nHost: x\\r\\nConnection: close\\r\\n\\r\\n')\n        \
    print('SERVED' if 'SERVED' in held.makefile().read() else 'not served')\n    \
    except OSError as error:\n        \
    print(type(error).__name__)\n";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_session_is_handed_a_connection_by_another() {
    let fixture = Fixture::start();
    let (one, other) = (Session::open(&fixture.gateway).await, Session::open(&fixture.gateway).await);
    let workspace = one.workspace.to_string_lossy().into_owned();
    let python = |session: &Session, network, script: &str| {
        let arguments = ["-c".to_owned(), script.to_owned(), fixture.address.clone(), workspace.clone()];
        fixture.command(session, network, "python3").args(arguments)
    };
    let holder = python(&one, Network::Host, HOLDER).stdin().create().await;
    holder.until("up").await;
    // Within the session that has the host's network it works, each way.
    let own = python(&one, Network::Host, ASKER).finish().await.text();
    assert_eq!(own, "SERVED\nSERVED\nSERVED\n");
    let text = python(&other, Network::Proxy, ASKER).finish().await.text();
    assert!(!text.contains("SERVED") && text.lines().count() == 3, "{text}");
    holder.write(b"", EndOfInput::After).await.expect("it reads");
    holder.wait().await;
    one.close().await;
    other.close().await;
    fixture.gateway.stop();
}
