//! Attacks on opened TLS beyond the forms of `opened`: framing, HTTP/2 by hand, sizes, where a secret is put, and the keys of hosts.

use std::fs;

use provost::proto::v1::Network;

use crate::{
    opened_servers::{OpenedFixture, SECRET},
    support::Session,
};

/// Each form, and how its result begins: one of these.
const FORMS: [(&str, &[&str]); 46] = [
    ("h2 by prior knowledge", &["served 0"]),
    ("HTTP/1.1 where h2 was agreed", &["served 0"]),
    ("h2 elsewhere next to it", &["served 1 denied 1"]),
    ("h2 private next to it", &["served 1 denied 1"]),
    ("h2 by http", &["400"]),
    ("h2 without a path", &["reset"]),
    ("h2 with an absolute path", &["400", "reset"]),
    ("h2 CONNECT", &["400", "reset"]),
    ("h2 extended CONNECT", &["400", "reset"]),
    ("h2 upgrade", &["reset"]),
    ("h2 line end in a header", &["reset"]),
    ("h2 line end in a path", &["reset", "400"]),
    ("h2 length of its own", &["reset"]),
    ("h2 transfer-encoding", &["reset"]),
    ("h2 head without end", &["served 0", "closed"]),
    // The server says so and closes while the rest is still being sent.
    ("head of 100,000 bytes", &["431", "502", "refused"]),
    ("path of 100,000 bytes", &["431", "414", "502", "refused"]),
    ("a thousand headers", &["431", "502", "refused"]),
    ("trailer with a secret's name", &["as sent served 1"]),
    ("trailer that is a request", &["served 1", "400", "502", "refused"]),
    ("Connection names the secret's header", &["served 1"]),
    ("Connection names the length", &["served 1"]),
    ("Connection names the host", &["served 1"]),
    ("secret's header in all cases", &["served 1"]),
    ("space before the colon", &["400"]),
    ("folded line", &["400"]),
    ("bare line feeds", &["served 1", "400"]),
    ("chunked twice", &["400"]),
    ("chunked by another name", &["400"]),
    ("chunked after another", &["served 1", "400"]),
    ("length with a sign", &["400"]),
    ("lengths in one line", &["400"]),
    ("chunk with an extension", &["served 1", "400", "502", "refused"]),
    ("chunk of a negative length", &["400", "502", "refused"]),
    ("chunk of too many digits", &["400", "502", "refused", "served 1"]),
    ("HTTP/1.0 chunked", &["400", "served 1"]),
    ("HTTP/0.9", &["400", "refused"]),
    ("websocket with a body", &["502"]),
    ("websocket that is none", &["served 1"]),
    ("tls in tls", &["400", "refused"]),
    ("placeholder in a body", &["as sent served 1"]),
    ("placeholder split over chunks", &["as sent served 1"]),
    ("placeholder in another header", &["as sent"]),
    ("placeholder in the query", &["served 1"]),
    ("keys", &["[1, 1] 2 []"]),
    ("plain at the end", &["served 1"]),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_framing_in_opened_tls_hides_a_request_or_moves_a_secret() {
    let fixture = OpenedFixture::start();
    let session = Session::open(&fixture.gateway).await;
    fs::write(session.workspace.join("forms.py"), include_str!("opened_forms.py")).expect("a file");
    let done = fixture
        .command(&session, Network::Proxy, "python3")
        .args(["-c", include_str!("opened_attacks.py")])
        .retain(4 << 20)
        .finish()
        .await;
    let text = done.text();
    let came: Vec<(&str, &str)> = text.lines().filter_map(|line| line.split_once(": ")).collect();
    let mut wrong = Vec::new();
    for (form, expected) in FORMS {
        let result = came.iter().find(|(name, _)| *name == form).map(|(_, result)| *result);
        if !result.is_some_and(|result| expected.iter().any(|one| result.starts_with(one))) {
            wrong.push(format!(
                "{form}: {expected:?}: {}",
                result.unwrap_or("nothing").get(..400).or(result).unwrap_or("nothing")
            ));
        }
    }
    assert!(
        wrong.is_empty(),
        "{wrong:#?}\n{}",
        text.get(text.len().saturating_sub(2_000)..).unwrap_or_default()
    );
    // What a server was sent is what was judged, with the secret in its place and no other.
    let records = fixture.records("connection");
    let paths =
        records.iter().filter(|one| one["decision"] == "allow").filter_map(|one| one["path"].as_str());
    assert!(paths.clone().all(|path| !path.contains("SECOND")), "{:?}", paths.collect::<Vec<_>>());
    assert!(!came.iter().any(|(_, result)| result.contains("SERVED") && result.contains("SECOND")), "{text}");
    let auth = format!("auth={}", OpenedFixture::digest(&format!("Bearer {SECRET}")));
    for form in [
        "trailer with a secret's name",
        "Connection names the secret's header",
        "secret's header in all cases",
    ] {
        let (_, result) = came.iter().find(|(name, _)| *name == form).expect("it was tried");
        assert!(result.contains(&auth), "{form}: {result}");
    }
    session.close().await;
    fixture.gateway.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hosts_key_is_its_sessions_and_goes_with_the_rule() {
    let fixture = OpenedFixture::start();
    let policy = fixture.policy_text();
    let (one, other) = (Session::open(&fixture.gateway).await, Session::open(&fixture.gateway).await);
    let key = "openssl s_client -proxy 127.0.0.1:3128 -connect vault.test:19443 -servername vault.test </dev/null 2>/dev/null \
        | openssl x509 -noout -pubkey";
    let of = async |session: &Session| fixture.sh(session, key).finish().await.text();
    let (first, second) = (of(&one).await, of(&other).await);
    assert!(first.contains("BEGIN PUBLIC KEY") && second.contains("BEGIN PUBLIC KEY"), "{first} {second}");
    assert_eq!(first, of(&one).await, "a session keeps it");
    assert_ne!(first, second, "another session has its own");
    // Without the rule no key that is kept opens anything.
    let mut without: toml::Table = policy.parse().expect("it is TOML");
    let rules = without["connect"].as_array_mut().expect("rules");
    rules.retain(|rule| rule["id"].as_str() != Some("vault"));
    fixture.reload(&toml::to_string(&without).expect("it can be written"));
    assert!(!of(&one).await.contains("BEGIN PUBLIC KEY"));
    fixture.reload(&policy);
    assert_eq!(first, of(&one).await);
    one.close().await;
    other.close().await;
    fixture.gateway.stop();
}
