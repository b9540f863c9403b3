//! What the tools do: run, start, read, wait, write, stop, list.

use serde_json::json;

use crate::{
    mcp::peer::{Peer, id, text},
    support::Gateway,
};

#[test]
fn a_command_is_run_in_the_workspace_and_its_exit_code_and_output_are_said() {
    let gateway = Gateway::start();
    let mut peer = Peer::at(&gateway);
    let listed = peer.ask("tools/list", json!({}));
    let tools = listed["result"]["tools"].as_array().expect("a list").clone();
    let names: Vec<_> = tools.iter().filter_map(|tool| tool["name"].as_str()).collect();
    assert_eq!(
        names,
        [
            "run_command",
            "start_command",
            "read_output",
            "wait_command",
            "write_input",
            "kill_command",
            "list_commands"
        ]
    );
    let ran = peer.tool("run_command", json!({ "command": "pwd; echo err >&2; echo made > file; exit 3" }));
    assert_eq!(text(&ran).lines().next(), Some("exit code 3"), "{ran}");
    assert!(text(&ran).ends_with(&format!("{}\nerr\n", peer.workspace.display())), "{ran}");
    assert_eq!(ran["_meta"]["provost"]["exit_code"], 3);
    assert_eq!(ran["isError"], false);
    assert!(peer.workspace.join("file").exists());
    assert!(tools.iter().all(|tool| tool["inputSchema"]["properties"].is_object()), "{tools:?}");
    // A line need not have a command.
    for line in ["x=1", "# nothing", "  ", ">made"] {
        let ran = peer.tool("run_command", json!({ "command": line }));
        assert_eq!(text(&ran).lines().next(), Some("exit code 0"), "{line:?}: {ran}");
    }
    assert!(peer.workspace.join("made").exists());
    // With args no shell reads it.
    let plain = json!({ "command": "echo", "args": ["$HOME", ";"] });
    assert!(peer.text("run_command", plain).ends_with("$HOME ;\n"));
    let read = json!({ "command": "cat; echo $X", "stdin": "from the client\n", "env": { "X": "y" } });
    assert!(peer.text("run_command", read).ends_with("from the client\ny\n"));
    // What was shown whole is not kept.
    assert_eq!(peer.text("list_commands", json!({})), "There are no commands.");
    assert!(peer.leave().success());
    gateway.stop();
}

#[test]
fn a_long_output_is_cut_in_the_middle_and_can_be_read_on() {
    let gateway = Gateway::start();
    let mut peer = Peer::at(&gateway);
    let ran = peer.tool("run_command", json!({ "command": "seq 1 30000" }));
    let shown = text(&ran);
    assert!(shown.contains("output (168894 bytes):\n1\n2\n3\n"), "{shown:.300}");
    assert!(shown.ends_with("29999\n30000\n"));
    assert!(shown.contains("bytes left out here: read_output with offset 10240 has them"));
    assert!(shown.len() < 32 << 10, "{}", shown.len());
    let (mut read, mut offset) = (String::new(), 0);
    while read.len() < 168_894 {
        let part =
            peer.tool("read_output", json!({ "id": id(&ran), "offset": offset, "max_bytes": 100_000 }));
        read.push_str(text(&part).split_once("output:\n").expect("there is output").1);
        offset = part["_meta"]["provost"]["next_offset"].as_u64().expect("a number");
    }
    let expected: String = (1..=30_000).map(|number| format!("{number}\n")).collect();
    assert!(read == expected, "every byte once");
    assert!(peer.text("list_commands", json!({})).ends_with("exit code 0: seq 1 30000"));
    gateway.stop();
}

#[test]
fn a_command_that_takes_long_goes_on_and_is_waited_for_written_to_and_stopped() {
    let gateway = Gateway::start();
    let mut peer = Peer::at(&gateway);
    let started =
        peer.tool("run_command", json!({ "command": "echo begun; sleep 0.5; echo over", "wait_seconds": 0 }));
    assert!(text(&started).starts_with("still running\nid: term_"), "{started}");
    let ended = peer.text("wait_command", json!({ "id": id(&started) }));
    assert!(ended.starts_with("exit code 0\n") && ended.ends_with("begun\nover\n"), "{ended}");

    let cat = peer.tool("start_command", json!({ "command": "cat", "open_stdin": true }));
    let written = peer.text("write_input", json!({ "id": id(&cat), "text": "héllo\n", "eof": true }));
    assert_eq!(written, "Wrote 7 bytes.");
    assert!(peer.text("wait_command", json!({ "id": id(&cat) })).ends_with("héllo\n"));

    let sleeping = peer.tool("start_command", json!({ "command": "sleep 1000 & sleep 1000" }));
    let stopped = peer.text("kill_command", json!({ "id": id(&sleeping) }));
    assert!(stopped.starts_with("stopped on request; ended by SIGTERM"), "{stopped}");
    let looping = peer.tool(
        "start_command",
        json!({ "command": "trap 'echo got it; exit 7' INT; echo ready; while :; do sleep 0.01 & wait $!; done" }),
    );
    while !peer.text("read_output", json!({ "id": id(&looping) })).contains("ready") {}
    peer.tool("kill_command", json!({ "id": id(&looping), "signal": "INT" }));
    let ended = peer.text("wait_command", json!({ "id": id(&looping) }));
    assert!(ended.starts_with("exit code 7"), "{ended}");
    let limited = peer.text("run_command", json!({ "command": "sleep 1000", "timeout_seconds": 1 }));
    assert!(limited.starts_with("stopped: its time limit was reached"), "{limited}");
    gateway.stop();
}

#[test]
fn mistakes_are_results_that_a_model_can_read() {
    let gateway = Gateway::start();
    let mut peer = Peer::at(&gateway);
    std::os::unix::fs::symlink("loop", peer.workspace.join("loop")).expect("the workspace is ours");
    for (tool, arguments, said) in [
        ("run_command", json!({}), "missing field `command`"),
        ("run_command", json!({ "command": "true", "shell": "zsh" }), "unknown field `shell`"),
        (
            "run_command",
            json!({ "command": "true", "wait_seconds": 601 }),
            "wait_seconds must be at most 600",
        ),
        ("run_command", json!({ "command": "true", "cwd": "here" }), "cwd"),
        (
            "run_command",
            json!({ "command": "no-such-program", "args": [] }),
            "name a program that is installed",
        ),
        // It is the program that leads nowhere, and not an interpreter.
        ("run_command", json!({ "command": "./loop", "args": [] }), "command not found"),
        ("read_output", json!({ "id": "term_01JD3ZK6T0000000000000000" }), "There is no command"),
        ("wait_command", json!({ "id": "../x" }), "There is no command"),
        ("kill_command", json!({ "id": "" }), "There is no command"),
    ] {
        let result = peer.tool(tool, arguments.clone());
        assert_eq!(result["isError"], true, "{tool} {arguments}: {result}");
        assert!(text(&result).contains(said), "{tool} {arguments}: {result}");
    }
    let unknown = peer.ask("tools/call", json!({ "name": "sudo", "arguments": {} }));
    assert_eq!(unknown["error"]["code"], -32602, "{unknown}");
    gateway.stop();
}

#[test]
fn a_command_of_another_session_is_unknown_although_the_user_is_the_same() {
    let gateway = Gateway::start();
    let (mut one, mut other) = (Peer::at(&gateway), Peer::at(&gateway));
    let kept = one.tool("start_command", json!({ "command": "sleep 1000" }));
    other.tool("run_command", json!({ "command": "true" }));
    for tool in ["read_output", "wait_command", "kill_command"] {
        let result = other.tool(tool, json!({ "id": id(&kept) }));
        assert!(text(&result).starts_with("There is no command"), "{result}");
    }
    assert!(one.text("list_commands", json!({})).contains("still running: sleep 1000"));
    gateway.stop();
}

#[test]
fn progress_is_told_to_a_client_that_asks_for_it() {
    let gateway = Gateway::start();
    let mut peer = Peer::at(&gateway);
    let params = json!({
        "name": "run_command",
        "arguments": { "command": "echo x; until [ -e go ]; do sleep 0.05; done" },
        "_meta": { "progressToken": "p" },
    });
    let call = peer.begin("tools/call", params);
    let mut last = 0.0;
    for _ in 0..2 {
        let told = peer.receive();
        assert_eq!(
            (&told["method"], &told["params"]["progressToken"]),
            (&json!("notifications/progress"), &json!("p"))
        );
        assert!(
            told["params"]["message"].as_str().is_some_and(|text| text.ends_with("2 bytes of output")),
            "{told}"
        );
        let progress = told["params"]["progress"].as_f64().expect("a number");
        assert!(progress > last);
        last = progress;
    }
    std::fs::write(peer.workspace.join("go"), "").expect("the workspace is ours");
    assert!(text(&peer.answer(call)["result"]).starts_with("exit code 0"));
    gateway.stop();
}
