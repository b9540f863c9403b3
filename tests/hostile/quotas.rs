//! T14: caps on what one session and one principal may hold, and the collection of what is never released.

use std::{sync::Arc, time::Duration};

use tonic::Code;

use crate::support::{
    Gateway, Options, Refusal, Session,
    api::{CreateSessionRequest, TerminalState},
    in_session,
};

fn capped(config: &str) -> Arc<Gateway> {
    Gateway::start_with(Options { config: Some(config.to_owned()), ..Options::default() })
}

fn must_be_the_quota(refusal: &Refusal) {
    assert_eq!(refusal.code, Code::ResourceExhausted, "{refusal:?}");
    assert!(!refusal.meta("limit").is_empty(), "a quota names its limit: {refusal:?}");
    assert_eq!(refusal.quotas, [refusal.meta("limit")], "{refusal:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn at_the_cap_of_live_terminals_create_is_refused_and_kill_still_works() {
    let gateway = capped("[quotas]\nlive_terminals_per_session = 3\n");
    in_session(&gateway, async |session| {
        let mut held = Vec::new();
        for _ in 0..3 {
            held.push(session.command("sleep").args(["1000"]).create().await);
        }
        for _ in 0..3 {
            must_be_the_quota(&session.command("true").refusal().await);
        }
        // Another session has a cap of its own.
        in_session(&gateway, async |other| drop(other.command("true").finish().await)).await;
        held[0].kill(Some(Duration::ZERO)).await;
        held[0].wait().await;
        // A finished one is not live: there is room again.
        session.command("true").finish().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn at_the_cap_of_retained_terminals_release_makes_room() {
    let gateway = capped("[quotas]\nretained_terminals_per_session = 3\n");
    in_session(&gateway, async |session| {
        let mut held = Vec::new();
        for _ in 0..3 {
            let terminal = session.command("true").create().await;
            terminal.wait().await;
            held.push(terminal);
        }
        must_be_the_quota(&session.command("true").refusal().await);
        held[1].kill(None).await;
        assert!(held[2].output().await.data.is_empty());
        held[0].release().await;
        session.command("true").finish().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn at_the_cap_of_a_principal_its_other_sessions_are_full_too_and_other_principals_are_not() {
    let gateway = capped("[quotas]\nlive_terminals_per_principal = 2\n");
    in_session(&gateway, async |one| {
        in_session(&gateway, async |two| {
            let first = one.command("sleep").args(["1000"]).create().await;
            two.command("sleep").args(["1000"]).create().await;
            must_be_the_quota(&one.command("true").refusal().await);
            must_be_the_quota(&two.command("true").refusal().await);
            if crate::support::is_root() {
                let other = Session::open_as(&gateway, 54321).await;
                other.command("true").finish().await;
                other.close().await;
            }
            first.release().await;
            two.command("true").finish().await;
        })
        .await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn at_the_cap_of_retained_bytes_create_is_refused() {
    let gateway = capped("[quotas]\nretained_bytes_per_session = 3000000\n");
    in_session(&gateway, async |session| {
        let first = session.command("true").retain(2_000_000).create().await;
        first.wait().await;
        must_be_the_quota(&session.command("true").retain(2_000_000).refusal().await);
        first.release().await;
        session.command("true").retain(2_000_000).finish().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn at_the_cap_of_sessions_another_is_refused_until_one_is_closed() {
    let gateway = capped("[quotas]\nsessions_per_principal = 2\n");
    let one = Session::open(&gateway).await;
    let two = Session::open(&gateway).await;
    let request = CreateSessionRequest {
        roots: vec![one.workspace.display().to_string()],
        ..CreateSessionRequest::default()
    };
    let status = one.caller.sessions.clone().create_session(request).await.expect_err("it is refused");
    must_be_the_quota(&Refusal::from(status));
    one.close().await;
    Session::open(&gateway).await.close().await;
    two.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn caps_hold_when_many_try_at_once() {
    let gateway = capped("[quotas]\nlive_terminals_per_session = 10\n");
    in_session(&gateway, async |session| {
        let tries: Vec<_> =
            (0..60).map(|_| tokio::spawn(session.command("sleep").args(["1000"]).try_create())).collect();
        let mut held = 0;
        for one in tries {
            match one.await.expect("the task ends") {
                Ok(_) => held += 1,
                Err(refusal) => must_be_the_quota(&refusal),
            }
        }
        assert_eq!(held, 10);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn finished_terminals_that_nobody_releases_are_collected_after_their_time() {
    let gateway = capped("finished_kept = \"1s\"\n");
    in_session(&gateway, async |session| {
        // Nothing that ends by itself, which may be collected before it can be released.
        session.command("sleep").args(["1000"]).create().await.release().await;
        let before = gateway.footprint();
        let mut held = Vec::new();
        for _ in 0..20 {
            held.push(session.command("true").create().await);
        }
        let running = session.command("sleep").args(["1000"]).create().await;
        for terminal in &held {
            let begun = std::time::Instant::now();
            while terminal.get().await.is_ok() {
                assert!(begun.elapsed() < crate::support::DEADLINE, "it is never collected");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
        assert_eq!(running.get().await.expect("what runs is kept").state(), TerminalState::Running);
        running.release().await;
        gateway.comes_back_to(&before).await;
    })
    .await;
}
