//! A caller that is refused all the time: it fills its share of the journal, and every refusal is counted.

use std::fs;

use crate::{
    folder, must_be_intact, records,
    support::{Gateway, Session},
};

const REFUSALS: u64 = 400;
/// Of each, in the request.
const TEXT_BYTES: usize = 30_000;
/// What one principal's refusals write at once is 4 MiB; the rest is for the time that the test takes, and for others.
const JOURNAL_BYTES: u64 = 7 << 20;

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn refusals_of_one_caller_fill_its_share_of_the_journal_and_are_all_counted() {
    let gateway = Gateway::start();
    let journal = folder(&gateway);
    let session = Session::open(&gateway).await;
    session.command("uname").finish().await;
    let text = "x".repeat(TEXT_BYTES);
    for _ in 0..REFUSALS {
        // Denied by the profile, whatever the command.
        let refusal = session.command("true").args([&text]).env("LD_PRELOAD", "x").refusal().await;
        assert_eq!(refusal.reason, "POLICY_DENIED", "{refusal:?}");
    }
    session.command("uname").finish().await;
    session.close().await;
    gateway.stop();

    let bytes: u64 = fs::read_dir(&journal)
        .expect("the journal is there")
        .flatten()
        .filter_map(|entry| entry.metadata().ok())
        .map(|found| found.len())
        .sum();
    assert!(bytes < JOURNAL_BYTES, "the journal has {bytes} bytes");
    must_be_intact(&journal);
    let all = records(&journal, &[]);
    let of = |kind: &str| all.iter().filter(|record| record["kind"] == kind).collect::<Vec<_>>();
    let written = of("decision").iter().filter(|record| record["decision"] == "deny").count() as u64;
    let repeated = of("refusals_repeated");
    let counted: u64 = repeated.iter().filter_map(|record| record["times"].as_u64()).sum();
    assert!(counted > 0 && written > 0, "{written} written, {counted} counted");
    assert_eq!(written + counted, REFUSALS);
    assert!(repeated.len() < 64, "as many records as refusals: {}", repeated.len());
    for record in repeated {
        assert_eq!(record["decision"], "deny", "{record:#}");
        assert_eq!(record["session"], session_id(&all), "{record:#}");
        assert!(record["rule"].as_str().is_some_and(|rule| rule.contains("LD_")), "{record:#}");
    }
    assert_eq!(of("exit").len(), 2, "ends are written whatever else is refused");
}

fn session_id(all: &[serde_json::Value]) -> &str {
    let opened = all.iter().find(|record| record["kind"] == "session_opened");
    opened.and_then(|record| record["session"].as_str()).expect("a session was opened")
}
