//! Ways past the rules. Each is tried by a program in the sandbox, and none reaches a server that the rules do not let it reach.

use std::{
    collections::BTreeMap,
    io::{BufRead as _, BufReader},
    process::{Command, Stdio},
};

use provost::proto::v1::Network;

use crate::{
    fixture::Fixture,
    support::{Session, is_root, skip},
};

/// What works, and must go on working.
const SERVED: [&str; 10] = [
    "connect",
    "connect below",
    "connect upper case and dot",
    "http",
    "http 1.0",
    "socks",
    "tls",
    "any protocol",
    "keep-alive",
    "direct by a name",
];

/// Attacks whose answer names a rule.
const BY_RULE: [(&str, &str); 33] = [
    ("redirect to a refused host", "default"),
    ("names over HTTPS, by the proxy", "default"),
    ("another name", "default"),
    ("denied name", "no-secret"),
    ("denied name, upper case", "no-secret"),
    ("parent of names", "default"),
    ("ending", "default"),
    ("name in front", "default"),
    ("data in labels", "default"),
    ("another port", "default"),
    ("long label", "network.name"),
    ("long name", "network.name"),
    ("address in rule's network", "default"),
    ("address", "default"),
    ("decimal", "default"),
    ("hexadecimal", "default"),
    ("octal", "default"),
    ("short", "default"),
    ("mapped", "default"),
    ("compatible", "default"),
    ("NAT64", "default"),
    ("6to4", "default"),
    ("loopback", "default"),
    ("loopback of IPv6", "default"),
    ("localhost", "default"),
    ("metadata", "default"),
    ("metadata of IPv6", "default"),
    ("private", "default"),
    ("multicast", "default"),
    ("name of a near address", "network.address"),
    ("name of a mapped address", "network.address"),
    ("name of NAT64", "network.address"),
    ("name of the metadata address", "network.address"),
];

/// Attacks that no server can be reached by here, also where nothing forbids them, and why.
const WITHOUT_CONTROL: [(&str, &str); 13] = [
    ("https to the HTTP proxy", "a server of TLS takes no plain request"),
    ("no HTTP and no TLS", "the server speaks neither"),
    ("direct to the host's loopback", "nothing listens there"),
    ("direct by another name", "the host does not know the name"),
    ("DNS", "this host may have no way there: \"UDP\" is the same"),
    ("ICMP", "this host may have no way there"),
    ("another network namespace", "a new one has no way out anywhere"),
    ("both namespaces", "likewise"),
    ("the network namespace of process 1", "outside only root may enter it"),
    ("HTTP/2 in a tunnel", "the server speaks no HTTP/2"),
    ("HTTP/2 to the proxy", "likewise"),
    ("a listener in the proxy's place", "another test's gateway may have one"),
    ("a listener in the SOCKS proxy's place", "another test's gateway may have one"),
];

/// What else than being served shows that an attack works: the beginning of the server's own answer.
const ANSWERED: [(&str, &str); 6] = [
    ("ECH", "\u{15}\u{3}"),
    ("two SNI", "\u{15}\u{3}"),
    ("SNI with NUL", "\u{15}\u{3}"),
    ("SNI by socks", "\u{15}\u{3}"),
    ("both framings", "2 served"),
    ("UDP", "SERVED udp"),
];

/// Each attack, by a proxy without rules, or by none with the host's network.
#[test]
fn every_attack_works_where_nothing_forbids_it() {
    let fixture = Fixture::start();
    let at = |name: &str| fixture.directory.path().join(name);
    std::fs::write(at("open_proxy.py"), include_str!("open_proxy.py")).expect("a file");
    std::fs::write(at("client.py"), include_str!("client.py")).expect("a file");
    let mut open = Command::new("python3")
        .arg(at("open_proxy.py"))
        .arg(&fixture.address)
        .stdout(Stdio::piped())
        .spawn()
        .expect("python3 can be started");
    let mut ports = String::new();
    BufReader::new(open.stdout.take().expect("a pipe")).read_line(&mut ports).expect("it says its ports");
    let (http, socks) = ports.trim().split_once(' ').expect("two ports");
    let client = Command::new("python3")
        .arg(at("client.py"))
        .arg(&fixture.address)
        .env("INSTEAD_OF_HTTP", http)
        .env("INSTEAD_OF_SOCKS", socks)
        .output();
    let _ = open.kill();
    let _ = open.wait();
    let client = client.expect("python3 can be started");
    let text = String::from_utf8_lossy(&client.stdout).into_owned();
    let pair = |line: &str| serde_json::from_str(line).unwrap_or_else(|_| panic!("{text} {client:?}"));
    let outcomes: BTreeMap<String, String> = text.lines().map(pair).collect();
    let without = |name: &str| WITHOUT_CONTROL.iter().any(|(one, _)| *one == name);
    let attacks: Vec<_> =
        outcomes.iter().filter(|(name, _)| !without(name) && !SERVED.contains(&name.as_str())).collect();
    let wrong: Vec<_> = attacks
        .iter()
        .filter(|(name, outcome)| match ANSWERED.iter().find(|(one, _)| one == name) {
            Some((_, answer)) => !outcome.starts_with(answer),
            None => *outcome != "served",
        })
        .collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(attacks.len() >= 81, "{} attacks", attacks.len());
    for name in WITHOUT_CONTROL.iter().chain(&ANSWERED).map(|(name, _)| *name) {
        assert!(outcomes.contains_key(name), "{name}");
    }
    fixture.gateway.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_the_hosts_network_a_program_reaches_what_it_wants() {
    let fixture = Fixture::start();
    let session = Session::open(&fixture.gateway).await;
    let served = fixture.attacks(&session, Network::Host, &["direct", "direct by IPv6", "UDP"]).await;
    let expected = [("direct", "served"), ("direct by IPv6", "served"), ("UDP", "SERVED udp")];
    let expected = expected.map(|(name, outcome)| (name.to_owned(), outcome.to_owned()));
    assert_eq!(served, expected);
    session.close().await;
    fixture.gateway.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_attack_on_the_proxies_reaches_what_no_rule_allows() {
    let fixture = Fixture::start();
    let session = Session::open(&fixture.gateway).await;
    every_attack_fails(&fixture, session).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_attack_on_the_proxies_of_an_ordinary_users_gateway_reaches_what_no_rule_allows() {
    if !is_root() {
        return skip("another user's gateway needs root");
    }
    let user = 54_383;
    let fixture = Fixture::start_as(Some(user));
    let session = Session::open_as(&fixture.gateway, user).await;
    every_attack_fails(&fixture, session).await;
}

async fn every_attack_fails(fixture: &Fixture, session: Session) {
    let outcomes: BTreeMap<String, String> =
        fixture.attacks(&session, Network::Proxy, &[]).await.into_iter().collect();
    assert!(outcomes.len() >= 103, "{} attacks", outcomes.len());
    let mut wrong = Vec::new();
    for (name, outcome) in &outcomes {
        let is_right = match BY_RULE.iter().find(|(attack, _)| attack == name) {
            Some((_, rule)) => outcome == rule,
            None if SERVED.contains(&name.as_str()) => outcome == "served",
            None => outcome != "served" && outcome != "bound" && outcome != "SERVED udp",
        };
        if !is_right {
            wrong.push(format!("{name}: {outcome}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    for name in SERVED.iter().chain(BY_RULE.iter().map(|(name, _)| name)) {
        assert!(outcomes.contains_key(*name), "{name}");
    }
    // The proxy takes one of two lengths of a request, and writes its own: nothing is left that a server could read as a request.
    let exact = [
        ("SNI of another host", "access denied"),
        ("no SNI", "access denied"),
        ("both framings", "1 served"),
    ];
    for (name, outcome) in exact {
        assert_eq!(outcomes[name], outcome, "{name}");
    }
    // A refusal of an agreement is in the journal, and so is one of a request.
    let records = fixture.records("connection");
    let count = |rule: &str| records.iter().filter(|record| record["rule"] == rule).count();
    assert!(count("network.agreement") >= 4 && count("network.request") >= 6, "{records:#?}");
    session.close().await;
    fixture.gateway.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_session_is_no_relay_for_another() {
    let fixture = Fixture::start();
    let (one, other) = (Session::open(&fixture.gateway).await, Session::open(&fixture.gateway).await);
    let holder =
        fixture.sh(&one, "curl -sS http://registry.test:18080/ && echo up && exec sleep 600").create().await;
    holder.until("up").await;
    let done =
        fixture.command(&other, Network::None, "python3").args(["client.py", &fixture.address, "connect"]);
    let text = done.finish().await.text();
    assert!(
        text.contains("ConnectionRefused"),
        "the other session has no proxy, and sees not that of the first: {text}"
    );
    one.close().await;
    other.close().await;
    fixture.gateway.stop();
}
