//! TLS that is opened, because a rule is about the requests in it: what passes, what does not, and who can sign for whom.

use std::{fs, path::PathBuf, process::Command};

use provost::proto::{
    state::AuthorityRecord,
    v1::{ApprovalDecision, ApprovalState, Network},
};

use crate::{
    asked::Approver,
    opened_servers::{OpenedFixture, PORT},
    support::{Session, code, eventually, is_root, skip},
};

/// Each way to ask a host for something, as a shell's function of a method and a path.
const WAYS: [&str; 5] = [
    "ask() { curl -sS --path-as-is -X $1 https://vault.test:19443$2; }",
    "ask() { curl -sS --http1.1 --path-as-is -X $1 https://vault.test:19443$2; }",
    "ask() { curl -sS --path-as-is -X $1 --noproxy '' --proxy socks5h://127.0.0.1:1080 https://vault.test:19443$2; }",
    "ask() { curl -sS --path-as-is -X $1 --noproxy '*' https://vault.test:19443$2; }",
    "ask() { curl -sS --path-as-is -X $1 https://a.vault.test:19443$2; }",
];

/// A method, a path, and what comes of it: an answer of the server, or the rule that refuses.
const REQUESTS: [(&str, &str, &str); 11] = [
    ("GET", "/v1/x", "SERVED https GET"),
    ("GET", "/v1/x?a=/v1/private/y", "SERVED https GET"),
    ("POST", "/v1/x", "SERVED https POST"),
    ("DELETE", "/v1/x", "default"),
    ("GET", "/v2", "default"),
    ("GET", "/", "default"),
    ("GET", "/v1/private/y", "closed-part"),
    ("GET", "/v1/../v2", "network.request"),
    ("GET", "/v1/%2e%2e/v2", "network.request"),
    ("GET", "/v1//private/y", "network.request"),
    ("GET", "/v1/x%2f..%2fprivate/y", "network.request"),
];

async fn requests_go_by_their_rules(fixture: &OpenedFixture) {
    let session = Session::open(&fixture.gateway).await;
    for way in WAYS {
        let asking: String =
            REQUESTS.iter().map(|(method, path, _)| format!("ask {method} '{path}'\n")).collect();
        let done = fixture.sh(&session, &format!("{way}\n{asking}")).finish().await;
        let text = done.text();
        let answers: Vec<&str> = text.lines().collect();
        assert_eq!(answers.len(), REQUESTS.len(), "{way}: {text}");
        for ((method, path, expected), answer) in REQUESTS.iter().zip(answers) {
            // What a rule denies at one host is no matter at another.
            let is_elsewhere = way.contains("a.vault.test") && *expected == "closed-part";
            let is_right = match expected.starts_with("SERVED") || is_elsewhere {
                true => answer.starts_with("SERVED https"),
                false => answer.contains(&format!("denied by rule \"{expected}\"")),
            };
            assert!(is_right, "{way} {method} {path}: {answer}");
        }
    }
    let records = fixture.records("connection");
    let refused = records.iter().find(|record| record["rule"] == "closed-part").expect("it is recorded");
    assert_eq!((&refused["method"], &refused["path"]), (&"GET".into(), &"/v1/private/y".into()));
    assert_eq!(refused["tls"], "terminate");
    session.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_in_opened_tls_pass_by_their_methods_and_paths_and_no_other_way() {
    let fixture = OpenedFixture::start();
    requests_go_by_their_rules(&fixture).await;
    fixture.gateway.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_in_opened_tls_go_by_the_rules_of_an_ordinary_users_gateway() {
    if !is_root() {
        return skip("the other test is of an ordinary user's gateway already");
    }
    let fixture = OpenedFixture::start_as(Some(1_000));
    requests_go_by_their_rules(&fixture).await;
    fixture.gateway.stop();
}

/// The issuer of the certificate that a program sees.
const ISSUER: &str = "issuer() { openssl s_client -proxy 127.0.0.1:3128 -connect $1:19443 -servername $1 </dev/null 2>/dev/null \
    | openssl x509 -noout -issuer; }\n";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tls_to_a_host_without_such_a_rule_is_carried_as_it_is() {
    let fixture = OpenedFixture::start();
    let session = Session::open(&fixture.gateway).await;
    let done =
        fixture.sh(&session, &format!("{ISSUER} issuer carried.test; issuer vault.test")).finish().await;
    let text = done.text();
    let issuers: Vec<&str> = text.lines().collect();
    assert!(issuers.len() == 2 && issuers[0].contains("Test root"), "{text}");
    assert!(issuers[1].contains("Provost session"), "{text}");
    // The bundle that commands have verifies both.
    let done = fixture
        .sh(&session, "curl -sS https://carried.test:19443/any; curl -sS https://vault.test:19443/v1/x")
        .finish()
        .await;
    assert_eq!(done.text().matches("SERVED https").count(), 2, "{}", done.text());
    session.close().await;
    fixture.gateway.stop();
}

/// Where the gateway keeps the keys of its only session.
fn keys_file(fixture: &OpenedFixture) -> PathBuf {
    let sessions = fs::read_dir(fixture.gateway.state.join("authorities")).expect("there is one");
    let [session] = &sessions.flatten().collect::<Vec<_>>()[..] else { panic!("one session") };
    session.path().join("authority")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_authority_that_is_stolen_is_of_use_for_its_hosts_alone_and_for_a_day() {
    let fixture = OpenedFixture::start();
    let session = Session::open(&fixture.gateway).await;
    fixture.sh(&session, "curl -sS https://vault.test:19443/v1/x").finish().await;
    let file = keys_file(&fixture);
    let mode =
        std::os::unix::fs::PermissionsExt::mode(&fs::metadata(&file).expect("it is there").permissions());
    assert_eq!(mode & 0o777, 0o600);
    let record: AuthorityRecord = provost_base::statefile::read(&file).expect("it can be read");
    let [authority] = &record.authorities[..] else { panic!("{} authorities", record.authorities.len()) };
    assert!(authority.not_after_s - authority.not_before_s <= 24 * 3_600 + 300);
    let directory = tempfile::tempdir().expect("a directory");
    let at = |name: &str| directory.path().join(name);
    fs::write(at("ca.der"), &authority.certificate).expect("a file");
    fs::write(at("ca.key.der"), &authority.key).expect("a file");
    let script = "openssl x509 -inform DER -in ca.der -out ca.pem
        openssl pkey -inform DER -in ca.key.der -out ca.key
        openssl ecparam -name prime256v1 -genkey -noout -out leaf.key
        sign() {
            printf 'subjectAltName=%s\n' $1 > leaf.ext
            openssl req -new -key leaf.key -subj /O=x | openssl x509 -req -CA ca.pem -CAkey ca.key -CAcreateserial \
                -extfile leaf.ext -days 1 -out leaf.pem
            openssl verify -x509_strict -CAfile ca.pem leaf.pem >out 2>&1 && echo $1 good || echo $1 $(cat out)
        }
        for name in DNS:vault.test DNS:a.vault.test DNS:other.test DNS:test DNS:xvault.test IP:127.0.0.1 IP:::1; do
            sign $name 2>/dev/null
        done
        printf 'basicConstraints=critical,CA:TRUE\nkeyUsage=critical,keyCertSign\n' > leaf.ext
        openssl x509 -in ca.pem -noout -text | grep -A1 'Name Constraints'";
    let output =
        Command::new("sh").args(["-c", script]).current_dir(directory.path()).output().expect("a shell");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let good: Vec<&str> = text.lines().filter(|line| line.ends_with(" good")).collect();
    // An authority key identifier is missing from what is signed here, which a strict verifier minds in neither case.
    let refused = |name: &str| {
        text.lines().any(|line| {
            line.starts_with(name) && (line.contains("subtree violation") || line.contains("excluded"))
        })
    };
    for name in ["DNS:other.test", "DNS:test", "DNS:xvault.test", "IP:127.0.0.1", "IP:::1"] {
        assert!(refused(name), "{name}: {text}");
    }
    assert!(!refused("DNS:vault.test") && !refused("DNS:a.vault.test"), "{good:?} {text}");
    assert!(text.contains("Name Constraints: critical"), "{text}");
    session.close().await;
    assert!(!file.exists(), "it goes with its session");
    fixture.gateway.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_not_verified_is_not_spoken_to() {
    let fixture = OpenedFixture::start();
    let session = Session::open(&fixture.gateway).await;
    for (host, problem) in [
        ("expired.test", "Expired"),
        ("wrong.test", "not valid for name"),
        ("own.test", "invalid peer certificate"),
    ] {
        let done = fixture
            .sh(&session, &format!("curl -sS -o - -w '%{{http_code}}\\n' https://{host}:{PORT}/"))
            .finish()
            .await;
        let text = done.text();
        assert!(
            text.ends_with("502\n") && text.contains("TLS to the server") && !text.contains("SERVED"),
            "{host}: {text}"
        );
        let ended = fixture.records("connection_ended");
        let failed = |record: &&serde_json::Value| {
            record["host"] == host && record["failure"].as_str().is_some_and(|text| text.contains(problem))
        };
        assert!(ended.iter().any(|record| failed(&record)), "{host}: {ended:#?}");
    }
    session.close().await;
    fixture.gateway.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn authorities_outlive_their_gateway_and_further_hosts_are_trusted_at_once() {
    let fixture = OpenedFixture::start();
    let mut session = Session::open(&fixture.gateway).await;
    let get = "curl -sS https://vault.test:19443/v1/x | cut -d' ' -f1-3";
    // A program that has read the certificates once, and keeps them.
    let keeping = "import ssl, http.client, time, os\n\
        context = ssl.create_default_context(cafile=os.environ['SSL_CERT_FILE'])\n\
        def get(host):\n\
        \x20connection = http.client.HTTPSConnection('127.0.0.1', 3128, context=context)\n\
        \x20connection.set_tunnel(host, 19443)\n\
        \x20connection.request('GET', '/v1/x', headers={'Host': host + ':19443'})\n\
        \x20return connection.getresponse().read().decode().split(' auth')[0]\n\
        print(get('vault.test'), flush=True)\n\
        while not os.path.exists('go'): time.sleep(0.1)\n\
        print('again', get('vault.test'), flush=True)\n";
    let terminal = fixture.command(&session, Network::Proxy, "python3").args(["-c", keeping]).create().await;
    terminal.until("SERVED https GET").await;
    let before = fs::read(keys_file(&fixture)).expect("keys");
    fixture.gateway.crash();
    fixture.gateway.start_again();
    let caller = fixture.gateway.caller().await;
    session.go_on(&caller);
    assert_eq!(fixture.sh(&session, get).finish().await.text(), "SERVED https GET\n");
    assert_eq!(fs::read(keys_file(&fixture)).expect("keys"), before, "they are the same");
    // A rule that comes while commands run.
    let later = "\n[[connect]]\nid = 'later'\ndecision = 'allow'\nhost = ['later.test']\naddress = ['127.83.0.0/16']\n\
        port = [19443]\npath = ['/v1/**']\ntls = 'terminate'\n";
    let policy = fixture.policy_text();
    fixture.reload(&format!("{policy}{later}"));
    let done = fixture
        .sh(&session, "curl -sS https://later.test:19443/v1/x; curl -sS https://later.test:19443/v2")
        .finish()
        .await;
    let text = done.text();
    assert!(
        text.starts_with("SERVED https GET later.test") && text.contains("denied by rule \"default\""),
        "{text}"
    );
    fs::write(session.workspace.join("go"), "").expect("a file");
    let terminal = terminal.over(&caller);
    assert_eq!(code(&terminal.wait().await), 0);
    let text = String::from_utf8_lossy(&terminal.output().await.data).into_owned();
    assert!(text.contains("again SERVED https GET"), "{text}");
    fixture.reload(&policy);
    let done = fixture.sh(&session, "curl -sS https://later.test:19443/v1/x").finish().await;
    assert_ne!(code(&done.outcome), 0, "{}", done.text());
    session.close().await;
    eventually("the keys are gone", || {
        fs::read_dir(fixture.gateway.state.join("authorities")).ok()?.next().is_none().then_some(())
    })
    .await;
    fixture.gateway.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "long: .ci/run runs it"]
async fn no_form_of_a_request_in_opened_tls_reaches_what_no_rule_allows() {
    let fixture = OpenedFixture::start();
    let session = Session::open(&fixture.gateway).await;
    fs::write(session.workspace.join("forms.py"), include_str!("opened_forms.py")).expect("a file");
    let done = fixture
        .command(&session, Network::Proxy, "python3")
        .args(["forms.py"])
        .retain(1 << 20)
        .finish()
        .await;
    let text = done.text();
    let came: Vec<(&str, &str)> = text.lines().filter_map(|line| line.split_once(": ")).collect();
    for (form, expected) in [
        ("plain", "served 1"),
        ("absolute", "served 1"),
        ("keep-alive", "served 2"),
        ("websocket", "ECHO ping"),
        ("Host of another", "400"),
        ("Host twice", "400"),
        ("no Host", "400"),
        ("Host without its port", "400"),
        ("absolute of another", "400"),
        ("absolute by http", "400"),
        ("CONNECT inside", "400"),
        ("length and chunked", "served 1"),
        ("two lengths", "400"),
        ("smuggled behind a body", "403"),
        ("h2c", "served 1"),
        ("websocket elsewhere", "403"),
        ("no SNI", "refused"),
        ("SNI of another", "refused"),
        ("SNI below", "refused"),
        ("no HTTP", "400"),
        ("h2 of another", "400"),
        ("h2 of two hosts", "400"),
        ("h2", "served 1"),
    ] {
        let result = came.iter().find(|(name, _)| *name == form).map(|(_, result)| *result);
        assert!(result.is_some_and(|result| result.starts_with(expected)), "{form}: {result:?}\n{text}");
    }
    // Nothing but requests that a rule allows has come to a server.
    assert!(!text.contains("SECOND"), "{text}");
    session.close().await;
    fixture.gateway.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_person_who_is_asked_about_opened_tls_says_yes_to_its_connection_and_its_requests() {
    let fixture = OpenedFixture::start();
    let session = Session::open(&fixture.gateway).await;
    let mut approver = Approver::of(&session.caller);
    let script = "curl -sS --http1.1 https://asked.test:19443/one https://asked.test:19443/two";
    let asking = tokio::spawn(fixture.sh(&session, script).finish());
    let question = approver.question(ApprovalState::Pending).await;
    assert_eq!((question.rule.as_str(), question.reason.as_str()), ("asked", "it has a secret"));
    approver.answer(&question, ApprovalDecision::Approve).await;
    let done = crate::support::within("both answers", asking).await.expect("it is not cancelled");
    let text = done.text();
    let served = |path: &str| {
        text.lines().any(|line| line.contains(&format!("asked.test:19443 {path} ")) && line.contains("x-key"))
    };
    assert!(served("/one") && served("/two"), "{text}");
    assert_eq!(approver.list().await.len(), 1, "one question for the connection");
    session.close().await;
    fixture.gateway.stop();
}

/// A server of HTTP/2, and of HTTP/1.1 for those that want it.
const SERVER_2: &str = "const [directory, address] = process.argv.slice(1);
    const read = name => require('fs').readFileSync(`${directory}/${name}`);
    const options = { key: read('vault.key'), cert: read('vault.pem'), allowHTTP1: true };
    require('http2').createSecureServer(options, (request, response) => {
        response.end(`SERVED HTTP/${request.httpVersion} ${request.headers.authorization.length}\\n`);
    }).listen(19445, address, () => console.log('ready'));";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_goes_to_the_server_in_the_version_that_it_came_in() {
    let fixture = OpenedFixture::start();
    let started = Command::new("node")
        .args(["-e", SERVER_2])
        .arg(fixture.certificates.path())
        .arg(&fixture.address)
        .stdout(std::process::Stdio::piped())
        .spawn();
    let Ok(mut server) = started else { return skip("there is no node") };
    let mut line = String::new();
    let ready = server.stdout.take().expect("a pipe");
    std::io::BufRead::read_line(&mut std::io::BufReader::new(ready), &mut line)
        .expect("it says that it is ready");
    assert_eq!(line, "ready\n");
    fixture.reload(&fixture.policy_text().replace("port = [19443, 19444]", "port = [19443, 19444, 19445]"));
    let session = Session::open(&fixture.gateway).await;
    let script = "curl -sS https://vault.test:19445/v1/x; curl -sS --http1.1 https://vault.test:19445/v1/x
        curl -sS https://vault.test:19445/v1/[1-20] | sort | uniq -c
        curl -sS https://vault.test:19445/v2";
    let done = fixture.sh(&session, script).finish().await;
    let lines: Vec<String> = done.text().lines().map(|line| line.trim().to_owned()).collect();
    let length = "Bearer ".len() + crate::opened_servers::SECRET.len();
    let (two, one) = (format!("SERVED HTTP/2.0 {length}"), format!("SERVED HTTP/1.1 {length}"));
    assert_eq!(lines[..3], [two.clone(), one, format!("20 {two}")], "{}", done.text());
    assert!(lines[3].contains("denied by rule \"default\""), "{}", done.text());
    server.kill().expect("it runs");
    server.wait().expect("it has ended");
    session.close().await;
    fixture.gateway.stop();
}
