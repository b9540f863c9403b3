//! Programs of languages and build tools, each as it is: those that know the proxy use it, and the others find the name.

use std::fs;

use crate::{
    fixture::Fixture,
    support::{Session, code},
};

/// What it is, whether it is there, and how it fetches from HOST.
const CLIENTS: [(&str, &str, &str); 6] = [
    (
        "Node's fetch",
        "node -e fetch",
        "NODE_EXTRA_CA_CERTS=cert.pem node -e \"fetch('https://HOST:18443/').then(answer => answer.text())\
         .then(console.log).catch(error => { console.log(error); process.exit(1) })\" 2>&1",
    ),
    (
        "Python's requests",
        "python3 -c 'import requests'",
        "python3 -c \"import requests; print(requests.get('https://HOST:18443/', verify='cert.pem').text)\" 2>&1",
    ),
    // It looks at none of the variables.
    ("Java", "java -version", "java -Xshare:auto -XX:TieredStopAtLevel=1 Fetch.java http://HOST:18080/ 2>&1"),
    (
        "cargo",
        "cargo --version",
        "CARGO_NET_RETRY=0 CARGO_HTTP_CAINFO=cert.pem cargo search --index sparse+https://HOST:18443/ x 2>&1",
    ),
    (
        "Go",
        "go version",
        "SSL_CERT_FILE=cert.pem GOCACHE=/tmp/go CGO_ENABLED=0 go run fetch.go https://HOST:18443/ 2>&1",
    ),
    ("wget", "wget --version", "wget -q -t 1 --ca-certificate=cert.pem -O - https://HOST:18443/ 2>&1"),
];

const JAVA: &str = "public class Fetch {\n\
    public static void main(String[] arguments) throws Exception {\n\
    try (var answer = new java.net.URL(arguments[0]).openStream()) {\n\
    System.out.write(answer.readAllBytes()); System.out.flush();\n\
    }\n\
    }\n\
    }\n";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "long: .ci/run runs it"]
async fn programs_of_languages_and_build_tools_go_by_the_rules() {
    let fixture = Fixture::start();
    let session = Session::open(&fixture.gateway).await;
    fs::write(session.workspace.join("Fetch.java"), JAVA).expect("a file");
    let mut tried = Vec::new();
    for (name, is_there, script) in CLIENTS {
        let found = fixture.sh(&session, &format!("{is_there} >/dev/null 2>&1")).finish().await;
        if code(&found.outcome) != 0 {
            println!("SKIPPED: {name} is not in the sandbox");
            continue;
        }
        tried.push(name);
        let before = fixture.received("registry.test");
        let allowed = fixture.sh(&session, &script.replace("HOST", "registry.test")).finish().await;
        // cargo says what it thinks of the answer.
        let is_served = allowed.text().contains("SERVED") || name == "cargo";
        assert!(is_served, "{name}: {}", allowed.text());
        fixture.receives_more(name, "registry.test", before).await;
        let refused = fixture.sh(&session, &script.replace("HOST", "other.test")).finish().await;
        let denied = &refused.outcome.connect_denials;
        assert_ne!(code(&refused.outcome), 0, "{name}: {}", refused.text());
        assert!(
            denied.iter().any(|one| (one.host.as_str(), one.rule.as_str()) == ("other.test", "default")),
            "{name}: {denied:?} {}",
            refused.text()
        );
    }
    println!("tried: {tried:?}");
    assert!(!tried.is_empty());
    assert_eq!(fixture.received("other.test"), 0);
    session.close().await;
    fixture.gateway.stop();
}
