//! What a gateway's journal says of real lives of terminals, and what the gateway does when it cannot be written:
//! the real binary, real commands, `provost audit` to read.

mod asked;
mod broken;
mod crash;
pub(crate) mod disk;
mod flooded;
mod full;
mod life;
mod once;
mod secrecy;
mod service;
mod signing;
mod tailing;

use std::{
    path::{Path, PathBuf},
    process::{Command, Output},
};

use crate::support::{Gateway, eventually};
use provost_journal::{CommandExpander, JournalDirectory};
use serde_json::Value;

/// Where a gateway under test keeps its journal when nothing else is said.
pub(crate) fn directory(gateway: &Gateway) -> PathBuf {
    gateway.state.join("journal")
}

/// `provost audit` on a directory.
pub(crate) fn audit(directory: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_provost"))
        .args(["audit", "--journal"])
        .arg(directory)
        .args(arguments)
        .output()
        .expect("provost can be started")
}

/// The records that `provost audit query` finds, without their envelopes and with their texts whole.
pub(crate) fn records(directory: &Path, filter: &[&str]) -> Vec<Value> {
    let output = audit(directory, &[&["query", "-o", "json"], filter].concat());
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).expect("records are text");
    let mut commands = CommandExpander::from_directory(&JournalDirectory::new(directory));
    let record = |line: &str| {
        let mut line: Value = serde_json::from_str(line).expect("a line is JSON");
        commands.expand(&mut line);
        line["record"].take()
    };
    text.lines().map(record).collect()
}

/// Waits for a record that fits.
pub(crate) async fn record(directory: &Path, what: &str, fits: impl Fn(&Value) -> bool) -> Value {
    eventually(what, || records(directory, &[]).into_iter().find(|record| fits(record))).await
}

/// The kinds of records, in their order.
pub(crate) fn kinds(records: &[Value]) -> Vec<&str> {
    records.iter().map(|record| record["kind"].as_str().unwrap_or("?")).collect()
}

/// What `provost audit verify -o json` says, and its status.
pub(crate) fn verified(directory: &Path, arguments: &[&str]) -> (Option<i32>, Value) {
    let output = audit(directory, &[&["verify", "-o", "json"], arguments].concat());
    let report = serde_json::from_slice(&output.stdout).unwrap_or_default();
    (output.status.code(), report)
}

/// Fails unless the journal is as it was written.
#[track_caller]
pub(crate) fn must_be_intact(directory: &Path) -> Value {
    let (status, report) = verified(directory, &[]);
    assert_eq!(status, Some(0), "{report:#}");
    report
}
