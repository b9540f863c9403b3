//! Subagents: sessions that the agent opens itself, and announces in the session that they belong to.

use std::fs;

use serde_json::{Value, json};

use crate::{
    acp::shim_peer::ShimPeer,
    support::{mark, wait_for_sleepers},
};

/// The agent announces a child in a session, and the editor hears of it as it was said.
fn announce(peer: &mut ShimPeer, parent: &str, child: &str, more: Value) {
    let mut update = json!({"sessionUpdate":"subagent_update","sessionId":child});
    update.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
    let line = json!({"jsonrpc":"2.0","method":"session/update",
        "params":{"sessionId":parent,"update":update}});
    peer.agent_sends(line.clone());
    assert_eq!(peer.editor_receives_line(), line.to_string());
}

/// What `pwd` prints in a session; the error's code where it is not started.
fn start_of(peer: &mut ShimPeer, session: &str) -> Result<String, Value> {
    let created = peer.ask("terminal/create", json!({"sessionId":session,"command":"pwd"}));
    let terminal = created["result"]["terminalId"].as_str().ok_or(created["error"]["code"].clone())?;
    let of = json!({"sessionId":session,"terminalId":terminal});
    peer.ask("terminal/wait_for_exit", of.clone());
    let printed = peer.ask("terminal/output", of.clone())["result"]["output"].clone();
    assert_eq!(peer.ask("terminal/release", of)["result"], json!({}));
    Ok(printed.as_str().unwrap_or_default().trim_end().to_owned())
}

#[test]
fn a_subagent_starts_where_its_agent_says_within_its_parents_directories() {
    let mut peer = ShimPeer::in_session(&[], json!({"subagents":{}}));
    let workspace = peer.workspace.display().to_string();
    let inner = format!("{workspace}/inner");
    fs::create_dir(&inner).expect("a directory");
    assert_eq!(start_of(&mut peer, "kid"), Err(json!(-32002)), "nobody has announced it");
    announce(&mut peer, "nobody", "kid", json!({"title":"lost"}));
    assert_eq!(
        start_of(&mut peer, "kid"),
        Err(json!(-32002)),
        "a child of an unknown session is unknown too"
    );
    announce(&mut peer, "s", "kid", json!({"title":"Explorer","state":{"state":"running"}}));
    assert_eq!(start_of(&mut peer, "kid"), Ok(workspace.clone()));
    announce(&mut peer, "s", "kid", json!({"cwd":inner}));
    announce(&mut peer, "kid", "grandkid", json!({"title":"smaller"}));
    for session in ["kid", "grandkid"] {
        announce(&mut peer, "s", "kid", json!({"title":"what is left out stays"}));
        assert_eq!(start_of(&mut peer, session), Ok(inner.clone()));
    }
    assert_eq!(start_of(&mut peer, "s"), Ok(workspace.clone()), "the parent's is the parent's");
    announce(&mut peer, "s", "kid", json!({"cwd":null}));
    assert_eq!(start_of(&mut peer, "kid"), Ok(workspace.clone()));
    // The agent's word opens no directory.
    let other = peer.workspace.with_file_name("other");
    fs::create_dir(&other).expect("a directory");
    for outside in [other.display().to_string(), "/etc".to_owned(), "../other".to_owned()] {
        let more = json!({"cwd":outside,"additionalDirectories":[other]});
        announce(&mut peer, "s", "kid", more);
        let refused = start_of(&mut peer, "kid").expect_err("it is outside");
        assert!(refused == -32001 || refused == -32602, "{outside}: {refused}");
    }
    let inside = json!({"sessionId":"kid","command":"true","cwd":workspace});
    assert!(peer.ask("terminal/create", inside)["result"]["terminalId"].is_string());
    let outside = json!({"sessionId":"kid","command":"true","cwd":other});
    assert_eq!(peer.ask("terminal/create", outside)["error"]["code"], -32001);
}

#[test]
fn terminals_of_a_subagent_are_its_own_and_end_with_it_and_with_its_parent() {
    let mut peer = ShimPeer::in_session(&[], json!({}));
    announce(&mut peer, "s", "one", json!({}));
    announce(&mut peer, "s", "two", json!({}));
    announce(&mut peer, "two", "three", json!({}));
    let marks: Vec<(&str, String)> = ["s", "one", "two", "three"].map(|session| (session, mark())).into();
    let ids: Vec<String> =
        marks.iter().map(|(session, mark)| peer.create_in(session, &format!("sleep {mark}"))).collect();
    for (place, (session, _)) in marks.iter().enumerate() {
        for (other, id) in ids.iter().enumerate() {
            let answer = peer.ask("terminal/output", json!({"sessionId":session,"terminalId":id}));
            assert_eq!(answer["result"].is_object(), place == other, "{session} and {other}: {answer}");
        }
    }
    // Three wait, and only the child's is answered when the editor closes the child.
    peer.agent_sends(json!({"jsonrpc":"2.0","id":"wait","method":"terminal/wait_for_exit",
        "params":{"sessionId":"one","terminalId":ids[1]}}));
    peer.editor_asks("session/close", json!({"sessionId":"one"}), json!({"result":{}}));
    let ended = peer.agent_receives();
    assert_eq!((&ended["id"], &ended["result"]["signal"]), (&json!("wait"), &json!("SIGTERM")), "{ended}");
    wait_for_sleepers(&marks[1].1, 0);
    for index in [0, 2, 3] {
        wait_for_sleepers(&marks[index].1, 1);
    }
    assert_eq!(start_of(&mut peer, "one"), Err(json!(-32002)));
    peer.editor_asks("session/archive", json!({"sessionId":"s"}), json!({"result":{}}));
    for (session, mark) in &marks {
        wait_for_sleepers(mark, 0);
        assert_eq!(start_of(&mut peer, session), Err(json!(-32002)));
    }
}

#[test]
fn what_the_editor_has_opened_is_not_the_agents_to_move() {
    let mut peer = ShimPeer::in_session(&[], json!({}));
    let other = peer.workspace.with_file_name("other");
    fs::create_dir(&other).expect("a directory");
    let params = json!({"cwd":other,"mcpServers":[]});
    peer.editor_asks("session/new", params, json!({"result":{"sessionId":"t"}}));
    let here = json!({"cwd":peer.workspace});
    announce(&mut peer, "s", "t", here);
    announce(&mut peer, "s", "s", json!({"cwd":other}));
    assert_eq!(start_of(&mut peer, "t"), Ok(other.display().to_string()));
    assert_eq!(start_of(&mut peer, "s"), Ok(peer.workspace.display().to_string()));
    let mark = mark();
    peer.create_in("t", &format!("sleep {mark}"));
    peer.editor_asks("session/close", json!({"sessionId":"s"}), json!({"result":{}}));
    assert_eq!(start_of(&mut peer, "s"), Err(json!(-32002)));
    wait_for_sleepers(&mark, 1);
    assert_eq!(start_of(&mut peer, "t"), Ok(other.display().to_string()));
}
