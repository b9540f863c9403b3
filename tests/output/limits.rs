//! How much is retained, and how it is cut.

use sha2::{Digest, Sha256};

use crate::support::{Collected, Follow, Gateway, Pattern, api::OutputStream, code, in_session};

const DEFAULT_LIMIT: u64 = 1 << 20;

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn output_within_the_limit_is_whole_and_not_truncated() {
    in_session(&Gateway::shared(), async |session| {
        let terminal = session.attack("emit").args(["pattern", "1000000"]).create().await;
        terminal.wait().await;
        let output = terminal.output().await;
        assert_eq!((output.start_offset, output.next_offset, output.truncated), (0, 1_000_000, false));
        assert_eq!(output.data.len(), 1_000_000);
        Pattern::check(0, &output.data);
        let largest = session.command("echo").args(["abc"]).retain(u64::MAX).create().await;
        largest.wait().await;
        let output = largest.output().await;
        assert_eq!((&output.data[..], output.truncated), (&b"abc\n"[..], false));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn beyond_the_default_limit_the_oldest_bytes_go_and_truncated_stays() {
    in_session(&Gateway::shared(), async |session| {
        let terminal = session.attack("emit").args(["pattern", "3000001"]).create().await;
        terminal.wait().await;
        for _ in 0..2 {
            let output = terminal.output().await;
            assert!(output.truncated);
            assert_eq!(output.next_offset, 3_000_001);
            assert_eq!(output.data.len() as u64, DEFAULT_LIMIT, "exactly the limit is retained");
            assert_eq!(output.start_offset, 3_000_001 - DEFAULT_LIMIT);
            Pattern::check(output.start_offset, &output.data);
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn odd_limits_are_kept_to_the_byte() {
    in_session(&Gateway::shared(), async |session| {
        for limit in [0_u64, 1, 2, 3, 7, 4095, 4096, 4097, 65_537] {
            let terminal = session.attack("emit").args(["pattern", "200003"]).retain(limit).create().await;
            let outcome = terminal.wait().await;
            assert_eq!(code(&outcome), 0);
            let output = terminal.output().await;
            assert_eq!(output.data.len() as u64, limit, "with a limit of {limit}");
            assert_eq!((output.start_offset, output.next_offset), (200_003 - limit, 200_003));
            assert!(output.truncated);
            Pattern::check(output.start_offset, &output.data);
            terminal.release().await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_limit_of_zero_on_silence_is_not_truncated() {
    in_session(&Gateway::shared(), async |session| {
        let terminal = session.command("true").retain(0).create().await;
        terminal.wait().await;
        let output = terminal.output().await;
        assert_eq!((output.data.len(), output.truncated), (0, false));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn the_highest_limit_is_cut_to_the_profiles_ceiling() {
    in_session(&Gateway::shared(), async |session| {
        let terminal = session.attack("emit").args(["pattern", "5000000"]).retain(u64::MAX).create().await;
        terminal.wait().await;
        let output = terminal.output().await;
        assert_eq!((output.start_offset, output.data.len(), output.truncated), (0, 5_000_000, false));
        Pattern::check(0, &output.data);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn random_bytes_come_back_with_the_same_hash() {
    in_session(&Gateway::shared(), async |session| {
        let file = session.workspace.join("random");
        let mut bytes = vec![0_u8; 900_000];
        std::io::Read::read_exact(&mut std::fs::File::open("/dev/urandom").expect("it is there"), &mut bytes)
            .expect("it can be read");
        std::fs::write(&file, &bytes).expect("the workspace can be written");
        let done = session.command("cat").args([file.display().to_string()]).finish().await;
        assert_eq!(Sha256::digest(&done.output), Sha256::digest(&bytes));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn text_is_cut_at_characters_and_never_shows_a_replacement_for_the_cut() {
    in_session(&Gateway::shared(), async |session| {
        // Characters of one to four bytes; every limit cuts them somewhere else.
        let text = "a\u{e9}\u{20ac}\u{1F980}".repeat(40);
        std::fs::write(session.workspace.join("text"), &text).expect("the workspace can be written");
        for limit in 1..=24_u64 {
            let terminal = session.command("cat").args(["text"]).retain(limit).create().await;
            terminal.wait().await;
            let output = terminal.output_text().await;
            assert!(output.truncated);
            assert!(!output.text.contains('\u{FFFD}'), "limit {limit}: {:?}", output.text);
            assert!(text.ends_with(&output.text), "limit {limit}: {:?}", output.text);
            assert!(output.text.len() as u64 <= limit);
            assert!(
                output.text.len() as u64 + 3 >= limit,
                "more than a character was cut: {:?}",
                output.text
            );
            terminal.release().await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_character_that_is_half_written_is_held_back_from_the_text_and_shown_when_it_is_whole() {
    in_session(&Gateway::shared(), async |session| {
        let script = r"printf 'x\342\202'; read go; printf '\254y'";
        let terminal = session.sh(script).stdin().create().await;
        let mut events = terminal.stream(OutputStream::Unspecified, 0, Follow::Yes).await;
        let mut got = 0;
        while got < 3 {
            let event = crate::support::within("three bytes", events.message()).await.expect("it goes on");
            if let Some(crate::support::api::stream_output_response::Event::Chunk(chunk)) =
                event.and_then(|e| e.event)
            {
                got += chunk.data.len();
            }
        }
        assert_eq!(terminal.output_text().await.text, "x");
        terminal.write(b"go\n", crate::support::EndOfInput::After).await.expect("it is open");
        terminal.wait().await;
        assert_eq!(terminal.output_text().await.text, "x\u{20ac}y");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn bytes_that_are_no_text_become_replacements_only_where_they_were_written() {
    in_session(&Gateway::shared(), async |session| {
        let terminal = session.sh(r"printf 'a\377b'").create().await;
        terminal.wait().await;
        assert_eq!(terminal.output_text().await.text, "a\u{FFFD}b");
        assert_eq!(terminal.output().await.data, &b"a\xFFb"[..]);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn each_stream_of_a_split_terminal_has_the_whole_limit() {
    in_session(&Gateway::shared(), async |session| {
        let terminal = session.attack("emit").args(["both", "50000"]).split().retain(10_000).create().await;
        terminal.wait().await;
        for stream in [OutputStream::Stdout, OutputStream::Stderr] {
            let output = terminal.output_of(stream).await;
            assert_eq!((output.start_offset, output.next_offset), (40_000, 50_000), "{stream:?}");
            Pattern::check(40_000, &output.data);
            let read = Collected::all(terminal.stream(stream, 0, Follow::Yes).await, 0).await;
            // A ring may hold a little more than the limit; never less.
            assert!(
                read.gaps.len() == 1 && read.gaps[0].0 == 0 && read.gaps[0].1 <= 40_000,
                "{stream:?} {:?}",
                read.gaps
            );
            Pattern::check(read.gaps[0].1, &read.data);
        }
    })
    .await;
}
