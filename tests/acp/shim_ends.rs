//! How it all ends: the editor, the agent, signals; agents that run commands themselves; the embedder's example.

use std::process::Command;

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::json;

use crate::{
    acp::shim_peer::ShimPeer,
    support::{built_by_cargo, mark, sleeping, wait_for_sleepers},
};

#[test]
fn nothing_outlives_an_editor_that_goes_away() {
    let mut peer = ShimPeer::in_session(&[], json!({}));
    let mark = mark();
    peer.create(&format!("sleep {mark}"));
    wait_for_sleepers(&mark, 1);
    peer.editor_disconnects();
    let (status, _) = peer.end();
    // The agent read the end of its stdin, and ended well.
    assert_eq!(status.code(), Some(0));
    assert_eq!(sleeping(&mark), 0);
}

#[test]
fn nothing_outlives_a_shim_that_is_told_to_stop() {
    let mut peer = ShimPeer::in_session(&[], json!({}));
    let mark = mark();
    peer.create(&format!("sleep {mark}"));
    wait_for_sleepers(&mark, 1);
    kill(Pid::from_raw(peer.pid().try_into().expect("a pid")), Signal::SIGTERM).expect("our child");
    let (status, _) = peer.end();
    assert_eq!(status.code(), Some(143));
    assert_eq!(sleeping(&mark), 0);
}

#[test]
fn an_agent_that_falls_silent_is_ended() {
    let mut peer = ShimPeer::in_session(&[], json!({}));
    let mark = mark();
    peer.create(&format!("sleep {mark}"));
    wait_for_sleepers(&mark, 1);
    peer.agent_closes_stdout();
    // `cat` of its other half goes on until its stdin ends.
    let (status, _) = peer.end();
    assert!(matches!(status.code(), Some(0 | 143)), "{status}");
    assert_eq!(sleeping(&mark), 0);
}

#[test]
fn the_status_is_the_agents_own() {
    for (agent, expected) in [("exit 7", 7), ("kill -9 $$", 137), ("exit 0", 0)] {
        let mut shim = Command::new(env!("CARGO_BIN_EXE_provost"));
        let ended = shim.args(["acp", "--", "/bin/sh", "-c", agent]).output().expect("the shim starts");
        assert_eq!(ended.status.code(), Some(expected), "{agent}");
    }
    let mut shim = Command::new(env!("CARGO_BIN_EXE_provost"));
    let ended = shim.args(["acp", "--", "/no/such/agent"]).output().expect("the shim starts");
    assert_eq!(ended.status.code(), Some(125));
    assert!(String::from_utf8_lossy(&ended.stderr).contains("/no/such/agent"));
}

#[test]
fn an_agent_that_runs_commands_itself_is_noticed_once() {
    let directory = tempfile::tempdir().expect("a directory");
    let journal = directory.path().join("journal").display().to_string();
    let mut peer = ShimPeer::in_session(&["--journal", &journal], json!({}));
    let update = |update| json!({"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":update}});
    for id in ["a", "b"] {
        peer.agent_sends(update(
            json!({"sessionUpdate":"tool_call","toolCallId":id,"title":"ls","kind":"execute"}),
        ));
        peer.agent_sends(update(
            json!({"sessionUpdate":"tool_call_update","toolCallId":id,"status":"completed"}),
        ));
        peer.editor_receives();
        peer.editor_receives();
    }
    peer.editor_disconnects();
    let (_, said) = peer.end();
    assert_eq!(said.matches("--confine-agent").count(), 1, "{said}");
    let query = ["audit", "--journal", &journal, "query", "-o", "json"];
    let output = Command::new(env!("CARGO_BIN_EXE_provost")).args(query).output().expect("provost starts");
    let records = String::from_utf8(output.stdout).expect("JSON is UTF-8");
    let reported: Vec<serde_json::Value> = records
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).expect("a record")["record"].clone())
        .filter(|record| record["kind"] == "bypass_reported")
        .collect();
    assert_eq!(reported.len(), 1, "{records}");
    assert_eq!(reported[0]["report"], "bypassed");
}

#[test]
fn an_agent_that_asks_for_terminals_is_not_accused() {
    let mut peer = ShimPeer::in_session(&[], json!({}));
    let update = |update| json!({"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":update}});
    peer.agent_sends(update(
        json!({"sessionUpdate":"tool_call","toolCallId":"a","title":"ls","kind":"execute"}),
    ));
    peer.create("true");
    peer.agent_sends(update(
        json!({"sessionUpdate":"tool_call_update","toolCallId":"a","status":"completed"}),
    ));
    peer.editor_receives();
    peer.editor_receives();
    peer.editor_disconnects();
    let (_, said) = peer.end();
    assert!(!said.contains("--confine-agent"), "{said}");
}

#[test]
fn a_confined_agent_is_in_a_sandbox_and_its_terminals_in_others() {
    let secret = tempfile::NamedTempFile::new_in("/var/tmp").expect("a file of the host");
    let look = format!("ls {} >&2; exit 9", secret.path().display());
    let mut outside = Command::new("/bin/sh");
    assert!(
        outside.args(["-c", &format!("ls {}", secret.path().display())]).status().expect("a shell").success()
    );
    let mut shim = Command::new(env!("CARGO_BIN_EXE_provost"));
    let directory = tempfile::tempdir().expect("a directory");
    let ended = shim
        .args(["acp", "--confine-agent", "--", "/bin/sh", "-c", &look])
        .current_dir(directory.path())
        .output()
        .expect("the shim starts");
    assert_eq!(ended.status.code(), Some(9), "{ended:?}");
    assert!(String::from_utf8_lossy(&ended.stderr).contains("No such file"), "{ended:?}");

    // What its sessions are given it has, too, each in the same way.
    let given = tempfile::tempdir().expect("a directory");
    let (read, write) = (given.path().join("read"), given.path().join("write"));
    for directory in [&read, &write] {
        std::fs::create_dir(directory).expect("a directory");
        std::fs::write(directory.join("file"), "given").expect("a file");
    }
    let look = format!(
        "cat {0}/file {1}/file >&2; echo x > {1}/new; echo x > {0}/new",
        read.display(),
        write.display()
    );
    let ended = Command::new(env!("CARGO_BIN_EXE_provost"))
        .args(["acp", "--confine-agent", "--ro"])
        .arg(&read)
        .arg("--root")
        .arg(&write)
        .args(["--", "/bin/sh", "-c", &look])
        .current_dir(directory.path())
        .output()
        .expect("the shim starts");
    assert!(String::from_utf8_lossy(&ended.stderr).contains("givengiven"), "{ended:?}");
    assert!(write.join("new").exists() && !read.join("new").exists() && !ended.status.success(), "{ended:?}");

    let mut peer = ShimPeer::in_session(&["--confine-agent"], json!({}));
    let terminal = peer.create("echo from a terminal");
    let params = json!({"sessionId":"s","terminalId":terminal});
    assert_eq!(peer.ask("terminal/wait_for_exit", params.clone())["result"]["exitCode"], 0);
    assert_eq!(peer.ask("terminal/output", params)["result"]["output"], "from a terminal\n");
    peer.editor_disconnects();
    assert_eq!(peer.end().0.code(), Some(0));
}

#[test]
fn the_embedders_example_runs() {
    let examples = built_by_cargo(&["--example", "embed"]).join("examples");
    let ran = Command::new(examples.join("embed")).output().expect("the example starts");
    assert!(ran.status.success(), "{ran:?}");
    let said = String::from_utf8_lossy(&ran.stdout);
    for line in [r#"output "hello\n" exit code 3"#, "subagent's exit code 4", "no such terminal"] {
        assert!(said.contains(line), "{line:?} is not in {said}");
    }
}

/// The page's own files, as a newcomer would copy them.
#[test]
fn the_profile_that_the_page_shows_is_valid_with_the_default_policy() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = std::fs::read_to_string(root.join("docs/acp.md")).expect("the page is there");
    let (_, profile) = page.split_once("```toml\n").expect("the page shows a profile");
    let (profile, _) = profile.split_once("```").expect("it ends");
    let directory = tempfile::tempdir().expect("a directory");
    std::fs::copy(root.join("policies/default.toml"), directory.path().join("default.toml"))
        .expect("a policy");
    std::fs::write(directory.path().join("mine.toml"), profile).expect("a policy");
    let mut check = Command::new(env!("CARGO_BIN_EXE_provost"));
    let checked = check.args(["policy", "check"]).arg(directory.path()).output().expect("provost starts");
    assert!(checked.status.success(), "{checked:?}");
}

#[test]
fn in_a_terminal_it_says_that_no_editor_is_there_and_starts_nothing() {
    let terminal = nix::pty::openpty(None, None).expect("a terminal");
    let directory = tempfile::tempdir().expect("a directory");
    let end = || std::process::Stdio::from(terminal.slave.try_clone().expect("a descriptor can be copied"));
    let mut shim = Command::new(env!("CARGO_BIN_EXE_provost"));
    shim.args(["acp", "--", "touch", "started", "--login"]).current_dir(directory.path());
    let mut shim = shim.stdin(end()).stdout(end()).stderr(end()).spawn().expect("the shim starts");
    assert_eq!(shim.wait().expect("it is our child").code(), Some(125));
    let mut said = [0; 4096];
    let length = nix::unistd::read(&terminal.master, &mut said).expect("something was said");
    let said = String::from_utf8_lossy(&said[..length]);
    assert!(said.contains("start it by itself: touch started --login"), "{said}");
    assert!(!directory.path().join("started").exists());
}
