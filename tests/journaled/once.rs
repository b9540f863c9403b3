//! What a caller wrote stands in the journal once, and is shown with every record that means it.

use std::fs;

use crate::{
    journaled::{audit, directory, must_be_intact},
    support::{Gateway, Session},
};

/// How often a text stands in the files, as bytes.
fn copies(journal: &std::path::Path, text: &str) -> usize {
    let entries = fs::read_dir(journal).expect("the journal is there").flatten();
    let files = entries.filter(|entry| entry.path().is_file());
    files.map(|file| fs::read_to_string(file.path()).expect("it is text").matches(text).count()).sum()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_commands_text_is_written_once_whatever_becomes_of_it() {
    let gateway = Gateway::start();
    let journal = directory(&gateway);
    let session = Session::open(&gateway).await;
    session.command("true").args(["MARKER_plain"]).finish().await;
    session.command("true").args(["two words and MARKER_quoted", "$HOME"]).finish().await;
    session.sh("x=MARKER_line; echo $x; echo \"$x\" | cat").finish().await;
    session.command("echo").args([&"MARKER_long-".repeat(5_000)]).finish().await;
    session.command("true").args(["MARKER_denied"]).env("LD_PRELOAD", "x").refusal().await;
    session.close().await;
    gateway.stop();

    must_be_intact(&journal);
    for marker in ["MARKER_plain", "MARKER_quoted", "MARKER_line", "MARKER_denied"] {
        assert_eq!(copies(&journal, marker), 1, "{marker}");
    }
    // As many as are kept of it.
    let kept = copies(&journal, "MARKER_long-");
    assert!((1_000..=32 * 1024 / 12).contains(&kept), "{kept}");

    let shown = audit(&journal, &["query", "--session", &session.id]);
    let shown = String::from_utf8(shown.stdout).expect("records are text");
    for marker in ["MARKER_plain", "MARKER_quoted", "MARKER_line"] {
        let records: Vec<&str> = shown.lines().filter(|line| line.contains(marker)).collect();
        let is_of = |kind: &str| records.iter().any(|line| line.contains(kind));
        assert!(is_of("  decision ") && is_of("  spawn "), "{marker}: {records:#?}");
    }
}
