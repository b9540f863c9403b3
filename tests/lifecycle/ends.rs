//! T8, T9: waiting, and what an outcome says.

use crate::support::lacks;
use std::time::Duration;

use tonic::Code;

use crate::support::{
    Gateway, Refusal,
    api::{ExitCause, MemoryPeakSource, TerminalState, outcome::End},
    code, in_session, signal_name, within,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn every_exit_code_comes_back_as_it_was_given() {
    in_session(&Gateway::shared(), async |session| {
        for expected in [0, 1, 2, 41, 124, 126, 127, 128, 137, 255] {
            let done = session.sh(&format!("exit {expected}")).finish().await;
            assert_eq!(done.outcome.end, Some(End::ExitCode(expected)));
            assert_eq!(done.outcome.cause(), ExitCause::Exited);
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_signal_comes_back_by_its_name_and_not_as_a_code() {
    in_session(&Gateway::shared(), async |session| {
        for (number, name) in [
            (1, "SIGHUP"),
            (2, "SIGINT"),
            (6, "SIGABRT"),
            (9, "SIGKILL"),
            (11, "SIGSEGV"),
            (15, "SIGTERM"),
            (32, "SIG32"),
            (33, "SIG33"),
            (34, "SIGRTMIN"),
            (37, "SIGRTMIN+3"),
            (64, "SIGRTMIN+30"),
        ] {
            let done = session.sh(&format!("kill -{number} $$; sleep 5")).finish().await;
            assert_eq!(signal_name(&done.outcome), name);
            assert_eq!(done.outcome.cause(), ExitCause::Signalled, "{name} was the command's own");
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn an_outcome_says_what_was_used() {
    if lacks(&["python3"]) {
        return;
    }
    in_session(&Gateway::shared(), async |session| {
        let done = session
            .command("python3")
            .args(["-c", "x = bytearray(64 << 20)\nfor i in range(0, len(x), 4096): x[i] = 1\ns = 0\nfor i in range(2000000): s += i"])
            .finish()
            .await;
        assert_eq!(code(&done.outcome), 0, "{}", done.text());
        let usage = done.outcome.usage.expect("usage");
        let micros = |d: Option<prost_types::Duration>| d.map_or(0, |d| d.seconds * 1_000_000 + i64::from(d.nanos) / 1000);
        assert!(micros(usage.cpu_user) > 20_000, "{usage:?}");
        assert!(micros(usage.wall) * 3 >= micros(usage.cpu_user), "{usage:?}");
        assert!(usage.memory_peak_bytes >= 64 << 20, "{usage:?}");
        assert!(usage.memory_peak_bytes < 1 << 30, "{usage:?}");
        assert_ne!(usage.memory_peak_source(), MemoryPeakSource::Unspecified);
        let (begun, ended) = (done.outcome.started_at.expect("a start"), done.outcome.ended_at.expect("an end"));
        assert!((begun.seconds, begun.nanos) <= (ended.seconds, ended.nanos), "{begun:?} {ended:?}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn usage_counts_the_whole_tree() {
    in_session(&Gateway::shared(), async |session| {
        // A grandchild does the work, and nobody reaps it but the supervisor; the command ends after it.
        let done = session
            .sh("(setsid sh -c 'i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done; : > done' &); \
                 while [ ! -e done ]; do sleep 0.02; done")
            .finish()
            .await;
        let usage = done.outcome.usage.expect("usage");
        let user = usage.cpu_user.expect("cpu");
        assert!(user.seconds > 0 || user.nanos > 5_000_000, "the grandchild's work is missing: {usage:?}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_waiters_get_the_same_answer_early_and_late() {
    let gateway = Gateway::shared();
    in_session(&gateway, async |session| {
        let terminal = session.command("cat").stdin().create().await;
        let early: Vec<_> = (0..50)
            .map(|_| {
                let terminal = terminal.clone();
                tokio::spawn(async move { terminal.wait().await })
            })
            .collect();
        terminal.write(b"", crate::support::EndOfInput::After).await.expect("stdin can be closed");
        let first = terminal.wait().await;
        for waiter in early {
            assert_eq!(waiter.await.expect("the task ends"), first);
        }
        for _ in 0..5 {
            assert_eq!(terminal.wait().await, first);
        }
        let seen = terminal.get().await.expect("it is there");
        assert_eq!(seen.outcome, Some(first.clone()));
        assert_eq!(terminal.output().await.outcome, Some(first));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_waiters_deadline_is_its_own_and_the_command_runs_on() {
    in_session(&Gateway::shared(), async |session| {
        let terminal = session.command("sleep").args(["1000"]).create().await;
        // On a busy host the client's own clock may be the first, and then says Cancelled. The gateway's head start grows
        // with the deadline.
        let mut is_answered = false;
        for round in 1..=20 {
            let mut request = tonic::Request::new(terminal.wait_request());
            request.set_timeout(Duration::from_millis(200) * round);
            let status =
                within("the caller's deadline", terminal.caller.terminals.clone().wait_for_exit(request))
                    .await
                    .expect_err("the command runs on");
            assert!(matches!(status.code(), Code::DeadlineExceeded | Code::Cancelled), "{status:?}");
            is_answered = status.code() == Code::DeadlineExceeded;
            if is_answered {
                break;
            }
        }
        assert!(is_answered, "the gateway never answers before the caller's deadline");
        assert_eq!(terminal.get().await.expect("it is there").state(), TerminalState::Running);
        terminal.kill(Some(Duration::ZERO)).await;
        assert_eq!(terminal.wait().await.cause(), ExitCause::Killed);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_and_readers_are_answered_by_a_release() {
    in_session(&Gateway::shared(), async |session| {
        let terminal = session.sh("echo begun; exec sleep 1000").create().await;
        terminal.until("begun").await;
        let waiter = tokio::spawn({
            let terminal = terminal.clone();
            async move { terminal.try_wait().await }
        });
        let mut stream = terminal.stream(Default::default(), 0, crate::support::Follow::Yes).await;
        assert!(within("the first chunk", stream.message()).await.expect("it goes on").is_some());
        terminal.try_release(Some(Duration::ZERO)).await.expect("it can be released");
        // Cleanly: an answer with the terminal's end, or the word that it is gone; never a broken connection.
        match within("the waiter", waiter).await.expect("the task ends") {
            Ok((state, outcome)) => {
                assert!(matches!(state, TerminalState::Released | TerminalState::Finished), "{state:?}");
                if let Some(outcome) = outcome {
                    assert_eq!(outcome.cause(), ExitCause::Killed);
                }
            }
            Err(refusal) => panic!("the wait ended with {refusal:?}"),
        }
        loop {
            match within("the stream's end", stream.message()).await {
                Ok(Some(_)) => {}
                Ok(None) => break,
                Err(status) => panic!("the stream ended with {:?}", Refusal::from(status)),
            }
        }
        assert_eq!(terminal.get().await.expect_err("it is gone").code, Code::NotFound);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn the_exit_is_told_after_the_output_is_complete() {
    in_session(&Gateway::shared(), async |session| {
        for i in 0..30 {
            let terminal = session.sh(&format!("printf {i:04}; exit {i}")).create().await;
            let outcome = terminal.wait().await;
            assert_eq!(code(&outcome), i);
            assert_eq!(terminal.output().await.data, format!("{i:04}").as_bytes());
            terminal.release().await;
        }
    })
    .await;
}
