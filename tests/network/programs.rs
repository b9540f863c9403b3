//! Rules that name programs: they restrict who has a connection, and where that cannot be known they restrict all.

use provost::proto::v1::Network;

use crate::{
    fixture::Fixture,
    support::{Session, is_root, skip},
};

/// The file behind /usr/bin/python3 and curl, as the kernel names what runs.
fn file_of(name: &str) -> String {
    let path = std::fs::canonicalize(format!("/usr/bin/{name}")).expect("it is installed");
    path.to_string_lossy().into_owned()
}

fn rules() -> String {
    format!(
        "[[connect]]\nid = 'only-curl'\ndecision = 'allow'\nhost = ['own.test']\naddress = ['127.83.0.0/16']\n\
         port = [18080]\nprogram = ['{}']\n\
         [[connect]]\nid = 'no-python'\ndecision = 'deny'\nhost = ['registry.test']\nprogram = ['{}']\n",
        file_of("curl"),
        file_of("python3")
    )
}

const CURL: &str = "curl -s -o /dev/null -w '%{http_code}\\n'";

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
