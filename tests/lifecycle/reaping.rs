//! T15: what ends with its session, its owner, its gateway.

use std::time::Duration;

use nix::sys::signal::Signal;
use tonic::Code;

use crate::support::{
    Gateway, Options, Process, Session,
    api::{ExitCause, Lifetime, TerminalState},
    eventually, is_root, skip, within,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn closing_a_session_ends_all_that_is_in_it() {
    let gateway = Gateway::start();
    // What the gateway makes once, with the first sandbox, is its own.
    let first = Session::open(&gateway).await;
    first.command("true").finish().await;
    first.close().await;
    let before = gateway.footprint();
    let session = Session::open(&gateway).await;
    let marker = session.marker();
    let mut terminals = Vec::new();
    for _ in 0..5 {
        let one = session.idle(&marker).create().await;
        one.until("ready").await;
        terminals.push(one);
    }
    terminals.push(
        session.attack("escape").args(["ignore", &marker]).grace(Duration::from_millis(100)).create().await,
    );
    let waiter = tokio::spawn({
        let terminal = terminals[0].clone();
        async move { terminal.try_wait().await }
    });
    eventually("all of them", || (Process::all_marked(&marker).len() == 6).then_some(())).await;
    session.close().await;
    // Close has answered: all is gone already.
    assert!(Process::all_marked(&marker).is_empty());
    for terminal in &terminals {
        assert_eq!(terminal.get().await.expect_err("it is gone").code, Code::NotFound);
    }
    if let Ok((state, outcome)) = within("the waiter", waiter).await.expect("the task ends") {
        assert!(matches!(state, TerminalState::Released | TerminalState::Finished), "{state:?}");
        if let Some(outcome) = outcome {
            assert_eq!(outcome.cause(), ExitCause::Shutdown, "{outcome:?}");
        }
    }
    drop(terminals);
    drop(session);
    gateway.comes_back_to(&before).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_session_ends_with_the_process_that_opened_it_when_that_was_asked_for() {
    if !is_root() {
        return skip("a process of another principal can only be had as root");
    }
    let gateway = Gateway::shared();
    let caller = gateway.caller_as(54321).await;
    let session = Session::open_with(&gateway, caller, Some(54321), |request| {
        request.lifetime = Lifetime::OwnerProcess as i32;
    })
    .await;
    let marker = session.marker();
    let terminal = session.idle(&marker).create().await;
    terminal.until("ready").await;
    assert_eq!(Process::all_marked(&marker).len(), 1);
    session.caller.vanish();
    eventually("the end of the orphan", || Process::all_marked(&marker).is_empty().then_some(())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_session_outlives_the_process_that_opened_it_when_nothing_was_asked_for() {
    if !is_root() {
        return skip("a process of another principal can only be had as root");
    }
    let gateway = Gateway::shared();
    let session = Session::open_as(&gateway, 54321).await;
    let terminal = session.sh("echo ready; exec sleep 1000").create().await;
    terminal.until("ready").await;
    session.caller.vanish();
    let again = gateway.caller_as(54321).await;
    let seen = again
        .terminals
        .clone()
        .get_terminal(terminal.request())
        .await
        .expect("it is still there")
        .into_inner()
        .terminal
        .expect("it is set");
    assert_eq!(seen.state(), TerminalState::Running);
    let request = crate::support::api::CloseSessionRequest { session_id: session.id.clone() };
    again.sessions.clone().close_session(request).await.expect("it can be closed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sigterm_ends_the_gateway_and_everything_in_it_where_it_is_to_stop() {
    let config = Some("on_stop = \"stop\"\ndrain = \"1s\"\n".to_owned());
    let gateway = Gateway::start_with(Options { config, ..Options::default() });
    let session = Session::open(&gateway).await;
    let marker = session.marker();
    let mut held = Vec::new();
    for verb in ["setsid", "doublefork", "ignore"] {
        let terminal =
            session.attack("escape").args([verb, &marker]).grace(Duration::from_millis(200)).create().await;
        terminal.until("ready").await;
        held.push(terminal);
    }
    assert!(Process::all_marked(&marker).len() >= 4);
    let waiter = tokio::spawn({
        let terminal = held[0].clone();
        async move { terminal.try_wait().await }
    });
    gateway.signal(Signal::SIGTERM);
    let answer = within("the waiter", waiter).await.expect("the task ends");
    match answer {
        Ok((_, Some(outcome))) => assert_eq!(outcome.cause(), ExitCause::Shutdown, "{outcome:?}"),
        Ok((state, None)) => assert_eq!(state, TerminalState::Released),
        // On a busy machine the wait may reach the gateway only after its terminal has gone.
        Err(refusal) => assert!(matches!(refusal.code, Code::Unavailable | Code::NotFound), "{refusal:?}"),
    }
    drop(held);
    drop(session);
    tokio::task::block_in_place(|| gateway.stop());
    assert!(Process::all_marked(&marker).is_empty());
    assert!(!gateway.socket.exists(), "the socket is gone with its gateway");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_interrupt_ends_a_gateway_that_waits_for_a_grace() {
    let gateway = Gateway::start();
    let session = Session::open(&gateway).await;
    let terminal = session
        .sh("trap '' TERM; echo ready; while :; do sleep 1; done")
        .grace(Duration::from_secs(600))
        .create()
        .await;
    terminal.until("ready").await;
    gateway.signal(Signal::SIGINT);
    within("the gateway stops what runs", async {
        while !matches!(session.command("true").try_create().await, Err(refusal) if refusal.code == Code::Unavailable)
        {}
    })
    .await;
    assert!(gateway.try_wait().is_none(), "it waits for the command's grace");
    tokio::task::block_in_place(|| gateway.stop());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_draining_gateway_ends_although_clients_hold_streams_open() {
    let gateway = Gateway::start();
    let session = Session::open(&gateway).await;
    let terminal = session.sh("echo ready; exec sleep 1000").create().await;
    let mut stream = terminal.stream(Default::default(), 0, crate::support::Follow::Yes).await;
    stream.message().await.expect("it goes on");
    let request = crate::support::api::WatchTerminalsRequest::default();
    let mut watch =
        session.caller.terminals.clone().watch_terminals(request).await.expect("a watch").into_inner();
    watch.message().await.expect("it goes on");
    tokio::task::block_in_place(|| gateway.stop());
    drop((stream, watch));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_supervisor_takes_its_commands_along_and_the_outcome_is_lost_and_never_zero() {
    let gateway = Gateway::start();
    let session = Session::open(&gateway).await;
    let marker = session.marker();
    let terminal = session.idle(&marker).create().await;
    terminal.until("ready").await;
    let command = Process::all_marked(&marker).into_iter().next().expect("it runs");
    let supervisor: i32 = command.field("PPid").parse().expect("a number");
    if !is_root() {
        return skip("the supervisor of an ordinary user's gateway is looked up otherwise");
    }
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(supervisor), Signal::SIGKILL).expect("root may");
    let outcome = terminal.wait().await;
    assert_eq!((outcome.end.clone(), outcome.cause()), (None, ExitCause::SandboxLost), "{outcome:?}");
    eventually("no orphan", || Process::all_marked(&marker).is_empty().then_some(())).await;
    assert_eq!(terminal.output().await.data, &b"ready\n"[..], "what it said is kept");
    terminal.release().await;
    // The next command gets a new sandbox.
    let next = session.sh("echo again").finish().await;
    assert_eq!((next.text().as_str(), crate::support::code(&next.outcome)), ("again\n", 0));
    session.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_gateway_counts_what_has_gone_through_it() {
    let gateway = Gateway::start();
    let session = Session::open(&gateway).await;
    for _ in 0..3 {
        session.command("true").finish().await;
    }
    session.command("no-such-program").refusal().await;
    session.command("true").env("LD_PRELOAD", "x").refusal().await;
    let held = session.sh("sleep 1000").create().await;
    session.close().await;
    drop((held, session));
    tokio::task::block_in_place(|| gateway.stop());
    let log = gateway.log_tail();
    for counted in ["created=5", "started=4", "refused=1", "failed=1", "finished=4", "lost=0", "released=4"] {
        assert!(log.contains(&format!("terminals.{counted}")), "{counted}: {log}");
    }
}
