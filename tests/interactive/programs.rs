//! Programs that take the whole terminal, driven by keys as a person would drive them.

use std::{process::Command, time::Duration};

use crate::{
    interactive::keyboard::{InPty, Keyboard},
    support::{
        Gateway, Session, Terminal,
        api::{SnapshotScreenRequest, screens_client::ScreensClient},
        code, in_session, skip, within,
    },
};

async fn has(session: &Session, program: &str) -> bool {
    let found = !session.sh(&format!("command -v {program}")).finish().await.text().is_empty();
    if !found {
        skip(&format!("{program} is not in the sandbox"));
    }
    found
}

/// Waits until a row of the terminal's screen has this text.
async fn shows(terminal: &Terminal, text: &str) {
    let shown = async || is_shown(terminal, text).await;
    within(text, wait_until(shown)).await;
}

async fn shows_no_more(terminal: &Terminal, text: &str) {
    let gone = async || !is_shown(terminal, text).await;
    within(&format!("no more {text}"), wait_until(gone)).await;
}

async fn wait_until(is_so: impl AsyncFn() -> bool) {
    while !is_so().await {
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

async fn is_shown(terminal: &Terminal, text: &str) -> bool {
    let mut screens = ScreensClient::new(terminal.caller.channel());
    let request = SnapshotScreenRequest { terminal_id: terminal.id.clone(), ..Default::default() };
    let answer = screens.snapshot_screen(request).await.expect("it has a screen").into_inner();
    answer.screen.unwrap_or_default().lines.iter().any(|line| line.text.contains(text))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn top_is_shown_and_left_by_a_key() {
    in_session(&Gateway::shared(), async |session| {
        if !has(session, "top").await {
            return;
        }
        let terminal = session.command("top").pty(80, 24).create().await;
        shows(&terminal, "COMMAND").await;
        // With the command lines in place of the names: those of the session's own sandbox, and no others.
        terminal.types("c").await;
        shows(&terminal, "top").await;
        // Two keys that come at once are one to top, which it does not know.
        let outcome = loop {
            terminal.types("q").await;
            if let Ok(outcome) = tokio::time::timeout(Duration::from_secs(5), terminal.wait()).await {
                break outcome;
            }
        };
        assert_eq!(code(&outcome), 0);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn git_add_asks_for_each_hunk() {
    in_session(&Gateway::shared(), async |session| {
        // By hand on the host: what is tested is the question.
        let git = |arguments: &[&str]| {
            let output = Command::new("git")
                .args(["-c", "user.name=A", "-c", "user.email=a@example.org"])
                .args(arguments)
                .current_dir(&session.workspace)
                .output()
                .expect("git is here");
            assert!(output.status.success(), "{arguments:?}: {output:?}");
            String::from_utf8_lossy(&output.stdout).into_owned()
        };
        let file = session.workspace.join("numbers");
        let numbers = |first: &str, last: &str| format!("{first}\n{}{last}\n", "same\n".repeat(20));
        git(&["init", "-q"]);
        std::fs::write(&file, numbers("1", "2")).expect("the workspace is ours");
        git(&["add", "numbers"]);
        git(&["commit", "-qm", "begin"]);
        std::fs::write(&file, numbers("one", "two")).expect("the workspace is ours");
        let terminal = session.command("git").args(["add", "-p"]).pty(80, 24).create().await;
        terminal.until("(1/2) Stage this hunk").await;
        terminal.types_until("n\r", "(2/2) Stage this hunk").await;
        terminal.types("y\r").await;
        assert_eq!(code(&terminal.wait().await), 0);
        let staged = git(&["diff", "--cached"]);
        assert!(staged.contains("+two") && !staged.contains("+one"), "{staged}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn tmux_runs_inside_with_its_panes() {
    in_session(&Gateway::shared(), async |session| {
        if !has(session, "tmux").await {
            return;
        }
        let arguments = ["-f", "/dev/null", "-S", "/tmp/tmux", "new-session", "sh"];
        let terminal = session.command("tmux").args(arguments).pty(80, 24).create().await;
        // Its status line: keys reach the pane.
        shows(&terminal, "[0] 0:").await;
        terminal.types("echo upper-$((1 + 1))\r").await;
        shows(&terminal, "upper-2").await;
        terminal.types("\u{2}\"").await;
        shows(&terminal, "──────").await;
        terminal.types("echo lower-$((1 + 2))\r").await;
        shows(&terminal, "lower-3").await;
        shows(&terminal, "upper-2").await;
        // Each pane ends with its shell, and tmux with the last.
        terminal.types("exit\r").await;
        shows_no_more(&terminal, "lower-3").await;
        terminal.types_until("exit\r", "[exited]").await;
        assert_eq!(code(&terminal.wait().await), 0);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn fzf_finds_what_is_typed() {
    in_session(&Gateway::shared(), async |session| {
        if !has(session, "fzf").await {
            return;
        }
        let line = "printf 'one\\ntwo\\nthree\\n' | fzf >chosen";
        let terminal = session.command("sh").args(["-c", line]).pty(80, 24).create().await;
        shows(&terminal, "3/3").await;
        terminal.types("thr").await;
        shows(&terminal, "1/3").await;
        terminal.types("\r").await;
        assert_eq!(code(&terminal.wait().await), 0);
        let chosen = std::fs::read_to_string(session.workspace.join("chosen"));
        assert_eq!(chosen.expect("it was written"), "three\n");
    })
    .await;
}
