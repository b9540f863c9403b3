//! `provost mcp --http`: who is served and who is refused, by requests written out.

use crate::support::lacks;
use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    os::unix::fs::PermissionsExt,
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::Arc,
    time::Duration,
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{self, Gateway, is_root};

/// How long anything may take on a loaded machine.
const TIMEOUT: Duration = Duration::from_secs(120);

/// A server on HTTP at a gateway of its own.
pub(crate) struct HttpServer {
    child: Child,
    /// Where it serves.
    pub(crate) url: String,
    /// Its token's file.
    pub(crate) token_file: PathBuf,
    /// The workspace.
    pub(crate) workspace: PathBuf,
    gateway: Arc<Gateway>,
    _directory: TempDir,
}

/// An answer: its status, its head, and its body as far as it came.
struct Answer {
    status: u16,
    head: String,
    body: String,
}

impl HttpServer {
    pub(crate) fn start(gateway: Arc<Gateway>) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        fs::set_permissions(&directory, fs::Permissions::from_mode(0o755)).expect("it is ours");
        let at = |name: &str| directory.path().canonicalize().expect("it is there").join(name);
        let (workspace, token_file) = (at("workspace"), at("token"));
        fs::create_dir(&workspace).expect("a workspace");
        let mut child = Command::new(env!("CARGO_BIN_EXE_provost"))
            .args(["mcp", "--http", "127.0.0.1:0", "--token-file"])
            .arg(&token_file)
            .arg("--root")
            .arg(&workspace)
            .args(["--gateway", &format!("unix:{}", gateway.socket.display())])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("provost can be started");
        let mut url = String::new();
        let stdout = child.stdout.take().expect("its stdout is piped");
        BufReader::new(stdout).read_line(&mut url).expect("it says its URL");
        Self { child, url: url.trim().to_owned(), token_file, workspace, gateway, _directory: directory }
    }

    fn token(&self) -> String {
        fs::read_to_string(&self.token_file).expect("the token is there").trim().to_owned()
    }

    fn authority(&self) -> &str {
        self.url.strip_prefix("http://").and_then(|rest| rest.split('/').next()).expect("an address")
    }

    /// A request with these lines in its head.
    fn ask(&self, path: &str, lines: &[&str], body: &Value) -> Answer {
        let mut stream = TcpStream::connect(self.authority()).expect("the server listens");
        stream.set_read_timeout(Some(TIMEOUT)).expect("a time can be set");
        let body = body.to_string();
        let head = format!(
            "POST {path} HTTP/1.1\r\n{}\r\nConnection: close\r\nContent-Type: application/json\r\n\
             Accept: application/json, text/event-stream\r\nContent-Length: {}\r\n\r\n{body}",
            lines.join("\r\n"),
            body.len()
        );
        let _ = stream.write_all(head.as_bytes());
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer);
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or_default();
        Answer { status, head: head.to_ascii_lowercase(), body: body.to_owned() }
    }

    /// Opens a session of the protocol with these lines in the head.
    fn initialize(&self, lines: &[&str]) -> Answer {
        self.ask("/mcp", lines, &initialize())
    }

    /// Tells it to end; all of its commands end with it.
    pub(crate) fn stop(mut self) {
        kill(Pid::from_raw(self.child.id().cast_signed()), Signal::SIGTERM).expect("it is our child");
        assert!(self.child.wait().expect("it is our child").success());
        self.gateway.stop();
    }
}

impl Drop for HttpServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn initialize() -> Value {
    json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": { "name": "tester", "version": "1" } } })
}

#[test]
fn a_client_with_the_token_runs_commands_and_they_end_with_the_server() {
    let server = HttpServer::start(Gateway::start());
    let (host, bearer) =
        (format!("Host: {}", server.authority()), format!("Authorization: Bearer {}", server.token()));
    assert_eq!(fs::metadata(&server.token_file).expect("it is there").permissions().mode() & 0o777, 0o600);
    let begun = server.initialize(&[&host, &bearer]);
    assert_eq!(begun.status, 200, "{} {}", begun.head, begun.body);
    let session =
        begun.head.lines().find(|line| line.starts_with("mcp-session-id:")).expect("a session").to_owned();
    let initialized = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
    assert_eq!(server.ask("/mcp", &[&host, &bearer, &session], &initialized).status, 202);
    let call = |command: &str| {
        let params = json!({ "name": "run_command", "arguments": { "command": command, "wait_seconds": 1 } });
        let call = json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params });
        server.ask("/mcp", &[&host, &bearer, &session], &call).body
    };
    let ran = call("grep Seccomp: /proc/self/status; pwd; echo made > file");
    assert!(ran.contains("exit code 0") && ran.contains("Seccomp:\\t2"), "{ran}");
    assert!(
        ran.contains(server.workspace.to_str().expect("UTF-8")) && server.workspace.join("file").exists(),
        "{ran}"
    );
    let mark = format!("8{:09}", std::process::id());
    assert!(call(&format!("exec sleep {mark}")).contains("still running"));
    server.stop();
    assert!(
        support::Process::all_marked(&mark)
            .iter()
            .all(|process| !process.command_line().starts_with("sleep"))
    );
}

#[test]
fn without_the_token_with_another_host_or_from_another_origin_nothing_is_answered() {
    let server = HttpServer::start(Gateway::start());
    let (host, token) = (format!("Host: {}", server.authority()), server.token());
    let bearer = format!("Authorization: Bearer {token}");
    assert_eq!(server.initialize(&[&host, &bearer]).status, 200, "the same with nothing wrong is served");
    let short = format!("Authorization: Bearer {}", &token[1..]);
    let basic = format!("Authorization: Basic {token}");
    for wrong in [
        &[&host[..]][..],
        &[&host, &short],
        &[&host, &basic],
        &[&host, "Authorization: Bearer"],
        // One of two that is wrong is wrong.
        &[&host, &bearer, &short],
    ] {
        let refused = server.initialize(wrong);
        assert_eq!(refused.status, 401, "{wrong:?}: {} {}", refused.head, refused.body);
        assert!(refused.head.contains("www-authenticate: bearer"), "{}", refused.head);
    }
    let port = server.authority().split(':').nth(1).expect("a port");
    let rebound = format!("Host: attacker.example:{port}");
    for wrong in [
        &[&rebound[..], &bearer][..],
        &["Host: attacker.example", &bearer],
        &["Host: 127.0.0.1:1", &bearer],
        &[&host, &rebound, &bearer],
        &[&host, &bearer, "Origin: https://attacker.example"],
        &[&host, &bearer, "Origin: http://127.0.0.1:1"],
        &[&host, &bearer, "Origin: null"],
    ] {
        let refused = server.initialize(wrong);
        assert!(matches!(refused.status, 403 | 421), "{wrong:?}: {} {}", refused.head, refused.body);
    }
    assert_eq!(server.ask("/", &[&host, &bearer], &initialize()).status, 404);
    server.stop();
}

#[test]
fn another_user_is_refused_even_with_the_token() {
    if lacks(&["python3"]) {
        return;
    }
    if !is_root() {
        return support::skip("only root can start a process of another user");
    }
    let server = HttpServer::start(Gateway::start());
    let script = "import http.client, json, sys\n\
                  head = {'Authorization': 'Bearer ' + sys.argv[2], 'Accept': 'application/json, text/event-stream',\n\
                  'Content-Type': 'application/json'}\n\
                  line = http.client.HTTPConnection(sys.argv[1], timeout=60)\n\
                  try:\n  line.request('POST', '/mcp', sys.argv[3], head)\n\
                  \x20 print(line.getresponse().status)\n\
                  except (OSError, http.client.HTTPException): print('closed')";
    let ask = |uid: &str| {
        let mut python = Command::new("setpriv");
        python.args(["--reuid", uid, "--regid", uid, "--clear-groups", "/usr/bin/python3", "-c", script]);
        let output = python.args([server.authority(), &server.token(), &initialize().to_string()]).output();
        String::from_utf8_lossy(&output.expect("setpriv starts").stdout).trim().to_owned()
    };
    assert_eq!(ask("0"), "200", "the same as this user is served");
    assert_eq!(ask("54321"), "closed");
    let read = Command::new("setpriv")
        .args(["--reuid", "54321", "--regid", "54321", "--clear-groups", "cat"])
        .arg(&server.token_file)
        .stderr(Stdio::null())
        .status();
    assert!(!read.expect("setpriv starts").success(), "nor can it read the token");
    server.stop();
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
    for (address, file, said) in [
        ("0.0.0.0:0", &fresh, "not a loopback address"),
        ("127.0.0.1:0", &token, "0600"),
        ("127.0.0.1:0", &replaceable, "others can replace it"),
        ("127.0.0.1:0", &within, "commands could read"),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_provost"))
            .args(["mcp", "--http", address, "--token-file"])
            .arg(file)
            .current_dir(&workspace)
            .env("XDG_RUNTIME_DIR", directory.path())
            .env_remove("PROVOST_GATEWAY")
            .stdin(Stdio::null())
            .output()
            .expect("provost can be started");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(125) && stderr.contains(said), "{stderr}");
    }
}
