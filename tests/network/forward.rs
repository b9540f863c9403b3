//! Ports of a sandbox's loopback, brought to the caller.

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{Shutdown, TcpStream},
    os::unix::{fs::PermissionsExt as _, net::UnixStream},
    process::{Child, Command, Stdio},
    time::Duration,
};

use provost::proto::v1::{
    ForwardRequest, ForwardStart, Network, forward_request::Message, forward_response::Event,
};
use tokio_stream::{StreamExt as _, wrappers::ReceiverStream};

use crate::{
    fixture::Fixture,
    support::{EndOfInput, Refusal, Session, Terminal, eventually, is_root, skip},
};

/// Answers with what it was sent, when it has all of it.
const ECHO: &str = "import socket, sys, threading\n\
    server = socket.socket(socket.AF_INET6 if ':' in sys.argv[1] else socket.AF_INET)\n\
    server.bind((sys.argv[1], int(sys.argv[2])))\n\
    server.listen(512)\n\
    print('listening', flush=True)\n\
    def answer(connection):\n\
    \x20data = b''\n\
    \x20while part := connection.recv(65536): data += part\n\
    \x20connection.sendall(b'inside:' + data)\n\
    \x20connection.close()\n\
    while True: threading.Thread(target=answer, args=(server.accept()[0],), daemon=True).start()\n";

async fn echo(fixture: &Fixture, session: &Session, address: &str, port: u16) -> Terminal {
    let command = fixture.command(session, Network::None, "python3");
    let terminal = command.args(["-c", ECHO, address, &port.to_string()]).create().await;
    terminal.until("listening").await;
    terminal
}

/// A `provost forward` that listens, and where.
struct Forwarding {
    process: Child,
    address: String,
}

impl Forwarding {
    fn start(fixture: &Fixture, terminal: &str, port: u16, listen: &str) -> Self {
        let mut process = Command::new(env!("CARGO_BIN_EXE_provost"))
            .args(["forward", "--gateway", &format!("unix:{}", fixture.gateway.socket.display())])
            .args(["--listen", listen, terminal, &port.to_string()])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("provost starts");
        let mut address = String::new();
        let out = process.stdout.take().expect("a pipe");
        BufReader::new(out).read_line(&mut address).expect("it says where it listens");
        Self { process, address: address.trim_end().to_owned() }
    }

    /// Ends it, and returns what it said.
    fn stop(mut self) -> String {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let mut said = String::new();
        self.process.stderr.take().expect("a pipe").read_to_string(&mut said).expect("it is text");
        said
    }
}

fn through_tcp(address: &str, data: &[u8]) -> Vec<u8> {
    let mut connection = TcpStream::connect(address).expect("it listens");
    connection.write_all(data).expect("it is taken");
    connection.shutdown(Shutdown::Write).expect("it is open");
    let mut answer = Vec::new();
    let _ = connection.read_to_end(&mut answer);
    answer
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_inside_is_reached_by_its_caller_through_a_port_or_a_socket() {
    let fixture = Fixture::start();
    let session = Session::open(&fixture.gateway).await;
    let port = 24_711;
    let terminal = echo(&fixture, &session, "127.0.0.1", port).await;
    // Nobody else reaches it.
    assert!(TcpStream::connect(("127.0.0.1", port)).is_err());
    let forwarding = Forwarding::start(&fixture, &terminal.id, port, "127.0.0.1:0");
    let large = vec![b'x'; 3 << 20];
    for data in [&b"hello"[..], b"", &large] {
        let answer = through_tcp(&forwarding.address, data);
        assert!(answer == [b"inside:", data].concat(), "{} bytes of {}", answer.len(), data.len());
    }
    assert_eq!(forwarding.stop(), "");

    let path = fixture.directory.path().join("preview.sock");
    let forwarding = Forwarding::start(&fixture, &terminal.id, port, &format!("unix:{}", path.display()));
    let mode = std::fs::metadata(&path).expect("it is there").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let mut connection = UnixStream::connect(&path).expect("it listens");
    connection.write_all(b"by a socket").expect("it is taken");
    connection.shutdown(Shutdown::Write).expect("it is open");
    let mut answer = String::new();
    connection.read_to_string(&mut answer).expect("it is text");
    assert_eq!(answer, "inside:by a socket");

    // It ends with the command, and takes its socket with it.
    terminal.kill(None).await;
    terminal.wait().await;
    let mut process = forwarding.process;
    let status = eventually("it ends with the command", || process.try_wait().expect("a child")).await;
    assert!(status.success() && !path.exists(), "{status:?}");

    let forwards = fixture.records("forward");
    assert!(forwards.len() == 4 && forwards.iter().all(|one| one["port"] == port), "{forwards:#?}");
    assert!(forwards.iter().all(|one| one["terminal"] == terminal.id.as_str()), "{forwards:#?}");
    let ended = fixture.records("forward_ended");
    let whole = |one: &serde_json::Value| {
        one["sent_bytes"] == large.len() as u64 && one["received_bytes"] == large.len() as u64 + 7
    };
    assert!(ended.len() == 4 && ended.iter().any(whole), "{ended:#?}");
    session.close().await;
    fixture.gateway.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "long: longer than a request may take to arrive"]
async fn a_connection_on_which_nothing_is_sent_for_long_goes_on() {
    let fixture = Fixture::start();
    let session = Session::open(&fixture.gateway).await;
    let port = 24_714;
    let terminal = echo(&fixture, &session, "127.0.0.1", port).await;
    let forwarding = Forwarding::start(&fixture, &terminal.id, port, "127.0.0.1:0");
    let mut connection = TcpStream::connect(&forwarding.address).expect("it listens");
    connection.write_all(b"before").expect("it is taken");
    tokio::time::sleep(Duration::from_secs(35)).await;
    connection.write_all(b" and after").expect("it is taken");
    connection.shutdown(Shutdown::Write).expect("it is open");
    let mut answer = String::new();
    connection.read_to_string(&mut answer).expect("it is text");
    assert_eq!(answer, "inside:before and after");
    assert_eq!(forwarding.stop(), "");
    session.close().await;
    fixture.gateway.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_listens_on_ipv6_alone_is_reached_in_an_ordinary_users_sandbox_too() {
    if !is_root() {
        return skip("another user's gateway needs root");
    }
    let user = 54_384;
    let fixture = Fixture::start_as(Some(user));
    let session = Session::open_as(&fixture.gateway, user).await;
    let terminal = echo(&fixture, &session, "::1", 24_712).await;
    let caller = fixture.gateway.caller_as(user).await;
    assert_eq!(call(&caller, &terminal.id, 24_712, b"six").await, Ok(b"inside:six".to_vec()));
    session.close().await;
    fixture.gateway.stop();
}

/// One connection by the API: what comes back, or why there is none.
async fn call(
    caller: &crate::support::Caller,
    terminal: &str,
    port: u32,
    data: &[u8],
) -> Result<Vec<u8>, String> {
    let start = ForwardStart { terminal_id: terminal.to_owned(), session_id: String::new(), port };
    let messages = [Message::Start(start), Message::Data(data.to_vec().into())];
    let requests = messages.map(|message| ForwardRequest { message: Some(message) });
    let refused = |status: tonic::Status| Refusal::from(status).reason;
    let answered = caller.terminals.clone().forward(tokio_stream::iter(requests)).await;
    let mut answers = answered.map_err(refused)?.into_inner();
    let mut received = Vec::new();
    while let Some(answer) = answers.next().await {
        if let Some(Event::Data(data)) = answer.map_err(refused)?.event {
            received.extend_from_slice(&data);
        }
    }
    Ok(received)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_port_is_forwarded_by_the_callers_right_alone_and_only_out_of_a_network_of_its_own() {
    let fixture = Fixture::start();
    let session = Session::open(&fixture.gateway).await;
    let other = Session::open(&fixture.gateway).await;
    let terminal = echo(&fixture, &session, "127.0.0.1", 24_713).await;
    let caller = fixture.gateway.caller().await;
    assert_eq!(call(&caller, &terminal.id, 24_713, b"x").await, Ok(b"inside:x".to_vec()));
    let refused = |reason: &str| Err(reason.to_owned());
    for (port, reason) in [(24_714, "PORT_CLOSED"), (0, "BAD_FIELD"), (65_536 + 24_713, "BAD_FIELD")] {
        assert_eq!(call(&caller, &terminal.id, port, b"x").await, refused(reason), "{port}");
    }
    // The loopback of another session is another one.
    let idle = fixture.sh(&other, "sleep 600").create().await;
    assert_eq!(call(&caller, &idle.id, 24_713, b"x").await, refused("PORT_CLOSED"));
    // That of the host is none of a sandbox's: the gateway would be a way into it.
    let open = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = u32::from(open.local_addr().expect("an address").port());
    let hosts = fixture.command(&other, Network::Host, "sleep").args(["600"]).create().await;
    assert_eq!(call(&caller, &hosts.id, port, b"x").await, refused("FORWARD_UNAVAILABLE"));
    assert_eq!(call(&caller, &idle.id, port, b"x").await, refused("PORT_CLOSED"));
    if is_root() {
        let stranger = fixture.gateway.caller_as(54_385).await;
        assert_eq!(call(&stranger, &terminal.id, 24_713, b"x").await, refused("TERMINAL_NOT_FOUND"));
    }
    let malformed = ForwardRequest { message: Some(Message::Data(b"x".to_vec().into())) };
    let answered = caller.terminals.clone().forward(tokio_stream::iter([malformed])).await;
    assert_eq!(Refusal::from(answered.expect_err("no start")).reason, "BAD_FIELD");
    terminal.kill(None).await;
    terminal.wait().await;
    assert_eq!(call(&caller, &terminal.id, 24_713, b"x").await, refused("COMMAND_ENDED"));
    session.close().await;
    other.close().await;
    fixture.gateway.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forwarded_connections_are_bounded_and_their_places_come_back() {
    let fixture = Fixture::start();
    let session = Session::open(&fixture.gateway).await;
    let terminal = echo(&fixture, &session, "127.0.0.1", 24_715).await;
    let caller = fixture.gateway.caller().await;
    let mut held = Vec::new();
    let mut refused = None;
    for _ in 0..300 {
        let start =
            ForwardStart { terminal_id: terminal.id.clone(), port: 24_715, ..ForwardStart::default() };
        let start = ForwardRequest { message: Some(Message::Start(start)) };
        // The connection is open for as long as its caller may still send.
        let (sender, later) = tokio::sync::mpsc::channel::<ForwardRequest>(1);
        let requests = tokio_stream::iter([start]).chain(ReceiverStream::new(later));
        match caller.terminals.clone().forward(requests).await {
            Ok(answers) => held.push((sender, answers)),
            Err(status) => {
                refused = Some(Refusal::from(status).reason);
                break;
            }
        }
    }
    assert_eq!((held.len(), refused.as_deref()), (256, Some("QUOTA")));
    drop(held);
    let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
    while call(&caller, &terminal.id, 24_715, b"x").await.is_err() {
        assert!(tokio::time::Instant::now() < deadline, "the places come back");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    // A command that does not end them is not kept alive by them.
    let _ = terminal.write(b"", EndOfInput::NotYet).await;
    session.close().await;
    fixture.gateway.stop();
}
