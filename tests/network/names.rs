//! Names inside of a sandbox, and programs that know no proxy.

use std::{
    collections::BTreeMap,
    fs,
    net::UdpSocket,
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use provost::proto::v1::Network;

use crate::{
    fixture::Fixture,
    support::{Session, code, is_root, skip},
};

/// A gateway of an ordinary user.
const USER: u32 = 54_383;

/// Nothing tells a program of a proxy.
const UNSET: &str =
    "unset http_proxy https_proxy all_proxy HTTP_PROXY HTTPS_PROXY ALL_PROXY NODE_USE_ENV_PROXY; ";

/// Programs, and how each fetches from HOST without a proxy.
const PROGRAMS: [(&str, &str); 8] = [
    ("curl", "curl -sS --noproxy '*' http://HOST:18080/curl 2>&1"),
    ("curl", "curl -sS --noproxy '*' --cacert cert.pem https://HOST:18443/tls 2>&1"),
    (
        "python3",
        "python3 -c \"import socket, ssl\n\
         context = ssl.create_default_context(cafile='cert.pem')\n\
         connection = context.wrap_socket(socket.create_connection(('HOST', 18443)), server_hostname='HOST')\n\
         connection.sendall(b'GET / HTTP/1.1\\r\\nHost: HOST:18443\\r\\nConnection: close\\r\\n\\r\\n')\n\
         print(connection.makefile().read())\" 2>&1",
    ),
    (
        "node",
        "node -e \"const socket = require('net').connect(18080, 'HOST', () => \
         socket.write('GET / HTTP/1.1\\r\\nHost: HOST:18080\\r\\nConnection: close\\r\\n\\r\\n'));\
         socket.pipe(process.stdout)\" 2>&1",
    ),
    (
        "busybox",
        "(printf 'GET / HTTP/1.0\\r\\nHost: HOST:18080\\r\\n\\r\\n'; sleep 20) | timeout 15 busybox nc HOST 18080 2>&1",
    ),
    ("nc", "printf 'GET / HTTP/1.0\\r\\nHost: HOST:18080\\r\\n\\r\\n' | timeout 15 nc -w 10 HOST 18080 2>&1"),
    ("go", "SSL_CERT_FILE=cert.pem GOCACHE=/tmp/go CGO_ENABLED=0 go run fetch.go https://HOST:18443/ 2>&1"),
    ("git", "git -c http.sslCAInfo=cert.pem ls-remote https://HOST:18443/repository 2>&1"),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "long: .ci/run runs it"]
async fn programs_that_know_no_proxy_go_by_the_rules() {
    let fixture = Fixture::start();
    let session = Session::open(&fixture.gateway).await;
    every_program_goes_by_the_rules(fixture, session).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "long: .ci/run runs it"]
async fn programs_that_know_no_proxy_go_by_the_rules_of_an_ordinary_users_gateway() {
    if !is_root() {
        return skip("another user's gateway needs root");
    }
    let fixture = Fixture::start_as(Some(USER));
    let session = Session::open_as(&fixture.gateway, USER).await;
    every_program_goes_by_the_rules(fixture, session).await;
}

async fn every_program_goes_by_the_rules(fixture: Fixture, session: Session) {
    let mut tried = 0;
    for (program, script) in PROGRAMS {
        let installed = fixture.sh(&session, &format!("command -v {program}")).finish().await;
        if code(&installed.outcome) != 0 {
            println!("SKIPPED: {program} is not in the sandbox");
            continue;
        }
        tried += 1;
        let run = |host: &str| fixture.sh(&session, &format!("{UNSET}{}", script.replace("HOST", host)));
        let before = fixture.received("registry.test");
        let allowed = run("registry.test").finish().await;
        // git says what it thinks of the answer.
        let is_served = allowed.text().contains("SERVED") || program == "git";
        assert!(is_served, "{program}: {}", allowed.text());
        fixture.receives_more(program, "registry.test", before).await;
        let refused = run("other.test").finish().await;
        assert!(!refused.text().contains("SERVED"), "{program}: {}", refused.text());
        let denied = &refused.outcome.connect_denials;
        assert!(
            denied.iter().any(|one| (one.host.as_str(), one.rule.as_str()) == ("other.test", "default")),
            "{program}: {denied:?} {}",
            refused.text()
        );
    }
    assert!(tried >= 3, "{tried} programs");
    let records = fixture.records("connection");
    let is = |protocol: &str, decision: &str| {
        records.iter().any(|one| one["protocol"] == protocol && one["decision"] == decision)
    };
    assert!(is("transparent", "allow") && is("dns", "deny") && !is("connect", "allow"), "{records:#?}");
    assert_eq!(fixture.received("other.test"), 0);
    session.close().await;
    fixture.gateway.stop();
}

/// What each case of `resolver.py` comes to.
const RESOLVER: [(&str, &str); 34] = [
    ("a name", "code 0, 1 in 198.18.0.0"),
    ("by TCP", "code 0, 1 in 198.18.0.0"),
    ("upper case", "True"),
    ("two names", "False"),
    ("IPv6", "code 0"),
    ("IPv6 of a refused name", "code 0"),
    ("another name", "code 3"),
    ("another name by TCP", "code 3"),
    ("denied name", "code 3"),
    ("data in labels", "code 3"),
    // A rule is about all names below this one. Nobody is asked for it but the gateway.
    ("data in labels below", "code 0, 1 in 198.18.0.0"),
    ("dot in a label", "code 3"),
    ("NUL in a label", "code 3"),
    ("address", "code 3"),
    ("TXT", "code 5"),
    ("MX", "code 5"),
    ("PTR", "code 5"),
    ("HTTPS", "code 5"),
    ("ANY", "code 5"),
    ("CHAOS", "code 5"),
    ("update", "code 4"),
    ("two questions", "code 1"),
    ("cut off", "code 1"),
    ("connect", "served"),
    ("another port", "ConnectionRefusedError"),
    ("address of no name", "ConnectionRefusedError"),
    ("name of a near address", "ConnectionResetError"),
    ("name of the metadata address", "ConnectionResetError"),
    ("Host of another name", "network.request"),
    ("Host by address", "network.request"),
    // The alert `access_denied`.
    ("SNI of another name", "15030300020231"),
    ("a listener in the resolver's place", "OSError"),
    ("a listener in a name's place", "OSError"),
    ("a listener on the loopback at a name's port", "bound"),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_resolver_answers_names_that_a_rule_could_allow_and_nothing_else() {
    let fixture = Fixture::start();
    let session = Session::open(&fixture.gateway).await;
    every_question_comes_to_what_it_should(fixture, session).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_resolver_of_an_ordinary_users_gateway_answers_the_same() {
    if !is_root() {
        return skip("another user's gateway needs root");
    }
    let fixture = Fixture::start_as(Some(USER));
    let session = Session::open_as(&fixture.gateway, USER).await;
    every_question_comes_to_what_it_should(fixture, session).await;
}

async fn every_question_comes_to_what_it_should(fixture: Fixture, session: Session) {
    fs::write(session.workspace.join("resolver.py"), include_str!("resolver.py")).expect("a file");
    let asked = fixture.command(&session, Network::Proxy, "python3").args(["resolver.py"]);
    let done = asked.retain(1 << 20).finish().await;
    let text = done.text();
    let pair = |line: &str| serde_json::from_str(line).unwrap_or_else(|_| panic!("{text}"));
    let outcomes: BTreeMap<String, String> = text.lines().map(pair).collect();
    let wrong: Vec<_> = RESOLVER
        .iter()
        .filter(|(name, expected)| outcomes.get(*name).map(String::as_str) != Some(expected))
        .map(|(name, expected)| format!("{name}: {:?} and not {expected}", outcomes.get(*name)))
        .collect();
    assert!(wrong.is_empty() && outcomes.len() == RESOLVER.len(), "{wrong:#?}");
    let records = fixture.records("connection");
    for (host, rule) in [
        ("near.test", "network.address"),
        ("metadata.test", "network.address"),
        ("registry.test", "network.agreement"),
    ] {
        let is_denied = |one: &serde_json::Value| {
            one["host"] == host && one["rule"] == rule && one["protocol"] == "transparent"
        };
        assert!(records.iter().any(is_denied), "{host}: {records:#?}");
    }
    session.close().await;
    fixture.gateway.stop();
}

/// What a server of names was asked, as text.
fn asked(questions: &mpsc::Receiver<Vec<u8>>, deadline: Duration, part: &str) -> (bool, Vec<String>) {
    let until = Instant::now() + deadline;
    let mut all = Vec::new();
    while let Ok(question) = questions.recv_timeout(until.saturating_duration_since(Instant::now())) {
        let text: String = question.iter().map(|byte| char::from(*byte)).collect();
        let is_it = text.contains(part);
        all.push(text);
        if is_it {
            return (true, all);
        }
    }
    (false, all)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_of_a_refused_name_leaves_the_host() {
    let fixture = Fixture::start();
    let server = UdpSocket::bind((fixture.address.as_str(), 0)).expect("a port is free");
    let at = server.local_addr().expect("it has an address");
    fs::write(fixture.directory.path().join("resolv.conf"), format!("nameserver {at}\n")).expect("a file");
    let (sender, questions) = mpsc::sync_channel(1_024);
    thread::spawn(move || {
        let mut bytes = [0; 1_000];
        while let Ok((count, asking)) = server.recv_from(&mut bytes) {
            if sender.send(bytes[..count].to_vec()).is_err() {
                return;
            }
            // There is no such name.
            bytes[2] |= 0x80;
            bytes[3] = 3;
            let _ = server.send_to(&bytes[..count], asking);
        }
    });
    let session = Session::open(&fixture.gateway).await;
    let script = format!(
        "curl -s http://c2VjcmV0.other.test:18080/; {UNSET} for name in c2VjcmV0.other.test c2VjcmV0.xfiles.test secret.files.test c2VjcmV0.files.test; do \
         python3 -c 'import socket, sys; print(socket.gethostbyname(sys.argv[1]))' $name; done; echo done"
    );
    let done = fixture.sh(&session, &script).finish().await;
    assert!(done.text().ends_with("done\n") && done.text().contains("198.1"), "{}", done.text());
    // A name that is allowed is asked for when it is connected to, and is the first one that is.
    let allowed = fixture.sh(&session, "curl -s http://nowhere.test:18080/").finish().await;
    let (is_asked, all) = asked(&questions, Duration::from_secs(30), "nowhere");
    assert!(is_asked, "{all:?} {}", allowed.text());
    assert!(all.iter().all(|question| question.contains("nowhere")), "{all:?}");
    session.close().await;
    fixture.gateway.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_go_by_the_rules_that_are_in_force_and_their_number_is_bounded() {
    let fixture = Fixture::start();
    let session = Session::open(&fixture.gateway).await;
    // More names than have an address at once: the first ones lose theirs, and get it again.
    let many = format!(
        "{UNSET} python3 -c \"import socket\n\
         first = socket.gethostbyname('a.files.test')\n\
         for n in range(400): socket.gethostbyname('n%d.files.test' % n)\n\
         try: socket.create_connection((first, 18080), 10); print('open')\n\
         except ConnectionRefusedError: print('closed')\n\
         print(first == socket.gethostbyname('a.files.test'))\n\
         socket.create_connection((first, 18080), 10); print('open')\""
    );
    assert_eq!(fixture.sh(&session, &many).finish().await.text(), "closed\nTrue\nopen\n");
    let holder = fixture
        .sh(
            &session,
            &format!(
                "{UNSET} curl -s --noproxy '*' http://registry.test:18080/ && while [ ! -e go ]; do sleep 0.1; done; \
                 curl -sS --noproxy '*' http://registry.test:18080/ 2>&1"
            ),
        )
        .create()
        .await;
    holder.until("SERVED").await;
    fixture.reload_with("[[connect]]\nid = 'closed'\ndecision = 'deny'\nhost = ['registry.test']\n");
    fs::write(session.workspace.join("go"), "").expect("a file");
    let outcome = holder.wait().await;
    let text = String::from_utf8_lossy(&holder.output().await.data).into_owned();
    assert!(code(&outcome) == 6 && text.contains("resolve host"), "{text}");
    assert_eq!(outcome.connect_denials[0].rule, "closed");
    session.close().await;
    fixture.gateway.stop();
}
