//! A gateway that is lost in mid-session: killed and started again under live terminals, or never.

use std::{collections::BTreeMap, fs};

use serde_json::{Value, json};

use crate::{
    acp::{
        shim_content::{text_of, update},
        shim_peer::ShimPeer,
    },
    support::{Gateway, add_rule, mark, wait_for_sleepers},
};

fn peer_at(gateway: &Gateway) -> ShimPeer {
    let uri = format!("unix:{}", gateway.socket.display());
    ShimPeer::in_session(&["--gateway", &uri], json!({}))
}

/// Answers to these, whatever their order; anything else is a mistake.
fn answers<const N: usize>(peer: &ShimPeer, ids: [&str; N]) -> BTreeMap<String, Value> {
    let received: BTreeMap<String, Value> = (0..N)
        .map(|_| peer.agent_receives())
        .map(|answer| (answer["id"].as_str().unwrap_or_default().to_owned(), answer))
        .collect();
    assert_eq!(
        received.keys().collect::<Vec<_>>(),
        BTreeMap::from(ids.map(|id| (id, ()))).keys().collect::<Vec<_>>()
    );
    received
}

#[test]
fn waits_outputs_and_pictures_go_on_when_a_killed_gateway_is_back() {
    let gateway = Gateway::start();
    let mut peer = peer_at(&gateway);
    let printing =
        "i=0; while [ ! -e stop ]; do echo line $i; i=$((i+1)); sleep 0.01; done; echo end; exit 5";
    let printing = peer.create(printing);
    let ending = peer.create("until [ -e end ]; do sleep 0.01; done; echo ended; exit 3");
    let mark = mark();
    let sleeping = peer.create(&format!("sleep {mark}"));
    wait_for_sleepers(&mark, 1);
    let of = |terminal: &str| json!({"sessionId":"s","terminalId":terminal});
    peer.agent_sends(update(
        json!({"sessionUpdate":"tool_call","toolCallId":"t","title":"Run","kind":"execute",
        "content":[{"type":"terminal","terminalId":printing}]}),
    ));
    peer.editor_receives_until(|message| text_of(message).contains("line 1"));
    for (id, terminal) in [("w1", &printing), ("w2", &printing), ("w3", &ending), ("w4", &sleeping)] {
        peer.agent_sends(
            json!({"jsonrpc":"2.0","id":id,"method":"terminal/wait_for_exit","params":of(terminal)}),
        );
    }
    let before = peer.ask("terminal/output", of(&printing))["result"]["output"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    gateway.crash();
    // It ends while no gateway is there to see it.
    fs::write(peer.workspace.join("end"), "").expect("the workspace is ours");
    // Asked while it is away, answered when it is back: once.
    peer.agent_sends(json!({"jsonrpc":"2.0","id":"o","method":"terminal/output","params":of(&printing)}));
    peer.agent_sends(json!({"jsonrpc":"2.0","id":"c","method":"terminal/create",
        "params":{"sessionId":"s","command":"echo x >> made"}}));
    gateway.start_again();
    let received = answers(&peer, ["c", "o", "w3"]);
    assert_eq!(received["w3"]["result"]["exitCode"], 3, "{received:#?}");
    let after = received["o"]["result"]["output"].as_str().unwrap_or_default();
    assert!(after.starts_with(&before), "{after}");
    let made = received["c"]["result"]["terminalId"].as_str().expect("it was started");
    assert_eq!(peer.ask("terminal/wait_for_exit", of(made))["result"]["exitCode"], 0);
    assert_eq!(fs::read_to_string(peer.workspace.join("made")).ok().as_deref(), Some("x\n"));
    assert_eq!(peer.ask("terminal/output", of(&ending))["result"]["output"], "ended\n");
    // A second time, and while the picture in the editor is to go on.
    gateway.crash();
    gateway.start_again();
    fs::write(peer.workspace.join("stop"), "").expect("the workspace is ours");
    let received = answers(&peer, ["w1", "w2"]);
    assert_eq!(received["w1"]["result"], received["w2"]["result"]);
    assert_eq!(received["w1"]["result"]["exitCode"], 5);
    let shown = peer.editor_receives_until(|message| text_of(message).contains("Exited with code 5"));
    assert!(text_of(shown.last().expect("one")).contains("\nend\n"));
    let whole = peer.ask("terminal/output", of(&printing))["result"]["output"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    assert!(whole.starts_with(&before));
    let lines: Vec<&str> = whole.lines().collect();
    let (last, numbered) = lines.split_last().expect("there are lines");
    assert_eq!(*last, "end");
    numbered.iter().enumerate().for_each(|(number, line)| assert_eq!(*line, format!("line {number}")));
    // What is left is stopped by the gateway that is there now.
    peer.agent_sends(json!({"jsonrpc":"2.0","id":"r","method":"terminal/release","params":of(&sleeping)}));
    let received = answers(&peer, ["r", "w4"]);
    assert_eq!(
        (&received["r"]["result"], &received["w4"]["result"]["signal"]),
        (&json!({}), &json!("SIGTERM"))
    );
    wait_for_sleepers(&mark, 0);
    peer.editor_disconnects();
    assert_eq!(peer.end().0.code(), Some(0));
    gateway.stop();
}

#[test]
fn a_gateway_that_does_not_come_back_is_told_of_in_every_answer() {
    let gateway = Gateway::start();
    let mut peer = peer_at(&gateway);
    let mark = mark();
    let sleeping = peer.create(&format!("sleep {mark}"));
    wait_for_sleepers(&mark, 1);
    let of = json!({"sessionId":"s","terminalId":sleeping});
    let ask = |peer: &mut ShimPeer, id: &str, method: &str, params: &Value| {
        peer.agent_sends(json!({"jsonrpc":"2.0","id":id,"method":method,"params":params}));
    };
    for id in ["w1", "w2", "w3"] {
        ask(&mut peer, id, "terminal/wait_for_exit", &of);
    }
    gateway.crash();
    ask(&mut peer, "o", "terminal/output", &of);
    ask(&mut peer, "k", "terminal/kill", &of);
    ask(&mut peer, "c", "terminal/create", &json!({"sessionId":"s","command":"touch made"}));
    for (id, answer) in &answers(&peer, ["c", "k", "o", "w1", "w2", "w3"]) {
        assert_eq!(answer["error"]["code"], -32603, "{answer}");
        let message = answer["error"]["message"].as_str().unwrap_or_default();
        // A create may have been on its way when the gateway went.
        let may_be_on_its_way =
            id == "c" && message.contains("lost before it said whether the command was started");
        assert!(
            message.to_lowercase().contains("the gateway does not answer") || may_be_on_its_way,
            "{answer}"
        );
    }
    // What else there is goes its way.
    peer.agent_sends(json!({"jsonrpc":"2.0","method":"next"}));
    assert_eq!(peer.editor_receives()["method"], "next");
    let released = peer.ask("terminal/release", of.clone());
    assert_eq!(released["error"]["code"], -32603, "{released}");
    peer.editor_disconnects();
    let made = peer.workspace.join("made");
    assert_eq!(peer.end().0.code(), Some(0));
    assert!(!made.exists());
    // The shim could not stop the command; the next gateway does, for its owner is gone.
    wait_for_sleepers(&mark, 1);
    gateway.start_again();
    wait_for_sleepers(&mark, 0);
    gateway.stop();
}

#[test]
fn a_question_that_was_open_is_asked_again_by_the_next_gateway() {
    let gateway = Gateway::with_policy(|policy| {
        add_rule(
            policy,
            "id = 'ask-first'\ndecision = 'ask'\nargv = ['touch', '**']\nreason = 'files need a person'",
        );
    });
    let mut peer = peer_at(&gateway);
    peer.agent_sends(json!({"jsonrpc":"2.0","id":"c","method":"terminal/create",
        "params":{"sessionId":"s","command":"touch made"}}));
    let first = peer.editor_receives();
    assert_eq!(first["method"], "session/request_permission");
    gateway.crash();
    let taken_back = peer.editor_receives();
    assert_eq!(
        (&taken_back["method"], &taken_back["params"]["requestId"]),
        (&json!("$/cancel_request"), &first["id"])
    );
    assert_eq!(peer.editor_receives()["params"]["update"]["status"], "failed");
    gateway.start_again();
    let second = peer.editor_receives();
    assert_eq!(second["method"], "session/request_permission", "{second}");
    assert_ne!(second["id"], first["id"]);
    let allowed = json!({"outcome":{"outcome":"selected","optionId":"provost-allow-once"}});
    // To the one that was taken back: nobody waits for that.
    peer.editor_sends(json!({"jsonrpc":"2.0","id":first["id"],"result":allowed}));
    peer.editor_sends(json!({"jsonrpc":"2.0","id":second["id"],"result":allowed}));
    assert_eq!(peer.editor_receives()["params"]["update"]["status"], "completed");
    let terminal = peer.agent_receives()["result"]["terminalId"].as_str().expect("it was started").to_owned();
    let ended = peer.ask("terminal/wait_for_exit", json!({"sessionId":"s","terminalId":terminal}));
    assert_eq!(ended["result"]["exitCode"], 0);
    assert!(peer.workspace.join("made").exists());
    peer.editor_disconnects();
    peer.end();
    gateway.stop();
}

#[test]
fn a_confined_agent_ends_with_its_gateway() {
    let gateway = Gateway::start();
    let uri = format!("unix:{}", gateway.socket.display());
    let peer = ShimPeer::in_session(&["--gateway", &uri, "--confine-agent"], json!({}));
    gateway.crash();
    assert_eq!(peer.end().0.code(), Some(125));
    gateway.start_again();
    // Its owner is gone: nothing of it may be left.
    gateway.stop();
}

#[test]
fn a_session_that_a_gateway_has_closed_is_opened_again_at_the_next() {
    let gateway = Gateway::start();
    let mut peer = peer_at(&gateway);
    let terminal = peer.create("sleep 1000");
    // SIGINT stops everything and closes all sessions.
    gateway.signal(nix::sys::signal::Signal::SIGINT);
    assert!(gateway.wait().success());
    gateway.start_again();
    let of = json!({"sessionId":"s","terminalId":terminal});
    assert_eq!(peer.ask("terminal/output", of)["error"]["code"], -32002);
    let terminal = peer.create("echo again");
    let of = json!({"sessionId":"s","terminalId":terminal});
    assert_eq!(peer.ask("terminal/wait_for_exit", of.clone())["result"]["exitCode"], 0);
    assert_eq!(peer.ask("terminal/output", of)["result"]["output"], "again\n");
    peer.editor_disconnects();
    peer.end();
    gateway.stop();
}
