//! Real tools reach what a rule allows, and are told which rule refuses the rest.

use std::fs;

use provost::proto::v1::Network;

use crate::{
    fixture::Fixture,
    support::{Session, code, eventually, is_root, skip},
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn curl_reaches_what_is_allowed_and_is_told_the_rule_of_the_rest() {
    let fixture = Fixture::start();
    let session = Session::open(&fixture.gateway).await;
    let script = "curl -sS http://registry.test:18080/plain
        curl -sS --cacert cert.pem https://a.files.test:18443/tls
        curl -sS --socks5-hostname 127.0.0.1:1080 http://registry.test:18080/socks
        curl -sS -X POST --data-binary @cert.pem http://registry.test:18080/post
        curl -sS http://other.test:18080/
        curl -sS https://secret.files.test:18443/";
    let done = fixture.sh(&session, script).finish().await;
    let text = done.text();
    for part in [
        "SERVED GET registry.test:18080 /plain 0",
        "SERVED GET a.files.test:18443 /tls 0",
        "SERVED GET registry.test:18080 /socks 0",
        "SERVED POST registry.test:18080 /post",
        "provost: other.test:18080 is denied by rule \"default\": no rule allows it",
        "403",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(!text.contains("proxy-"), "what is for the proxy is not passed on: {text}");
    let receipt = fixture.sh(&session, "true").create().await.info.receipt.clone().expect("a receipt");
    assert_eq!(receipt.network(), Network::Proxy);
    let denied: Vec<_> =
        done.outcome.connect_denials.iter().map(|one| (one.host.as_str(), one.rule.as_str())).collect();
    assert_eq!(denied, [("other.test", "default"), ("secret.files.test", "no-secret")]);
    assert_eq!(done.outcome.connect_denials[1].reason, "it is a secret");

    let records = fixture.records("connection");
    let verdicts: Vec<_> =
        records.iter().map(|record| (record["host"].as_str(), record["decision"].as_str())).collect();
    assert!(verdicts.contains(&(Some("registry.test"), Some("allow"))), "{records:#?}");
    assert!(verdicts.contains(&(Some("secret.files.test"), Some("deny"))), "{records:#?}");
    assert!(records.iter().all(|record| record["terminal"] == done.id.as_str()), "{records:#?}");
    let ended = fixture.records("connection_ended");
    let post = ended.iter().find(|record| record["sent_bytes"].as_u64().is_some_and(|bytes| bytes > 500));
    assert!(post.is_some_and(|record| record["received_bytes"].as_u64() > Some(50)), "{ended:#?}");
    session.close().await;
    fixture.gateway.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn provost_run_says_on_stderr_what_was_refused() {
    let fixture = Fixture::start();
    let session = Session::open(&fixture.gateway).await;
    let printed = std::process::Command::new(env!("CARGO_BIN_EXE_provost"))
        .args(["run", "--gateway", &format!("unix:{}", fixture.gateway.socket.display())])
        .args(["--network", "proxy", "--", "curl", "-s", "http://other.test:18080/"])
        .current_dir(&session.workspace)
        .output()
        .expect("provost starts");
    let stderr = String::from_utf8_lossy(&printed.stderr);
    let line = "provost: denied: connection to other.test:18080: no rule allows it (rule \"default\")";
    assert!(stderr.lines().any(|shown| shown == line), "{stderr}");
    let remedy = "provost: a [[connect]] rule of the policy would allow it: decision = \"allow\", \
                  host = [\"other.test\"], port = [18080]";
    assert!(stderr.lines().any(|shown| shown == remedy), "{stderr}");
    session.close().await;
    fixture.gateway.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_no_rule_allows_is_told_with_its_method_and_path() {
    let fixture = Fixture::start();
    let session = Session::open(&fixture.gateway).await;
    let printed = std::process::Command::new(env!("CARGO_BIN_EXE_provost"))
        .args(["run", "--gateway", &format!("unix:{}", fixture.gateway.socket.display())])
        .args([
            "--network",
            "proxy",
            "--",
            "curl",
            "-s",
            "-X",
            "DELETE",
            "http://reading.test:18080/v1/x?key=1",
        ])
        .current_dir(&session.workspace)
        .output()
        .expect("provost starts");
    let stderr = String::from_utf8_lossy(&printed.stderr);
    let line =
        "provost: denied: request DELETE /v1/x to reading.test:18080: no rule allows it (rule \"default\")";
    assert!(stderr.lines().any(|shown| shown == line), "{stderr}");
    // No more than what was refused.
    let remedy = "provost: a [[connect]] rule of the policy would allow it: decision = \"allow\", \
                  host = [\"reading.test\"], port = [18080], method = [\"DELETE\"], path = [\"/v1/x\"]";
    assert!(stderr.lines().any(|shown| shown == remedy), "{stderr}");
    session.close().await;
    fixture.gateway.stop();
}

/// A program, how it fetches, and what it says of what it may not have.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn python_git_pip_and_npm_go_by_the_rules() {
    let fixture = Fixture::start();
    let session = Session::open(&fixture.gateway).await;
    let python = "import sys, urllib.request, ssl\n\
        print(urllib.request.urlopen(sys.argv[1], context=ssl.create_default_context(cafile='cert.pem')).read().decode())\n";
    fs::write(session.workspace.join("fetch.py"), python).expect("a file");
    // (program, what it does to an allowed host, to another one)
    for (program, script) in [
        ("python3", "python3 fetch.py https://HOST:18443/"),
        ("git", "git -c http.sslCAInfo=cert.pem ls-remote https://HOST:18443/repository 2>&1"),
        (
            "pip",
            "python3 -m pip download --no-cache-dir --cert cert.pem --index-url https://HOST:18443/simple nothing 2>&1",
        ),
        (
            "npm",
            "npm --cache=/tmp/npm --cafile=cert.pem --fetch-retries=0 --registry=https://HOST:18443/ view nothing 2>&1",
        ),
    ] {
        let installed = fixture
            .sh(&session, &format!("{} --version", script.split(' ').next().unwrap_or_default()))
            .finish()
            .await;
        if code(&installed.outcome) != 0 {
            println!("SKIPPED: {program} is not in the sandbox: {}", installed.text());
            continue;
        }
        let before = reached(&fixture, "registry.test");
        let allowed = fixture.sh(&session, &script.replace("HOST", "registry.test")).finish().await;
        // Recorded when the connection has ended, which need not be before the program has.
        let said = format!("{program} reaches the host: {}", allowed.text());
        eventually(&said, || (reached(&fixture, "registry.test") > before).then_some(())).await;
        let refused = fixture.sh(&session, &script.replace("HOST", "other.test")).finish().await;
        assert_ne!(code(&refused.outcome), 0, "{program}: {}", refused.text());
        assert!(
            refused
                .outcome
                .connect_denials
                .iter()
                .any(|one| one.host == "other.test" && one.rule == "default"),
            "{program}: {:?} {}",
            refused.outcome,
            refused.text()
        );
        assert_eq!(reached(&fixture, "other.test"), 0, "{program}");
    }
    session.close().await;
    fixture.gateway.stop();
}

/// Bytes that a host has answered, by the journal.
fn reached(fixture: &Fixture, host: &str) -> u64 {
    let ended = fixture.records("connection_ended");
    ended
        .iter()
        .filter(|record| record["host"] == host)
        .filter_map(|record| record["received_bytes"].as_u64())
        .sum()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sandbox_has_a_loopback_and_nothing_else() {
    let fixture = Fixture::start();
    let session = Session::open(&fixture.gateway).await;
    let list = fixture
        .sh(&session, "cat /proc/net/route; ls /sys/class/net 2>/dev/null; cat /proc/net/dev")
        .finish()
        .await;
    assert!(list.text().contains("lo:") && !list.text().contains("eth"), "{}", list.text());
    session.close().await;
    fixture.gateway.stop();
}

/// A package for npm in the server's directory, and a project with a lock file that names it.
const PACKAGE: &str = "import base64, hashlib, io, json, sys, tarfile
files = {'package/package.json': json.dumps({'name': 'is-there', 'version': '1.0.0'}), 'package/index.js': 'module.exports = 42'}
with tarfile.open(sys.argv[1] + '/package.tgz', 'w:gz') as package:
    for name, text in files.items():
        entry = tarfile.TarInfo(name)
        entry.size = len(text)
        package.addfile(entry, io.BytesIO(text.encode()))
digest = hashlib.sha512(open(sys.argv[1] + '/package.tgz', 'rb').read()).digest()
own = {'name': 'project', 'version': '1.0.0', 'dependencies': {'is-there': '1.0.0'}}
locked = {'version': '1.0.0', 'resolved': 'https://registry.npmjs.org/is-there/-/is-there-1.0.0.tgz',
          'integrity': 'sha512-' + base64.b64encode(digest).decode()}
json.dump(own, open(sys.argv[2] + '/package.json', 'w'))
json.dump(dict(own, lockfileVersion=3, packages={'': own, 'node_modules/is-there': locked}),
          open(sys.argv[2] + '/package-lock.json', 'w'))
";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn npm_ci_fetches_from_the_registry_by_the_shipped_policy() {
    if !is_root() {
        return skip("a server on port 443 needs root");
    }
    let fixture = Fixture::start();
    let session = Session::open(&fixture.gateway).await;
    if code(&fixture.sh(&session, "npm --version").finish().await.outcome) != 0 {
        return skip("npm is not in the sandbox");
    }
    let made = std::process::Command::new("python3")
        .args(["-c", PACKAGE])
        .args([fixture.directory.path(), &session.workspace])
        .status()
        .expect("python3 can be started");
    assert!(made.success());
    let script = "npm_config_cafile=cert.pem npm_config_registry=https://registry.npmjs.org/ npm ci --no-audit --no-fund 2>&1 && \
        node -p 'require(\"is-there\")'";
    let done = fixture.sh(&session, script).finish().await;
    assert!(code(&done.outcome) == 0 && done.text().ends_with("42\n"), "{}", done.text());
    // Only for this: its server is not public.
    let records = fixture.records("connection");
    assert!(
        records.iter().any(|one| one["host"] == "registry.npmjs.org" && one["decision"] == "allow"),
        "{records:#?}"
    );
    session.close().await;
    fixture.gateway.stop();
}
