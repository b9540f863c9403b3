//! A secret in output, however it is written and however it is read: each of its bytes is covered, offsets stay true.

use std::process::Command as Process;

use crate::{
    secrets::{Armed, VALUE, armed, covered, with_secret, write_secret},
    support::{Collected, EndOfInput, Follow, RunResult, Session, Terminal, api::OutputStream, eventually},
};

/// Prints the value byte by byte, each in a write of its own, with a pause after some.
const BY_BYTES: &str = r#"printf 'before '
for i in $(seq 0 ${#TOKEN}); do
    printf %s "$TOKEN" | dd bs=1 skip="$i" count=1 2>/dev/null
    case $i in *[07]) sleep 0.02 ;; esac
done
printf ' after\n'
"#;

/// Reads while the command runs: what was seen once stays as it was.
async fn watch_until_the_end(terminal: &Terminal) -> Vec<u8> {
    let mut seen: Vec<u8> = Vec::new();
    loop {
        let output = terminal.output().await;
        assert_eq!(output.start_offset, 0);
        assert_eq!(output.next_offset, output.data.len() as u64);
        assert!(output.data.starts_with(&seen), "{:?} was seen before", String::from_utf8_lossy(&seen));
        seen = output.data.to_vec();
        if output.outcome.is_some() {
            return seen;
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_value_that_is_written_byte_by_byte_is_covered_at_every_moment() {
    armed(async |_, session| {
        let outside =
            Process::new("sh").args(["-c", BY_BYTES]).env("TOKEN", VALUE).output().expect("it runs outside");
        assert_eq!(String::from_utf8_lossy(&outside.stdout), format!("before {VALUE} after\n"));

        let terminal = with_secret(session.sh(BY_BYTES)).create().await;
        let followed = terminal.stream(OutputStream::Unspecified, 0, Follow::Yes).await;
        let (polled, followed) = tokio::join!(watch_until_the_end(&terminal), Collected::all(followed, 0));
        let expected = format!("before {} after\n", covered());
        assert_eq!(String::from_utf8_lossy(&polled), expected);
        assert_eq!(String::from_utf8_lossy(&followed.data), expected);
        // From any offset, within the secret too.
        for offset in 0..=expected.len() {
            let stream = terminal.stream(OutputStream::Unspecified, offset as u64, Follow::No).await;
            let part = Collected::all(stream, offset as u64).await;
            assert_eq!(String::from_utf8_lossy(&part.data), expected[offset..], "from {offset}");
        }
        let text = terminal.output_text().await.text;
        assert_eq!(text, expected);
        terminal.release().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_value_is_covered_on_each_stream_and_in_a_run_and_in_logs() {
    armed(async |armed, session| {
        let script = "echo \"o $TOKEN$TOKEN\"; echo \"e <$TOKEN>\" >&2";
        let (out, err) = (format!("o {}\n", "*".repeat(2 * VALUE.len())), format!("e <{}>\n", covered()));
        let run = with_secret(session.sh(script).split()).run().await.expect("it runs");
        let run = RunResult::all(run).await;
        assert_eq!(String::from_utf8_lossy(&run.stdout), out);
        assert_eq!(String::from_utf8_lossy(&run.stderr), err);
        let terminal = with_secret(session.sh(script).split()).create().await;
        terminal.wait().await;
        assert_eq!(String::from_utf8_lossy(&terminal.output_of(OutputStream::Stdout).await.data), out);
        assert_eq!(String::from_utf8_lossy(&terminal.output_of(OutputStream::Stderr).await.data), err);
        let logs = Process::new(env!("CARGO_BIN_EXE_provost"))
            .args(["logs", &terminal.id, "--gateway"])
            .arg(format!("unix:{}", armed.gateway.socket.display()))
            .output()
            .expect("provost can be started");
        assert_eq!(String::from_utf8_lossy(&logs.stdout), out);
        assert_eq!(String::from_utf8_lossy(&logs.stderr), err);
        terminal.release().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_beginning_is_held_back_and_given_out_when_the_command_is_killed() {
    armed(async |_, session| {
        let line = r#"printf 'x%.6s' "$TOKEN"; read go; printf '%s' "${TOKEN#??????}"; exec sleep 600"#;
        let terminal = with_secret(session.sh(line).stdin()).create().await;
        let seen = async |wanted: &str| {
            loop {
                let data = terminal.output().await.data;
                if data.len() >= wanted.len() {
                    assert_eq!(String::from_utf8_lossy(&data), wanted);
                    return;
                }
                tokio::task::yield_now().await;
            }
        };
        // "tok-to" may go on as the secret: only what is before it is given out.
        seen("x").await;
        let held = |position: u64| position == 7;
        loop {
            let output = terminal.get().await.expect("it is there").output;
            if output.iter().any(|position| held(position.next_offset)) {
                break;
            }
            tokio::task::yield_now().await;
        }
        seen("x").await;
        terminal.write(b"\n", EndOfInput::NotYet).await.expect("it reads");
        seen(&format!("x{}", &covered()[..VALUE.len() - 3])).await;
        terminal.kill(Some(std::time::Duration::ZERO)).await;
        terminal.wait().await;
        // It ends as it begins: its last letters might have been another's first ones, but are its own in any case.
        seen(&format!("x{}", covered())).await;
        terminal.release().await;

        let terminal = with_secret(session.sh(r#"printf 'x%.6s' "$TOKEN"; exec sleep 600"#)).create().await;
        eventually("the beginning of the output", || Some(())).await;
        let data = loop {
            let output = terminal.get().await.expect("it is there").output;
            if output.iter().any(|position| held(position.next_offset)) {
                break terminal.output().await.data;
            }
            tokio::task::yield_now().await;
        };
        assert_eq!(&data[..], b"x");
        terminal.kill(Some(std::time::Duration::ZERO)).await;
        terminal.wait().await;
        assert_eq!(&terminal.output().await.data[..], b"xtok-to", "it never became the secret");
        terminal.release().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_of_a_value_is_left_where_the_ring_has_dropped_its_beginning() {
    armed(async |_, session: &Session| {
        // One value after another, so that every cut goes through one.
        let line = "while :; do echo \"$TOKEN\"; done | head -c 3000000";
        let terminal = with_secret(session.sh(line).retain(1_000)).create().await;
        let follow = terminal.stream(OutputStream::Unspecified, 0, Follow::Yes).await;
        let poll = async {
            loop {
                let output = terminal.output().await;
                must_be_covered(&output.data);
                assert!(output.data.len() <= 1_000);
                if output.outcome.is_some() {
                    return;
                }
            }
        };
        let (followed, ()) = tokio::join!(Collected::all(follow, 0), poll);
        must_be_covered(&followed.data);
        assert_eq!(followed.data.len() as u64 + followed.lost(), 3_000_000);
        for offset in [0, 1_500_000, 2_990_000, 2_999_500, 2_999_990] {
            let stream = terminal.stream(OutputStream::Unspecified, offset, Follow::No).await;
            must_be_covered(&Collected::all(stream, offset).await.data);
        }
        terminal.release().await;
        // And without loss, through a run.
        let run = with_secret(session.sh(line)).run().await.expect("it runs");
        let run = RunResult::all(run).await;
        assert_eq!(run.stdout.len(), 3_000_000);
        let (line, whole) = (VALUE.len() + 1, 3_000_000 / (VALUE.len() + 1) * (VALUE.len() + 1));
        let expected: Vec<u8> = format!("{}\n", covered()).bytes().cycle().take(whole).collect();
        assert!(run.stdout[..whole] == expected[..], "each line of {line} bytes is covered");
        // What `head` has cut off is no secret any more than its first letters are.
        assert!(VALUE.as_bytes().starts_with(&run.stdout[whole..]));
    })
    .await;
}

/// The lines have nothing but the value: everything is covered but line ends, and what was cut off at the very end.
fn must_be_covered(data: &[u8]) {
    let lines = data.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    let shown: Vec<u8> = data[..lines].iter().copied().filter(|byte| !b"*\n".contains(byte)).collect();
    assert!(shown.is_empty(), "{:?}", String::from_utf8_lossy(&shown));
    let end = &data[lines..];
    let covered = end.iter().take_while(|byte| **byte == b'*').count();
    assert!(
        covered == end.len() || VALUE.as_bytes().starts_with(&end[covered..]),
        "{:?}",
        String::from_utf8_lossy(end)
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_command_that_waits_for_its_reader_loses_nothing_and_does_not_stand_still() {
    armed(async |_, session| {
        let line = "for i in $(seq 0 39999); do echo \"$i $TOKEN t to tok\"; done";
        let run = with_secret(session.sh(line)).run().await.expect("it runs");
        let run = RunResult::all(run).await;
        let expected: String = (0..40_000).map(|i| format!("{i} {} t to tok\n", covered())).collect();
        assert!(String::from_utf8_lossy(&run.stdout) == expected);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn the_next_gateway_covers_what_this_one_was_told() {
    let armed = Armed::start().await;
    let mut session = Session::open(&armed.gateway).await;
    let line = r#"echo "$TOKEN"; printf 'x%.6s' "$TOKEN"; read go; echo "${TOKEN#??????}"; echo "$TOKEN""#;
    let terminal = with_secret(session.sh(line).stdin()).create().await;
    terminal.until("\n").await;
    armed.gateway.crash();
    // What was read at the spawn counts, and not what the file holds by now.
    write_secret(&armed.file, "another-value", 0o600);
    armed.gateway.start_again();
    let caller = armed.gateway.caller().await;
    session.go_on(&caller);
    let terminal = terminal.over(&caller);
    terminal.write(b"\n", EndOfInput::NotYet).await.expect("it reads");
    let followed = Collected::all(terminal.stream(OutputStream::Unspecified, 0, Follow::Yes).await, 0).await;
    assert_eq!(String::from_utf8_lossy(&followed.data), format!("{0}\nx{0}\n{0}\n", covered()));
    assert_eq!(terminal.output().await.data, followed.data);
    terminal.release().await;
    session.close().await;
    armed.must_have_told_nobody();
    armed.gateway.stop();
}
