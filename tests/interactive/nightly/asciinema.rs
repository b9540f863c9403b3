//! Recordings in asciinema, whose format they have: it reads, converts and plays them. `.ci/long asciinema` installs it.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use serde_json::Value;

use crate::{
    interactive::{
        command_line::address,
        keyboard::{InPty, Keyboard},
    },
    support::{
        Gateway, Terminal,
        api::{SnapshotScreenRequest, screens_client::ScreensClient},
        code, eventually, in_session, skip, within,
    },
};

/// Between the first output and the next.
const PAUSE: Duration = Duration::from_millis(700);

/// The program; `None` if this run has none.
fn asciinema() -> Option<PathBuf> {
    let named = std::env::var_os("PROVOST_ASCIINEMA").map(PathBuf::from);
    if named.is_none() {
        skip("asciinema is not installed: PROVOST_ASCIINEMA names none");
    }
    named
}

fn output_of(program: &Path, arguments: &[&str]) -> Vec<u8> {
    let output = Command::new(program).args(arguments).output().expect("the program can be started");
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    output.stdout
}

/// The events of a recording: seconds since the one before, kind, text.
fn events(recording: &str) -> Vec<(f64, String, String)> {
    let events = recording.lines().skip(1).map(|line| {
        let event: Value = serde_json::from_str(line).expect("it is JSON");
        let text = |index: usize| event[index].as_str().expect("it is text").to_owned();
        (event[0].as_f64().expect("it is a time"), text(1), text(2))
    });
    events.collect()
}

/// What a terminal's screen shows, without the empty rows behind it.
async fn screen(terminal: &Terminal) -> Vec<String> {
    let request =
        SnapshotScreenRequest { terminal_id: terminal.id.clone(), ..SnapshotScreenRequest::default() };
    let mut screens = ScreensClient::new(terminal.caller.channel());
    let answer = within("a snapshot", screens.snapshot_screen(request)).await.expect("there is a screen");
    let screen = answer.into_inner().screen.expect("it is set");
    let mut lines: Vec<String> =
        screen.lines.into_iter().map(|line| line.text.trim_end().to_owned()).collect();
    while lines.last().is_some_and(String::is_empty) {
        lines.pop();
    }
    lines
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
#[ignore = "long: needs asciinema 3.2, whose build takes minutes; .ci/long asciinema runs it"]
async fn recordings_play_in_asciinema() {
    let Some(asciinema) = asciinema() else { return };
    let version = String::from_utf8(output_of(&asciinema, &["--version"])).expect("it is text");
    assert!(version.starts_with("asciinema 3."), "{version}");
    let gateway = Gateway::start();
    in_session(&gateway, async |session| {
        let script = r"printf '\033]0;a title\007\033[1;31mred\033[0m 日本 e\314\201 \360\237\216\211\r\n'
            while [ ! -e go ]; do sleep 0.05; done
            printf '\033[?1049h\033[3;5Hfull screen\033[?1049l'; printf 'a\tb\b\bc\n\033[7minverse\033[27m\033[K\n'
            trap 'stty size; exit 3' WINCH; echo ready; while :; do sleep 0.05 & wait $!; done";
        let terminal = session.sh(script).pty(60, 12).create().await;
        let (named, recording) = (address(&gateway), session.workspace.join("run.cast"));
        let provost = Path::new(env!("CARGO_BIN_EXE_provost"));
        let mut recorder = Command::new(provost)
            .args(["logs", "--gateway", &named, "-f", "--cast"])
            .args([recording.as_os_str(), terminal.id.as_ref()])
            .spawn()
            .expect("provost can be started");
        let read = || fs::read_to_string(&recording).unwrap_or_default();
        eventually("the recording has begun", || read().contains("red").then_some(())).await;
        tokio::time::sleep(PAUSE).await;
        fs::write(session.workspace.join("go"), "").expect("a file can be made");
        eventually("the program is ready", || read().contains("ready").then_some(())).await;
        terminal.resize(70, 14).await.expect("it has a size");
        assert_eq!(code(&terminal.wait().await), 3);
        assert!(recorder.wait().expect("it ends").success());
        let (ours, recording) = (read(), recording.to_str().expect("it is text"));
        // The bytes of the program, and their text.
        let raw = output_of(provost, &["logs", "--gateway", &named, "--raw", &terminal.id]);
        // It puts the size of the window before them.
        let converted = output_of(&asciinema, &["convert", "-f", "raw", recording, "-"]);
        assert_eq!(converted.strip_prefix(b"\x1b[8;12;60t".as_slice()), Some(raw.as_slice()));
        let text = String::from_utf8(output_of(&asciinema, &["convert", "-f", "txt", recording, "-"]));
        let text = text.expect("it is text");
        let text: Vec<&str> = text.lines().map(str::trim_end).collect();
        let shown = screen(&terminal).await;
        assert_eq!(text, shown);
        assert!(shown.iter().any(|line| line.contains("日本 e\u{301} 🎉")), "{shown:?}");
        // Every event, as asciinema understands it: the pause, the new size, the exit status.
        let theirs = output_of(&asciinema, &["convert", "-f", "asciicast-v3", recording, "-"]);
        let theirs = String::from_utf8(theirs).expect("it is text");
        assert_eq!(events(&theirs), events(&ours));
        let of_kind = |kind: &str| events(&theirs).into_iter().filter(|event| event.1 == kind).collect::<Vec<_>>();
        assert!(of_kind("o").iter().any(|event| event.0 >= PAUSE.as_secs_f64()), "{theirs}");
        assert_eq!(of_kind("r").iter().map(|event| event.2.as_str()).collect::<Vec<_>>(), ["70x14"], "{theirs}");
        assert_eq!(of_kind("x").iter().map(|event| event.2.as_str()).collect::<Vec<_>>(), ["3"], "{theirs}");
        // It plays: a pseudo-terminal in which it does shows the same.
        fs::copy(&asciinema, session.workspace.join("asciinema")).expect("it can be copied");
        let player = session.command("./asciinema").args(["play", "-q", "-i", "0.05", recording]);
        let player = player.pty(70, 14).create().await;
        assert_eq!(code(&player.wait().await), 0, "{}", player.output_text().await.text);
        assert_eq!(screen(&player).await, shown);
    })
    .await;
    gateway.stop();
}
