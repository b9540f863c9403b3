//! Rules about methods and paths of HTTP requests.

use crate::{
    fixture::Fixture,
    support::{Session, code},
};

/// Each way to ask a host for something, as a shell's function of a method and a path.
const WAYS: [&str; 3] = [
    "ask() { curl -sS --path-as-is -X $1 http://reading.test:18080$2; }",
    "ask() { curl -sS --path-as-is -X $1 --socks5-hostname 127.0.0.1:1080 http://reading.test:18080$2; }",
    "ask() { curl -sS --path-as-is -X $1 --noproxy '*' http://reading.test:18080$2; }",
];

/// A method, a path, and what comes of it: an answer of the server, or the rule that refuses.
const REQUESTS: [(&str, &str, &str); 17] = [
    ("GET", "/v1/x", "SERVED GET reading.test:18080 /v1/x"),
    ("GET", "/v1/", "SERVED GET"),
    ("GET", "/v1/x?a=/v1/private/y", "SERVED GET"),
    ("GET", "/v1/a%20b", "SERVED GET"),
    ("POST", "/v1/x", "default"),
    ("get", "/v1/x", "default"),
    ("GET", "/v2", "default"),
    ("GET", "/v1", "default"),
    ("GET", "/", "default"),
    ("GET", "/v1/private/y", "no-private"),
    ("POST", "/v1/private/", "no-private"),
    ("GET", "/v1/../v2", "network.request"),
    ("GET", "/v1/x/../private/y", "network.request"),
    ("GET", "/v1/%2e%2e/v2", "network.request"),
    ("GET", "/v1/%70rivate/y", "network.request"),
    ("GET", "/v1//private/y", "network.request"),
    ("GET", "/v1/x%2f..%2fprivate/y", "network.request"),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_pass_by_their_methods_and_paths_and_no_other_way() {
    let fixture = Fixture::start();
    let session = Session::open(&fixture.gateway).await;
    for way in WAYS {
        let asking: String =
            REQUESTS.iter().map(|(method, path, _)| format!("ask {method} '{path}'\n")).collect();
        let done = fixture.sh(&session, &format!("{way}\n{asking}")).finish().await;
        let text = done.text();
        let answers: Vec<&str> = text.lines().collect();
        assert_eq!(answers.len(), REQUESTS.len(), "{way}: {text}");
        for ((method, path, expected), answer) in REQUESTS.iter().zip(answers) {
            let is_right = match expected.starts_with("SERVED") {
                true => answer.starts_with(expected),
                false => answer.contains(&format!("denied by rule \"{expected}\"")),
            };
            assert!(is_right, "{way} {method} {path}: {answer}");
        }
    }
    let records = fixture.records("connection");
    let refused = records.iter().find(|record| record["rule"] == "no-private").expect("it is recorded");
    assert_eq!((&refused["method"], &refused["path"]), (&"GET".into(), &"/v1/private/y".into()));
    session.close().await;
    fixture.gateway.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tls_that_hides_requests_from_their_rules_is_refused() {
    let fixture = Fixture::start();
    let session = Session::open(&fixture.gateway).await;
    // The same server, by a rule about the host as a whole.
    let open = fixture.sh(&session, "curl -sSk https://registry.test:18443/v1/x").finish().await;
    assert!(open.text().contains("SERVED GET registry.test"), "{}", open.text());
    for way in ["", "--socks5-hostname 127.0.0.1:1080", "--noproxy '*'"] {
        let done =
            fixture.sh(&session, &format!("curl -sSk {way} https://reading.test:18443/v1/x")).finish().await;
        assert!(code(&done.outcome) != 0 && !done.text().contains("SERVED"), "{way}: {}", done.text());
        let denial = &done.outcome.connect_denials[0];
        assert!(
            denial.rule == "network.agreement" && denial.reason.contains("TLS hides them"),
            "{way}: {denial:?}"
        );
    }
    session.close().await;
    fixture.gateway.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_servers_take_for_another_one_is_refused_where_rules_are_about_requests() {
    let fixture = Fixture::start();
    let session = Session::open(&fixture.gateway).await;
    // What some servers take as DELETE, as another address or as another host.
    let overriding = [
        "-H 'X-HTTP-Method-Override: DELETE' -X POST http://posting.test:18080/a",
        "-H 'x_http_method_override: DELETE' -X POST http://posting.test:18080/a",
        "-H 'X-HTTP-Method: DELETE' http://posting.test:18080/a",
        "-H 'X-Method-Override: DELETE' http://posting.test:18080/a",
        "-H 'X-Original-URL: /admin' http://posting.test:18080/a",
        "-H 'X-Rewrite-URL: /admin' http://posting.test:18080/a",
        "-H 'X-Forwarded-Host: other.test' http://posting.test:18080/a",
        "-H 'Forwarded: host=other.test' http://posting.test:18080/a",
        "-H 'Destination: /admin' http://posting.test:18080/a",
        "-X POST 'http://posting.test:18080/a?_method=DELETE'",
        "-X POST 'http://posting.test:18080/a?b=c&%5Fmethod=DELETE'",
        "-H 'Content-Encoding: gzip' -d _=x http://posting.test:18080/a",
    ];
    let forms = [
        "-d a=b -d _method=DELETE http://posting.test:18080/a",
        "-d 'a=b&%5fMethod=DELETE' http://posting.test:18080/a",
        "-F a=b -F _method=DELETE http://posting.test:18080/a",
        // Behind much else.
        "-d @long -d _method=DELETE http://posting.test:18080/a",
    ];
    let honest = [
        "-H 'X-Forwarded-For: 10.0.0.1' -H 'X-Requested-With: curl' http://posting.test:18080/a",
        "-d a=b -d 'text=the _method' http://posting.test:18080/a",
        "-F a=@long http://posting.test:18080/a",
        "-H 'Content-Type: application/json' -d '{\"_method\": 1}' http://posting.test:18080/a",
        // Here no rule is about requests.
        "-H 'X-HTTP-Method-Override: DELETE' -X POST http://registry.test:18080/a",
        "-d _method=DELETE http://registry.test:18080/a",
    ];
    std::fs::write(session.workspace.join("long"), format!("x={}", "y".repeat(300_000))).expect("a file");
    let asking = |all: &[&str]| -> String {
        all.iter().map(|one| format!("curl -sS -H 'Expect:' {one} 2>&1 | head -n 1\n")).collect()
    };
    for way in ["", "export ALL_PROXY=socks5h://127.0.0.1:1080 http_proxy=\n"] {
        let done = fixture.sh(&session, &format!("{way}{}", asking(&overriding))).finish().await;
        let text = done.text();
        assert_eq!(text.lines().count(), overriding.len(), "{text}");
        for (request, answer) in overriding.iter().zip(text.lines()) {
            assert!(answer.contains("denied by rule \"network.request\""), "{way} {request}: {answer}");
        }
        let done = fixture.sh(&session, &format!("{way}{}", asking(&forms))).finish().await;
        assert!(!done.text().contains("SERVED"), "{way}: {}", done.text());
        let done = fixture.sh(&session, &format!("{way}{}", asking(&honest))).finish().await;
        assert_eq!(done.text().matches("SERVED").count(), honest.len(), "{way}: {}", done.text());
    }
    session.close().await;
    fixture.gateway.stop();
}
