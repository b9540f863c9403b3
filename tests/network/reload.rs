//! What becomes of open connections when rules change, and how many bytes those of a session carry.

use provost::proto::v1::Network;

use crate::{
    asked::Approver,
    fixture::Fixture,
    support::{EndOfInput, Session, Terminal, code, eventually},
};

/// The rule that comes with the other policy.
const CLOSED: &str = "[[connect]]\nid = 'closed'\ndecision = 'deny'\nhost = ['plain.test']\n";

/// Reads one whole answer.
const READING: &str = "import socket
def read(connection):
    data = b''
    while b'\\r\\n\\r\\n' not in data:
        part = connection.recv(4096)
        if not part: return data
        data += part
    head, _, body = data.partition(b'\\r\\n\\r\\n')
    lengths = [line.split(b':')[1] for line in head.lower().split(b'\\r\\n') if line.startswith(b'content-length')]
    while len(body) < int((lengths or [0])[0]):
        part = connection.recv(4096)
        if not part: break
        body += part
    return head + body
def status(data): return data.split()[1].decode() if data else 'closed'
";

/// Opens two tunnels and says so. For each line of input: asks in both, opens a third one, and says what came of it.
const TUNNELS: &str = "
def tunnel(host):
    connection = socket.create_connection(('127.0.0.1', 3128), 30)
    connection.sendall(f'CONNECT {host}:18080 HTTP/1.1\\r\\nHost: {host}:18080\\r\\n\\r\\n'.encode())
    return connection, status(read(connection))
def ask(connection, host):
    try:
        connection.sendall(f'GET / HTTP/1.1\\r\\nHost: {host}:18080\\r\\n\\r\\n'.encode())
        return 'served' if b'SERVED' in read(connection) else 'closed'
    except OSError:
        return 'closed'
plain, _ = tunnel('plain.test')
other, _ = tunnel('OTHER')
print('first', ask(plain, 'plain.test'), ask(other, 'OTHER'), flush=True)
input()
print('then', ask(plain, 'plain.test'), ask(other, 'OTHER'), tunnel('plain.test')[1], flush=True)
";

/// A tunnel to plain.test and one to another host.
async fn tunnels(fixture: &Fixture, session: &Session, other: &str) -> Terminal {
    let terminal = fixture
        .command(session, Network::Proxy, "python3")
        .args(["-c", &[READING, &TUNNELS.replace("OTHER", other)].concat()])
        .stdin()
        .create()
        .await;
    terminal.until("first served served").await;
    terminal
}

async fn what_then(terminal: &Terminal) -> String {
    terminal.write(b"\n", EndOfInput::After).await.expect("it reads");
    assert_eq!(code(&terminal.wait().await), 0);
    let text = String::from_utf8_lossy(&terminal.output().await.data).into_owned();
    text.lines().last().unwrap_or_default().to_owned()
}

/// The record of the connection that a rule has closed.
async fn closed(fixture: &Fixture) -> serde_json::Value {
    eventually("the end of a connection", || {
        let ended = fixture.records("connection_ended");
        let failure = |record: &serde_json::Value| record["failure"].as_str().unwrap_or_default().to_owned();
        ended.into_iter().find(|record| failure(record).contains("closed by rule \"closed\""))
    })
    .await
}

/// The policy's text with a further key of the profile's network.
fn with_key(text: &str, key: &str) -> String {
    let heading = "[profile.workspace.network]\n";
    assert!(text.contains(heading), "{text}");
    text.replacen(heading, &format!("{heading}{key}\n"), 1)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_stay_open_when_rules_change_and_new_ones_go_by_them() {
    let fixture = Fixture::start();
    let session = Session::open(&fixture.gateway).await;
    let terminal = tunnels(&fixture, &session, "registry.test").await;
    fixture.reload_with(CLOSED);
    assert_eq!(what_then(&terminal).await, "then served served 403");
    session.close().await;
    fixture.gateway.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_the_profile_says_so_connections_are_closed_that_the_rules_allow_no_more() {
    let fixture = Fixture::start();
    fixture.reload(&with_key(&fixture.policy_text(), "on_reload = \"close\""));
    let session = Session::open(&fixture.gateway).await;
    let terminal = tunnels(&fixture, &session, "registry.test").await;
    fixture.reload_with(CLOSED);
    let closed = closed(&fixture).await;
    assert_eq!(what_then(&terminal).await, "then closed served 403");
    let records = fixture.records("connection");
    let refused = records.iter().find(|one| one["rule"] == "closed" && one["connection"].is_string());
    let refused = refused.unwrap_or_else(|| panic!("{records:#?}"));
    assert_eq!((&refused["connection"], &refused["decision"]), (&closed["connection"], &"deny".into()));
    session.close().await;
    fixture.gateway.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_a_person_has_approved_stays_open_where_the_new_rules_only_ask() {
    let fixture = Fixture::start();
    fixture.reload(&with_key(&fixture.policy_text(), "on_reload = \"close\""));
    let session = Session::open(&fixture.gateway).await;
    let mut approver = Approver::of(&session.caller);
    let (terminal, ()) = tokio::join!(tunnels(&fixture, &session, "careful.test"), approver.approve_next());
    fixture.reload_with(CLOSED);
    closed(&fixture).await;
    // The connection stays; a request on it goes by the rules in force, which ask.
    let (then, ()) = tokio::join!(what_then(&terminal), approver.approve_next());
    assert_eq!(then, "then closed served 403");
    assert_eq!(approver.list().await.len(), 2);
    let ended = fixture.records("connection_ended");
    let is_closed = |record: &&serde_json::Value| {
        record["failure"].as_str().is_some_and(|failure| failure.starts_with("closed"))
    };
    assert_eq!(ended.iter().filter(is_closed).count(), 1, "{ended:#?}");
    session.close().await;
    fixture.gateway.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_connections_of_a_session_carry_no_more_bytes_than_its_profile_says() {
    const MAX_BYTES: u64 = 300_000;
    let fixture = Fixture::start();
    std::fs::write(fixture.directory.path().join("package.tgz"), vec![7; 200_000]).expect("a file");
    fixture.reload(&with_key(&fixture.policy_text(), &format!("max_bytes = {MAX_BYTES}")));
    let get = "curl -s -o got -w '%{http_code} %{size_download}\\n' http://registry.test:18080/x.tgz";
    let session = Session::open(&fixture.gateway).await;
    let script = format!("{get}; {get}; {get}; cat got");
    let done = fixture.sh(&session, &script).finish().await;
    let text = done.text();
    let [first, second, third] = text.lines().take(3).collect::<Vec<_>>()[..] else { panic!("{text}") };
    assert_eq!(first, "200 200000");
    let carried = second.strip_prefix("200 ").and_then(|bytes| bytes.parse::<u64>().ok());
    assert!(carried.is_some_and(|bytes| (1..100_000).contains(&bytes)), "{text}");
    assert!(third.starts_with("403 "), "{text}");
    assert!(
        text.contains(
            "denied by rule \"network.max_bytes\": the session has carried all of its 300000 bytes"
        ),
        "{text}"
    );
    let ended = fixture.records("connection_ended");
    let bytes = |key: &str| ended.iter().filter_map(|record| record[key].as_u64()).sum::<u64>();
    let carried = bytes("sent_bytes") + bytes("received_bytes");
    assert!((MAX_BYTES - 1_000..=MAX_BYTES).contains(&carried), "{carried}: {ended:#?}");
    assert!(
        ended.iter().any(|record| record["failure"] == "the session has carried all bytes that it may"),
        "{ended:#?}"
    );
    session.close().await;
    // Another session has its own.
    let session = Session::open(&fixture.gateway).await;
    assert_eq!(fixture.sh(&session, get).finish().await.text(), "200 200000\n");
    session.close().await;
    fixture.gateway.stop();
}

/// Asks twice on one connection to the proxy, and on one in a tunnel; before the second time it waits for a line of input.
const KEPT_ALIVE: &str = "
def ask(connection, target):
    connection.sendall(f'GET {target} HTTP/1.1\\r\\nHost: registry.test:18080\\r\\n\\r\\n'.encode())
    return status(read(connection))
proxy = socket.create_connection(('127.0.0.1', 3128), 30)
tunnel = socket.create_connection(('127.0.0.1', 3128), 30)
tunnel.sendall(b'CONNECT registry.test:18080 HTTP/1.1\\r\\nHost: registry.test:18080\\r\\n\\r\\n')
read(tunnel)
for when in 'first', 'then':
    print(when, ask(proxy, 'http://registry.test:18080/'), ask(tunnel, '/'), flush=True)
    when == 'first' and input()
";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_on_a_connection_that_is_kept_alive_go_by_the_rules_in_force() {
    let fixture = Fixture::start();
    let session = Session::open(&fixture.gateway).await;
    let command = fixture
        .command(&session, Network::Proxy, "python3")
        .args(["-c", &[READING, KEPT_ALIVE].concat()])
        .stdin();
    let terminal = command.create().await;
    terminal.until("first 200 200").await;
    fixture.reload_with(&CLOSED.replace("plain", "registry"));
    assert_eq!(what_then(&terminal).await, "then 403 403");
    session.close().await;
    fixture.gateway.stop();
}
