//! Rules that name programs: they restrict who has a connection, and where that cannot be known they restrict all.

use std::process::Command;

use provost::proto::v1::Network;
use serde_json::Value;

use crate::{
    fixture::Fixture,
    support::{Session, is_root, skip},
};

/// The file behind /usr/bin/python3 and curl, as the kernel names what runs.
pub(crate) fn file_of(name: &str) -> String {
    let path = std::fs::canonicalize(format!("/usr/bin/{name}")).expect("it is installed");
    path.to_string_lossy().into_owned()
}

pub(crate) fn rules() -> String {
    format!(
        "[[connect]]\nid = 'only-curl'\ndecision = 'allow'\nhost = ['own.test']\naddress = ['127.83.0.0/16']\n\
         port = [18080]\nprogram = ['{}']\n\
         [[connect]]\nid = 'no-python'\ndecision = 'deny'\nhost = ['registry.test']\nprogram = ['{}']\n",
        file_of("curl"),
        file_of("python3")
    )
}

const CURL: &str = "curl -s -o /dev/null -w '%{http_code}\\n'";

/// Whether this program has the kernel find a connection by its ends, as it says.
pub(crate) fn finds_connections(mut program: Command) -> bool {
    let doctor = program.args(["doctor", "-o", "json"]).output().expect("provost can be started");
    let report: Value = serde_json::from_slice(&doctor.stdout).expect("it is JSON");
    let protections = report["protections"].as_array().expect("a list");
    let found = protections.iter().find(|one| one["name"] == "connection-programs").expect("it is named");
    assert!(
        found["state"] == "available" || !found["remedy"].as_str().expect("a text").is_empty(),
        "{found}"
    );
    found["state"] == "available"
}

/// Connects, hands the socket to a program that is allowed, and keeps it.
const HANDED_ON: &str = "\
import os, socket, subprocess, sys
peer = socket.create_connection(('127.0.0.1', 3128))
os.set_inheritable(peer.fileno(), True)
other = subprocess.Popen(['/usr/bin/curl', '-s', '--max-time', '20', 'telnet://127.0.0.1:3128'], \
stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, close_fds=False)
peer.sendall(b'CONNECT own.test:18080 HTTP/1.1\\r\\nHost: own.test:18080\\r\\n\\r\\n')
print(peer.recv(100).split(b'\\r\\n')[0].decode())
other.kill()
";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rule_that_names_programs_is_about_their_connections_alone() {
    if !is_root() {
        return skip("without a cgroup the processes of a sandbox are not known");
    }
    let fixture = Fixture::start();
    let session = Session::open(&fixture.gateway).await;
    let python = |host: &str| {
        let script = format!(
            "import socket; s = socket.create_connection(('127.0.0.1', 3128)); \
             s.sendall(b'CONNECT {host}:18080 HTTP/1.1\\r\\nHost: {host}:18080\\r\\n\\r\\n'); \
             print(s.recv(100).split(b'\\r\\n')[0].decode())"
        );
        fixture.command(&session, Network::Proxy, "python3").args(["-c".to_owned(), script])
    };
    // Without such rules the program passes.
    assert_eq!(python("registry.test").finish().await.text(), "HTTP/1.1 200 OK\n");
    fixture.reload_with(&rules());
    let refused = python("registry.test").finish().await;
    assert_eq!(refused.text(), "HTTP/1.1 403 Forbidden\n");
    assert_eq!(refused.outcome.connect_denials[0].rule, "no-python");
    let allowed = format!(
        "{CURL} http://registry.test:18080/; {CURL} -p -x http://127.0.0.1:3128 http://own.test:18080/"
    );
    assert_eq!(fixture.sh(&session, &allowed).finish().await.text(), "200\n200\n");
    let refused = python("own.test").finish().await;
    assert_eq!(refused.text(), "HTTP/1.1 403 Forbidden\n");
    assert_eq!(refused.outcome.connect_denials[0].rule, "default");
    // A program that is named does not serve one that is not: both have the connection.
    let handed = fixture.command(&session, Network::Proxy, "python3").args(["-c", HANDED_ON]);
    assert_eq!(handed.finish().await.text(), "HTTP/1.1 403 Forbidden\n");
    let records = fixture.records("connection");
    let by = |rule: &str| -> Vec<String> {
        let of_rule = records.iter().filter(|record| record["rule"] == rule);
        of_rule
            .flat_map(|record| record["programs"].as_array().cloned().unwrap_or_default())
            .map(|one| one.as_str().expect("a path").to_owned())
            .collect()
    };
    assert_eq!(by("no-python")[0], file_of("python3"), "{records:#?}");
    assert_eq!(by("only-curl")[0], file_of("curl"), "{records:#?}");
    session.close().await;
    fixture.gateway.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_the_program_is_not_known_the_restriction_holds() {
    if !is_root() {
        return skip("another user's gateway needs root");
    }
    // An ordinary user's gateway has no cgroup here, so that it cannot know the processes of a sandbox.
    let user = 54_384;
    let fixture = Fixture::start_as(Some(user));
    let session = Session::open_as(&fixture.gateway, user).await;
    assert_eq!(
        fixture.sh(&session, &format!("{CURL} http://registry.test:18080/")).finish().await.text(),
        "200\n"
    );
    fixture.reload_with(&rules());
    let script = format!("{CURL} http://registry.test:18080/; {CURL} http://own.test:18080/");
    assert_eq!(fixture.sh(&session, &script).finish().await.text(), "403\n403\n");
    session.close().await;
    fixture.gateway.stop();
}

/// Leaves so many connections of its own behind, which the kernel keeps for a minute, and then connects by the proxy. Says how many entries
/// the table has, how many bytes, and how many connections were allowed.
pub(crate) const AFTER_MANY: &str = "\
import socket, sys
many, wanted = int(sys.argv[1]), int(sys.argv[2])
server = socket.create_server(('127.0.0.1', 0))
for _ in range(many):
    client = socket.create_connection(server.getsockname())
    peer, _ = server.accept()
    client.close()
    peer.recv(1)
    peer.close()
allowed = 0
for _ in range(wanted):
    proxied = socket.create_connection(('127.0.0.1', 3128))
    proxied.sendall(b'CONNECT own.test:18080 HTTP/1.1\\r\\nHost: own.test:18080\\r\\n\\r\\n')
    allowed += b' 200 ' in proxied.recv(100)
    proxied.close()
table = open('/proc/net/tcp').read()
print(sum(line.split()[3] == '06' for line in table.splitlines()[1:]), len(table), allowed)
";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_is_known_among_thousands_of_past_connections_that_nobody_reads() {
    if !is_root() {
        return skip("without a cgroup the processes of a sandbox are not known");
    }
    if !finds_connections(Command::new(env!("CARGO_BIN_EXE_provost"))) {
        return skip("this kernel has no tcp_diag");
    }
    const PAST: u64 = 3_000;
    const WANTED: u64 = 40;
    let fixture = Fixture::start();
    fixture.reload_with(&rules().replace(&file_of("curl"), &file_of("python3")));
    let session = Session::open(&fixture.gateway).await;
    let read = || -> u64 {
        let io = std::fs::read_to_string(format!("/proc/{}/io", fixture.gateway.pid_now())).expect("it runs");
        let bytes = io.lines().find_map(|line| line.strip_prefix("rchar: "));
        bytes.and_then(|bytes| bytes.parse().ok()).expect("proc_pid_io(5)")
    };
    // What the gateway reads for each connection, the size of the table, and how many connections were allowed.
    let connect = async |past: u64| {
        let before = read();
        let command = fixture.command(&session, Network::Proxy, "python3");
        let arguments = ["-c".to_owned(), AFTER_MANY.to_owned(), past.to_string(), WANTED.to_string()];
        let text = command.args(arguments).finish().await.text();
        let bytes = (read() - before) / WANTED;
        let said: Vec<u64> = text.split_whitespace().map(|word| word.parse().expect("a number")).collect();
        let [waiting, table, allowed] = said[..] else { panic!("{text}") };
        assert_eq!(allowed, WANTED, "the program is known");
        assert!(waiting >= past, "{text}");
        (bytes, table)
    };
    let (few, _) = connect(0).await;
    let (many, table) = connect(PAST).await;
    println!("bytes read for each connection: {few} before, {many} after {PAST} connections; table: {table}");
    assert!(table > PAST * 100, "the table would be much to read: {table}");
    assert!(many < few + table / 10, "{few} and {many} bytes for each connection, with a table of {table}");
    session.close().await;
    fixture.gateway.stop();
}
