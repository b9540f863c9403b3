//! Sessions that are not simply new: forked, loaded, resumed, listed, deleted; each with the directories and terminals that it
//! has, and with no other's.

use std::fs;

use serde_json::{Value, json};

use crate::{
    acp::shim_peer::ShimPeer,
    support::{mark, wait_for_sleepers},
};

/// Another directory, next to the workspace.
fn directory(peer: &ShimPeer, name: &str) -> String {
    let directory = peer.workspace.with_file_name(name);
    fs::create_dir(&directory).expect("a directory");
    directory.display().to_string()
}

/// What a command prints in a session.
fn printed(peer: &mut ShimPeer, session: &str, command: &str) -> Value {
    let terminal = peer.create_in(session, command);
    let of = json!({"sessionId":session,"terminalId":terminal});
    peer.ask("terminal/wait_for_exit", of.clone());
    let printed = peer.ask("terminal/output", of.clone())["result"]["output"].clone();
    assert_eq!(peer.ask("terminal/release", of)["result"], json!({}));
    printed
}

fn code_of_create(peer: &mut ShimPeer, session: &str, cwd: Option<&str>) -> Value {
    let params = json!({"sessionId":session,"command":"true","cwd":cwd});
    peer.ask("terminal/create", params)["error"]["code"].clone()
}

#[test]
fn a_forked_session_has_directories_and_terminals_of_its_own() {
    let mut peer = ShimPeer::in_session(&[], json!({}));
    let (other, more) = (directory(&peer, "other"), directory(&peer, "more"));
    let workspace = peer.workspace.display().to_string();
    let (marks, of_parent) = (mark(), peer.create("sleep 1000"));
    let params = json!({"sessionId":"s","cwd":other,"additionalDirectories":[more],"mcpServers":[]});
    peer.editor_asks("session/fork", params, json!({"result":{"sessionId":"f"}}));
    assert_eq!(printed(&mut peer, "f", "pwd"), format!("{other}\n"));
    assert_eq!(code_of_create(&mut peer, "f", Some(&more)), Value::Null);
    assert_eq!(
        code_of_create(&mut peer, "f", Some(&workspace)),
        -32001,
        "the parent's directory is not the fork's"
    );
    assert_eq!(code_of_create(&mut peer, "s", Some(&other)), -32001, "nor the other way round");
    let of_fork = peer.create_in("f", &format!("sleep {marks}"));
    for (session, terminal) in [("s", &of_fork), ("f", &of_parent)] {
        let foreign = peer.ask("terminal/output", json!({"sessionId":session,"terminalId":terminal}));
        assert_eq!(foreign["error"]["code"], -32002);
    }
    // The end of the parent is not the fork's.
    peer.editor_asks("session/close", json!({"sessionId":"s"}), json!({"result":{}}));
    assert_eq!(code_of_create(&mut peer, "s", None), -32002);
    wait_for_sleepers(&marks, 1);
    let of = json!({"sessionId":"f","terminalId":of_fork});
    assert!(peer.ask("terminal/output", of)["result"]["exitStatus"].is_null());
    peer.editor_asks("session/delete", json!({"sessionId":"f"}), json!({"result":{}}));
    wait_for_sleepers(&marks, 0);
}

#[test]
fn a_fork_without_a_directory_works_in_its_parents() {
    let mut peer = ShimPeer::in_session(&[], json!({}));
    peer.editor_asks("session/fork", json!({"sessionId":"s"}), json!({"result":{"sessionId":"f"}}));
    let workspace = format!("{}\n", peer.workspace.display());
    assert_eq!(printed(&mut peer, "f", "pwd"), workspace);
    // A session that nobody knows has nothing to take over; and one that was refused is none.
    peer.editor_asks("session/fork", json!({"sessionId":"?"}), json!({"result":{"sessionId":"g"}}));
    assert_eq!(code_of_create(&mut peer, "g", None), -32002);
    let refused = json!({"error":{"code":-32603,"message":"no"}});
    let params = json!({"sessionId":"s","cwd":peer.workspace,"mcpServers":[]});
    peer.editor_asks("session/fork", params, refused);
    assert_eq!(printed(&mut peer, "s", "pwd"), workspace);
}

#[test]
fn a_session_that_cannot_be_loaded_is_none_unless_it_was_one_before() {
    let mut peer = ShimPeer::in_session(&[], json!({}));
    let other = directory(&peer, "other");
    let refused = json!({"error":{"code":-32002,"message":"no such session"}});
    let mark = mark();
    let terminal = peer.create(&format!("sleep {mark}"));
    let of = json!({"sessionId":"s","terminalId":terminal});
    for method in ["session/load", "session/resume"] {
        // Somewhere else, too: it is still where it was.
        for cwd in [peer.workspace.display().to_string(), other.clone()] {
            let params = json!({"sessionId":"s","cwd":cwd,"mcpServers":[]});
            peer.editor_asks(method, params, refused.clone());
            assert!(peer.ask("terminal/output", of.clone())["result"].is_object());
        }
        let params = json!({"sessionId":"u","cwd":other,"mcpServers":[]});
        peer.editor_asks(method, params, refused.clone());
        assert_eq!(code_of_create(&mut peer, "u", None), -32002);
    }
    wait_for_sleepers(&mark, 1);
    let workspace = format!("{}\n", peer.workspace.display());
    assert_eq!(printed(&mut peer, "s", "pwd"), workspace);
}

#[test]
fn a_session_that_is_resumed_elsewhere_works_there() {
    let mut peer = ShimPeer::in_session(&[], json!({}));
    let other = directory(&peer, "other");
    let same = json!({"sessionId":"s","cwd":peer.workspace,"mcpServers":[]});
    let mark = mark();
    let terminal = peer.create(&format!("sleep {mark}"));
    let of = json!({"sessionId":"s","terminalId":terminal});
    peer.editor_asks("session/resume", same, json!({"result":{}}));
    assert!(peer.ask("terminal/output", of.clone())["result"].is_object(), "nothing has changed for it");
    let params = json!({"sessionId":"s","cwd":other,"mcpServers":[]});
    peer.editor_asks("session/resume", params, json!({"result":{}}));
    assert_eq!(printed(&mut peer, "s", "pwd"), format!("{other}\n"));
    assert_eq!(
        peer.ask("terminal/output", of)["error"]["code"],
        -32002,
        "what ran in the other directory has ended"
    );
    wait_for_sleepers(&mark, 0);
}

#[test]
fn sessions_that_are_listed_are_not_opened() {
    let mut peer = ShimPeer::in_session(&[], json!({}));
    let cwd = peer.workspace.display().to_string();
    let list = json!({"result":{"sessions":[{"sessionId":"l","cwd":cwd,"title":"old"}],"nextCursor":null}});
    peer.editor_asks("session/list", json!({"cwd":cwd}), list);
    assert_eq!(code_of_create(&mut peer, "l", None), -32002);
}

#[test]
fn an_agent_that_asks_and_does_not_read_fills_no_memory() {
    let mut peer = ShimPeer::in_session(&[], json!({}));
    let terminal = peer.create("head -c 1048576 /dev/zero | tr '\\0' x");
    let of = json!({"sessionId":"s","terminalId":terminal});
    assert_eq!(peer.ask("terminal/wait_for_exit", of.clone())["result"]["exitCode"], 0);
    const ASKED: usize = 600;
    for id in 0..ASKED {
        peer.agent_sends(json!({"jsonrpc":"2.0","id":id,"method":"terminal/output","params":of}));
    }
    let mut answered = 0;
    while answered < ASKED {
        assert!(peer.agent_receives_line().len() > 1 << 20);
        answered += 1;
    }
    let status = fs::read_to_string(format!("/proc/{}/status", peer.pid())).expect("it runs");
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a peak");
    let peak_kib: u64 = peak.trim().trim_end_matches(" kB").parse().expect("a number");
    // All answers at once are 600 MiB.
    assert!(peak_kib < 400 << 10, "{peak_kib} KiB");
}

#[test]
fn an_agents_variable_that_changes_what_a_name_means_is_refused_and_an_everyday_one_is_not() {
    let mut peer = ShimPeer::in_session(&[], json!({}));
    let create = |env: Value| json!({"sessionId":"s","command":"sh","args":["-c","ls"],"env":env});
    for name in ["PATH", "HOME", "XDG_CONFIG_HOME", "PYTHONPATH", "npm_config_script_shell"] {
        let answer = peer.ask("terminal/create", create(json!([{"name":name,"value":"/tmp"}])));
        assert_eq!(answer["error"]["code"], -32001, "{name}: {answer}");
        let message = answer["error"]["message"].as_str().unwrap_or_default();
        assert!(message.contains(name), "{name}: {answer}");
    }
    let usual =
        json!([{"name":"PAGER","value":"cat"},{"name":"TERM","value":"dumb"},{"name":"CI","value":"1"}]);
    let answer = peer.ask("terminal/create", create(usual));
    assert!(answer["result"]["terminalId"].is_string(), "{answer}");
}

#[test]
fn every_session_has_the_directories_that_the_person_names_and_reads_some_of_them_only() {
    let alongside = tempfile::tempdir().expect("a directory");
    let [more, ro, hidden] = ["more", "ro", "hidden"].map(|name| {
        let directory = alongside.path().canonicalize().expect("it is there").join(name);
        fs::create_dir(&directory).expect("a directory");
        fs::write(directory.join("file"), name).expect("a file");
        directory.display().to_string()
    });
    let mut peer = ShimPeer::in_session(&["--root", &more, "--ro", &ro], json!({}));
    let other = directory(&peer, "other");
    let params = json!({"sessionId":"s","cwd":other,"mcpServers":[]});
    peer.editor_asks("session/fork", params, json!({"result":{"sessionId":"f"}}));
    for session in ["s", "f"] {
        let script = format!(
            "cat {more}/file {ro}/file {hidden}/file 2>/dev/null; echo {session} > {more}/by; echo x > {ro}/by"
        );
        let shown = printed(&mut peer, session, &script);
        assert!(
            shown.as_str().is_some_and(|text| text.starts_with("morero") && !text.contains("hidden")),
            "{shown}"
        );
        assert_eq!(fs::read_to_string(format!("{more}/by")).expect("it was written"), format!("{session}\n"));
        assert!(!fs::exists(format!("{ro}/by")).expect("it can be looked for"));
    }
    assert_eq!(
        code_of_create(&mut peer, "s", Some(&hidden)),
        -32001,
        "what nobody has named is no place to work in"
    );
}
