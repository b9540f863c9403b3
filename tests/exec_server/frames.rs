//! Websockets that are opened wrongly, or on which a client sends what no client may: the connection ends with the reason, the session
//! stays, and others are served.

use std::{
    io::{Read, Write},
    time::Duration,
};

use nix::sys::socket::{setsockopt, sockopt::RcvBuf};
use serde_json::json;

use crate::{
    exec_server::{
        peer::{Peer, encoded},
        socket::{ListeningServer, OPENING, Socket, answered},
    },
    support::{Gateway, Process},
};

const TEXT: u8 = 1;
const PING: u8 = 9;
const PONG: u8 = 10;
/// The last frame of its message.
const LAST: u8 = 0x80;
/// What permessage-deflate sets.
const COMPRESSED: u8 = 0x40;

/// A connection that takes nothing for so long takes no more.
const STALLED: Duration = Duration::from_secs(2);

/// A frame of a client, whose mask changes nothing.
fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![first];
    match payload.len() {
        short @ 0..126 => frame.push(0x80 | short as u8),
        long => {
            frame.push(0x80 | 127);
            frame.extend((long as u64).to_be_bytes());
        }
    }
    frame.extend([0; 4]);
    frame.extend_from_slice(payload);
    frame
}

fn status_request(id: u64) -> Vec<u8> {
    json!({ "id": id, "method": "environment/status", "params": {} }).to_string().into_bytes()
}

fn write(peer: &mut Peer, bytes: &[u8]) {
    peer.socket().connection().write_all(bytes).expect("the server reads");
}

#[test]
fn what_no_client_may_send_closes_the_connection_with_the_reason_and_the_session_can_be_resumed() {
    let gateway = Gateway::start();
    let server = ListeningServer::start(&gateway, &[]);
    let (mut other, _) = server.client();
    let (mut peer, session) = server.client();
    write(&mut peer, &frame(LAST | TEXT, &status_request(700)));
    assert_eq!(peer.socket().receive()["id"], 700, "the same with nothing wrong is answered");
    let unmasked = [&[LAST | TEXT, 2][..], b"{}"].concat();
    let endless = [&[LAST | TEXT, 0x80 | 127][..], &u64::MAX.to_be_bytes(), &[0; 4]].concat();
    for (name, bytes, code) in [
        ("without a mask", unmasked, 1002),
        ("compressed", frame(LAST | COMPRESSED | TEXT, &status_request(1)), 1002),
        ("of no kind", frame(LAST | 3, b"x"), 1002),
        ("the rest of no message", frame(LAST, b"x"), 1002),
        ("a message within another", [frame(TEXT, b"{"), frame(LAST | TEXT, b"{}")].concat(), 1002),
        ("a ping in pieces", frame(PING, b"x"), 1002),
        ("a long ping", frame(LAST | PING, &[0; 126]), 1002),
        ("no UTF-8", frame(LAST | TEXT, b"\xff"), 1007),
        ("without an end", endless, 1009),
    ] {
        write(&mut peer, &bytes);
        assert_eq!(u16::from(peer.socket().closed().code), code, "{name}");
        drop(peer);
        peer = server.returning(&session);
    }
    assert_eq!(peer.line("p", "exit 3").exit_code, 3);
    assert_eq!(other.line("p", "exit 4").exit_code, 4, "nobody else has noticed");
    server.stop();
    gateway.stop();
}

#[test]
fn a_message_in_pieces_is_one_and_all_pieces_together_have_its_bound() {
    let gateway = Gateway::start();
    let server = ListeningServer::start(&gateway, &[]);
    let (mut peer, _) = server.client();
    let request = status_request(700);
    let (first, rest) = request.split_at(5);
    let (second, third) = rest.split_at(9);
    for bytes in [frame(TEXT, first), frame(LAST | PING, b"between"), frame(0, second), frame(LAST, third)] {
        write(&mut peer, &bytes);
    }
    assert_eq!(peer.socket().receive()["id"], 700);
    let piece = vec![b' '; 1 << 20];
    write(&mut peer, &frame(TEXT, b"{"));
    for _ in 0..18 {
        // It need not read all of them.
        if peer.socket().connection().write_all(&frame(0, &piece)).is_err() {
            break;
        }
    }
    assert_eq!(u16::from(peer.socket().closed().code), 1009);
    server.stop();
    gateway.stop();
}

#[test]
fn an_opening_with_a_body_or_with_two_keys_is_refused_and_what_follows_one_is_the_websockets() {
    let gateway = Gateway::start();
    let server = ListeningServer::start(&gateway, &[]);
    let (host, path) = (format!("Host: {}", server.authority), format!("/{}", server.token()));
    let key = "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==";
    for (line, status) in [
        ("Content-Length: 0", 400),
        ("Content-Length: 5", 400),
        ("Transfer-Encoding: chunked", 400),
        (key, 400),
        ("Sec-WebSocket-Version: 13", 426),
        ("Sec-WebSocket-Version: 8", 426),
    ] {
        assert_eq!(server.ask(&path, &[&host, line]), status, "{line}");
    }
    assert_eq!(server.ask("/", &[&host, &format!("Authorization: Bearer {}", &path[1..])]), 101);
    let twice = format!("Authorization: Bearer {}", &path[1..]);
    assert_eq!(server.ask("/", &[&host, &twice, "Authorization: Bearer x"]), 401, "which of them counts");
    for head in [
        format!("POST {path} HTTP/1.1\r\n{host}\r\n{OPENING}\r\n"),
        format!("GET {path} HTTP/1.0\r\n{host}\r\n{OPENING}\r\n"),
    ] {
        let mut connection = server.connection();
        connection.write_all(head.as_bytes()).expect("the server reads");
        assert_eq!(answered(&mut connection), 426, "{head}");
    }
    // The first message does not wait for the answer to the opening.
    let mut connection = server.connection();
    let first = json!({ "id": 700, "method": "initialize", "params": { "clientName": "x" } }).to_string();
    let opening = format!("GET {path} HTTP/1.1\r\n{host}\r\n{OPENING}\r\n").into_bytes();
    let both = [opening, frame(LAST | TEXT, first.as_bytes())].concat();
    connection.write_all(&both).expect("the server reads");
    assert_eq!(answered(&mut connection), 101);
    assert_eq!(Socket::on(connection).receive()["id"], 700);
    server.stop();
    gateway.stop();
}

#[test]
#[ignore = "long: .ci/run runs it"]
fn pings_of_a_client_that_does_not_read_wait_and_take_no_memory() {
    const FLOOD_BYTES: usize = 256 << 20;
    let gateway = Gateway::start();
    let server = ListeningServer::start(&gateway, &[]);
    let ((mut peer, session), (mut other, _)) = (server.client(), server.client());
    write(&mut peer, &frame(LAST | PING, b"one"));
    let resident = || Process::read(server.pid()).expect("it runs").resident_bytes();
    let before = resident();
    let pings = frame(LAST | PING, &[b'x'; 125]).repeat(500);
    let mut connection = peer.socket().connection();
    // What the kernels keep of the answers is little.
    setsockopt(&connection, RcvBuf, &4_096).expect("a size can be set");
    connection.set_write_timeout(Some(STALLED)).expect("a time can be set");
    let mut written = 0;
    while written < FLOOD_BYTES
        && let Ok(count) = connection.write(&pings[written % pings.len()..])
    {
        written += count;
    }
    let grown = resident().saturating_sub(before);
    assert!(written < FLOOD_BYTES, "the server stops reading");
    assert!(grown < 32 << 20, "{grown} bytes after pings of {written}");
    assert_eq!(other.line("p", "exit 4").exit_code, 4, "others are served");
    peer.socket().break_off();
    drop(peer);
    let mut peer = server.returning(&session);
    assert_eq!(peer.line("p", "exit 3").exit_code, 3);
    server.stop();
    gateway.stop();
}

#[test]
fn a_close_is_answered() {
    let gateway = Gateway::start();
    let server = ListeningServer::start(&gateway, &[]);
    let (mut peer, _) = server.client();
    write(&mut peer, &frame(LAST | 8, &1000_u16.to_be_bytes()));
    assert_eq!(u16::from(peer.socket().closed().code), 1000);
    server.stop();
    gateway.stop();
}

#[test]
#[ignore = "long: .ci/run runs it"]
fn connections_that_say_nothing_or_too_slowly_are_given_up_and_keep_nobody_out_for_long() {
    let gateway = Gateway::start();
    let server = ListeningServer::start(&gateway, &[]);
    // More than there are places.
    let mut connections: Vec<_> = (0..70).map(|_| server.connection()).collect();
    for connection in connections.iter_mut().step_by(2) {
        connection.write_all(b"GET / HTTP/1.1\r\nHost: ").expect("it is connected");
    }
    let (mut peer, _) = server.client();
    assert_eq!(peer.line("p", "exit 3").exit_code, 3);
    for connection in &mut connections {
        let mut said = Vec::new();
        let _ = connection.read_to_end(&mut said);
        let said = String::from_utf8_lossy(&said);
        assert!(said.is_empty() || said.starts_with("HTTP/1.1 408"), "{said}");
    }
    server.stop();
    gateway.stop();
}

#[test]
fn websockets_and_sessions_have_bounds_and_a_place_that_is_left_is_free() {
    let gateway = Gateway::start();
    let server = ListeningServer::start(&gateway, &["--resume-timeout", "60s"]);
    let mut sockets: Vec<Socket> = (0..64).map(|_| server.connect()).collect();
    let (host, path) = (format!("Host: {}", server.authority), format!("/{}", server.token()));
    assert_eq!(server.ask(&path, &[&host]), 503);
    drop(sockets.pop());
    while server.ask(&path, &[&host]) != 101 {}
    drop(sockets);
    // A session without a connection keeps its place.
    let mut last = None;
    for _ in 0..64 {
        let (mut peer, session) = server.client();
        peer.socket().break_off();
        last = Some(session);
    }
    let refused = server.newcomer().error("initialize", json!({ "clientName": "x" }));
    assert_eq!(refused["data"]["reason"], "LIMIT_REACHED", "{refused}");
    let mut peer = server.returning(&last.expect("there are sessions"));
    assert_eq!(peer.line("p", "exit 3").exit_code, 3);
    let write = json!({ "processId": "p", "chunk": encoded(b"x") });
    assert_eq!(peer.result("process/write", write)["status"], "stdinClosed");
    server.stop();
    gateway.stop();
}

#[test]
#[ignore = "long: waits for half a minute; .ci/run runs it"]
fn a_websocket_without_a_session_is_closed_after_a_while_and_one_with_a_session_is_not() {
    let gateway = Gateway::start();
    let server = ListeningServer::start(&gateway, &[]);
    let (mut peer, _) = server.client();
    let mut silent = server.connect();
    write(&mut peer, &frame(LAST | PONG, b""));
    assert_eq!(u16::from(silent.closed().code), 1008);
    assert_eq!(peer.line("p", "exit 3").exit_code, 3);
    server.stop();
    gateway.stop();
}
