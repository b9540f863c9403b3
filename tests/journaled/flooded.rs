//! A caller that has as much written as it can: it fills its share of the journal, everything is counted, and nobody else's
//! records are lost.

use std::{fs, path::Path, sync::Arc, time::Duration};

use crate::{
    journaled::{directory, must_be_intact, records},
    support::{
        Gateway, Options, Refusal, Session, Terminal,
        api::{Bypass, ReportBypassRequest},
        is_root, skip,
    },
};

const REFUSALS: u64 = 400;
/// Each has so much of it in the request.
const TEXT_BYTES: usize = 30_000;
/// What one principal's refusals write at once is 4 MiB; the rest is for the time that the test takes, and for others.
const JOURNAL_BYTES: u64 = 7 << 20;

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn refusals_of_one_caller_fill_its_share_of_the_journal_and_are_all_counted() {
    let gateway = Gateway::start();
    let journal = directory(&gateway);
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

const FLOODER: u32 = 54_381;
const VICTIM: u32 = 54_382;
/// More commands than fill the journal of these tests, whatever their records are.
const COMMANDS: usize = 3_000;
/// Each has so much of it in the request: the kernel takes 128 KiB of one argument.
const ARGUMENT_BYTES: usize = 128 * 1024 - 16;
/// What costs nothing is done so often.
const TIMES: u64 = 300;
/// What may be written for one whose share is full: ends, counts, and what others do.
const BEYOND_BYTES: u64 = 256 << 10;

/// A gateway that keeps 8 files of 2 MiB, and every record for so long.
fn small_journal(keep_for_at_least: &str) -> Arc<Gateway> {
    let journal =
        format!("rotate_bytes = 2_097_152\nkeep_files = 8\nkeep_for_at_least = '{keep_for_at_least}'");
    Gateway::start_with(Options { config: Some(format!("[journal]\n{journal}\n")), ..Options::default() })
}

/// Another user's command, whose records are to stay.
async fn a_victims_command(gateway: &Arc<Gateway>) {
    let session = Session::open_as(gateway, VICTIM).await;
    session.command("uname").finish().await;
    session.close().await;
}

fn of_the_victim(journal: &Path) -> usize {
    let victim = format!("uid:{VICTIM}");
    let all = records(journal, &[]);
    all.iter().filter(|record| record["kind"] == "decision" && record["principal"] == victim.as_str()).count()
}

fn bytes_of(journal: &Path) -> u64 {
    let entries = fs::read_dir(journal).expect("the journal is there").flatten();
    entries.filter_map(|entry| entry.metadata().ok()).map(|found| found.len()).sum()
}

/// Runs allowed commands with an argument of so many bytes, until one is refused or `is_enough` holds.
async fn commands_until(session: &Session, bytes: usize, is_enough: impl Fn() -> bool) -> Option<Refusal> {
    let text = "x".repeat(bytes);
    for n in 0..COMMANDS {
        match session.command("true").args([&text]).try_create().await {
            Ok(terminal) => {
                terminal.wait().await;
                terminal.release().await;
            }
            Err(refusal) => return Some(refusal),
        }
        if n % 50 == 0 && is_enough() {
            return None;
        }
    }
    None
}

/// Has as much written as it can: also a command as short as can be is refused then.
async fn fill_the_share(session: &Session) {
    for bytes in [ARGUMENT_BYTES, 8_192, 1] {
        let refusal = commands_until(session, bytes, || false).await.expect("a share has an end");
        must_be_the_share(&refusal);
    }
}

fn must_be_the_share(refusal: &Refusal) {
    assert_eq!((refusal.reason.as_str(), refusal.meta("limit")), ("QUOTA", "journal_share"), "{refusal:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
#[ignore = "long: .ci/run runs it"]
async fn without_a_time_that_records_are_kept_for_one_caller_washes_the_others_away() {
    if !is_root() {
        return skip("only root can be two principals");
    }
    let gateway = small_journal("0s");
    a_victims_command(&gateway).await;
    let journal = directory(&gateway);
    assert_eq!(of_the_victim(&journal), 1);
    let session = Session::open_as(&gateway, FLOODER).await;
    let is_gone = || of_the_victim(&journal) == 0;
    assert!(commands_until(&session, ARGUMENT_BYTES, is_gone).await.is_none());
    assert_eq!(of_the_victim(&journal), 0, "the attack of the test below does nothing");
    session.close().await;
    gateway.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
#[ignore = "long: .ci/run runs it"]
async fn a_caller_that_has_all_written_that_it_can_takes_no_record_of_another() {
    if !is_root() {
        return skip("only root can be two principals");
    }
    let gateway = small_journal("1h");
    a_victims_command(&gateway).await;
    let journal = directory(&gateway);
    let mut session = Session::open_as(&gateway, FLOODER).await;
    let stubborn = session.sh("trap '' TERM; echo ready; while :; do sleep 1; done").create().await;
    stubborn.until("ready").await;

    fill_the_share(&session).await;
    let full = bytes_of(&journal);
    assert!(full < 8 << 20, "a third of what is kept, not {full} bytes");
    what_costs_nothing(&gateway, &session, &stubborn).await;
    let after = bytes_of(&journal);
    assert!(after < full + BEYOND_BYTES, "{full} bytes, and then {after}");
    a_victims_command(&gateway).await;
    assert_eq!(of_the_victim(&journal), 2, "its share is its own");

    // What is counted by then, and who has written how much, the next gateway knows.
    gateway.crash();
    gateway.start_again();
    let caller = gateway.caller_as(FLOODER).await;
    session.go_on(&caller);
    fill_the_share(&session).await;
    let after = bytes_of(&journal);
    assert!(after < full + 2 * BEYOND_BYTES, "{full} bytes, and {after} after a restart");
    let stubborn = stubborn.over(&caller);
    stubborn.kill(Some(Duration::ZERO)).await;
    stubborn.wait().await;
    session.close().await;
    gateway.stop();

    must_be_intact(&journal);
    assert_eq!(of_the_victim(&journal), 2);
    let all = records(&journal, &[]);
    let times = |of: &str| -> u64 {
        let counted = all.iter().filter(|record| record["kind"] == "records_repeated" && record["of"] == of);
        counted.filter_map(|record| record["times"].as_u64()).sum()
    };
    assert_eq!(times("signal"), TIMES, "counted, and not lost by the kill of the gateway");
    let of_kind = |kind: &str| all.iter().filter(|record| record["kind"] == kind).count() as u64;
    assert_eq!(times("kill_requested") + of_kind("kill_requested"), TIMES + 1);
    let denied = all.iter().filter(|record| record["decision"] == "deny");
    let denied: u64 = denied.map(|record| record["times"].as_u64().unwrap_or(1)).sum();
    let quota = all.iter().filter(|record| record["kind"] == "quota_refused").count() as u64;
    assert!(denied + quota > TIMES, "{denied} refusals and {quota} at a bound");
}

/// All that a caller can have happen again and again, and that is written or counted.
async fn what_costs_nothing(gateway: &Arc<Gateway>, session: &Session, stubborn: &Terminal) {
    let caller = gateway.caller_as(FLOODER).await;
    for _ in 0..TIMES {
        stubborn.signal("SIGCONT").await.expect("a signal is delivered, written or counted");
        stubborn.try_kill(Some(Duration::from_secs(600))).await.expect("so is a kill");
        let refusal = session.command("true").env("LD_PRELOAD", "x").refusal().await;
        assert_eq!(refusal.reason, "POLICY_DENIED", "{refusal:?}");
        let new = crate::support::api::CreateSessionRequest {
            roots: vec![session.workspace.display().to_string()],
            ..Default::default()
        };
        let refusal =
            caller.sessions.clone().create_session(new).await.expect_err("a session is something new");
        must_be_the_share(&Refusal::from(refusal));
        let report =
            ReportBypassRequest { session_id: session.id.clone(), bypass: Bypass::CommandRun.into() };
        let refusal = caller.sessions.clone().report_bypass(report).await.expect_err("it has no share left");
        assert_eq!(Refusal::from(refusal).reason, "QUOTA");
    }
}
