//! Standard input: long ones, and two writers at once.

use std::fs;

use serde_json::json;

use crate::{
    mcp::peer::{Peer, id, text},
    support::Gateway,
};

/// More than one request to the gateway takes, and less than a message of the protocol.
const LONG: usize = 3_200_000;

#[test]
fn an_input_that_is_longer_than_a_request_to_the_gateway_is_written_whole() {
    let gateway = Gateway::start();
    let mut peer = Peer::at(&gateway);
    let long = "é".repeat(LONG / 2);
    let ran = peer.tool("run_command", json!({ "command": "wc -c", "stdin": long }));
    assert!(text(&ran).ends_with("\n3200000\n") && ran["isError"] == false, "{ran}");
    let counting = peer.tool("start_command", json!({ "command": "wc -c", "open_stdin": true }));
    let written = peer.text("write_input", json!({ "id": id(&counting), "text": long, "eof": true }));
    assert_eq!(written, "Wrote 3200000 bytes.");
    assert!(peer.text("wait_command", json!({ "id": id(&counting) })).ends_with("\n3200000\n"));
    // One that reads a part is told of, and not waited for.
    let ran = peer.tool("run_command", json!({ "command": "head -c 4", "stdin": long }));
    assert!(text(&ran).starts_with("exit code 0\n") && ran["isError"] == false, "{ran}");
    let reading = peer.tool("start_command", json!({ "command": "head -c 4", "open_stdin": true }));
    let written = peer.text("write_input", json!({ "id": id(&reading), "text": long }));
    assert!(written.ends_with("of 3200000 bytes: the command has closed its standard input."), "{written}");
    gateway.stop();
}

#[test]
fn a_second_writer_is_told_that_another_writes() {
    let gateway = Gateway::start();
    let mut peer = Peer::at(&gateway);
    let command = "until [ -e go ]; do sleep 0.05; done; wc -c";
    let stdin = "x".repeat(1_000_000);
    // Its input is being written when the call is answered.
    let waiting = peer.tool("run_command", json!({ "command": command, "stdin": stdin, "wait_seconds": 0 }));
    let second = peer.tool("write_input", json!({ "id": id(&waiting), "text": "y" }));
    assert_eq!(second["isError"], true, "{second}");
    assert_eq!(second["_meta"]["provost"]["error"]["reason"], "INPUT_BUSY", "{second}");
    fs::write(peer.workspace.join("go"), "").expect("the workspace is ours");
    let ended = peer.text("wait_command", json!({ "id": id(&waiting) }));
    assert!(ended.ends_with("\n1000000\n"), "{ended}");
    gateway.stop();
}
