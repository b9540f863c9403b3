//! What becomes of commands when requests are cancelled, the client goes away, or the gateway does; and what is recorded.

use std::{fs, process::Command};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::{Value, json};

use crate::{
    mcp::{
        peer::{Peer, id, text},
        permission,
    },
    support::{Gateway, mark, sleeping, wait_for_sleepers},
};

#[test]
fn a_cancelled_request_stops_its_command_and_nothing_else() {
    let gateway = Gateway::start();
    let mut peer = Peer::at(&gateway);
    let (mark, other) = (mark(), mark());
    let kept = peer.tool("start_command", json!({ "command": format!("sleep {other}") }));
    let call = peer.begin(
        "tools/call",
        json!({ "name": "run_command", "arguments": { "command": format!("setsid sleep {mark} & sleep {mark}") } }),
    );
    wait_for_sleepers(&mark, 2);
    peer.send(
        &json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": call } }),
    );
    wait_for_sleepers(&mark, 0);
    assert_eq!(sleeping(&other), 1);
    // A wait that is cancelled only ends the wait.
    let wait = peer.begin("tools/call", json!({ "name": "wait_command", "arguments": { "id": id(&kept) } }));
    peer.send(
        &json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": wait } }),
    );
    assert!(peer.text("list_commands", json!({})).contains("still running"));
    assert_eq!(sleeping(&other), 1);
    gateway.stop();
}

#[test]
fn a_client_that_goes_away_takes_its_commands_with_it() {
    let gateway = Gateway::start();
    for way in ["eof", "term", "kill"] {
        let mut peer = Peer::at(&gateway);
        let mark = mark();
        peer.tool("start_command", json!({ "command": format!("setsid sleep {mark} & sleep {mark}") }));
        wait_for_sleepers(&mark, 2);
        let pid = Pid::from_raw(peer.pid().try_into().expect("a pid"));
        match way {
            "eof" => assert!(peer.leave().success()),
            "term" => kill(pid, Signal::SIGTERM).expect("it is our child"),
            _ => kill(pid, Signal::SIGKILL).expect("it is our child"),
        }
        wait_for_sleepers(&mark, 0);
    }
    gateway.stop();
}

#[test]
fn commands_go_on_over_a_restart_of_the_gateway_and_one_that_stays_away_is_told() {
    let gateway = Gateway::start();
    let mut peer = Peer::at(&gateway);
    let running = peer.tool(
        "start_command",
        json!({ "command": "echo before; until [ -e go ]; do sleep 0.05; done; echo after; exit 4" }),
    );
    let wait =
        peer.begin("tools/call", json!({ "name": "wait_command", "arguments": { "id": id(&running) } }));
    gateway.crash();
    gateway.start_again();
    fs::write(peer.workspace.join("go"), "").expect("the workspace is ours");
    let ended = peer.answer(wait);
    assert!(text(&ended["result"]).starts_with("exit code 4\n"), "{ended}");
    assert!(text(&ended["result"]).ends_with("before\nafter\n"), "{ended}");
    assert!(peer.text("run_command", json!({ "command": "echo again" })).ends_with("again\n"));
    gateway.crash();
    let away = peer.tool("run_command", json!({ "command": "touch made" }));
    assert_eq!(away["isError"], true, "{away}");
    assert!(
        text(&away).starts_with("The gateway does not answer. Nothing was run, here or elsewhere."),
        "{away}"
    );
    assert!(!peer.workspace.join("made").exists(), "nothing runs outside");
    gateway.start_again();
    gateway.stop();
}

#[test]
fn the_journal_says_which_front_end_opened_the_session_and_who_the_client_says_it_is() {
    let gateway = Gateway::start();
    let mut peer = Peer::at(&gateway);
    peer.tool("run_command", json!({ "command": "true" }));
    assert!(peer.leave().success());
    let socket = format!("unix:{}", gateway.socket.display());
    let workspace = tempfile::tempdir().expect("a temporary directory");
    let ran = Command::new(env!("CARGO_BIN_EXE_provost"))
        .args(["run", "--gateway", &socket, "true"])
        .current_dir(&workspace)
        .status()
        .expect("provost can be started");
    assert!(ran.success());
    let output = Command::new(env!("CARGO_BIN_EXE_provost"))
        .args(["audit", "--journal"])
        .arg(gateway.state.join("journal"))
        .args(["query", "-o", "json"])
        .output()
        .expect("provost can be started");
    let lines = String::from_utf8(output.stdout).expect("records are text");
    let records = lines.lines().map(|line| serde_json::from_str::<Value>(line).expect("a line is JSON"));
    let labels: Vec<Value> =
        records.map(|line| line["record"]["labels"].clone()).filter(|labels| labels.is_object()).collect();
    let of = |front_end: &str| labels.iter().find(|labels| labels["front_end"] == front_end);
    assert_eq!(of("mcp").expect("it is recorded")["mcp.client"], "tester 1", "{labels:?}");
    assert!(of("cli").is_some(), "{labels:?}");
    gateway.stop();
}

#[test]
fn what_is_no_message_or_too_long_ends_neither_the_server_nor_its_commands() {
    let gateway = Gateway::start();
    let mut peer = Peer::at(&gateway);
    let kept = peer.tool("start_command", json!({ "command": "sleep 1000" }));
    peer.send(&json!("no message"));
    peer.send(
        &json!({ "jsonrpc": "2.0", "id": 9_999, "method": "tools/call", "params": { "name": "run_command",
        "arguments": { "command": "x".repeat(5 << 20) } } }),
    );
    assert!(peer.text("list_commands", json!({})).contains(&id(&kept)));
    gateway.stop();
}

#[test]
fn sessions_of_every_front_end_are_in_one_journal_and_are_found_by_it() {
    // A kept shell needs the exec gate.
    let gateway = permission::gateway(permission::gated);
    let mut peer = Peer::at(&gateway);
    peer.tool("run_command", json!({ "command": "true" }));
    assert!(peer.leave().success());
    let workspace = tempfile::tempdir().expect("a temporary directory");
    let provost = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_provost"));
        command.args(arguments).current_dir(&workspace).stdin(std::process::Stdio::null());
        command.env("PROVOST_GATEWAY", format!("unix:{}", gateway.socket.display()));
        // Its agent is this test, in whose directory the gateway's program lies.
        command.env("PROVOST_SHELL_ROOT", workspace.path());
        command.output().expect("provost can be started")
    };
    for arguments in [
        &["run", "true"][..],
        &["shell", "--line", "true", "bash"],
        &["shell-wrapper", "--", "-c", "true"],
        &["acp", "--confine-agent", "--", "true"],
    ] {
        let output = provost(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
    // A program of its own says nothing, and one says a name of its own.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let caller = gateway.caller().await;
        for name in ["", "an-editor"] {
            let open = crate::support::Session::open_with(&gateway, caller.clone(), None, |request| {
                request.front_end = name.to_owned();
            });
            let session = open.await;
            session.command("true").finish().await;
            session.close().await;
        }
    });
    let journal = gateway.state.join("journal");
    let records = |options: &[&str], front_end: &str| -> Vec<Value> {
        let query = ["query", "-o", "json", "--front-end", front_end];
        let output = provost(&[&["audit"][..], options, &query].concat());
        let lines = String::from_utf8(output.stdout).expect("records are text");
        lines
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).expect("JSON")["record"].clone())
            .collect()
    };
    let user = format!("uid:{}", nix::unistd::geteuid());
    for front_end in ["cli", "acp", "mcp", "shell", "grpc", "an-editor"] {
        // From the files, and from the gateway.
        for options in [&["--journal", journal.to_str().expect("UTF-8")][..], &[]] {
            let found = records(options, front_end);
            let of =
                |kind: &str| found.iter().find(|record| record["kind"] == kind).cloned().unwrap_or_default();
            let (opened, decision) = (of("session_opened"), of("decision"));
            assert_eq!(
                (&opened["front_end"], &opened["principal"]),
                (&json!(front_end), &json!(user)),
                "{found:?}"
            );
            assert_eq!(
                (&decision["front_end"], &decision["rule"]),
                (&json!(front_end), &json!("anything")),
                "{found:?}"
            );
            assert_eq!(
                of("spawn")["session"],
                opened["session"],
                "what does not name it is found, too: {found:?}"
            );
            let sessions: std::collections::HashSet<_> =
                found.iter().map(|record| record["session"].to_string()).collect();
            let expected = if front_end == "cli" { 2 } else { 1 };
            assert_eq!(sessions.len(), expected, "{front_end}: {found:?}");
        }
    }
    assert!(records(&[], "no-such").is_empty());
    gateway.stop();
}
