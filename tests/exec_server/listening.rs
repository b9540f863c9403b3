//! `provost exec-server --listen`: who is served and who is refused, and that each client has a session of its own.

use crate::support::lacks;
use std::{
    fs,
    os::unix::fs::PermissionsExt,
    process::{Command, Stdio},
};

use serde_json::json;

use crate::{
    exec_server::socket::ListeningServer,
    support::{self, Gateway, is_root, mark, wait_for_sleepers},
};

#[test]
fn clients_with_the_token_run_commands_in_sessions_of_their_own_which_end_with_the_server() {
    let gateway = Gateway::start();
    let server = ListeningServer::start(&gateway, &[]);
    assert_eq!(fs::metadata(&server.token_file).expect("it is there").permissions().mode() & 0o777, 0o600);
    let ((mut one, first), (mut other, second)) = (server.client(), server.client());
    assert_ne!(first, second);
    let ran =
        one.line("p", "grep Seccomp: /proc/self/status; echo one >/tmp/own; echo made >file; pwd; exit 3");
    assert_eq!(ran.stdout, format!("Seccomp:\t2\n{}\n", server.workspace.display()), "{ran:?}");
    assert!(ran.exit_code == 3 && server.workspace.join("file").exists(), "{ran:?}");
    // Names of processes and /tmp are the session's.
    let ran = other.line("p", "cat file; ls /tmp/own");
    assert!(ran.stdout == "made\n" && ran.exit_code != 0, "{ran:?}");
    let mark = mark();
    let params = other.command("long", &["sh", "-c", &format!("setsid sleep {mark} & sleep {mark}")]);
    other.result("process/start", params);
    wait_for_sleepers(&mark, 2);
    server.terminate();
    assert_eq!(u16::from(other.socket().closed().code), 1001, "the client is told");
    server.stop();
    wait_for_sleepers(&mark, 0);
    gateway.stop();
}

#[test]
fn without_the_token_with_another_host_or_from_another_origin_no_websocket_is_opened() {
    if lacks(&["python3"]) {
        return;
    }
    let gateway = Gateway::start();
    let server = ListeningServer::start(&gateway, &[]);
    let (host, token) = (format!("Host: {}", server.authority), server.token());
    let (bearer, path) = (format!("Authorization: Bearer {token}"), format!("/{token}"));
    let own = format!("Origin: http://{}", server.authority);
    assert_eq!(server.ask(&path, &[&host]), 101, "the same with nothing wrong is served");
    assert_eq!(server.ask("/", &[&host, &bearer]), 101, "by the header, too");
    assert_eq!(server.ask(&path, &[&host, &own]), 101);
    let (short, wrong) = (format!("/{}", &token[1..]), format!("Authorization: Bearer {}", &token[1..]));
    for (path, lines) in [
        ("/", &[&host[..]][..]),
        (&short, &[&host]),
        (&format!("{path}/"), &[&host]),
        (&format!("/?{token}"), &[&host]),
        ("/", &[&host, &wrong]),
        ("/", &[&host, &format!("Authorization: Basic {token}")]),
        // One of two that is wrong is wrong.
        (&path, &[&host, &wrong]),
    ] {
        assert_eq!(server.ask(path, lines), 401, "{path} {lines:?}");
    }
    let port = server.authority.split(':').nth(1).expect("a port");
    let rebound = format!("Host: attacker.example:{port}");
    for (lines, status) in [
        (&[&rebound[..]][..], 421),
        (&["Host: 127.0.0.1:1"], 421),
        (&[&host, &rebound], 421),
        (&[&host, "Origin: https://attacker.example"], 403),
        (&[&host, "Origin: http://127.0.0.1:1"], 403),
        (&[&host, "Origin: null"], 403),
    ] {
        assert_eq!(server.ask(&path, lines), status, "{lines:?}");
    }
    let plain = Command::new("python3")
        .args([
            "-c",
            "import http.client, sys\nline = http.client.HTTPConnection(sys.argv[1], timeout=60)\n\
               line.request('GET', sys.argv[2])\nprint(line.getresponse().status)",
        ])
        .args([&server.authority, &path])
        .output()
        .expect("Python is there");
    assert_eq!(String::from_utf8_lossy(&plain.stdout).trim(), "426", "no websocket is asked for");
    server.stop();
    gateway.stop();
}

#[test]
fn another_user_is_refused_even_with_the_token() {
    if lacks(&["python3"]) {
        return;
    }
    if !is_root() {
        return support::skip("only root can start a process of another user");
    }
    let gateway = Gateway::start();
    let server = ListeningServer::start(&gateway, &[]);
    let script = "import http.client, sys\n\
                  line = http.client.HTTPConnection(sys.argv[1], timeout=60)\n\
                  try:\n  line.request('GET', '/' + sys.argv[2], None, {'Connection': 'Upgrade', 'Upgrade': 'websocket',\n\
                  'Sec-WebSocket-Version': '13', 'Sec-WebSocket-Key': 'dGhlIHNhbXBsZSBub25jZQ=='})\n\
                  \x20 print(line.getresponse().status)\n\
                  except (OSError, http.client.HTTPException): print('closed')";
    let ask = |uid: &str| {
        let mut python = Command::new("setpriv");
        python.args(["--reuid", uid, "--regid", uid, "--clear-groups", "/usr/bin/python3", "-c", script]);
        let output = python.args([&server.authority, &server.token()]).output();
        String::from_utf8_lossy(&output.expect("setpriv starts").stdout).trim().to_owned()
    };
    assert_eq!(ask("0"), "101", "the same as this user is served");
    assert_eq!(ask("54321"), "closed");
    let read = Command::new("setpriv")
        .args(["--reuid", "54321", "--regid", "54321", "--clear-groups", "cat"])
        .arg(&server.token_file)
        .stderr(Stdio::null())
        .status();
    assert!(!read.expect("setpriv starts").success(), "nor can it read the token");
    server.stop();
    gateway.stop();
}

#[test]
fn an_address_that_others_reach_and_a_token_that_others_read_are_refused() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let token = directory.path().join("token");
    fs::write(&token, "a-token-that-others-can-read-0123456789").expect("a file can be written");
    fs::set_permissions(&token, fs::Permissions::from_mode(0o644)).expect("it is ours");
    let (fresh, workspace) = (directory.path().join("fresh"), directory.path().join("workspace"));
    fs::create_dir(&workspace).expect("a workspace");
    let (open, within) = (directory.path().join("open"), workspace.join("token"));
    fs::create_dir(&open).expect("a directory");
    fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).expect("it is ours");
    let replaceable = open.join("token");
    for (url, file, said) in [
        ("ws://0.0.0.0:0", &fresh, "not a loopback address"),
        ("ws://127.0.0.1:0", &token, "0600"),
        ("ws://127.0.0.1:0", &replaceable, "others can replace it"),
        ("ws://127.0.0.1:0", &within, "commands could read"),
        ("wss://127.0.0.1:0", &fresh, "ws://IP:PORT"),
        ("ws://localhost:0", &fresh, "ws://IP:PORT"),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_provost"))
            .args(["exec-server", "--listen", url, "--token-file"])
            .arg(file)
            .current_dir(&workspace)
            .env("XDG_RUNTIME_DIR", directory.path())
            .env_remove("PROVOST_GATEWAY")
            .stdin(Stdio::null())
            .output()
            .expect("provost can be started");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(125) && stderr.contains(said), "{url}: {stderr}");
    }
}

#[test]
fn a_message_that_is_too_long_closes_the_connection_with_the_reason_and_the_session_can_be_resumed() {
    let gateway = Gateway::start();
    let server = ListeningServer::start(&gateway, &[]);
    let (mut peer, session) = server.client();
    let params = peer.command("p", &["sh", "-c", "until [ -e go ]; do sleep 0.05; done; echo after"]);
    peer.result("process/start", params);
    peer.socket().try_send("x".repeat(18 << 20));
    let closed = peer.socket().closed();
    assert!(u16::from(closed.code) == 1009 && closed.reason.contains("at most"), "{closed:?}");
    drop(peer);
    let mut peer = server.returning(&session);
    fs::write(server.workspace.join("go"), "").expect("the workspace is ours");
    let ended = peer.ended("p");
    assert_eq!((ended.exit_code, ended.stdout.as_str()), (0, "after\n"), "{ended:?}");
    // What is no message costs itself alone.
    peer.send_line("no JSON");
    assert_eq!(peer.stray()["error"]["data"]["reason"], "BAD_MESSAGE");
    assert_eq!(peer.result("environment/status", json!({}))["status"], "ready");
    server.stop();
    gateway.stop();
}
