//! Races: calls that cross one another, and callers that leave in the middle.

use std::{sync::Arc, time::Duration};

use tonic::Code;

use crate::support::{
    EndOfInput, Gateway, Process, Session,
    api::{ExitCause, ListTerminalsRequest, TerminalState},
    eventually, in_session, within,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kill_right_after_create_ends_the_command_once() {
    let gateway = Gateway::start();
    in_session(&gateway, async |session| {
        session.command("true").finish().await;
        let before = gateway.footprint();
        for i in 0..100_u64 {
            let grace = if i % 2 == 0 { Duration::ZERO } else { Duration::from_secs(600) };
            let marker = session.marker();
            let terminal = session.sh("sleep 1000; sleep 1000").args([marker.as_str()]).create().await;
            terminal.kill(Some(grace)).await;
            let outcome = terminal.wait().await;
            assert_eq!(outcome.cause(), ExitCause::Killed, "{outcome:?}");
            assert!(Process::all_marked(&marker).is_empty());
            assert_eq!(terminal.wait().await, outcome);
            terminal.release().await;
        }
        gateway.comes_back_to(&before).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kill_that_crosses_the_exit_gives_one_outcome() {
    in_session(&Gateway::shared(), async |session| {
        for _ in 0..150 {
            let terminal = session.command("true").create().await;
            let (_, first, second) =
                tokio::join!(terminal.kill(Some(Duration::ZERO)), terminal.wait(), terminal.wait());
            assert_eq!(first, second);
            assert!(matches!(first.cause(), ExitCause::Exited | ExitCause::Killed), "{first:?}");
            terminal.release().await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_a_thousand_calls_at_once_one_release_wins_and_all_waits_agree() {
    let gateway = Gateway::start();
    in_session(&gateway, async |session| {
        session.command("true").finish().await;
        let before = gateway.footprint();
        let terminal = session.sh("exec sleep 1000").create().await;
        let connections: Vec<_> = {
            let mut all = Vec::new();
            for _ in 0..4 {
                all.push(gateway.caller().await);
            }
            all
        };
        let terminal = Arc::new(terminal);
        let calls: Vec<_> = (0..1000)
            .map(|i| {
                let mut mine = (*terminal).clone();
                mine.caller = connections[i % connections.len()].clone();
                tokio::spawn(async move {
                    match i % 3 {
                        0 => ("wait", mine.try_wait().await.map(|(_, outcome)| outcome)),
                        1 => ("kill", mine.try_kill(Some(Duration::ZERO)).await.map(|t| t.outcome)),
                        _ => ("release", mine.try_release(Some(Duration::ZERO)).await.map(|()| None)),
                    }
                })
            })
            .collect();
        let (mut releases, mut outcomes) = (0, Vec::new());
        for call in calls {
            match within("a call", call).await.expect("the task ends") {
                ("release", Ok(_)) => releases += 1,
                (_, Ok(outcome)) => outcomes.extend(outcome),
                (_, Err(refusal)) => assert_eq!(refusal.code, Code::NotFound, "{refusal:?}"),
            }
        }
        assert_eq!(releases, 1, "exactly one release wins");
        assert!(outcomes.windows(2).all(|w| w[0] == w[1]), "outcomes differ");
        if let Some(outcome) = outcomes.first() {
            assert_eq!((outcome.cause(), outcome.survivors), (ExitCause::Killed, 0));
        }
        drop(connections);
        eventually("no terminal", || {
            let now = gateway.footprint();
            (now.processes == before.processes && now.groups == before.groups).then_some(())
        })
        .await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caller_that_leaves_in_the_middle_of_create_leaves_nothing_unowned() {
    let gateway = Gateway::start();
    let session = Session::open(&gateway).await;
    session.command("true").finish().await;
    let before = gateway.footprint();
    let marker = session.marker();
    for i in 0..60_u64 {
        let caller = gateway.caller().await;
        let request = session.sh("exec sleep 1000").args([marker.as_str()]).request;
        let creation = async move {
            let mut terminals = caller.terminals.clone();
            let _ = terminals.create_terminal(request).await;
        };
        let _ = tokio::time::timeout(Duration::from_micros(i * 100), creation).await;
    }
    // What was started is in the list, and can be released; there is nothing else.
    let request = ListTerminalsRequest { session_id: session.id.clone(), ..Default::default() };
    within("the end of all", async {
        loop {
            let listed = session
                .caller
                .terminals
                .clone()
                .list_terminals(request.clone())
                .await
                .expect("a list")
                .into_inner();
            let settled = listed.terminals.iter().all(|t| t.state() != TerminalState::Created);
            for terminal in listed.terminals.iter().filter(|t| t.state() != TerminalState::Created) {
                let request = crate::support::api::ReleaseTerminalRequest {
                    terminal_id: terminal.id.clone(),
                    grace: Some(Default::default()),
                    ..Default::default()
                };
                let _ = session.caller.terminals.clone().release_terminal(request).await;
            }
            if listed.terminals.is_empty() && settled && gateway.footprint().processes == before.processes {
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    eventually("the footprint of before", || {
        let now = gateway.footprint();
        (now.processes == before.processes
            && now.groups == before.groups
            && now.descriptors <= before.descriptors + 1)
            .then_some(())
    })
    .await;
    session.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "long: .ci/run runs it"]
async fn ten_thousand_spawns_of_a_missing_program_leave_nothing() {
    spawns_of_a_missing_program_leave_nothing(10_000).await;
}

async fn spawns_of_a_missing_program_leave_nothing(count: usize) {
    let gateway = Gateway::start();
    in_session(&gateway, async |session| {
        let missing = async |n: usize| {
            let tries: Vec<_> = (0..8)
                .map(|_| {
                    let command = session.command("no-such-program");
                    tokio::spawn(async move {
                        for _ in 0..n / 8 {
                            let refusal = command.clone().refusal().await;
                            assert_eq!(refusal.reason, "COMMAND_NOT_FOUND", "{refusal:?}");
                        }
                    })
                })
                .collect();
            for one in tries {
                one.await.expect("every try is refused alike");
            }
        };
        let warm = (count / 2).min(1_000);
        missing(warm).await;
        let (before, resident) = (gateway.footprint(), gateway.process().resident_bytes());
        missing(count - warm).await;
        gateway.comes_back_to(&before).await;
        let now = gateway.process().resident_bytes();
        println!("resident: {} KiB after {warm}, {} KiB after {count}", resident >> 10, now >> 10);
        assert!(now < resident + (4 << 20), "the gateway grew from {resident} to {now} bytes");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_can_be_opened_and_closed_at_once_while_commands_start_in_them() {
    let gateway = Gateway::start();
    // What the gateway makes once, with the first sandbox, is its own.
    in_session(&gateway, async |session| drop(session.command("true").finish().await)).await;
    let before = gateway.footprint();
    let rounds: Vec<_> = (0..8)
        .map(|_| {
            let gateway = gateway.clone();
            tokio::spawn(async move {
                for _ in 0..3 {
                    let session = Session::open(&gateway).await;
                    let (first, second, ()) = tokio::join!(
                        session.command("sleep").args(["1000"]).try_create(),
                        session.command("true").try_create(),
                        async {
                            tokio::task::yield_now().await;
                            session.close().await;
                        }
                    );
                    for refusal in [first.err(), second.err()].into_iter().flatten() {
                        assert!(
                            matches!(refusal.code, Code::NotFound | Code::Aborted | Code::Unavailable),
                            "{refusal:?}"
                        );
                    }
                }
            })
        })
        .collect();
    for round in rounds {
        within("a round", round).await.expect("the task ends");
    }
    gateway.comes_back_to(&before).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_that_crosses_the_end_of_the_command_is_answered() {
    in_session(&Gateway::shared(), async |session| {
        for _ in 0..50 {
            let terminal = session.command("true").stdin().create().await;
            let (write, outcome) = tokio::join!(terminal.write(b"x", EndOfInput::NotYet), terminal.wait());
            if let Err(refusal) = write {
                assert_eq!(refusal.code, Code::FailedPrecondition, "{refusal:?}");
            }
            assert_eq!(outcome.cause(), ExitCause::Exited);
            terminal.release().await;
        }
    })
    .await;
}

/// Shorter forms of what CI runs whole.
mod brief {
    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn four_hundred_spawns_of_a_missing_program_leave_nothing() {
        spawns_of_a_missing_program_leave_nothing(400).await;
    }
}
