//! The moment in which a command ends, and what of its output is still on the way.

use std::time::Duration;

use crate::support::{
    Collected, EndOfInput, Follow, Gateway, Process,
    api::{ExitCause, OutputStream, TerminalState},
    code, eventually, in_session, within,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_last_words_of_short_commands_are_never_lost() {
    in_session(&Gateway::shared(), async |session| {
        // Twenty at a time, so that the machine is loaded.
        for round in 0..40 {
            let all: Vec<_> = (0..20)
                .map(|i| {
                    let words = format!("{round}.{i}.");
                    let command = session.sh(&format!("echo {words}; exit {i}"));
                    tokio::spawn(async move { (words, i, command.finish().await) })
                })
                .collect();
            for one in all {
                let (words, i, done) = one.await.expect("the task ends");
                assert_eq!((done.text(), code(&done.outcome)), (format!("{words}\n"), i));
            }
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_grandchild_that_holds_the_pipe_does_not_hold_the_exit() {
    in_session(&Gateway::shared(), async |session| {
        let marker = session.marker();
        let terminal = session.attack("emit").args(["holder", "0", &marker]).create().await;
        let outcome = terminal.wait().await;
        assert_eq!((code(&outcome), outcome.cause()), (3, ExitCause::Exited));
        assert_eq!(outcome.stragglers_killed, 1, "{outcome:?}");
        assert_eq!(terminal.output().await.data, &b"left\n"[..]);
        assert!(Process::all_marked(&marker).is_empty(), "the holder is gone when the exit is told");
        let read = Collected::all(terminal.stream(OutputStream::Unspecified, 0, Follow::Yes).await, 0).await;
        assert_eq!((read.data, read.outcome), (b"left\n".to_vec(), Some(outcome)));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn what_a_child_writes_just_after_the_exit_is_still_there() {
    // Longer than a slow machine takes to let the child run; what waits for the time to pass is not tested here.
    let patient = Gateway::with_policy(|policy| {
        policy["profile"]["workspace"]["times"]["linger"] = "30s".into();
    });
    in_session(&patient, async |session| {
        let done = session.attack("emit").args(["late", "20"]).finish().await;
        assert_eq!(code(&done.outcome), 0);
        assert_eq!(done.text(), "early\nlate\n");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_command_that_closes_its_streams_runs_on() {
    in_session(&Gateway::shared(), async |session| {
        let terminal = session.attack("emit").args(["close"]).stdin().create().await;
        terminal.until("closing").await;
        // Both streams are at their end; the command is not.
        eventually("closed streams", || {
            let pid = Process::all_marked(&terminal_program(&terminal.info.command)).first()?.pid;
            let links = Process::read(pid)?.descriptors();
            (links.len() == 1).then_some(())
        })
        .await;
        assert_eq!(terminal.get().await.expect("it is there").state(), TerminalState::Running);
        terminal.write(b"", EndOfInput::After).await.expect("it is open");
        assert_eq!(code(&terminal.wait().await), 7);
        assert_eq!(terminal.output().await.data, &b"closing\n"[..]);
    })
    .await;
}

fn terminal_program(command: &str) -> String {
    format!("{command} close")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_follower_is_told_the_outcome_at_the_end() {
    in_session(&Gateway::shared(), async |session| {
        let terminal = session.sh("read go; echo bye; exit 6").stdin().create().await;
        let follower = tokio::spawn({
            let terminal = terminal.clone();
            async move {
                Collected::all(terminal.stream(OutputStream::Unspecified, 0, Follow::Yes).await, 0).await
            }
        });
        terminal.write(b"\n", EndOfInput::After).await.expect("it is open");
        let read = within("the follower", follower).await.expect("the task ends");
        assert_eq!(read.data, b"bye\n");
        assert_eq!(code(&read.outcome.expect("the end carries it")), 6);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_killed_commands_last_output_is_kept() {
    in_session(&Gateway::shared(), async |session| {
        let terminal = session
            .sh("exec 2>/dev/null; trap 'echo cleaning; exit 8' TERM; echo ready; while :; do sleep 0.1 & wait $!; done")
            .create()
            .await;
        terminal.until("ready").await;
        terminal.kill(Some(Duration::from_secs(600))).await;
        let outcome = terminal.wait().await;
        assert_eq!((code(&outcome), outcome.cause()), (8, ExitCause::Killed));
        assert_eq!(terminal.output().await.data, &b"ready\ncleaning\n"[..]);
    })
    .await;
}
