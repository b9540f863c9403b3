//! SIGTERM: nothing new, what is waited for is served, and then what runs is left to the next gateway.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use tonic::Code;

use crate::{
    restart::lines::{Until, must_be_whole, printing, starts, stop},
    support::{
        Follow, Gateway, Options, Process, RunResult, Session,
        api::{OutputStream, TerminalState},
        code, eventually, within,
    },
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sigterm_leaves_what_runs_to_the_next_gateway() {
    // Nobody waits, so nothing is waited for: the drain is longer than the end of the gateway may take.
    let config = Some("drain = \"300s\"\n".to_owned());
    let gateway = Gateway::start_with(Options { config, ..Options::default() });
    let mut session = Session::open(&gateway).await;
    let terminal = printing(&session, "stays", Until::Stopped, 3).create().await;
    terminal.until("stays 1").await;
    gateway.signal(Signal::SIGTERM);
    assert!(gateway.wait().success());
    assert!(!Process::all_marked("stays").is_empty(), "it goes on without a gateway");
    gateway.start_again();
    session.go_on(&gateway.caller().await);
    let terminal = terminal.over(&session.caller);
    stop(&session.workspace);
    assert_eq!(code(&terminal.wait().await), 3);
    must_be_whole(&terminal, "stays").await;
    assert_eq!(starts(&session.workspace, "stays"), 1);
    session.close().await;
    gateway.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drain_serves_waits_and_streams_and_begins_nothing() {
    let gateway = Gateway::start();
    let session = Session::open(&gateway).await;
    let terminal = printing(&session, "waited-for", Until::Stopped, 5).create().await;
    let stream = terminal.stream(OutputStream::Unspecified, 0, Follow::Yes).await;
    let mut waiting = Box::pin(terminal.wait());
    // The wait has come to the gateway when an answer that was asked for after it has.
    tokio::select! {
        biased;
        outcome = &mut waiting => panic!("it runs until it is stopped: {outcome:?}"),
        _ = terminal.until("waited-for 2") => {}
    }
    let run = printing(&session, "run-waited-for", Until::Stopped, 6).run().await.expect("it runs");
    eventually("the run's command runs", || Process::all_marked("run-waited-for").pop()).await;
    let run = tokio::spawn(RunResult::all(run));
    gateway.signal(Signal::SIGTERM);
    let refused = loop {
        match session.command("true").try_create().await {
            Ok(terminal) => terminal.release().await,
            Err(refusal) => break refusal,
        }
    };
    assert_eq!((refused.code, refused.reason.as_str()), (Code::Unavailable, "DRAINING"));
    assert_eq!(terminal.get().await.expect("the API answers").state(), TerminalState::Running);
    // A run that nobody waits for would be ended meanwhile.
    let said = String::from_utf8_lossy(&terminal.output().await.data).lines().count();
    terminal.until(&format!("waited-for {}\n", said + 2)).await;
    stop(&session.workspace);
    assert_eq!(code(&waiting.await), 5);
    let run = within("the run's end", run).await.expect("it is read");
    assert_eq!(code(&run.finished.outcome.expect("it has ended")), 6);
    let all = crate::support::Collected::all(stream, 0).await;
    assert!(String::from_utf8_lossy(&all.data).contains("waited-for end"));
    assert!(gateway.wait().success());
    gateway.start_again();
    gateway.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drain_that_has_taken_its_time_ends() {
    let config = Some("drain = \"2s\"\n".to_owned());
    let gateway = Gateway::start_with(Options { config, ..Options::default() });
    let session = Session::open(&gateway).await;
    let terminal = printing(&session, "long", Until::Stopped, 0).create().await;
    let mut stream = terminal.stream(OutputStream::Unspecified, 0, Follow::Yes).await;
    let begun = Instant::now();
    gateway.signal(Signal::SIGTERM);
    assert!(gateway.wait().success());
    assert!(begun.elapsed() >= Duration::from_secs(2), "the stream is served for as long");
    while let Ok(Some(_)) = within("the stream's end", stream.message()).await {}
    gateway.start_again();
    gateway.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_signal_ends_a_drain_at_once() {
    let config = Some("drain = \"300s\"\n".to_owned());
    let gateway = Gateway::start_with(Options { config, ..Options::default() });
    let session = Session::open(&gateway).await;
    let terminal = printing(&session, "long", Until::Stopped, 0).create().await;
    let _stream = terminal.stream(OutputStream::Unspecified, 0, Follow::Yes).await;
    gateway.signal(Signal::SIGTERM);
    eventually("the gateway drains", || gateway.log_tail().contains(": draining").then_some(())).await;
    gateway.signal(Signal::SIGTERM);
    // The wait has a deadline, which is shorter than the drain.
    assert!(gateway.wait().success());
    gateway.start_again();
    gateway.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_ends_with_the_gateway_whether_it_drains_or_crashes() {
    let gateway = Gateway::start();
    let session = Session::open(&gateway).await;
    for crash in [false, true] {
        let marker = session.marker();
        let caller = gateway.caller().await;
        let run = session.idle(&marker).over(&caller).run().await.expect("it runs");
        eventually("the command runs", || Process::all_marked(&marker).pop()).await;
        if crash {
            gateway.crash();
            drop(run);
            assert!(!Process::all_marked(&marker).is_empty());
            gateway.start_again();
        } else {
            let ending = tokio::spawn(RunResult::all(run));
            gateway.signal(Signal::SIGTERM);
            // A caller who waits is waited for; this one goes away.
            ending.abort();
            let _ = ending.await;
            assert!(gateway.wait().success());
            gateway.start_again();
        }
        eventually("the run is gone", || Process::all_marked(&marker).is_empty().then_some(())).await;
    }
    gateway.stop();
}
