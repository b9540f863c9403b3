//! TERM first, then the grace, then KILL: told by the order of events, not by the clock.

use std::time::{Duration, Instant};

use crate::support::{Gateway, api::ExitCause, code, in_session, signal_name};

/// Longer than any test waits: what ends before this has not waited for it.
const NEVER: Duration = Duration::from_secs(600);

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn term_is_given_first_and_a_command_that_obeys_is_not_killed() {
    in_session(&Gateway::shared(), async |session| {
        let terminal = session.attack("escape").args(["trap"]).create().await;
        terminal.until("ready").await;
        terminal.kill(Some(NEVER)).await;
        let outcome = terminal.wait().await;
        assert_eq!(
            (code(&outcome), outcome.cause()),
            (9, ExitCause::Killed),
            "its own exit code, after TERM"
        );
        assert_eq!(terminal.output().await.data, &b"ready\ngot TERM\n"[..]);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn kill_follows_only_when_the_grace_is_over() {
    in_session(&Gateway::shared(), async |session| {
        let terminal = session.attack("escape").args(["defy"]).create().await;
        terminal.until("ready").await;
        let grace = Duration::from_millis(600);
        let begun = Instant::now();
        terminal.kill(Some(grace)).await;
        let outcome = terminal.wait().await;
        // The grace is a lower bound, and holds on any machine.
        assert!(begun.elapsed() >= grace, "killed after {:?}", begun.elapsed());
        assert_eq!((signal_name(&outcome), outcome.cause()), ("SIGKILL", ExitCause::Killed));
        assert_eq!(terminal.output().await.data, &b"ready\ngot TERM\n"[..], "TERM came first, and once");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn without_a_grace_there_is_no_term() {
    in_session(&Gateway::shared(), async |session| {
        for _ in 0..10 {
            let terminal = session.attack("escape").args(["trap"]).create().await;
            terminal.until("ready").await;
            terminal.kill(Some(Duration::ZERO)).await;
            let outcome = terminal.wait().await;
            assert_eq!((signal_name(&outcome), outcome.cause()), ("SIGKILL", ExitCause::Killed));
            assert_eq!(terminal.output().await.data, &b"ready\n"[..]);
            terminal.release().await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn term_reaches_the_whole_tree_and_not_only_the_main_process() {
    in_session(&Gateway::shared(), async |session| {
        let program = crate::support::Attack::compiled("escape").placed_in(&session.workspace);
        // Three in sessions of their own; each says what it got.
        let script = format!("for i in 1 2 3; do setsid {0} trap & done; wait; wait", program.display());
        let terminal = session.sh(&format!("trap : TERM; {script}")).create().await;
        let mut events = terminal.stream(Default::default(), 0, crate::support::Follow::Yes).await;
        let mut seen = String::new();
        while seen.matches("ready").count() < 3 {
            let event =
                crate::support::within("three times ready", events.message()).await.expect("it goes on");
            if let Some(crate::support::api::stream_output_response::Event::Chunk(chunk)) =
                event.and_then(|e| e.event)
            {
                seen.push_str(&String::from_utf8_lossy(&chunk.data));
            }
        }
        terminal.kill(Some(NEVER)).await;
        terminal.wait().await;
        let text = String::from_utf8_lossy(&terminal.output().await.data).into_owned();
        assert_eq!(text.matches("got TERM").count(), 3, "{text}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn the_profiles_grace_holds_when_nobody_names_one() {
    let gateway = Gateway::with_policy(|policy| {
        for (_, profile) in policy["profile"].as_table_mut().expect("profiles").iter_mut() {
            let times: toml::Table = "grace = \"300ms\"\nlinger = \"200ms\"".parse().expect("TOML");
            profile.as_table_mut().expect("a table").insert("times".into(), times.into());
        }
    });
    in_session(&gateway, async |session| {
        let terminal = session.attack("escape").args(["defy"]).create().await;
        terminal.until("ready").await;
        let begun = Instant::now();
        terminal.kill(None).await;
        let outcome = terminal.wait().await;
        assert!(begun.elapsed() >= Duration::from_millis(300));
        assert_eq!((signal_name(&outcome), outcome.cause()), ("SIGKILL", ExitCause::Killed));
        assert_eq!(terminal.output().await.data, &b"ready\ngot TERM\n"[..]);
    })
    .await;
}
