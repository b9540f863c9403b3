//! A disk that takes records and does not make them durable.

use std::{fs, path::Path, process::Command};

use tonic_health::pb::health_check_response::ServingStatus;

use crate::{
    journaled::{directory, disk::becomes, must_be_intact, records},
    support::{Gateway, Options, Session, eventually, within},
};

/// The library that breaks fdatasync(2), compiled into a directory.
fn library(directory: &Path) -> String {
    let library = directory.join("broken.so");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/journaled/broken.c");
    let compiled =
        Command::new("cc").args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).arg(source).status();
    assert!(compiled.is_ok_and(|status| status.success()), "a C compiler is needed");
    library.display().to_string()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_disk_that_does_not_sync_stops_new_commands_until_it_does_again() {
    let root = tempfile::tempdir().expect("a directory");
    let broken = root.path().join("is-broken");
    let env = vec![
        ("LD_PRELOAD".to_owned(), library(root.path())),
        ("BROKEN_SYNC".to_owned(), broken.display().to_string()),
    ];
    let gateway = Gateway::start_with(Options { env, ..Options::default() });
    let journal = directory(&gateway);
    let session = Session::open(&gateway).await;
    session.command("true").finish().await;
    let held = session.idle(&session.marker()).create().await;
    held.until("ready").await;
    fs::write(&broken, "").expect("a file can be made");
    // By the default rule the disk is asked behind the answer: the first command after the failure is refused.
    let refusal = within("a refusal", async {
        loop {
            match session.command("true").try_create().await {
                Err(refusal) => break refusal,
                Ok(terminal) => drop((terminal.wait().await, terminal.release().await)),
            }
        }
    })
    .await;
    assert_eq!(refusal.reason, "JOURNAL_UNWRITABLE", "{refusal:?}");
    assert_eq!((refusal.meta("step"), refusal.meta("errno")), ("sync", "5"), "{refusal:?}");
    becomes(&gateway, ServingStatus::NotServing).await;
    let files = || fs::read_dir(&journal).map_or(0, |entries| entries.count());
    let before = files();
    for _ in 0..20 {
        session.command("true").refusal().await;
    }
    assert!(files() < before + 5, "each refusal has begun a file: {} after {before}", files());
    held.try_release(Some(std::time::Duration::ZERO)).await.expect("it is released");

    fs::remove_file(&broken).expect("it is there");
    becomes(&gateway, ServingStatus::Serving).await;
    session.command("uname").finish().await;
    session.close().await;
    eventually("the session's end", || {
        records(&journal, &[]).iter().any(|record| record["kind"] == "session_closed").then_some(())
    })
    .await;
    gateway.stop();
    let report = must_be_intact(&journal);
    let notices = report["notices"].as_array().cloned().unwrap_or_default();
    let found = |finding: &str| notices.iter().any(|notice| notice["record"]["finding"] == finding);
    assert!(found("sync_failed"), "{report:#}");
}
