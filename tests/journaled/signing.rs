//! A journal that is signed.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use crate::{
    journaled::{audit, disk::journaling_in, verified},
    support::{Session, skip},
};

/// A key of one's own: private and public half.
fn make_key(directory: &Path) -> Option<(PathBuf, PathBuf)> {
    let (key, public) = (directory.join("journal.key"), directory.join("journal.pub"));
    let openssl =
        |arguments: &[&str]| Command::new("openssl").args(arguments).current_dir(directory).output();
    if openssl(&["genpkey", "-algorithm", "ed25519", "-out", "journal.key"]).is_err() {
        skip("openssl is not here to make a key");
        return None;
    }
    let made = openssl(&["pkey", "-in", "journal.key", "-pubout", "-out", "journal.pub"]);
    assert!(made.is_ok_and(|output| output.status.success()), "openssl makes a public key");
    fs::set_permissions(&key, std::os::unix::fs::PermissionsExt::from_mode(0o600)).expect("the key is ours");
    Some((key, public))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_signed_journal_is_held_by_the_key_to_its_end_and_by_no_other_key() {
    let (root, other) =
        (tempfile::tempdir().expect("a directory"), tempfile::tempdir().expect("a directory"));
    let (Some((key, public)), Some((_, stranger))) = (make_key(root.path()), make_key(other.path())) else {
        return;
    };
    let directory = root.path().join("journal");
    let section = format!("signing_key = {:?}\nsign_every_records = 5", key.display().to_string());
    let gateway = journaling_in(&directory, &section);
    let session = Session::open(&gateway).await;
    for _ in 0..5 {
        session.command("true").finish().await;
    }
    session.close().await;
    gateway.stop();
    let (status, report) = verified(&directory, &["--key", &public.display().to_string()]);
    assert_eq!(status, Some(0), "{report:#}");
    let (signed, last) = (report["signed_through"].as_u64(), report["last"]["sequence"].as_u64());
    assert_eq!(signed.map(|signed| signed + 1), last, "the last record signs all before it");
    let (status, report) = verified(&directory, &["--key", &stranger.display().to_string()]);
    assert_eq!(status, Some(1));
    assert_eq!(report["faults"][0]["kind"], "bad_signature");
    assert!(audit(&directory, &["verify"]).status.success(), "without a key the chain is still checked");
}

#[test]
fn a_key_that_others_can_read_keeps_the_gateway_from_starting() {
    let root = tempfile::tempdir().expect("a directory");
    let Some((key, _)) = make_key(root.path()) else { return };
    fs::set_permissions(&key, std::os::unix::fs::PermissionsExt::from_mode(0o644)).expect("the key is ours");
    let config = root.path().join("config.toml");
    fs::write(&config, format!("[journal]\nsigning_key = {:?}\n", key.display().to_string()))
        .expect("a file");
    let state = root.path().join("state");
    let output = Command::new(env!("CARGO_BIN_EXE_provost"))
        .arg("serve")
        .arg("--config")
        .arg(&config)
        .arg("--listen")
        .arg(format!("unix:{}", root.path().join("provost.sock").display()))
        .arg("--state")
        .arg(&state)
        .output()
        .expect("provost can be started");
    assert!(!output.status.success());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("journal's signing_key") && said.contains("journal.key"), "{said}");
}
