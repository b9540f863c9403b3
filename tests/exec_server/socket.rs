//! A server that listens, and a websocket to it whose opening is written out. Nothing here waits without a deadline.

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::{Shutdown, TcpStream},
    os::unix::fs::PermissionsExt,
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::Duration,
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio_tungstenite::tungstenite::{
    Error, Message, WebSocket,
    protocol::{CloseFrame, Role},
};

use super::peer::Peer;
use crate::support::Gateway;

/// How long anything may take on a loaded machine.
const TIMEOUT: Duration = Duration::from_secs(120);

/// A server that listens; ended with the test.
pub(crate) struct ListeningServer {
    child: Child,
    /// Where it listens: address and port.
    pub(crate) authority: String,
    pub(crate) token_file: PathBuf,
    pub(crate) workspace: PathBuf,
    _directory: TempDir,
}

impl ListeningServer {
    /// At a gateway, with more options.
    pub(crate) fn start(gateway: &Gateway, options: &[&str]) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        fs::set_permissions(&directory, fs::Permissions::from_mode(0o755)).expect("it is ours");
        let at = |name: &str| directory.path().canonicalize().expect("it is there").join(name);
        let (workspace, token_file) = (at("workspace"), at("token"));
        fs::create_dir(&workspace).expect("a workspace");
        let mut child = Command::new(env!("CARGO_BIN_EXE_provost"))
            .args(["exec-server", "--listen", "ws://127.0.0.1:0", "--token-file"])
            .arg(&token_file)
            .arg("--root")
            .arg(&workspace)
            .args(["--gateway", &format!("unix:{}", gateway.socket.display())])
            .args(options)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("provost can be started");
        let mut url = String::new();
        let stdout = child.stdout.take().expect("its stdout is piped");
        BufReader::new(stdout).read_line(&mut url).expect("it says its URL");
        let authority = url.trim().strip_prefix("ws://").and_then(|rest| rest.strip_suffix('/'));
        let authority = authority.expect("it is a URL without the token").to_owned();
        Self { child, authority, token_file, workspace, _directory: directory }
    }

    pub(crate) fn token(&self) -> String {
        fs::read_to_string(&self.token_file).expect("the token is there").trim().to_owned()
    }

    /// The status of the answer to a request for a websocket.
    pub(crate) fn ask(&self, path: &str, lines: &[&str]) -> u16 {
        ask(&self.authority, path, lines).0
    }

    /// A websocket with the token in its path.
    pub(crate) fn connect(&self) -> Socket {
        Socket::open(&self.authority, &format!("/{}", self.token()))
    }

    /// A client on a websocket, which has said nothing.
    pub(crate) fn newcomer(&self) -> Peer {
        Peer::over(self.connect(), self.workspace.clone())
    }

    /// A client that has done the handshake, and the id of its session.
    pub(crate) fn client(&self) -> (Peer, String) {
        let mut peer = self.newcomer();
        let opened = peer.result("initialize", json!({ "clientName": "tester" }));
        peer.send(&json!({ "method": "initialized" }));
        (peer, opened["sessionId"].as_str().expect("a text").to_owned())
    }

    /// A client that comes back to its session. The server may learn later than the client that the connection broke.
    pub(crate) fn returning(&self, session: &str) -> Peer {
        loop {
            let mut peer = self.newcomer();
            let asked = json!({ "clientName": "tester", "resumeSessionId": session });
            let answer = peer.ask("initialize", asked);
            if answer["error"]["code"] == -32_010 {
                continue;
            }
            assert_eq!(answer["result"]["sessionId"], session, "{answer}");
            peer.send(&json!({ "method": "initialized" }));
            return peer;
        }
    }

    /// A connection on which nothing was said.
    pub(crate) fn connection(&self) -> TcpStream {
        connection(&self.authority)
    }

    /// Its process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Tells it to end.
    pub(crate) fn terminate(&self) {
        kill(Pid::from_raw(self.child.id().cast_signed()), Signal::SIGTERM).expect("it is our child");
    }

    /// Tells it to end, and waits.
    pub(crate) fn stop(mut self) {
        self.terminate();
        assert!(self.child.wait().expect("it is our child").success());
    }
}

impl Drop for ListeningServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The status of the answer to a request for a websocket, and the connection.
fn ask(authority: &str, path: &str, lines: &[&str]) -> (u16, TcpStream) {
    let mut stream = connection(authority);
    let head = format!("GET {path} HTTP/1.1\r\n{}\r\n{OPENING}\r\n", lines.join("\r\n"));
    let _ = stream.write_all(head.as_bytes());
    (answered(&mut stream), stream)
}

fn connection(authority: &str) -> TcpStream {
    let stream = TcpStream::connect(authority).expect("the server listens");
    stream.set_read_timeout(Some(TIMEOUT)).expect("a time can be set");
    stream.set_write_timeout(Some(TIMEOUT)).expect("a time can be set");
    stream
}

/// The status of the answer that comes on a connection; 0: it is closed without one.
pub(crate) fn answered(stream: &mut TcpStream) -> u16 {
    let (mut answer, mut byte) = (Vec::new(), [0]);
    // Byte by byte: what comes after the head is the websocket's.
    while !answer.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|read| read == 1) {
        answer.push(byte[0]);
    }
    let answer = String::from_utf8(answer).expect("a head is text");
    let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or_default();
    if status == 101 {
        let accept = "sec-websocket-accept: s3pplmbitxaq9kygzzhzrbk+xoo=";
        assert!(answer.to_ascii_lowercase().contains(accept), "{answer}");
    }
    status
}

/// With the key of the RFC's example.
pub(crate) const OPENING: &str = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
                       Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";

/// A websocket.
pub(crate) struct Socket(WebSocket<TcpStream>);

impl Socket {
    /// A websocket to this address, with this path.
    pub(crate) fn open(authority: &str, path: &str) -> Self {
        let (status, stream) = ask(authority, path, &[&format!("Host: {authority}")]);
        assert_eq!(status, 101);
        Self::on(stream)
    }

    /// The websocket of a connection that has become one.
    pub(crate) fn on(stream: TcpStream) -> Self {
        Self(WebSocket::from_raw_socket(stream, Role::Client, None))
    }

    /// The connection below it.
    pub(crate) fn connection(&self) -> &TcpStream {
        self.0.get_ref()
    }

    /// The next message. Pings are answered on the way.
    pub(crate) fn receive(&mut self) -> Value {
        loop {
            match self.read() {
                Message::Text(text) => return serde_json::from_str(&text).expect("messages are JSON"),
                Message::Ping(_) => self.0.flush().expect("the server reads"),
                Message::Pong(_) => {}
                other => panic!("no message of the protocol: {other:?}"),
            }
        }
    }

    /// A read with a time limit is interrupted by every signal, such as that of a child's end (signal(7)).
    fn read(&mut self) -> Message {
        loop {
            match self.0.read() {
                Err(Error::Io(error)) if error.kind() == std::io::ErrorKind::Interrupted => {}
                read => return read.expect("the server sends something"),
            }
        }
    }

    pub(crate) fn send(&mut self, text: &str) {
        self.0.send(Message::text(text)).expect("the server reads");
    }

    /// Sends what the server may not want to read.
    pub(crate) fn try_send(&mut self, text: String) {
        let _ = self.0.send(Message::text(text));
    }

    /// Why the server closes the connection.
    pub(crate) fn closed(&mut self) -> CloseFrame {
        loop {
            match self.read() {
                Message::Close(frame) => return frame.expect("it has a code"),
                Message::Text(_) | Message::Ping(_) | Message::Pong(_) => {}
                other => panic!("no close: {other:?}"),
            }
        }
    }

    /// The connection breaks: nothing is said about it.
    pub(crate) fn break_off(&mut self) {
        self.0.get_ref().shutdown(Shutdown::Both).expect("it is connected");
    }
}
