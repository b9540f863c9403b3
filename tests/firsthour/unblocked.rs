//! Streams that the caller has switched to not blocking, as asynchronous parents do, lose nothing: those of a command, of a conversation,
//! and those that show what a terminal holds.

use std::{
    ffi::OsString,
    io::{BufRead, BufReader, Read, Write},
    net::Shutdown,
    os::{fd::OwnedFd, unix::net::UnixStream},
    process::{Child, Command, Stdio},
    time::Duration,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use nix::sys::socket::{setsockopt, sockopt};
use serde_json::{Value, json};

use crate::firsthour::{
    front_ends::{Desk, FrontEnd, Owner},
    person::Person,
};

/// More than any buffer on the way holds.
const LENGTH: usize = 300 << 10;
/// A command that prints that much and more.
const PRINT: &str = "seq 60000";
/// What each end holds unread, as the kernel rounds it.
const BUFFER_BYTES: usize = 4_096;
const DEADLINE: Duration = Duration::from_secs(120);

/// A process whose stdin and stdout do not block and hold little; ended with the test.
struct Unblocked {
    child: Child,
    to: UnixStream,
    from: BufReader<UnixStream>,
}

impl Unblocked {
    fn start(mut command: Command) -> Self {
        let ends = || {
            let (ours, theirs) = UnixStream::pair().expect("a pair can be made");
            theirs.set_nonblocking(true).expect("it is ours");
            for end in [&ours, &theirs] {
                setsockopt(end, sockopt::SndBuf, &BUFFER_BYTES).expect("it is a socket");
            }
            ours.set_read_timeout(Some(DEADLINE)).expect("it is ours");
            ours.set_write_timeout(Some(DEADLINE)).expect("it is ours");
            (ours, OwnedFd::from(theirs))
        };
        let ((to, stdin), (from, stdout)) = (ends(), ends());
        let child = command.stdin(stdin).stdout(stdout).stderr(Stdio::inherit()).spawn();
        Self { child: child.expect("provost starts"), to, from: BufReader::new(from) }
    }

    /// Sends a message, while nothing is read.
    fn send(&self, message: &Value) {
        (&self.to).write_all(format!("{message}\n").as_bytes()).expect("the server reads");
    }

    fn receive(&mut self) -> Value {
        let mut line = String::new();
        self.from.read_line(&mut line).expect("the server writes");
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {} bytes", line.len()))
    }

    /// The answer to the request of this id.
    fn answer(&mut self, id: u64) -> Value {
        loop {
            let message = self.receive();
            if message["id"] == id {
                return message;
            }
        }
    }

    fn ask(&mut self, id: u64, method: &str, params: Value) -> Value {
        self.send(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }));
        self.answer(id)
    }

    /// All that comes to the end, which must be good.
    fn finish(mut self) -> Vec<u8> {
        self.to.shutdown(Shutdown::Write).expect("it is open");
        let mut rest = Vec::new();
        self.from.read_to_end(&mut rest).expect("it can be read");
        let status = self.child.wait().expect("it is our child");
        assert!(status.success(), "{status}");
        rest
    }
}

impl Drop for Unblocked {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

const POLICY: &str = "default_profile = 'p'\n[profile.p.limits]\nrequirement = 'prefer'\n\
    [[rule]]\nid = 'all'\ndecision = 'allow'\nargv = ['**']\n";

fn printed() -> String {
    (1..=60_000).map(|number| format!("{number}\n")).collect()
}

fn long_text() -> String {
    "a long text, ".repeat(LENGTH.div_ceil(13))
}

fn logs_lose_nothing(desk: &Desk) {
    let started = desk.by_gateway("provost", &["run", "-d", "--", "sh", "-c", PRINT]).output();
    let started = started.expect("provost starts");
    assert!(started.status.success(), "{}", crate::firsthour::walk::shown(&started));
    let terminal = String::from_utf8_lossy(&started.stdout).trim().to_owned();
    let logs = Unblocked::start(desk.by_gateway("provost", &["logs", "-f", &terminal]));
    assert!(logs.finish() == printed().as_bytes(), "something of the output is lost");
}

fn mcp_loses_nothing(desk: &Desk) {
    let mut mcp = Unblocked::start(desk.by_gateway("provost", &["mcp"]));
    let client = json!({ "name": "tester", "version": "1" });
    let hello = json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client });
    mcp.ask(1, "initialize", hello);
    mcp.send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
    let counted = json!({ "name": "run_command", "arguments": { "command": "wc -c", "stdin": long_text() } });
    let counted = mcp.ask(2, "tools/call", counted);
    let text = counted["result"]["content"][0]["text"].as_str().expect("a text");
    assert!(text.contains(&format!("\n{}\n", long_text().len())), "{text}");
    let ran = mcp.ask(3, "tools/call", json!({ "name": "run_command", "arguments": { "command": PRINT } }));
    let id = &ran["result"]["_meta"]["provost"]["id"];
    let mut all = String::new();
    while all.len() < printed().len() {
        let read = json!({ "id": id, "offset": all.len(), "max_bytes": 200_000 });
        let read = mcp.ask(4, "tools/call", json!({ "name": "read_output", "arguments": read }));
        let text = read["result"]["content"][0]["text"].as_str().expect("a text");
        let next = usize::try_from(read["result"]["_meta"]["provost"]["next_offset"].as_u64().unwrap_or(0));
        let next = next.expect("it fits");
        assert!(next > all.len(), "{read}");
        let from = &printed()[all.len()..next];
        assert!(text.contains(from), "something of an answer is lost");
        all.push_str(from);
    }
    mcp.finish();
}

fn exec_server_loses_nothing(desk: &Desk) {
    let mut server = Unblocked::start(desk.by_gateway("provost", &["exec-server"]));
    server.ask(1, "initialize", json!({ "clientName": "tester" }));
    server.send(&json!({ "method": "initialized" }));
    let cwd = format!("file://{}", desk.named.display());
    let start = json!({
        "processId": "p", "argv": ["sh", "-c", format!("head -c {LENGTH} | wc -c; {PRINT}")], "cwd": cwd,
        "env": {}, "tty": false, "pipeStdin": true, "arg0": null,
    });
    let started = server.ask(2, "process/start", start);
    assert!(started["error"].is_null(), "{started}");
    let chunk = STANDARD.encode(&long_text()[..LENGTH]);
    server
        .send(&json!({ "id": 3, "method": "process/write", "params": { "processId": "p", "chunk": chunk } }));
    let mut output = Vec::new();
    loop {
        let message = server.receive();
        match message["method"].as_str() {
            Some("process/output") => {
                let chunk = message["params"]["chunk"].as_str().expect("a text");
                output.extend(STANDARD.decode(chunk).expect("it is base64"));
            }
            Some("process/closed") => break,
            _ => {}
        }
    }
    assert!(output == format!("{LENGTH}\n{}", printed()).as_bytes(), "{} bytes", output.len());
    server.finish();
}

/// The agent sends back what its editor sends.
fn acp_loses_nothing(desk: &Desk) {
    let mut acp = Unblocked::start(desk.by_gateway("provost", &["acp", "--", "/bin/cat"]));
    let told = json!({ "jsonrpc": "2.0", "method": "_told", "params": { "text": long_text() } });
    for _ in 0..2 {
        acp.send(&told);
        assert!(acp.receive() == told, "something of a message is lost");
    }
    acp.finish();
}

/// A command's own streams.
fn commands_lose_nothing(desk: &Desk) {
    for front_end in [FrontEnd::Run, FrontEnd::RunByGateway, FrontEnd::Exec, FrontEnd::Shell] {
        let seat = desk.seat(front_end).expect("it takes nothing more");
        // When it has started it reads, so that neither waits for the other.
        let words = ["sh", "-c", "echo ready; cat"].map(OsString::from);
        let mut copies = Unblocked::start(seat.command_line(&words).expect("it is one"));
        let mut line = String::new();
        copies.from.read_line(&mut line).expect("it can be read");
        assert_eq!(line, "ready\n", "{front_end:?}");
        let mut to = copies.to.try_clone().expect("it can be copied");
        let feeder = std::thread::spawn(move || {
            to.write_all(long_text().as_bytes()).expect("it is read");
            to.shutdown(Shutdown::Write).expect("it is open");
        });
        let mut all = Vec::new();
        copies.from.read_to_end(&mut all).expect("it can be read");
        feeder.join().expect("all was read");
        assert!(all == long_text().as_bytes(), "{front_end:?}: {} bytes", all.len());
        assert!(copies.child.wait().expect("it is our child").success(), "{front_end:?}");
    }
}

fn loses_nothing(person: Person) {
    let desk = Desk::new(person, Owner::Person, "true", POLICY);
    commands_lose_nothing(&desk);
    logs_lose_nothing(&desk);
    mcp_loses_nothing(&desk);
    exec_server_loses_nothing(&desk);
    acp_loses_nothing(&desk);
}

#[test]
fn conversations_on_streams_that_do_not_block_lose_nothing() {
    Person::root().into_iter().for_each(loses_nothing);
}

#[test]
fn conversations_of_an_ordinary_user_on_streams_that_do_not_block_lose_nothing() {
    Person::ordinary().into_iter().for_each(loses_nothing);
}
