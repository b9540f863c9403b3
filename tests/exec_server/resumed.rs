//! A websocket that breaks: the session stays for a while, a client that comes back gets every byte once, and nobody else gets anything.

use std::{
    collections::BTreeMap,
    fs, thread,
    time::{Duration, Instant},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};

use crate::{
    exec_server::{
        peer::{Peer, encoded, text},
        socket::ListeningServer,
    },
    support::{DEADLINE, Gateway, mark, wait_for_sleepers},
};

/// What a client has of a process: the bytes of each number, and the number of its end.
#[derive(Default)]
struct Received {
    pieces: BTreeMap<u64, Vec<u8>>,
    exit: Option<(u64, i64)>,
    closed: Option<u64>,
}

impl Received {
    /// Starts a shell line, and breaks the connection when this has come.
    fn until_cut_off(peer: &mut Peer, line: &str, written: &str) -> Self {
        let params = peer.command("p", &["sh", "-c", line]);
        peer.result("process/start", params);
        peer.until_written("p", written);
        let mut received = Self::default();
        received.take(peer);
        peer.socket().break_off();
        received
    }

    /// All that has come as notifications.
    fn take(&mut self, peer: &mut Peer) {
        for message in std::mem::take(&mut peer.seen) {
            self.notified(&message);
        }
    }

    fn notified(&mut self, message: &Value) {
        let params = &message["params"];
        let seq = params["seq"].as_u64().expect("a number");
        match message["method"].as_str().expect("a method") {
            "process/output" => self.piece(seq, &params["chunk"]),
            "process/exited" => self.exit = Some((seq, params["exitCode"].as_i64().expect("a number"))),
            _ => self.closed = Some(seq),
        }
    }

    fn piece(&mut self, seq: u64, chunk: &Value) {
        let bytes = STANDARD.decode(chunk.as_str().expect("a text")).expect("base64");
        let known = self.pieces.insert(seq, bytes.clone());
        assert!(known.is_none_or(|known| known == bytes), "a number stands for one piece");
    }

    /// The number up to which there is no gap.
    fn last(&self) -> u64 {
        self.pieces.keys().zip(1..).take_while(|(seq, expected)| *seq == expected).count() as u64
    }

    /// Reads what was missed, as a client does that comes back.
    fn catch_up(&mut self, peer: &mut Peer, name: &str) {
        let read = peer.result("process/read", json!({ "processId": name, "afterSeq": self.last() }));
        for chunk in read["chunks"].as_array().expect("a list") {
            self.piece(chunk["seq"].as_u64().expect("a number"), &chunk["chunk"]);
        }
        // What was written after the look can come before its answer.
        self.take(peer);
        let next = read["nextSeq"].as_u64().expect("a number");
        if read["closed"] == true {
            self.exit = Some((next - 2, read["exitCode"].as_i64().expect("a number")));
            self.closed = Some(next - 1);
        } else {
            assert!(self.last() + 1 >= next, "nothing is missing before {next}");
        }
    }

    /// Goes on to the end. All bytes, in order and once, and the exit code.
    fn finish(mut self, peer: &mut Peer) -> (Vec<u8>, i64) {
        self.take(peer);
        while self.closed.is_none() {
            let message = peer.socket().receive();
            self.notified(&message);
        }
        let (exited, code) = self.exit.expect("the exit comes before the close");
        assert_eq!((self.last() + 1, self.closed), (exited, Some(exited + 1)), "numbers have no gaps");
        (self.pieces.into_values().flatten().collect(), code)
    }
}

/// Numbers that show what is missing and what is there twice.
fn numbers(count: usize) -> Vec<u8> {
    (1..=count).flat_map(|number| format!("{number}\n").into_bytes()).collect()
}

#[test]
fn a_client_that_comes_back_has_every_byte_once_also_of_what_was_written_while_it_was_away() {
    const COUNT: usize = 700_000;
    let gateway = Gateway::start();
    let server = ListeningServer::start(&gateway, &[]);
    let (mut peer, session) = server.client();
    let line = format!("seq 1000; until [ -e go ]; do sleep 0.05; done; seq 1001 {COUNT}; exit 7");
    let mut received = Received::until_cut_off(&mut peer, &line, "1000\n");
    // More than is kept: the command has to wait for its client.
    fs::write(server.workspace.join("go"), "").expect("the workspace is ours");
    let mut peer = server.returning(&session);
    received.catch_up(&mut peer, "p");
    // In the middle of it, and with messages under way that nobody reads. What came before the answer was set aside.
    received.take(&mut peer);
    while received.last() < 20 {
        let message = peer.socket().receive();
        received.notified(&message);
    }
    peer.socket().break_off();
    drop(peer);
    let mut peer = server.returning(&session);
    received.catch_up(&mut peer, "p");
    let (bytes, code) = received.finish(&mut peer);
    assert!(bytes == numbers(COUNT), "{} of {} bytes", bytes.len(), numbers(COUNT).len());
    assert_eq!(code, 7);
    server.stop();
    gateway.stop();
}

#[test]
fn what_was_lost_with_a_connection_is_kept_although_the_client_has_what_came_later() {
    const LATER: usize = 400_000;
    let gateway = Gateway::start();
    let server = ListeningServer::start(&gateway, &[]);
    let (mut peer, session) = server.client();
    let wait = |name: &str| format!("until [ -e {name} ]; do sleep 0.05; done");
    let (lost, later) = (wait("lost"), wait("later"));
    let line = format!("echo 1; {lost}; seq 2 9000; touch gone; {later}; seq 9001 {LATER}; exit 7");
    let mut received = Received::until_cut_off(&mut peer, &line, "1\n");
    drop(peer);
    fs::write(server.workspace.join("lost"), "").expect("the workspace is ours");
    let begun = Instant::now();
    while !server.workspace.join("gone").exists() {
        assert!(begun.elapsed() < DEADLINE, "the command does not go on without a client");
        thread::sleep(Duration::from_millis(5));
    }
    let mut peer = server.returning(&session);
    fs::write(server.workspace.join("later"), "").expect("the workspace is ours");
    // More than is kept is told, and the client says that it has it, before it reads what was lost.
    let mut told = 0;
    while told < 3 << 19 {
        let message = peer.socket().receive();
        if message["method"] == "process/output" {
            told += text(&message["params"]["chunk"]).len();
        }
        received.notified(&message);
    }
    received.catch_up(&mut peer, "p");
    let (bytes, code) = received.finish(&mut peer);
    assert!(bytes == numbers(LATER), "{} of {} bytes", bytes.len(), numbers(LATER).len());
    assert_eq!(code, 7);
    server.stop();
    gateway.stop();
}

#[test]
fn a_process_that_ended_while_its_client_was_away_is_read_with_its_exit_code() {
    let gateway = Gateway::start();
    let server = ListeningServer::start(&gateway, &[]);
    let (mut peer, session) = server.client();
    let line = "echo before; until [ -e go ]; do sleep 0.05; done; echo after; touch gone; exit 5";
    let mut received = Received::until_cut_off(&mut peer, line, "before\n");
    drop(peer);
    fs::write(server.workspace.join("go"), "").expect("the workspace is ours");
    let mut peer = server.returning(&session);
    received.catch_up(&mut peer, "p");
    assert_eq!(received.finish(&mut peer), (b"before\nafter\n".to_vec(), 5));
    server.stop();
    gateway.stop();
}

#[test]
fn a_write_that_is_sent_again_after_the_connection_broke_is_done_once() {
    let gateway = Gateway::start();
    let server = ListeningServer::start(&gateway, &[]);
    let (mut peer, session) = server.client();
    let mut params = peer.command("cat", &["cat"]);
    params["pipeStdin"] = json!(true);
    peer.result("process/start", params);
    let write = |text: &str, name: &str| json!({ "processId": "cat", "chunk": encoded(text.as_bytes()), "writeId": name });
    assert_eq!(peer.result("process/write", write("one\n", "1"))["status"], "accepted");
    peer.until_written("cat", "one\n");
    let mut received = Received::default();
    received.take(&mut peer);
    peer.socket().break_off();
    drop(peer);
    let mut peer = server.returning(&session);
    received.catch_up(&mut peer, "cat");
    for (text, name) in [("one\n", "1"), ("two\n", "2"), ("two\n", "2"), ("two\n", "3")] {
        assert_eq!(peer.result("process/write", write(text, name))["status"], "accepted");
    }
    peer.until_written("cat", "two\ntwo\n");
    peer.result("process/signal", json!({ "processId": "cat", "signal": "interrupt" }));
    assert_eq!(received.finish(&mut peer), (b"one\ntwo\ntwo\n".to_vec(), 130));
    server.stop();
    gateway.stop();
}

#[test]
fn a_session_whose_client_stays_away_ends_with_its_commands_and_one_with_a_client_does_not() {
    let gateway = Gateway::start();
    let server = ListeningServer::start(&gateway, &["--resume-timeout", "1s"]);
    let ((mut away, session), (mut there, _)) = (server.client(), server.client());
    let marks = [mark(), mark()];
    for (peer, mark) in [(&mut away, &marks[0]), (&mut there, &marks[1])] {
        let params = peer.command("p", &["sh", "-c", &format!("setsid sleep {mark} & sleep {mark}")]);
        peer.result("process/start", params);
        wait_for_sleepers(mark, 2);
    }
    away.socket().break_off();
    wait_for_sleepers(&marks[0], 0);
    wait_for_sleepers(&marks[1], 2);
    let late = json!({ "clientName": "tester", "resumeSessionId": session });
    assert_eq!(server.newcomer().error("initialize", late)["data"]["reason"], "UNKNOWN_SESSION");
    server.stop();
    wait_for_sleepers(&marks[1], 0);
    gateway.stop();
}

#[test]
fn a_session_that_is_in_use_another_servers_or_unknown_is_not_resumed() {
    let gateway = Gateway::start();
    let (server, elsewhere) = (ListeningServer::start(&gateway, &[]), ListeningServer::start(&gateway, &[]));
    let ((mut peer, session), (_other, foreign)) = (server.client(), elsewhere.client());
    let mut newcomer = server.newcomer();
    let mut ask =
        |id: &str| newcomer.error("initialize", json!({ "clientName": "x", "resumeSessionId": id }));
    let attached = ask(&session);
    assert_eq!(
        (&attached["code"], &attached["data"]["reason"]),
        (&json!(-32_010), &json!("SESSION_ATTACHED"))
    );
    for id in [&foreign[..], "sess_other", ""] {
        assert_eq!(ask(id)["data"]["reason"], "UNKNOWN_SESSION", "{id}");
    }
    // Nothing was said about the session, and nothing works in it.
    let read = newcomer.error("process/read", json!({ "processId": "p" }));
    assert_eq!(read["data"]["reason"], "NOT_INITIALIZED");
    assert_eq!(peer.line("p", "exit 0").exit_code, 0, "its client goes on");
    server.stop();
    elsewhere.stop();
    gateway.stop();
}

#[test]
fn a_client_that_reads_late_loses_nothing_and_holds_up_nobody_else() {
    const COUNT: usize = 1_000_000;
    let gateway = Gateway::start();
    let server = ListeningServer::start(&gateway, &[]);
    let ((mut slow, _), (mut quick, _)) = (server.client(), server.client());
    let params = slow.command("p", &["sh", "-c", &format!("seq {COUNT}")]);
    slow.result("process/start", params);
    assert_eq!(quick.line("p", "exit 0").exit_code, 0);
    let (bytes, code) = Received::default().finish(&mut slow);
    assert!(bytes == numbers(COUNT) && code == 0, "{} bytes, exit {code}", bytes.len());
    server.stop();
    gateway.stop();
}
