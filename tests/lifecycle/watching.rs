//! T12: states, and how to follow them.

use std::time::Duration;

use crate::support::{
    Gateway,
    api::{ListTerminalsRequest, TerminalState, WatchTerminalsRequest},
    in_session, within,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watcher_sees_every_state_in_order_and_nothing_twice_backwards() {
    in_session(&Gateway::shared(), async |session| {
        let request = WatchTerminalsRequest { session_id: session.id.clone() };
        let mut events =
            session.caller.terminals.clone().watch_terminals(request).await.expect("a watch").into_inner();
        let terminal = session.command("cat").stdin().create().await;
        let mut seen = Vec::new();
        while seen.last() != Some(&TerminalState::Released) {
            let event =
                within("the next state", events.message()).await.expect("it goes on").expect("it goes on");
            let event = event.terminal.expect("it is set");
            if event.id != terminal.id {
                continue;
            }
            // A state is left only when it was seen: of changes that follow each other closely the last one is sent.
            match event.state() {
                TerminalState::Running if !seen.contains(&TerminalState::Running) => {
                    let end = crate::support::EndOfInput::After;
                    terminal.write(b"", end).await.expect("stdin can be closed");
                }
                TerminalState::Finished if !seen.contains(&TerminalState::Finished) => {
                    assert!(event.outcome.is_some(), "Finished comes with its outcome");
                    terminal.release().await;
                }
                _ => {}
            }
            seen.push(event.state());
        }
        assert!(seen.windows(2).all(|w| (w[0] as i32) <= (w[1] as i32)), "states went backwards: {seen:?}");
        assert!(
            seen.contains(&TerminalState::Running) && seen.contains(&TerminalState::Finished),
            "{seen:?}"
        );
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_watcher_that_comes_late_gets_the_present_state_first() {
    in_session(&Gateway::shared(), async |session| {
        let running = session.command("sleep").args(["1000"]).create().await;
        let finished = session.command("true").create().await;
        finished.wait().await;
        let request = WatchTerminalsRequest { session_id: session.id.clone() };
        let mut events =
            session.caller.terminals.clone().watch_terminals(request).await.expect("a watch").into_inner();
        let mut seen = std::collections::BTreeMap::new();
        while seen.len() < 2 {
            let event =
                within("a present state", events.message()).await.expect("it goes on").expect("it goes on");
            let event = event.terminal.expect("it is set");
            seen.insert(event.id.clone(), event.state());
        }
        assert_eq!(seen.get(&running.id), Some(&TerminalState::Running));
        assert_eq!(seen.get(&finished.id), Some(&TerminalState::Finished));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn lists_and_lookups_tell_the_state_and_what_was_asked_for() {
    in_session(&Gateway::shared(), async |session| {
        let terminal = session
            .command("sleep")
            .args(["1000"])
            .with(|r| {
                r.labels.insert("who".into(), "the tests".into());
            })
            .create()
            .await;
        let seen = terminal.get().await.expect("it is there");
        assert_eq!(seen.state(), TerminalState::Running);
        assert_eq!((seen.command.as_str(), seen.args.as_slice()), ("sleep", &["1000".to_owned()][..]));
        assert_eq!(seen.cwd, session.workspace.display().to_string());
        assert_eq!(seen.labels.get("who").map(String::as_str), Some("the tests"));
        assert!(seen.pid > 0 && seen.created_at.is_some() && seen.started_at.is_some());
        assert!(seen.receipt.is_some(), "a running terminal has a receipt");
        assert!(seen.outcome.is_none(), "a running terminal has no outcome");
        terminal.kill(Some(Duration::ZERO)).await;
        terminal.wait().await;
        let request = ListTerminalsRequest { session_id: session.id.clone(), ..Default::default() };
        let listed = session
            .caller
            .terminals
            .clone()
            .list_terminals(request)
            .await
            .expect("a list")
            .into_inner()
            .terminals;
        assert_eq!(listed.len(), 1);
        assert_eq!(listed[0].state(), TerminalState::Finished);
        assert_eq!(listed[0].receipt.as_ref().and_then(|r| r.survivors), Some(0), "a receipt's last word");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_of_one_session_and_its_list_show_nothing_of_the_callers_other_sessions() {
    let gateway = Gateway::shared();
    in_session(&gateway, async |session| {
        in_session(&gateway, async |other| {
            let before = other.command("sleep").args(["1000"]).create().await;
            let request = WatchTerminalsRequest { session_id: session.id.clone() };
            let mut events = session
                .caller
                .terminals
                .clone()
                .watch_terminals(request)
                .await
                .expect("a watch")
                .into_inner();
            // Changes are told in their order: what the other session's would tell comes before this one's end.
            let meanwhile = other.command("true").create().await;
            meanwhile.wait().await;
            let own = session.command("true").create().await;
            own.wait().await;
            loop {
                let event =
                    within("a state", events.message()).await.expect("it goes on").expect("it goes on");
                let event = event.terminal.expect("it is set");
                assert_eq!((&event.id, &event.session_id), (&own.id, &session.id));
                if event.state() == TerminalState::Finished {
                    break;
                }
            }
            let request = ListTerminalsRequest { session_id: session.id.clone(), ..Default::default() };
            let listed =
                session.caller.terminals.clone().list_terminals(request).await.expect("a list").into_inner();
            let ids: Vec<_> = listed.terminals.iter().map(|terminal| terminal.id.as_str()).collect();
            assert_eq!(ids, [own.id.as_str()]);
            before.kill(Some(Duration::ZERO)).await;
        })
        .await;
    })
    .await;
}
