//! What `docs/agents.md` shows, as it stands there.

use std::{fs, path::Path, process::Command};

use serde_json::{Value, json};

use crate::peer::Peer;

/// Where the page has a project, the test has a workspace.
const PROJECT: &str = "/home/me/project";

#[test]
fn the_entry_that_the_page_shows_starts_a_server_that_runs_a_command_without_a_gateway() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/agents.md");
    let page = fs::read_to_string(page).expect("the page is there");
    let entry = page.split("```json\n").nth(1).and_then(|rest| rest.split("```").next()).expect("an entry");
    assert!(entry.contains(PROJECT));
    let start = |workspace: &Path| {
        let entry = entry.replace(PROJECT, workspace.to_str().expect("UTF-8"));
        let list: Value = serde_json::from_str(&entry).expect("it is JSON");
        let server = &list["mcpServers"]["provost"];
        let mut command = Command::new(server["command"].as_str().expect("a program"));
        let args = server["args"].as_array().expect("a list");
        command.args(args.iter().map(|arg| arg.as_str().expect("a text")));
        let built = Path::new(env!("CARGO_BIN_EXE_provost")).parent().expect("it lies in a directory");
        command.env("PATH", format!("{}:/usr/bin:/bin", built.display()));
        command
    };
    let mut peer = Peer::start(start, json!({}));
    let said = peer.text("run_command", json!({ "command": "echo made > file; pwd" }));
    assert!(said.starts_with("exit code 0\n"), "{said}");
    assert!(said.ends_with(&format!("{}\n", peer.workspace.display())), "{said}");
    assert!(peer.workspace.join("file").exists());
    assert!(peer.leave().success());
}
