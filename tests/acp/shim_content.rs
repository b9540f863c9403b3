//! What editors are shown of terminals, and what they are asked.

use crate::support::lacks;
use std::{fs, path::Path};

use serde_json::{Value, json};

use crate::acp::shim_peer::ShimPeer;

/// The shipped policy without its demand for limits, and a rule that asks.
fn asking_policy(directory: &Path) {
    let shipped = include_str!("../../policies/default.toml")
        .replace("requirement = \"require\"", "requirement = \"prefer\"");
    fs::write(directory.join("default.toml"), shipped).expect("a policy");
    let asking = "[[rule]]\nid = \"ask-first\"\ndecision = \"ask\"\nargv = [\"touch\", \"**\"]\nreason = \"files need a person\"\n";
    fs::write(directory.join("ask.toml"), asking).expect("a policy");
}

/// A notification of this update.
pub(super) fn update(update: Value) -> Value {
    json!({"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":update}})
}

/// The text of the first content block of an update.
pub(super) fn text_of(message: &Value) -> String {
    message["params"]["update"]["content"][0]["content"]["text"].as_str().unwrap_or_default().to_owned()
}

#[test]
fn an_editor_without_terminals_is_shown_text_that_stays_after_the_release() {
    let mut peer = ShimPeer::in_session(&[], json!({}));
    let terminal = peer.create("echo first; sleep 1000");
    peer.agent_sends(update(
        json!({"sessionUpdate":"tool_call","toolCallId":"t","title":"Run","kind":"execute",
        "content":[{"type":"terminal","terminalId":terminal}]}),
    ));
    let received = peer.editor_receives_until(|message| text_of(message).contains("first"));
    assert!(received.iter().all(|message| !message.to_string().contains(&terminal)), "{received:#?}");
    assert_eq!(received[0]["params"]["update"]["title"], "Run");
    let params = json!({"sessionId":"s","terminalId":terminal});
    assert_eq!(peer.ask("terminal/release", params)["result"], json!({}));
    let shown = peer.editor_receives_until(|message| text_of(message).contains("Ended by"));
    assert!(text_of(shown.last().expect("one")).contains("first"));
    peer.agent_sends(update(
        json!({"sessionUpdate":"tool_call_update","toolCallId":"t","status":"completed",
        "content":[{"type":"terminal","terminalId":terminal}]}),
    ));
    let last = peer.editor_receives();
    assert_eq!(last["params"]["update"]["status"], "completed");
    assert!(text_of(&last).contains("first"), "{last}");
}

#[test]
fn an_editor_that_shows_terminals_is_told_of_them_their_output_and_their_end() {
    let mut peer = ShimPeer::in_session(&[], json!({"_meta":{"terminal_output":true}}));
    peer.agent_sends(update(
        json!({"sessionUpdate":"tool_call","toolCallId":"t","title":"Run","kind":"execute"}),
    ));
    peer.editor_receives();
    let terminal = peer.create("echo out; exit 3");
    peer.agent_sends(update(
        json!({"sessionUpdate":"tool_call_update","toolCallId":"t","status":"in_progress",
        "content":[{"type":"terminal","terminalId":terminal}],"_meta":{"mine":1}}),
    ));
    let received = peer.editor_receives_until(|message| {
        message["params"]["update"]["_meta"]["terminal_exit"] != Value::Null
    });
    let first = &received[0]["params"]["update"];
    assert_eq!((&first["sessionUpdate"], &first["title"]), (&json!("tool_call"), &json!("Run")));
    assert_eq!(first["_meta"]["terminal_info"], json!({"terminal_id":terminal,"cwd":peer.workspace}));
    assert_eq!(first["_meta"]["mine"], 1);
    assert_eq!(first["content"][0]["terminalId"], *terminal);
    let output: String = received
        .iter()
        .filter_map(|message| message["params"]["update"]["_meta"]["terminal_output"]["data"].as_str())
        .collect();
    assert_eq!(output, "out\n");
    let exit = &received.last().expect("one")["params"]["update"]["_meta"]["terminal_exit"];
    assert_eq!(*exit, json!({"terminal_id":terminal,"exit_code":3,"signal":null}));
}

#[test]
fn what_a_rule_asks_is_asked_in_the_editor_and_its_answer_counts_once() {
    let policies = tempfile::tempdir().expect("a directory");
    asking_policy(policies.path());
    let options = ["--policies", policies.path().to_str().expect("UTF-8")];
    let mut peer = ShimPeer::in_session(&options, json!({}));
    let create = json!({"jsonrpc":"2.0","id":"c","method":"terminal/create",
        "params":{"sessionId":"s","command":"touch made"}});
    let selected = |option: &str| json!({"outcome":{"outcome":"selected","optionId":option}});
    for (answer, runs) in [
        (json!({"result": selected("provost-allow-once")}), true),
        (json!({"result": selected("provost-deny-once")}), false),
        (json!({"result": selected("something else")}), false),
        (json!({"result": {"outcome":{"outcome":"cancelled"}}}), false),
        (json!({"error": {"code":-32601,"message":"cannot"}}), false),
    ] {
        peer.agent_sends(create.clone());
        let question = peer.editor_receives();
        assert_eq!(question["method"], "session/request_permission");
        assert_eq!(question["params"]["toolCall"]["title"], "touch made");
        assert!(question.to_string().contains("files need a person"), "{question}");
        let mut reply = answer.clone();
        reply["jsonrpc"] = "2.0".into();
        reply["id"] = question["id"].clone();
        peer.editor_sends(reply);
        let card = peer.editor_receives();
        assert_eq!(card["params"]["update"]["status"], if runs { "completed" } else { "failed" });
        let result = peer.agent_receives();
        assert_eq!(result["id"], "c");
        assert_eq!(result["result"]["terminalId"].is_string(), runs, "{answer}: {result}");
        if !runs {
            assert_eq!(result["error"]["code"], -32001);
            assert!(
                result["error"]["message"].as_str().is_some_and(|text| text.contains("files need a person"))
            );
        }
    }
}

#[test]
fn a_question_is_taken_back_with_its_request_and_with_its_turn() {
    let policies = tempfile::tempdir().expect("a directory");
    asking_policy(policies.path());
    let options = ["--policies", policies.path().to_str().expect("UTF-8")];
    let mut peer = ShimPeer::in_session(&options, json!({}));
    let create = json!({"jsonrpc":"2.0","id":"c","method":"terminal/create",
        "params":{"sessionId":"s","command":"touch made"}});
    peer.agent_sends(create.clone());
    let question = peer.editor_receives();
    peer.agent_sends(json!({"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":"c"}}));
    assert_eq!(peer.agent_receives()["error"]["code"], -32800);
    let cancel = peer.editor_receives();
    assert_eq!(
        (&cancel["method"], &cancel["params"]["requestId"]),
        (&json!("$/cancel_request"), &question["id"])
    );
    assert_eq!(peer.editor_receives()["params"]["update"]["status"], "failed");
    // A late answer is nobody's: not the agent's, which never asked.
    peer.editor_sends(
        json!({"jsonrpc":"2.0","id":question["id"],"error":{"code":-32800,"message":"cancelled"}}),
    );
    peer.agent_sends(create);
    let question = peer.editor_receives();
    assert_eq!(question["method"], "session/request_permission");
    peer.editor_sends(json!({"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":"s"}}));
    let received = [peer.agent_receives(), peer.agent_receives()];
    assert!(received.iter().any(|message| message["method"] == "session/cancel"), "{received:?}");
    assert!(received.iter().any(|message| message["error"]["code"] == -32001), "{received:?}");
    assert!(!peer.workspace.join("made").exists());
}

#[test]
fn an_exec_that_is_refused_within_a_command_is_a_line_of_its_output_for_the_agent() {
    let policies = tempfile::tempdir().expect("a directory");
    asking_policy(policies.path());
    let denying = "[[rule]]\nid = \"no-shredding\"\ndecision = \"deny\"\nargv = [\"shred\", \"**\"]\nreason = \"nothing is shredded here\"\n";
    fs::write(policies.path().join("deny.toml"), denying).expect("a policy");
    let options = ["--policies", policies.path().to_str().expect("UTF-8")];
    let mut peer = ShimPeer::in_session(&options, json!({}));
    // In a file, so that nobody reads it before a shell does. The command itself succeeds.
    fs::write(peer.workspace.join("work"), "/usr/bin/shred x; echo done\n").expect("a file");
    let terminal = peer.create("sh work");
    let params = json!({"sessionId":"s","terminalId":terminal});
    let exit = peer.ask("terminal/wait_for_exit", params.clone());
    assert_eq!(exit["result"]["exitCode"], 0, "{exit}");
    let output = peer.ask("terminal/output", params);
    let text = output["result"]["output"].as_str().expect("text");
    assert!(text.contains("done\n"), "{text}");
    let last = text.lines().last().expect("a line");
    assert!(last.starts_with("provost: denied: "), "{text}");
    assert!(last.contains("shred x") && last.contains("nothing is shredded here"), "{text}");
    assert!(last.contains("no-shredding"), "{text}");
    let denials = &output["result"]["_meta"]["provost"]["execDenials"];
    let denials =
        if denials.is_null() { &exit["result"]["_meta"]["provost"]["execDenials"] } else { denials };
    assert_eq!(denials[0]["rule"], "no-shredding", "{output} {exit}");
}

#[test]
fn what_a_rule_asks_about_a_connection_is_asked_in_the_editor_while_the_command_runs() {
    if lacks(&["curl"]) {
        return;
    }
    let policies = tempfile::tempdir().expect("a directory");
    asking_policy(policies.path());
    let file = policies.path().join("default.toml");
    let shipped = fs::read_to_string(&file).expect("a policy");
    fs::write(&file, shipped.replacen("default = \"none\"", "default = \"proxy\"", 1)).expect("a policy");
    let asking = "[[connect]]\nid = \"ask-host\"\ndecision = \"ask\"\nhost = [\"asked.test\"]\nport = [80]\nreason = \"hosts need a person\"\n";
    fs::write(policies.path().join("connect.toml"), asking).expect("a policy");
    let options = ["--policies", policies.path().to_str().expect("UTF-8")];
    let mut peer = ShimPeer::in_session(&options, json!({}));
    let terminal = peer.create("curl -sS http://asked.test/");
    let question = peer.editor_receives();
    assert_eq!(question["method"], "session/request_permission", "{question}");
    assert_eq!(question["params"]["toolCall"]["title"], "connection to asked.test:80");
    assert!(question.to_string().contains("hosts need a person"), "{question}");
    let denied = json!({"outcome":{"outcome":"selected","optionId":"provost-deny-once"}});
    peer.editor_sends(json!({"jsonrpc":"2.0","id":question["id"],"result":denied}));
    assert_eq!(peer.editor_receives()["params"]["update"]["status"], "failed");
    let params = json!({"sessionId":"s","terminalId":terminal});
    peer.ask("terminal/wait_for_exit", params.clone());
    let output = peer.ask("terminal/output", params);
    let text = output["result"]["output"].as_str().expect("text");
    assert!(text.contains("denied by rule \"ask-host\"") && text.contains("denied in the editor"), "{text}");
}
