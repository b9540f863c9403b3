//! T7: reading while it runs, after it has ended, from any offset, by readers of any speed.

use std::time::Duration;

use tokio_stream::StreamExt;

use crate::support::{
    Collected, Follow, Gateway, Pattern, Session,
    api::{OutputStream, TerminalState, stream_output_response},
    in_session, within,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn output_can_be_polled_while_the_command_runs_and_after_it_has_ended() {
    in_session(&Gateway::shared(), async |session| {
        let terminal = session.sh("echo one; read go; echo two").stdin().create().await;
        terminal.until("one").await;
        let now = terminal.output().await;
        assert_eq!((&now.data[..], now.state()), (&b"one\n"[..], TerminalState::Running));
        assert!(now.outcome.is_none());
        terminal.write(b"\n", crate::support::EndOfInput::After).await.expect("it is open");
        let outcome = terminal.wait().await;
        let then = terminal.output().await;
        assert_eq!((&then.data[..], then.state()), (&b"one\ntwo\n"[..], TerminalState::Finished));
        assert_eq!(then.outcome, Some(outcome));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_reader_that_resumes_gets_no_gap_and_nothing_twice() {
    in_session(&Gateway::shared(), async |session| {
        let total = 900_000_u64;
        let terminal = session.attack("emit").args(["pattern", &total.to_string(), "8192"]).create().await;
        // Readers that leave after a while, each going on where the one before it left.
        let mut at = 0;
        let mut turns = 0;
        while at < total {
            let mut events = terminal.stream(OutputStream::Unspecified, at, Follow::Yes).await;
            let leave = at + 50_000;
            while at < leave {
                match within("a chunk", events.message()).await.expect("it goes on").and_then(|e| e.event) {
                    Some(stream_output_response::Event::Chunk(chunk)) => {
                        assert_eq!(chunk.offset, at);
                        Pattern::check(at, &chunk.data);
                        at += chunk.data.len() as u64;
                    }
                    Some(stream_output_response::Event::Gap(gap)) => {
                        panic!("nothing was dropped, but: {gap:?}")
                    }
                    Some(stream_output_response::Event::End(end)) => {
                        assert_eq!((end.next_offset, at), (total, total));
                        break;
                    }
                    None => panic!("the stream ended without an end"),
                }
            }
            turns += 1;
        }
        assert!(turns >= 3);
        // From every kind of offset of the finished terminal.
        for from in [0, 1, 7, 65_535, 65_536, total - 1, total] {
            let rest =
                Collected::all(terminal.stream(OutputStream::Unspecified, from, Follow::Yes).await, from)
                    .await;
            assert_eq!(rest.data.len() as u64, total - from);
            Pattern::check(from, &rest.data);
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_reader_from_before_the_oldest_gets_the_exact_gap_first() {
    in_session(&Gateway::shared(), async |session| {
        let terminal = session.attack("emit").args(["pattern", "500000"]).retain(100_000).create().await;
        terminal.wait().await;
        // A ring may hold a little more than the limit; what it holds is what is said.
        let oldest = terminal.get().await.expect("it is there").output[0].oldest_offset;
        assert!((300_000..=400_000).contains(&oldest), "{oldest}");
        for from in [0_u64, 1, oldest - 1] {
            let read =
                Collected::all(terminal.stream(OutputStream::Unspecified, from, Follow::Yes).await, from)
                    .await;
            assert_eq!(read.gaps, [(from, oldest)]);
            Pattern::check(oldest, &read.data);
            assert_eq!(read.next_offset, 500_000);
        }
        let read =
            Collected::all(terminal.stream(OutputStream::Unspecified, 400_000, Follow::Yes).await, 400_000)
                .await;
        assert!(read.gaps.is_empty());
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_stream_that_does_not_follow_ends_with_what_is_held() {
    in_session(&Gateway::shared(), async |session| {
        let terminal = session.sh("echo held; exec sleep 1000").create().await;
        terminal.until("held").await;
        let read = Collected::all(terminal.stream(OutputStream::Unspecified, 0, Follow::No).await, 0).await;
        assert_eq!(read.data, b"held\n");
        assert!(read.outcome.is_none());
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_reader_from_past_the_end_waits_for_its_offset() {
    in_session(&Gateway::shared(), async |session| {
        let terminal = session.sh("printf 0123; read go; printf 456789").stdin().create().await;
        terminal.until("0123").await;
        let mut events = terminal.stream(OutputStream::Unspecified, 7, Follow::Yes).await;
        let early = tokio::time::timeout(Duration::from_millis(100), events.message()).await;
        assert!(early.is_err(), "something came from an offset that is not there yet: {early:?}");
        terminal.write(b"\n", crate::support::EndOfInput::After).await.expect("it is open");
        let read = Collected::all(events, 7).await;
        assert_eq!(read.data, b"789");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_readers_see_the_same_bytes() {
    in_session(&Gateway::shared(), async |session| {
        let terminal = session.attack("emit").args(["pattern", "700000"]).create().await;
        let readers: Vec<_> = (0..20)
            .map(|_| {
                let terminal = terminal.clone();
                tokio::spawn(async move {
                    Collected::all(terminal.stream(OutputStream::Unspecified, 0, Follow::Yes).await, 0).await
                })
            })
            .collect();
        for reader in readers {
            let read = reader.await.expect("the task ends");
            assert_eq!((read.data.len(), read.lost()), (700_000, 0));
            Pattern::check(0, &read.data);
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_that_stops_reading_holds_up_neither_the_command_nor_the_others() {
    let gateway = Gateway::shared();
    in_session(&gateway, async |session| {
        let total = 40_000_000_u64;
        let terminal = session.attack("emit").args(["pattern", &total.to_string()]).create().await;
        // On a connection of its own, whose window fills and stays full.
        let idle = Session::open(&gateway).await;
        let mut lazy = terminal.clone();
        lazy.caller = idle.caller.clone();
        let mut stopped = lazy.stream(OutputStream::Unspecified, 0, Follow::Yes).await;
        let reader = tokio::spawn({
            let terminal = terminal.clone();
            async move {
                Collected::all(terminal.stream(OutputStream::Unspecified, 0, Follow::Yes).await, 0).await
            }
        });
        terminal.wait().await;
        let read = within("the other reader", reader).await.expect("the task ends");
        assert_eq!(read.data.len() as u64 + read.lost(), total, "every byte is there or counted");
        // And when it reads again, it learns exactly what it has missed.
        let mut at = 0;
        let mut last = None;
        while let Some(event) = within("the lazy reader", stopped.next()).await {
            match event.expect("it goes on").event.expect("an event") {
                stream_output_response::Event::Chunk(chunk) => {
                    assert_eq!(chunk.offset, at);
                    Pattern::check(at, &chunk.data);
                    at += chunk.data.len() as u64;
                }
                stream_output_response::Event::Gap(gap) => {
                    assert_eq!(gap.from_offset, at);
                    at = gap.to_offset;
                }
                stream_output_response::Event::End(end) => last = Some(end.next_offset),
            }
        }
        assert_eq!((at, last), (total, Some(total)));
        idle.close().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_reader_of_a_flood_sees_counted_gaps_and_true_bytes() {
    in_session(&Gateway::shared(), async |session| {
        let total = 60_000_000_u64;
        let terminal =
            session.attack("emit").args(["pattern", &total.to_string()]).retain(64 << 10).create().await;
        let read = Collected::all(terminal.stream(OutputStream::Unspecified, 0, Follow::Yes).await, 0).await;
        assert_eq!(read.data.len() as u64 + read.lost(), total);
        assert_eq!(read.next_offset, total);
        // What came is what was written at its offset.
        let mut at_data = 0;
        for (&offset, &length) in &read.chunks {
            Pattern::check(offset, &read.data[at_data..at_data + length]);
            at_data += length;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_reader_that_goes_away_leaves_no_trace() {
    const READERS: usize = 200;
    let gateway = Gateway::start();
    in_session(&gateway, async |session| {
        let terminal = session.sh("echo ready; exec sleep 1000").create().await;
        terminal.until("ready").await;
        let before = gateway.process().descriptors().len();
        for _ in 0..READERS {
            let mut events = terminal.stream(OutputStream::Unspecified, 0, Follow::Yes).await;
            within("a chunk", events.message()).await.expect("it goes on");
        }
        // The gateway may open a few of its own meanwhile: as many as one for ten readers are none of theirs.
        crate::support::eventually("the descriptors of before", || {
            (gateway.process().descriptors().len() < before + READERS / 10).then_some(())
        })
        .await;
    })
    .await;
}
