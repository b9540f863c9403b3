//! Block when full: the command waits for its reader, each stream for its own, and nobody waits when nobody reads.

use std::time::Duration;

use crate::support::{
    Collected, Command, Follow, Gateway, RunResult, Session,
    api::{OutputMode, OutputStream, Overflow},
    code, in_session, within,
};

/// More than any ring of these tests retains.
const FLOOD: &str = "head -c 2000000 /dev/zero";

fn blocking(session: &Session, script: &str) -> Command {
    session.sh(script).retain(1000).with(|request| request.overflow = Overflow::Block as i32)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_loses_nothing_while_others_read_along() {
    in_session(&Gateway::shared(), async |session| {
        let run =
            session.sh(&format!("read go; {FLOOD}")).stdin().retain(1000).run().await.expect("it starts");
        let running = tokio::spawn(RunResult::all(run));
        let terminal = session.only_terminal().await;
        // One reader that goes after its first chunk, and one that stays.
        let mut first = terminal.stream(OutputStream::Unspecified, 0, Follow::Yes).await;
        let mut second = terminal.stream(OutputStream::Unspecified, 0, Follow::Yes).await;
        terminal.write(b"\n", crate::support::EndOfInput::After).await.expect("it is open");
        within("a chunk", first.message()).await.expect("it goes on");
        drop(first);
        let along =
            tokio::spawn(async move { while second.message().await.is_ok_and(|event| event.is_some()) {} });
        let run = within("the run", running).await.expect("the task ends");
        assert_eq!(run.stdout.len(), 2_000_000);
        within("the other reader", along).await.expect("the task ends");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_stream_of_a_blocking_terminal_waits_for_a_reader_of_its_own() {
    in_session(&Gateway::shared(), async |session| {
        let script = format!("{FLOOD} >&2; {FLOOD}; {FLOOD} >&2");
        let terminal = blocking(session, &script)
            .with(|request| request.output_mode = OutputMode::Split as i32)
            .create()
            .await;
        let mut readers = Vec::new();
        for (stream, expected) in [(OutputStream::Stdout, 2_000_000), (OutputStream::Stderr, 4_000_000)] {
            let events = terminal.stream(stream, 0, Follow::Yes).await;
            readers.push(tokio::spawn(async move {
                let read = Collected::all(events, 0).await;
                assert_eq!((read.data.len(), read.lost()), (expected, 0));
            }));
        }
        for reader in readers {
            within("a reader", reader).await.expect("the task ends");
        }
        assert_eq!(code(&terminal.wait().await), 0);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_stream_waits_for_a_reader_after_the_last_one_has_gone() {
    in_session(&Gateway::shared(), async |session| {
        let terminal = blocking(session, &format!("{FLOOD}; {FLOOD} >&2"))
            .with(|request| request.output_mode = OutputMode::Split as i32)
            .create()
            .await;
        let mut events = terminal.stream(OutputStream::Unspecified, 0, Follow::Yes).await;
        assert!(within("a chunk", events.message()).await.expect("it goes on").is_some());
        drop(events);
        assert_eq!(code(&terminal.wait().await), 0);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_stream_waits_for_a_reader_that_wants_none_of_it() {
    in_session(&Gateway::shared(), async |session| {
        let terminal = blocking(session, FLOOD).create().await;
        let _beyond = terminal.stream(OutputStream::Unspecified, 1 << 40, Follow::Yes).await;
        assert_eq!(code(&terminal.wait().await), 0);
    })
    .await;
}

/// A limit is for processes. Longer than the gateway gives a supervisor to report an end, and then a killed cgroup.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "long: .ci/run runs it"]
async fn what_a_command_has_written_waits_for_its_reader_beyond_its_time_limit() {
    in_session(&Gateway::shared(), async |session| {
        // It ends while its pipe and its ring are full.
        let terminal = blocking(session, "timeout 3 cat /dev/zero")
            .grace(Duration::ZERO)
            .with(|request| request.time_limit = Some(crate::support::seconds(6)))
            .create()
            .await;
        let events = terminal.stream(OutputStream::Unspecified, 0, Follow::Yes).await;
        let over = tokio::time::timeout(Duration::from_secs(6 + 5 + 10 + 4), terminal.wait()).await;
        assert!(over.is_err(), "it is over before its output was read: {over:?}");
        let read = within("the rest", tokio::spawn(Collected::all(events, 0))).await.expect("the task ends");
        assert!(
            read.data.len() > 1_000 && read.lost() == 0,
            "{} read, {} lost",
            read.data.len(),
            read.lost()
        );
        assert_eq!(code(&terminal.wait().await), 124);
    })
    .await;
}
