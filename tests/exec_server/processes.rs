//! Processes: what they write and how they end, what is refused and with which words.

use std::{fs, process::Command};

use serde_json::{Value, json};

use crate::{
    exec_server::peer::{Peer, encoded, text, uri},
    support::{Gateway, deny_touch},
};

#[test]
fn a_process_runs_confined_in_the_workspace_and_its_output_and_exit_code_are_told() {
    let gateway = Gateway::start();
    let mut peer = Peer::at(&gateway);
    let marker = peer.outside("marker");
    let attack = format!("echo gone > '{}'; echo in $(pwd); echo to stderr >&2", marker.display());
    let outside = Command::new("sh").args(["-c", &attack]).output().expect("sh starts");
    assert!(
        outside.status.success() && fs::read(&marker).expect("it is there") == b"gone\n",
        "the attack works"
    );
    fs::write(&marker, "intact").expect("the marker is ours");
    let ended =
        peer.line("p", &format!("{attack}; grep -E '^(Seccomp|NoNewPrivs):' /proc/self/status; exit 3"));
    assert_eq!(fs::read(&marker).expect("the marker is there"), b"intact");
    assert_eq!(ended.exit_code, 3, "{ended:?}");
    let expected = format!("in {}\nNoNewPrivs:\t1\nSeccomp:\t2\n", peer.workspace.display());
    assert_eq!(ended.stdout, expected);
    assert!(ended.stderr.ends_with("to stderr\n"), "{ended:?}");
    // What was told can be read again, in pieces.
    let all = peer.result("process/read", json!({ "processId": "p" }));
    assert_eq!((&all["exitCode"], &all["closed"], &all["failure"]), (&json!(3), &json!(true), &Value::Null));
    let last = all["nextSeq"].as_u64().expect("a number") - 3;
    let piece = peer.result("process/read", json!({ "processId": "p", "afterSeq": last - 1, "maxBytes": 1 }));
    assert_eq!(piece["chunks"][0]["seq"], last);
    gateway.stop();
}

#[test]
fn a_denied_process_names_the_rule_and_its_reason_and_an_exec_within_one_is_told() {
    let gateway = Gateway::with_policy(deny_touch);
    let mut peer = Peer::at(&gateway);
    let params = peer.command("p", &["touch", "made"]);
    let error = peer.error("process/start", params);
    assert_eq!(error["code"], -32_000, "{error}");
    assert_eq!(
        (&error["data"]["rule"], &error["data"]["reason"]),
        (&json!("no-touch"), &json!("POLICY_DENIED"))
    );
    let message = error["message"].as_str().expect("a text");
    assert!(message.contains("touching is for people") && message.contains("nothing was run"), "{message}");
    assert_eq!(message.matches("rule \"no-touch\"").count(), 1, "{message}");
    // The name is free again.
    let ended = peer.line("p", "n=touch; $n made; echo after");
    assert_eq!((ended.exit_code, ended.stdout.as_str()), (0, "after\n"), "{ended:?}");
    assert!(
        ended.stderr.contains("no-touch") && ended.stderr.contains("touching is for people"),
        "{ended:?}"
    );
    assert!(!peer.workspace.join("made").exists());
    gateway.stop();
}

#[test]
fn a_process_takes_input_is_interrupted_and_is_stopped_with_all_that_it_started() {
    let gateway = Gateway::start();
    let mut peer = Peer::at(&gateway);
    let mut params = peer.command("cat", &["cat"]);
    params["pipeStdin"] = json!(true);
    peer.result("process/start", params);
    for piece in ["one ", "two ", "three\n"] {
        let write = json!({ "processId": "cat", "chunk": encoded(piece.as_bytes()), "writeId": piece });
        assert_eq!(peer.result("process/write", write)["status"], "accepted");
    }
    peer.until_written("cat", "one two three\n");
    peer.result("process/signal", json!({ "processId": "cat", "signal": "interrupt" }));
    assert_eq!(peer.ended("cat").exit_code, 130);
    let write = json!({ "processId": "cat", "chunk": "", "writeId": "late" });
    assert_eq!(peer.result("process/write", write)["status"], "stdinClosed");

    let params = peer.command("long", &["sh", "-c", "echo begun; setsid sleep 1000 & sleep 1000"]);
    peer.result("process/start", params);
    peer.until_written("long", "begun");
    let write = json!({ "processId": "long", "chunk": "", "writeId": "none" });
    assert_eq!(peer.result("process/write", write)["status"], "stdinClosed");
    // A read that waits is answered by the end.
    let read = peer.begin("process/read", json!({ "processId": "long", "afterSeq": 1, "waitMs": 60_000 }));
    assert_eq!(peer.result("process/terminate", json!({ "processId": "long" }))["running"], true);
    assert!(peer.ended("long").exit_code > 128);
    assert_eq!(peer.answer(read)["result"]["exited"], true);
    assert_eq!(peer.result("process/terminate", json!({ "processId": "long" }))["running"], false);
    gateway.stop();
}

#[test]
fn a_process_in_a_pseudo_terminal_has_one_output_and_ctrl_c_reaches_what_is_in_front() {
    let gateway = Gateway::start();
    let mut peer = Peer::at(&gateway);
    let mut params = peer.command("pty", &["sh", "-c", "[ -t 0 ] && stty size; cat"]);
    params["tty"] = json!(true);
    peer.result("process/start", params);
    peer.until_written("pty", "24 80\r\n");
    peer.result("process/write", json!({ "processId": "pty", "chunk": encoded(b"typed\n"), "writeId": "1" }));
    peer.until_written("pty", "typed\r\ntyped\r\n");
    peer.result("process/signal", json!({ "processId": "pty", "signal": "interrupt" }));
    let ended = peer.ended("pty");
    assert_eq!((ended.exit_code, ended.stdout.as_str(), ended.stderr.as_str()), (130, "", ""), "{ended:?}");
    gateway.stop();
}

#[test]
fn a_clients_own_wish_tightens_or_is_refused_and_its_environment_stays_outside() {
    let gateway = Gateway::start();
    let mut peer = Peer::at(&gateway);
    let entry = |kind: &str, access: &str| json!({ "path": { "type": "special", "value": { "kind": kind } }, "access": access });
    let wish = |entries: Value| {
        json!({ "cwd": "file:///", "permissions": { "type": "managed", "network": "restricted",
            "file_system": { "type": "restricted", "entries": entries } } })
    };
    let mut params = peer.command("p", &["sh", "-c", "touch made; echo $LANG-$SECRET; echo $PATH"]);
    params["sandbox"] = wish(json!([entry("root", "read")]));
    let error = peer.error("process/start", params.clone());
    assert_eq!(error["data"]["reason"], "SANDBOX_WISH_UNMET", "{error}");
    assert!(!peer.workspace.join("made").exists());
    params["sandbox"] = wish(json!([entry("root", "write")]));
    params["env"] = json!({ "LANG": "C", "SECRET": "x", "PATH": "/evil", "LD_PRELOAD": "/evil.so" });
    peer.result("process/start", params);
    let ended = peer.ended("p");
    assert!(ended.stdout.starts_with("C-\n/") && !ended.stdout.contains("evil"), "{ended:?}");

    // As to files: the most specific entry decides, also behind a link.
    fs::create_dir(peer.workspace.join("kept")).expect("the workspace is ours");
    std::os::unix::fs::symlink("kept", peer.workspace.join("link")).expect("a link");
    let own = json!([entry("root", "write"), { "path": { "type": "path", "path": uri(&peer.workspace.join("kept")) }, "access": "read" }]);
    for (name, is_admitted) in [("made", true), ("kept/made", false), ("link/made", false)] {
        let params = json!({ "path": uri(&peer.workspace.join(name)), "dataBase64": "eA==", "sandbox": wish(own.clone()) });
        assert_eq!(peer.ask("fs/writeFile", params).get("result").is_some(), is_admitted, "{name}");
        assert_eq!(peer.workspace.join(name).exists(), is_admitted, "{name}");
    }
    // A directory goes only if all that is in it may go.
    fs::create_dir_all(peer.workspace.join("deep/kept")).expect("the workspace is ours");
    let kept = uri(&peer.workspace.join("deep/kept"));
    let own = json!([entry("root", "write"), { "path": { "type": "path", "path": kept }, "access": "read" }]);
    let params = json!({ "path": uri(&peer.workspace.join("deep")), "sandbox": wish(own) });
    assert_eq!(peer.error("fs/remove", params)["data"]["reason"], "SANDBOX_WISH");
    assert!(peer.workspace.join("deep/kept").exists());
    // An exception that is named by a link is where the link leads, and one that says no place is none.
    let write = |peer: &mut Peer, name: &str, exception: &str| {
        let exception = json!({ "path": { "type": "path", "path": exception }, "access": "read" });
        let sandbox = wish(json!([entry("root", "write"), exception]));
        let path = uri(&peer.workspace.join(name));
        peer.ask("fs/writeFile", json!({ "path": path, "dataBase64": "eA==", "sandbox": sandbox }))
    };
    let at = |peer: &Peer, name: &str| peer.workspace.join(name).display().to_string();
    let by_link = at(&peer, "link");
    assert!(write(&mut peer, "other", &by_link).get("result").is_some());
    assert_eq!(write(&mut peer, "kept/made", &by_link)["error"]["data"]["reason"], "SANDBOX_WISH");
    for way in ["deep/../kept", "./kept", "deep//kept"] {
        let exception = at(&peer, way);
        let error = write(&mut peer, "kept/made", &exception);
        assert_eq!(error["error"]["data"]["reason"], "SANDBOX_WISH_UNMET", "{way}: {error}");
    }
    assert!(!peer.workspace.join("kept/made").exists());
    // A command, too.
    let mut params = peer.command("q", &["touch", "kept/made"]);
    for exception in [by_link, at(&peer, "deep/../kept")] {
        let exception = json!({ "path": { "type": "path", "path": exception }, "access": "read" });
        params["sandbox"] = wish(json!([entry("root", "write"), exception]));
        let error = peer.error("process/start", params.clone());
        assert_eq!(error["data"]["reason"], "SANDBOX_WISH_UNMET", "{error}");
    }
    assert!(!peer.workspace.join("kept/made").exists());
    gateway.stop();
}

#[test]
fn mistakes_are_errors_with_their_field_and_the_server_goes_on() {
    let gateway = Gateway::start();
    let mut peer = Peer::start(&gateway);
    let early = peer.error("process/start", json!({}));
    assert_eq!(early["data"]["reason"], "NOT_INITIALIZED", "{early}");
    let resumed = peer.error("initialize", json!({ "clientName": "x", "resumeSessionId": "sess_other" }));
    assert!(resumed["message"].as_str().expect("a text").starts_with("resumeSessionId"), "{resumed}");
    let opened = peer.result("initialize", json!({ "clientName": "x" }));
    assert_eq!(opened["environmentInfo"]["shell"]["path"], "/bin/bash", "{opened}");
    assert_eq!(opened["environmentInfo"]["cwd"], uri(&peer.workspace));
    peer.send(&json!({ "method": "initialized" }));
    assert_eq!(peer.error("initialize", json!({ "clientName": "x" }))["code"], -32_600);

    let good = peer.command("p", &["true"]);
    let with = |field: &str, value: Value| {
        let mut params = good.clone();
        params[field] = value;
        params
    };
    for (field, params) in [
        ("argv", with("argv", json!([]))),
        ("arg0", with("arg0", json!("codex-linux-sandbox"))),
        ("processId", with("processId", json!(""))),
        ("cwd", with("cwd", json!("/tmp"))),
        ("cwd", with("cwd", json!("file:///%zz"))),
    ] {
        let error = peer.error("process/start", params);
        assert_eq!(error["code"], -32_602, "{field}: {error}");
        assert!(error["message"].as_str().expect("a text").contains(field), "{field}: {error}");
    }
    let outside = peer.error("process/start", with("cwd", json!("file:///nowhere")));
    assert_eq!(outside["data"]["rule"], "session.roots", "{outside}");
    let large = json!({ "processId": "p", "chunk": encoded(&vec![0; (1 << 20) + 1]), "writeId": "1" });
    assert_eq!(peer.error("process/write", large)["code"], -32_602);
    assert_eq!(peer.error("process/resize", json!({}))["code"], -32_601);
    assert_eq!(peer.error("http/request", json!({ "url": "http://x" }))["data"]["reason"], "HTTP_REFUSED");
    assert_eq!(
        peer.error("process/read", json!({ "processId": "other" }))["data"]["reason"],
        "UNKNOWN_PROCESS"
    );
    for line in ["no message", "[]", "{\"id\":null,\"method\":\"x\"}", "{\"method\":\"later\"}"] {
        peer.send_line(line);
        assert!(peer.stray()["error"]["code"].as_i64().expect("a number") < 0, "{line}");
    }
    peer.send_line(&"x".repeat(20 << 20));
    assert_eq!(peer.stray()["error"]["data"]["reason"], "MESSAGE_TOO_LONG");
    peer.result("process/start", good.clone());
    assert_eq!(peer.error("process/start", good)["code"], -32_600, "the name is taken");
    assert_eq!(peer.ended("p").exit_code, 0);
    gateway.stop();
}

#[test]
fn a_flood_is_told_whole_and_what_is_kept_of_it_is_bounded() {
    let gateway = Gateway::start();
    let mut peer = Peer::at(&gateway);
    let ended = peer.line("p", "yes 0123456789abcde | head -c 8388608");
    assert_eq!((ended.exit_code, ended.stdout.len()), (0, 8 << 20));
    assert!(ended.stdout.lines().all(|line| line == "0123456789abcde"), "no byte is lost or doubled");
    let kept = peer.result("process/read", json!({ "processId": "p", "maxBytes": 1_u64 << 40 }));
    let bytes: usize =
        kept["chunks"].as_array().expect("a list").iter().map(|chunk| text(&chunk["chunk"]).len()).sum();
    assert!(bytes > 0 && bytes <= 1 << 20, "{bytes}");
    gateway.stop();
}
