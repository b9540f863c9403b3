//! What becomes of commands when the client goes away, or the gateway does; and what is recorded.

use std::{fs, process::Command};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::{Value, json};

use crate::{
    exec_server::peer::{Peer, uri},
    support::{Gateway, mark, wait_for_sleepers},
};

#[test]
fn a_client_that_goes_away_takes_its_processes_with_it() {
    let gateway = Gateway::start();
    for way in ["eof", "term", "kill"] {
        let mut peer = Peer::at(&gateway);
        let mark = mark();
        let params = peer.command("p", &["sh", "-c", &format!("setsid sleep {mark} & sleep {mark}")]);
        peer.result("process/start", params);
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
fn a_process_goes_on_over_a_restart_of_the_gateway_and_without_one_nothing_runs_anywhere() {
    let gateway = Gateway::start();
    let mut peer = Peer::at(&gateway);
    let line = "echo before; until [ -e go ]; do sleep 0.05; done; echo after; exit 4";
    let params = peer.command("p", &["sh", "-c", line]);
    peer.result("process/start", params);
    peer.until_written("p", "before\n");
    gateway.crash();
    gateway.start_again();
    fs::write(peer.workspace.join("go"), "").expect("the workspace is ours");
    let ended = peer.ended("p");
    assert_eq!((ended.exit_code, ended.stdout.as_str()), (4, "before\nafter\n"), "{ended:?}");
    gateway.crash();
    let params = peer.command("q", &["touch", "made"]);
    let error = peer.error("process/start", params);
    assert_eq!(error["data"]["reason"], "GATEWAY_AWAY", "{error}");
    let file = json!({ "path": uri(&peer.workspace.join("made")), "dataBase64": "" });
    let error = peer.error("fs/writeFile", file);
    assert_eq!(error["data"]["reason"], "GATEWAY_AWAY", "{error}");
    assert!(!peer.workspace.join("made").exists(), "nothing runs outside");
    gateway.start_again();
    gateway.stop();
}

#[test]
fn the_journal_has_processes_and_file_operations_with_the_front_end_and_the_clients_name() {
    let gateway = Gateway::start();
    let mut peer = Peer::at(&gateway);
    assert_eq!(peer.line("p", "exit 0").exit_code, 0);
    peer.result("fs/createDirectory", json!({ "path": uri(&peer.workspace.join("made")) }));
    assert!(peer.leave().success());
    let output = Command::new(env!("CARGO_BIN_EXE_provost"))
        .args(["audit", "--journal"])
        .arg(gateway.state.join("journal"))
        .args(["query", "-o", "json", "--front-end", "exec-server"])
        .output()
        .expect("provost can be started");
    let lines = String::from_utf8(output.stdout).expect("records are text");
    let records: Vec<Value> = lines
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).expect("JSON")["record"].clone())
        .collect();
    let has = |wanted: &dyn Fn(&Value) -> bool| records.iter().any(wanted);
    assert!(has(&|record| record["labels"]["exec_server.client"] == "tester"), "{records:?}");
    let judged = |program: &str| {
        has(&|record| record["kind"] == "decision" && record["command"]["argv"][0] == program)
    };
    assert!(judged("sh") && judged("mkdir"), "{records:?}");
    let user = format!("uid:{}", nix::unistd::geteuid());
    assert!(records.iter().all(|record| record["principal"] == user), "{records:?}");
    let decisions: Vec<&Value> = records.iter().filter(|record| record["kind"] == "decision").collect();
    assert!(decisions.iter().all(|record| record["rule"] == "anything"), "{decisions:?}");
    gateway.stop();
}

#[test]
fn where_no_command_can_start_initialize_is_refused_with_the_reason() {
    let gateway = Gateway::with_policy(|policy| {
        let files: toml::Table = "read_only = [\"/no/such/toolchain\"]".parse().expect("TOML");
        policy["profile"]["workspace"]
            .as_table_mut()
            .expect("a table")
            .insert("filesystem".into(), files.into());
    });
    let mut peer = Peer::start(&gateway);
    for _ in 0..2 {
        let error = peer.error("initialize", json!({ "clientName": "tester" }));
        assert_eq!(error["data"]["reason"], "CONFINEMENT_UNAVAILABLE", "{error}");
        assert!(error["message"].as_str().expect("a text").contains("/no/such/toolchain"), "{error}");
    }
    // It was not initialized, and no session is left of it.
    let error = peer.error("environment/info", json!({}));
    assert_eq!(error["data"]["reason"], "NOT_INITIALIZED", "{error}");
    assert!(peer.leave().success());
    gateway.stop();
}

#[test]
fn a_policy_that_refuses_to_look_for_a_shell_refuses_no_session() {
    let gateway = Gateway::with_policy(|policy| {
        crate::support::add_rule(policy, "id = 'no-stat'\ndecision = 'deny'\nargv = ['stat', '**']");
    });
    let mut peer = Peer::start(&gateway);
    let info = peer.result("initialize", json!({ "clientName": "tester" }));
    assert_eq!(info["environmentInfo"]["shell"]["name"], "sh", "{info}");
    assert!(peer.leave().success());
    gateway.stop();
}
