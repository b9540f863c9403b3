//! What passes through the shim, what it answers, and what it refuses to pass.

use serde_json::json;

use crate::{
    acp::shim_peer::ShimPeer,
    support::{mark, wait_for_sleepers},
};

#[test]
fn what_is_not_the_shims_passes_byte_for_byte_in_both_directions() {
    let mut peer = ShimPeer::in_session(&[], json!({}));
    for line in [
        r#"{"jsonrpc":"2.0", "id":0,"method":"session/prompt","params":{"n":1.00,"big":123456789012345678901234567890,"e":1e400,"u":"\u0061\/"}}"#,
        r#"{"id":"uuid-1","method":"_vendor/thing","jsonrpc":"2.0","extra":{"_meta":null},"params":[1,2]}"#,
        r#"[{"jsonrpc":"2.0","method":"a"},{"jsonrpc":"2.0","id":7,"method":"b"}]"#,
    ] {
        peer.editor_writes(format!("{line}\n").as_bytes());
        assert_eq!(peer.agent_receives_line(), line);
        peer.agent_writes(format!("{line}\n").as_bytes());
        assert_eq!(peer.editor_receives_line(), line);
    }
    // Windows' line ends, and what an editor sends that is no message at all.
    peer.editor_writes(b"{\"jsonrpc\":\"2.0\",\"method\":\"x\"}\r\nnot json\n");
    assert_eq!(peer.agent_receives_line(), r#"{"jsonrpc":"2.0","method":"x"}"#);
    assert_eq!(peer.agent_receives_line(), "not json");
}

#[test]
fn ids_of_every_type_come_back_as_they_went() {
    let mut peer = ShimPeer::in_session(&[], json!({}));
    for id in [json!(0), json!(-5), json!("0"), json!("8c5b"), json!(null)] {
        peer.agent_sends(json!({"jsonrpc":"2.0","id":id,"method":"terminal/output",
            "params":{"sessionId":"s","terminalId":"none"}}));
        let answer = peer.agent_receives();
        assert_eq!((&answer["id"], &answer["error"]["code"]), (&id, &json!(-32002)));
    }
}

#[test]
fn ids_that_are_numbers_of_any_kind_come_back_to_the_digit() {
    let mut peer = ShimPeer::in_session(&[], json!({}));
    for id in ["1.0", "1e2", "-0.5", "9007199254740993", "123456789012345678901234567890", "1E400"] {
        let line = format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"terminal/output","params":{{"sessionId":"s","terminalId":"x"}}}}"#
        );
        peer.agent_writes(format!("{line}\n").as_bytes());
        let answer = peer.agent_receives_line();
        assert!(answer.contains(&format!(r#""id":{id},"error""#)), "{answer}");
    }
    // Two that differ where double precision does not: only the one that is named is cancelled.
    let terminal = peer.create("until [ -e go ]; do sleep 0.05; done; exit 3");
    for id in ["123456789012345678901234567890", "123456789012345678901234567891"] {
        let line = format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"terminal/wait_for_exit","params":{{"sessionId":"s","terminalId":"{terminal}"}}}}"#
        );
        peer.agent_writes(format!("{line}\n").as_bytes());
    }
    let cancel = r#"{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":123456789012345678901234567890}}"#;
    peer.agent_writes(format!("{cancel}\n").as_bytes());
    let cancelled = peer.agent_receives_line();
    assert!(
        cancelled.contains(r#""id":123456789012345678901234567890,"error":{"code":-32800"#),
        "{cancelled}"
    );
    std::fs::write(peer.workspace.join("go"), "").expect("the workspace is ours");
    let ended = peer.agent_receives_line();
    assert!(ended.contains(r#""id":123456789012345678901234567891,"result":{"exitCode":3"#), "{ended}");
}

#[test]
fn blank_lines_of_an_agents_never_reach_the_editor() {
    let mut peer = ShimPeer::in_session(&[], json!({}));
    peer.agent_writes(b"\n \n\t\r\n  {\"jsonrpc\":\"2.0\",\"method\":\"x\"}\n");
    assert_eq!(peer.editor_receives_line(), r#"  {"jsonrpc":"2.0","method":"x"}"#);
}

#[test]
fn an_answer_without_a_result_passes_and_is_an_answer() {
    let mut peer = ShimPeer::in_session(&[], json!({}));
    let mark = mark();
    peer.create(&format!("sleep {mark}"));
    wait_for_sleepers(&mark, 1);
    peer.editor_sends(json!({"jsonrpc":"2.0","id":9,"method":"session/close","params":{"sessionId":"s"}}));
    assert_eq!(peer.agent_receives()["method"], "session/close");
    // As JavaScript writes a result that is undefined.
    peer.agent_writes(b"{\"jsonrpc\":\"2.0\",\"id\":9}\n");
    assert_eq!(peer.editor_receives_line(), r#"{"jsonrpc":"2.0","id":9}"#);
    wait_for_sleepers(&mark, 0);
}

#[test]
fn what_a_laxer_reader_could_take_for_a_terminal_request_never_reaches_the_editor() {
    let mut peer = ShimPeer::in_session(&[], json!({}));
    let create = r#""params":{"sessionId":"s","command":"id"}"#;
    for (line, code) in [
        // Asked plainly, and in ways that only some readers understand.
        (format!(r#"{{"jsonrpc":"2.0","id":1,"method":"terminal\/output",{create}}}"#), -32602),
        (format!(r#"{{"jsonrpc":"2.0","id":1,"m\u0065thod":"terminal/anything",{create}}}"#), -32601),
        (format!(r#"{{"jsonrpc":"2.0","id":1,"method":"x","method":"terminal/create",{create}}}"#), -32600),
        (format!(r#"{{"jsonrpc":"2.0","id":1,"method":"x","Method":"terminal/create",{create}}}"#), -32600),
        (format!(r#"{{"jsonrpc":"2.0","id":1,"method":"terminal/create",{create},"x":NaN}}"#), -32600),
        (format!(r#"{{"jsonrpc":"2.0","id":1,"method":"terminal/create",{create}"#), -32600),
    ] {
        peer.agent_writes(format!("{line}\n").as_bytes());
        let answer = peer.agent_receives();
        assert_eq!(answer["error"]["code"], code, "{line}\n{answer}");
    }
    peer.agent_writes(b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"terminal/create\",\"p\":\"\xff\"}\n");
    assert_eq!(peer.agent_receives()["error"]["code"], -32600);
    // In a batch, and between carriage returns that some readers take for line ends.
    peer.agent_writes(
        b"[{\"jsonrpc\":\"2.0\",\"method\":\"a\"},{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"terminal/x\"}]\n",
    );
    assert_eq!(peer.agent_receives()["error"]["code"], -32601);
    assert_eq!(peer.editor_receives()["method"], "a");
    peer.agent_writes(
        b"{\"jsonrpc\":\"2.0\",\"method\":\"b\",\"params\":[\r{\"method\":\"terminal/create\"}\r]}\n",
    );
    assert_eq!(
        peer.editor_receives_line(),
        r#"{"jsonrpc":"2.0","method":"b","params":[ {"method":"terminal/create"} ]}"#
    );
}

#[test]
fn a_message_that_is_too_long_fails_its_own_request_and_no_other() {
    let mut peer = ShimPeer::in_session(&[], json!({}));
    let padding = "x".repeat(17 << 20);
    peer.agent_writes(
        format!("{{\"jsonrpc\":\"2.0\",\"id\":\"big\",\"method\":\"m\",\"params\":\"{padding}\"}}\n")
            .as_bytes(),
    );
    let answer = peer.agent_receives();
    assert_eq!((&answer["id"], &answer["error"]["code"]), (&json!("big"), &json!(-32600)));
    // An answer of the agent's: it is the editor that waits.
    peer.agent_writes(
        format!("{{\"jsonrpc\":\"2.0\",\"id\":\"reply\",\"result\":\"{padding}\"}}\n").as_bytes(),
    );
    assert_eq!(peer.editor_receives()["id"], "reply");
    peer.agent_sends(json!({"jsonrpc":"2.0","method":"next"}));
    assert_eq!(peer.editor_receives()["method"], "next");
}

#[test]
fn the_version_is_held_at_one_and_one_that_the_editor_has_not_asked_for_is_refused() {
    let mut peer = ShimPeer::start(&[]);
    peer.editor_sends(json!({"jsonrpc":"2.0","id":5,"method":"initialize",
        "params":{"protocolVersion":2,"clientCapabilities":{"fs":{"readTextFile":true},"terminal":false}}}));
    let asked = peer.agent_receives();
    assert_eq!(asked["params"]["protocolVersion"], 1);
    assert_eq!(asked["params"]["clientCapabilities"], json!({"fs":{"readTextFile":true},"terminal":true}));
    peer.agent_sends(json!({"jsonrpc":"2.0","id":5,"result":{"protocolVersion":3}}));
    let answer = peer.editor_receives();
    assert_eq!(answer["id"], 5);
    assert!(
        answer["error"]["message"].as_str().is_some_and(|text| text.contains("--confine-agent")),
        "{answer}"
    );
}

#[test]
fn a_terminal_belongs_to_its_session_and_is_gone_when_that_is_closed() {
    let mut peer = ShimPeer::in_session(&[], json!({}));
    peer.open_session("t");
    let terminal = peer.create("sleep 1000");
    let of = |session: &str| json!({"sessionId":session,"terminalId":terminal});
    assert_eq!(peer.ask("terminal/output", of("t"))["error"]["code"], -32002);
    assert_eq!(peer.ask("terminal/kill", of("nobody"))["error"]["code"], -32002);
    peer.agent_sends(json!({"jsonrpc":"2.0","id":"wait","method":"terminal/wait_for_exit","params":of("s")}));
    peer.editor_sends(json!({"jsonrpc":"2.0","id":9,"method":"session/close","params":{"sessionId":"s"}}));
    assert_eq!(peer.agent_receives()["method"], "session/close");
    peer.agent_sends(json!({"jsonrpc":"2.0","id":9,"result":{}}));
    assert_eq!(peer.editor_receives()["id"], 9);
    let ended = peer.agent_receives();
    assert_eq!((&ended["id"], &ended["result"]["signal"]), (&json!("wait"), &json!("SIGTERM")), "{ended}");
    assert_eq!(peer.ask("terminal/output", of("s"))["error"]["code"], -32002);
    let late = peer.ask("terminal/create", json!({"sessionId":"s","command":"true"}));
    assert_eq!(late["error"]["code"], -32002);
}

#[test]
fn a_create_that_is_cancelled_leaves_nothing_running() {
    let mut peer = ShimPeer::in_session(&[], json!({}));
    // The session's sandbox is there, so that a command starts at once.
    let mark = mark();
    peer.create("true");
    for _ in 0..5 {
        peer.agent_sends(json!({"jsonrpc":"2.0","id":"c","method":"terminal/create",
            "params":{"sessionId":"s","command":format!("sleep {mark}")}}));
        peer.agent_sends(json!({"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":"c"}}));
        let answer = peer.agent_receives();
        match answer["result"]["terminalId"].as_str() {
            // It was faster.
            Some(id) => {
                let params = json!({"sessionId":"s","terminalId":id});
                assert_eq!(peer.ask("terminal/release", params)["result"], json!({}));
            }
            None => assert_eq!(answer["error"]["code"], -32800, "{answer}"),
        }
    }
    wait_for_sleepers(&mark, 0);
}

#[test]
fn pagers_are_off_unless_the_profile_says_otherwise() {
    let shipped = include_str!("../../policies/default.toml")
        .replace("requirement = \"require\"", "requirement = \"prefer\"");
    let lines = ["PAGER = \"cat\"", "GIT_PAGER = \"cat\"", "GIT_TERMINAL_PROMPT = \"0\""];
    let silent: String =
        shipped.lines().filter(|line| !lines.contains(line)).map(|line| format!("{line}\n")).collect();
    assert_ne!(silent, shipped);
    let less = shipped.replace("\nPAGER = \"cat\"", "\nPAGER = \"less\"");
    for (policy, expected) in [(&shipped, "cat cat 0\n"), (&silent, "cat cat 0\n"), (&less, "less cat 0\n")] {
        let policies = tempfile::tempdir().expect("a directory");
        std::fs::write(policies.path().join("default.toml"), policy).expect("a policy");
        let mut peer =
            ShimPeer::in_session(&["--policies", policies.path().to_str().expect("UTF-8")], json!({}));
        let terminal = peer.create("echo $PAGER $GIT_PAGER $GIT_TERMINAL_PROMPT");
        let params = json!({"sessionId":"s","terminalId":terminal});
        peer.ask("terminal/wait_for_exit", params.clone());
        assert_eq!(peer.ask("terminal/output", params)["result"]["output"], expected);
    }
}
