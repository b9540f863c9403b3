//! T16: stdin.

use std::time::Duration;

use tonic::Code;

use crate::support::{EndOfInput, Gateway, Pattern, code, in_session, within};

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn stdin_is_closed_by_default() {
    in_session(&Gateway::shared(), async |session| {
        let done = session.sh("cat; readlink /proc/self/fd/0").finish().await;
        assert_eq!(done.text(), "/dev/null\n");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn what_is_written_arrives_and_the_end_of_input_too() {
    in_session(&Gateway::shared(), async |session| {
        let terminal = session.command("cat").stdin().create().await;
        assert_eq!(terminal.write(b"one ", EndOfInput::NotYet).await.expect("it is open"), 4);
        terminal.until("one ").await;
        assert_eq!(terminal.write(b"two", EndOfInput::After).await.expect("it is open"), 3);
        assert_eq!(code(&terminal.wait().await), 0);
        assert_eq!(terminal.output().await.data, &b"one two"[..]);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn much_input_arrives_whole_although_the_command_reads_slowly() {
    in_session(&Gateway::shared(), async |session| {
        let bytes = Pattern::bytes(0, 3 << 20);
        let terminal = session.attack("emit").args(["echo"]).stdin().retain(8 << 20).create().await;
        for piece in bytes.chunks(256 << 10) {
            let mut at = 0;
            while at < piece.len() {
                let written = terminal.write(&piece[at..], EndOfInput::NotYet).await.expect("it is open");
                at += written as usize;
            }
        }
        terminal.write(b"", EndOfInput::After).await.expect("it is open");
        assert_eq!(code(&terminal.wait().await), 0);
        let output = terminal.output().await;
        assert_eq!((output.start_offset, output.data.len()), (0, bytes.len()));
        Pattern::check(0, &output.data);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_write_that_cannot_arrive_is_refused() {
    in_session(&Gateway::shared(), async |session| {
        let shut = session.command("sleep").args(["1000"]).create().await;
        let refusal = shut.write(b"x", EndOfInput::NotYet).await.expect_err("stdin was never open");
        assert_eq!(refusal.code, Code::FailedPrecondition, "{refusal:?}");

        let ended = session.command("cat").stdin().create().await;
        ended.write(b"", EndOfInput::After).await.expect("it is open");
        ended.wait().await;
        let refusal = ended.write(b"x", EndOfInput::NotYet).await.expect_err("the command has ended");
        assert_eq!(refusal.code, Code::FailedPrecondition, "{refusal:?}");

        // The command closes its stdin and runs on: fewer bytes are accepted, or the refusal says so.
        let deaf = session.sh("exec 0</dev/null; echo deaf; exec sleep 1000").stdin().create().await;
        deaf.until("deaf").await;
        match deaf.write(b"x", EndOfInput::NotYet).await {
            Ok(written) => assert_eq!(written, 0),
            Err(refusal) => assert_eq!(refusal.code, Code::FailedPrecondition, "{refusal:?}"),
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_command_that_never_reads_can_still_be_killed_while_a_write_waits() {
    in_session(&Gateway::shared(), async |session| {
        let terminal = session.command("sleep").args(["1000"]).stdin().create().await;
        let writer = tokio::spawn({
            let terminal = terminal.clone();
            async move { terminal.write(&vec![b'x'; 1 << 20], EndOfInput::NotYet).await }
        });
        terminal.kill(Some(Duration::ZERO)).await;
        terminal.wait().await;
        // Whatever the write answers, it answers.
        let _ = within("the write", writer).await.expect("the task ends");
        terminal.release().await;
    })
    .await;
}
