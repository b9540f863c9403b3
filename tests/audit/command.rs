//! `provost audit` against the real binary.

use std::{
    fs,
    path::Path,
    process::{Command, Output},
};

use provost_journal::JournalDirectory;

use crate::audit::{options, written};

fn audit(directory: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_provost"))
        .args(["audit", "--journal"])
        .arg(directory)
        .args(arguments)
        .output()
        .unwrap()
}

fn lines(output: &Output) -> usize {
    String::from_utf8_lossy(&output.stdout).lines().count()
}

#[test]
fn records_are_printed_and_a_changed_one_is_named_by_file_line_and_number() {
    let root = tempfile::tempdir().unwrap();
    let directory = root.path().join("journal");
    written(options(&directory), 30);
    assert_eq!(audit(&directory, &["verify"]).status.code(), Some(0));
    assert_eq!(lines(&audit(&directory, &["tail"])), 10);
    assert_eq!(lines(&audit(&directory, &["query", "--terminal", "term_7", "-o", "json"])), 1);
    assert_eq!(lines(&audit(&directory, &["query", "--since", "1h"])), 31);
    assert_eq!(lines(&audit(&directory, &["query", "--decision", "deny"])), 0);
    let name = JournalDirectory::new(&directory).files().unwrap()[0].name.clone();
    let text = fs::read_to_string(directory.join(&name)).unwrap();
    fs::write(directory.join(&name), text.replace("term_7\"", "term_8\"")).unwrap();
    let broken = audit(&directory, &["verify"]);
    assert_eq!(broken.status.code(), Some(1));
    let said = String::from_utf8(broken.stdout).unwrap();
    assert!(said.starts_with(&format!("{name}:8: record 8: changed: ")), "{said}");
    let report: serde_json::Value =
        serde_json::from_slice(&audit(&directory, &["verify", "-o", "json"]).stdout).unwrap();
    assert_eq!(report["faults"][0]["sequence"], 8);
    assert_eq!(audit(&root.path().join("none"), &["verify"]).status.code(), Some(125));
}
