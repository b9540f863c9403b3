//! A client that has gone before its connection is looked at. The kernel says that the socket of nobody is root's.

use crate::support::lacks;
use std::{
    fs,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::json;

use crate::{
    exec_server::{
        peer::uri,
        socket::{ListeningServer, OPENING},
    },
    support::{self, Gateway, Process, eventually, is_root},
};

/// Sends an opening and messages, and leaves before anything is answered; with `stay` it waits for a file instead.
const CLIENT: &str = "import os, socket, sys, time\n\
    host, port = sys.argv[1].split(':')\n\
    line = socket.socket()\n\
    line.connect((host, int(port)))\n\
    sent = sys.argv[2].encode()\n\
    for text in sys.argv[4:]:\n    \
        text = text.encode()\n    \
        sent += bytes([0x81, 0x80 | 126]) + len(text).to_bytes(2, 'big') + bytes(4) + text\n\
    line.sendall(sent)\n\
    while sys.argv[3] != 'leave' and not os.path.exists(sys.argv[3]):\n    time.sleep(0.01)\n";

/// Whether a client's socket to this address has been closed, and counts as root's in the kernel's table.
fn is_roots(authority: &str) -> bool {
    let port: u16 = authority.split(':').nth(1).and_then(|port| port.parse().ok()).expect("a port");
    let table = fs::read_to_string("/proc/net/tcp").expect("the kernel has a table");
    table.lines().any(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        // FIN-WAIT-2, uid 0, and no inode.
        fields.len() > 9
            && fields[2].ends_with(&format!(":{port:04X}"))
            && fields[3] == "05"
            && fields[7] == "0"
    })
}

#[test]
fn a_client_of_another_user_that_has_gone_is_not_taken_for_root() {
    if lacks(&["python3"]) {
        return;
    }
    if !is_root() {
        return support::skip("only root can start a process of another user, and is taken for nobody");
    }
    let gateway = Gateway::start();
    let server = ListeningServer::start(&gateway, &[]);
    let opening = format!("GET /{} HTTP/1.1\r\nHost: {}\r\n{OPENING}\r\n", server.token(), server.authority);
    let send = |uid: &str, made: &str, leaves: bool| {
        let file = server.workspace.join(made);
        let params = json!({ "processId": "p", "argv": ["touch", made], "cwd": uri(&server.workspace), "env": {}, "tty": false });
        let messages = [
            json!({ "id": 1, "method": "initialize", "params": { "clientName": "x" } }),
            json!({ "method": "initialized" }),
            json!({ "id": 2, "method": "process/start", "params": params }),
        ];
        let mut client = Command::new("setpriv");
        client.args(["--reuid", uid, "--regid", uid, "--clear-groups", "/usr/bin/python3", "-c", CLIENT]);
        client.args([&server.authority, &opening]);
        client.arg(if leaves { "leave".into() } else { file.clone().into_os_string() });
        client.args(messages.map(|message| format!("{:<126}", message.to_string()))).stdin(Stdio::null());
        (client, file)
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    let signal = |signal| kill(Pid::from_raw(server.pid().cast_signed()), signal).expect("it is our child");
    // The server looks at the connection when the client has gone.
    let meanwhile = |client: &mut Command| {
        signal(Signal::SIGSTOP);
        while !Process::read(server.pid()).expect("it is our child").is_stopped() {}
        assert!(client.status().expect("setpriv starts").success());
        runtime.block_on(eventually("the kernel calls the client's socket root's", || {
            is_roots(&server.authority).then_some(())
        }));
        signal(Signal::SIGCONT);
    };
    let (mut client, file) = send("0", "stayed", false);
    assert!(client.status().expect("setpriv starts").success() && file.exists(), "these messages work");
    let (mut client, file) = send("54321", "gone", true);
    meanwhile(&mut client);
    // Connections are taken in the order in which they came.
    let (mut peer, _) = server.client();
    assert_eq!(peer.line("p", "exit 0").exit_code, 0);
    let deadline = Instant::now() + Duration::from_secs(2);
    while Instant::now() < deadline {
        assert!(!file.exists(), "a command of another user has run");
        std::thread::yield_now();
    }
    server.stop();
    gateway.stop();
}
