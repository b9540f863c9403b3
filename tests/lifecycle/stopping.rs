//! T10, T11, T13: Kill, Signal, Release, and the limits of time.

use std::time::Duration;

use tonic::Code;

use crate::support::{
    Gateway, Process,
    api::{ExitCause, TerminalState},
    api_duration, code, eventually, in_session, seconds, signal_name,
};

const LONG: Duration = Duration::from_secs(600);

/// A limit of time within which a command comes to its first word, or to what it does about signals, on a busy machine.
const TIME_FOR_A_WORD: Duration = Duration::from_secs(4);

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn kill_ends_a_command_and_leaves_the_terminal_valid() {
    in_session(&Gateway::shared(), async |session| {
        let terminal = session.sh("echo before; exec sleep 1000").create().await;
        terminal.until("before").await;
        terminal.kill(None).await;
        let outcome = terminal.wait().await;
        assert_eq!((signal_name(&outcome), outcome.cause()), ("SIGTERM", ExitCause::Killed));
        assert_eq!(terminal.output().await.data, &b"before\n"[..]);
        assert_eq!(terminal.get().await.expect("it is there").state(), TerminalState::Finished);
        terminal.release().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn kill_is_idempotent_and_a_finished_terminal_accepts_it() {
    in_session(&Gateway::shared(), async |session| {
        let terminal = session.command("sleep").args(["1000"]).create().await;
        for _ in 0..10 {
            terminal.kill(Some(LONG)).await;
        }
        let outcome = terminal.wait().await;
        assert_eq!(outcome.cause(), ExitCause::Killed);
        for _ in 0..3 {
            assert_eq!(terminal.kill(Some(Duration::ZERO)).await.state(), TerminalState::Finished);
        }
        assert_eq!(terminal.wait().await, outcome, "a late kill changes nothing");

        let ended = session.sh("exit 3").create().await;
        let outcome = ended.wait().await;
        ended.kill(None).await;
        assert_eq!(ended.wait().await, outcome);
        assert_eq!((code(&outcome), outcome.cause()), (3, ExitCause::Exited));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_second_kill_with_a_shorter_grace_is_obeyed() {
    in_session(&Gateway::shared(), async |session| {
        let terminal = session.attack("escape").args(["defy"]).create().await;
        terminal.until("ready").await;
        terminal.kill(Some(LONG)).await;
        terminal.until("got TERM").await;
        terminal.kill(Some(Duration::ZERO)).await;
        let outcome = terminal.wait().await;
        assert_eq!((signal_name(&outcome), outcome.cause()), ("SIGKILL", ExitCause::Killed));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn any_signal_can_be_sent_and_is_not_called_a_kill() {
    in_session(&Gateway::shared(), async |session| {
        let script =
            "trap 'echo usr1' USR1; trap 'echo int; exit 4' INT; echo ready; while :; do sleep 0.02 & wait $!; done";
        let terminal = session.sh(script).create().await;
        terminal.until("ready").await;
        terminal.signal("SIGUSR1").await.expect("it runs");
        terminal.until("usr1").await;
        terminal.signal("INT").await.expect("a short name is a name");
        let outcome = terminal.wait().await;
        assert_eq!((code(&outcome), outcome.cause()), (4, ExitCause::Exited));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_signal_is_known_by_all_its_names_and_its_number() {
    in_session(&Gateway::shared(), async |session| {
        for (given, name) in [
            ("SIGRTMIN+1", "SIGRTMIN+1"),
            ("RTMAX", "SIGRTMIN+30"),
            ("SIGPOLL", "SIGIO"),
            ("iot", "SIGABRT"),
            ("33", "SIG33"),
            ("9", "SIGKILL"),
        ] {
            let terminal = session.command("sleep").args(["1000"]).create().await;
            terminal.signal(given).await.expect("it runs");
            assert_eq!(signal_name(&terminal.wait().await), name, "{given}");
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_signal_that_is_none_is_refused_with_its_field() {
    in_session(&Gateway::shared(), async |session| {
        let terminal = session.command("sleep").args(["1000"]).create().await;
        for name in ["", "SIG", "SIGFOO", "99", "-1", "0", "sigint "] {
            let refusal = terminal.signal(name).await.expect_err("it is no signal");
            refusal.must_name_the_field("signal");
        }
        assert_eq!(terminal.get().await.expect("it is there").state(), TerminalState::Running);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_signal_to_a_finished_command_reaches_nobody() {
    in_session(&Gateway::shared(), async |session| {
        let terminal = session.command("true").create().await;
        let outcome = terminal.wait().await;
        if let Err(refusal) = terminal.signal("SIGKILL").await {
            assert_eq!(refusal.code, Code::FailedPrecondition, "{refusal:?}");
        }
        assert_eq!(terminal.wait().await, outcome);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_release_stops_what_runs_and_ends_the_id() {
    let gateway = Gateway::shared();
    in_session(&gateway, async |session| {
        let marker = session.marker();
        let terminal = session.idle(&marker).create().await;
        terminal.until("ready").await;
        assert_eq!(Process::all_marked(&marker).len(), 1);
        terminal.release().await;
        // When Release has answered, nothing is left: no waiting here.
        assert!(Process::all_marked(&marker).is_empty(), "a command cannot outlive its release");
        let groups = gateway.group.groups();
        assert!(!groups.iter().any(|g| g.to_string_lossy().contains(&terminal.id)), "{groups:?}");
        for refusal in [
            terminal.try_release(None).await.expect_err("a second release"),
            terminal.get().await.expect_err("a released terminal"),
            terminal.try_kill(None).await.expect_err("a released terminal"),
        ] {
            assert_eq!(refusal.code, Code::NotFound, "{refusal:?}");
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_time_limit_ends_the_command_with_its_cause_and_keeps_the_output() {
    in_session(&Gateway::shared(), async |session| {
        let terminal = session
            .sh("echo kept; exec sleep 1000")
            .with(|r| r.time_limit = Some(api_duration(TIME_FOR_A_WORD)))
            .create()
            .await;
        let outcome = terminal.wait().await;
        assert_eq!((signal_name(&outcome), outcome.cause()), ("SIGTERM", ExitCause::TimeLimit));
        assert_eq!(terminal.output().await.data, &b"kept\n"[..]);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_time_limit_also_ends_a_command_that_ignores_it() {
    in_session(&Gateway::shared(), async |session| {
        let terminal = session
            .attack("escape")
            .args(["ignore"])
            .grace(Duration::from_millis(100))
            .with(|r| r.time_limit = Some(api_duration(TIME_FOR_A_WORD)))
            .create()
            .await;
        let outcome = terminal.wait().await;
        assert_eq!((signal_name(&outcome), outcome.cause()), ("SIGKILL", ExitCause::TimeLimit));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_time_limit_leaves_a_command_its_grace() {
    in_session(&Gateway::shared(), async |session| {
        // Each of its pauses is told to end too.
        let script =
            "trap 'told=1; while [ $told -lt 40 ]; do sleep 0.05; told=$((told+1)); done; exit 9' TERM
            echo ready; while :; do sleep 0.05 & wait $!; done";
        let terminal = session
            .sh(script)
            .grace(LONG)
            .with(|r| r.time_limit = Some(api_duration(TIME_FOR_A_WORD)))
            .create()
            .await;
        let outcome = terminal.wait().await;
        assert_eq!((code(&outcome), outcome.cause()), (9, ExitCause::TimeLimit));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn an_idle_limit_ends_a_silent_command_and_not_a_talking_one() {
    in_session(&Gateway::shared(), async |session| {
        let limited = |script: &str, idle: u64| {
            let idle = api_duration(Duration::from_secs(idle));
            session.sh(script).grace(Duration::from_secs(1)).with(|r| r.idle_limit = Some(idle)).create()
        };
        // Within its limit, and for longer than the gateway takes to look for the first time.
        let patient = limited("sleep 6; echo late", 14).await;
        // It talks for longer than the limit and all that the gateway gives an end, with pauses far below, and then falls silent.
        let terminal = limited(
            "i=0; while [ $i -lt 100 ]; do echo $i; sleep 0.1; i=$((i+1)); done; echo silent; exec sleep 1000",
            3,
        )
        .await;
        let outcome = terminal.wait().await;
        assert_eq!((signal_name(&outcome), outcome.cause()), ("SIGTERM", ExitCause::IdleLimit));
        let text = String::from_utf8_lossy(&terminal.output().await.data).into_owned();
        assert!(text.ends_with("99\nsilent\n"), "it was ended while it talked: {text}");
        let outcome = patient.wait().await;
        assert_eq!((code(&outcome), outcome.cause()), (0, ExitCause::Exited));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn the_first_cause_wins() {
    in_session(&Gateway::shared(), async |session| {
        // Killed first; the time limit passes during the grace.
        let terminal =
            session.attack("escape").args(["defy"]).with(|r| r.time_limit = Some(seconds(6))).create().await;
        terminal.until("ready").await;
        terminal.kill(Some(Duration::from_secs(7))).await;
        let outcome = terminal.wait().await;
        assert_eq!((signal_name(&outcome), outcome.cause()), ("SIGKILL", ExitCause::Killed));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn the_profiles_time_limit_holds_and_a_caller_can_only_tighten_it() {
    let gateway = Gateway::with_policy(|policy| {
        for (_, profile) in policy["profile"].as_table_mut().expect("profiles").iter_mut() {
            let times: toml::Table =
                "limit = \"400ms\"\nceiling = \"800ms\"\ngrace = \"5s\"\nlinger = \"200ms\""
                    .parse()
                    .expect("TOML");
            profile.as_table_mut().expect("a table").insert("times".into(), times.into());
        }
    });
    in_session(&gateway, async |session| {
        let plain = session.command("sleep").args(["1000"]).finish().await;
        assert_eq!(plain.outcome.cause(), ExitCause::TimeLimit);
        match session
            .command("sleep")
            .args(["1000"])
            .with(|r| r.time_limit = Some(seconds(3600)))
            .try_create()
            .await
        {
            Ok(terminal) => assert_eq!(terminal.wait().await.cause(), ExitCause::TimeLimit),
            Err(refusal) => {
                assert!(matches!(refusal.code, Code::PermissionDenied | Code::InvalidArgument), "{refusal:?}")
            }
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn what_outlives_the_main_process_is_ended_and_counted() {
    in_session(&Gateway::shared(), async |session| {
        let marker = session.marker();
        let done = session.attack("escape").args(["leave", &marker]).finish().await;
        assert_eq!((code(&done.outcome), done.outcome.cause()), (5, ExitCause::Exited));
        assert_eq!(done.outcome.stragglers_killed, 3, "{:?}", done.outcome);
        eventually("no straggler", || Process::all_marked(&marker).is_empty().then_some(())).await;
    })
    .await;
}
