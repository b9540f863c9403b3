//! Programs of languages and build tools in opened TLS: each trusts the session's certificates by its environment alone.

use crate::{
    opened_servers::OpenedFixture,
    support::{Session, code, eventually},
};

/// What it is, whether it is there, and how it fetches PATH from HOST.
const CLIENTS: [(&str, &str, &str); 11] = [
    ("curl", "curl --version", "curl -sSf https://HOST:19443/PATH 2>&1"),
    (
        "wget",
        "wget --version",
        "wget -q -t 1 --ca-certificate=$SSL_CERT_FILE -O - https://HOST:19443/PATH 2>&1",
    ),
    (
        "Python",
        "python3 --version",
        "python3 -c \"import urllib.request; print(urllib.request.urlopen('https://HOST:19443/PATH').read().decode())\" 2>&1",
    ),
    (
        "Python's requests",
        "python3 -c 'import requests'",
        "python3 -c \"import requests; r = requests.get('https://HOST:19443/PATH'); print(r.text); r.raise_for_status()\" 2>&1",
    ),
    (
        "Node's fetch",
        "node -e fetch",
        "node -e \"fetch('https://HOST:19443/PATH').then(async answer => { console.log(await answer.text()); \
         process.exit(answer.ok ? 0 : 1) }).catch(error => { console.log(error); process.exit(1) })\" 2>&1",
    ),
    ("git", "git --version", "git ls-remote https://HOST:19443/PATH 2>&1"),
    (
        "npm",
        "npm --version",
        "npm --cache=/tmp/npm --fetch-retries=0 --registry=https://HOST:19443/PATH/ view nothing 2>&1",
    ),
    (
        "pip",
        "python3 -m pip --version",
        "python3 -m pip download --no-cache-dir --retries 0 --index-url https://HOST:19443/PATH nothing 2>&1",
    ),
    (
        "cargo",
        "cargo --version",
        "CARGO_NET_RETRY=0 cargo search --index sparse+https://HOST:19443/PATH/ x 2>&1",
    ),
    (
        "Java",
        "java -version",
        "mkdir -p /tmp/java && cat > /tmp/java/Fetch.java <<'END'\n\
         public class Fetch {\n\
         public static void main(String[] urls) throws Exception {\n\
         var connection = (java.net.HttpURLConnection) new java.net.URL(urls[0]).openConnection();\n\
         boolean failed = connection.getResponseCode() >= 400;\n\
         var answer = failed ? connection.getErrorStream() : connection.getInputStream();\n\
         System.out.println(new String(answer.readAllBytes()));\n\
         System.exit(failed ? 1 : 0);\n\
         }}\n\
         END\n\
         java /tmp/java/Fetch.java https://HOST:19443/PATH 2>&1",
    ),
    ("Go", "go version", "GOCACHE=/tmp/go CGO_ENABLED=0 go run fetch.go https://HOST:19443/PATH 2>&1"),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "long: .ci/run runs it"]
async fn tools_trust_the_sessions_certificates_and_are_told_what_no_rule_allows() {
    let fixture = OpenedFixture::start();
    let session = Session::open(&fixture.gateway).await;
    let mut tried = Vec::new();
    for (name, is_there, script) in CLIENTS {
        let found = fixture.sh(&session, &format!("{is_there} >/dev/null 2>&1")).finish().await;
        if code(&found.outcome) != 0 {
            println!("SKIPPED: {name} is not in the sandbox");
            continue;
        }
        tried.push(name);
        let fetch = |path: &str| script.replace("HOST", "vault.test").replace("PATH", path);
        let allowed = fixture.sh(&session, &fetch("v1/tool")).finish().await;
        let passed = judged(&fixture, "/v1/tool", "allow");
        assert!(passed > 0, "{name}: {}", allowed.text());
        // What is not read by tools that want a repository is served all the same.
        let reads_all = !["git", "npm", "pip", "cargo"].contains(&name);
        assert!(
            !reads_all || allowed.text().contains("SERVED https GET vault.test"),
            "{name}: {}",
            allowed.text()
        );
        let refused = fixture.sh(&session, &fetch("v2/tool")).finish().await;
        assert_ne!(code(&refused.outcome), 0, "{name}: {}", refused.text());
        let denied = &refused.outcome.connect_denials;
        assert!(
            denied.iter().any(|one| (one.host.as_str(), one.rule.as_str()) == ("vault.test", "default")),
            "{name}: {denied:?}"
        );
        assert_eq!(judged(&fixture, "/v2/tool", "allow"), 0, "{name}");
        let carried = script.replace("HOST", "carried.test").replace("PATH", "v2/tool");
        let before = fixture.records("connection_ended").len();
        let carried = fixture.sh(&session, &carried).finish().await;
        let what = format!("{name}: the end of a connection is written down: {}", carried.text());
        eventually(&what, || (fixture.records("connection_ended").len() > before).then_some(())).await;
        // Node has roots of its own, of which the tests' is none.
        let trusts_root = reads_all && name != "Node's fetch";
        assert!(
            !trusts_root || carried.text().contains("SERVED https GET carried.test"),
            "{name}: {}",
            carried.text()
        );
    }
    println!("tried: {tried:?}");
    assert!(tried.len() > 1);
    session.close().await;
    fixture.gateway.stop();
}

/// How many requests to a path, or below it, were decided upon in this way.
fn judged(fixture: &OpenedFixture, path: &str, decision: &str) -> usize {
    let is_one = |record: &&serde_json::Value| {
        record["decision"] == decision && record["path"].as_str().is_some_and(|asked| asked.starts_with(path))
    };
    fixture.records("connection").iter().filter(is_one).count()
}
