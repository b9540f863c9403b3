//! Merged output keeps the order of writing; split output keeps the streams apart.

use crate::support::{Follow, Gateway, RunResult, api::OutputStream, in_session};

fn alternation(prefix: char, n: usize) -> String {
    (0..n).map(|i| format!("{prefix}{i}\n")).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn merged_output_is_in_the_order_of_the_writes() {
    in_session(&Gateway::shared(), async |session| {
        let done = session.attack("emit").args(["alternate", "20000"]).finish().await;
        let expected: String = (0..20000).map(|i| format!("o{i}\ne{i}\n")).collect();
        assert_eq!(done.output.len(), expected.len());
        assert!(done.output == expected.as_bytes(), "the order of the writes was lost");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn split_output_keeps_each_stream_whole_and_apart() {
    in_session(&Gateway::shared(), async |session| {
        let terminal = session.attack("emit").args(["alternate", "20000"]).split().create().await;
        terminal.wait().await;
        let out = terminal.output_of(OutputStream::Stdout).await.data;
        let err = terminal.output_of(OutputStream::Stderr).await.data;
        assert!(out == alternation('o', 20000).as_bytes(), "stdout");
        assert!(err == alternation('e', 20000).as_bytes(), "stderr");
        // The unnamed stream of a split terminal is stdout.
        assert_eq!(terminal.output().await.data, out);
        let seen = terminal.get().await.expect("it is there");
        let streams: Vec<_> = seen.output.iter().map(|p| (p.stream(), p.next_offset)).collect();
        assert_eq!(
            streams,
            [(OutputStream::Stdout, out.len() as u64), (OutputStream::Stderr, err.len() as u64)]
        );
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_merged_terminal_has_one_position() {
    in_session(&Gateway::shared(), async |session| {
        let terminal = session.sh("echo a; echo b >&2").create().await;
        terminal.wait().await;
        let seen = terminal.get().await.expect("it is there");
        assert_eq!(seen.output.len(), 1, "{:?}", seen.output);
        assert_eq!((seen.output[0].oldest_offset, seen.output[0].next_offset), (0, 4));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_run_keeps_the_streams_of_a_split_command_apart() {
    in_session(&Gateway::shared(), async |session| {
        let run = session.attack("emit").args(["alternate", "5000"]).split().run().await.expect("it starts");
        let run = RunResult::all(run).await;
        assert!(run.stdout == alternation('o', 5000).as_bytes(), "stdout");
        assert!(run.stderr == alternation('e', 5000).as_bytes(), "stderr");
        let request = crate::support::api::GetTerminalRequest {
            terminal_id: run.finished.id,
            session_id: String::new(),
        };
        let gone = session.caller.terminals.clone().get_terminal(request).await;
        assert_eq!(gone.expect_err("a run releases").code(), tonic::Code::NotFound);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn the_streams_of_a_split_terminal_can_be_followed_at_once() {
    in_session(&Gateway::shared(), async |session| {
        let terminal = session.attack("emit").args(["alternate", "20000"]).split().create().await;
        let out = terminal.stream(OutputStream::Stdout, 0, Follow::Yes).await;
        let err = terminal.stream(OutputStream::Stderr, 0, Follow::Yes).await;
        let (out, err) =
            tokio::join!(crate::support::Collected::all(out, 0), crate::support::Collected::all(err, 0));
        assert!(out.data == alternation('o', 20000).as_bytes() && out.gaps.is_empty(), "stdout");
        assert!(err.data == alternation('e', 20000).as_bytes() && err.gaps.is_empty(), "stderr");
    })
    .await;
}
