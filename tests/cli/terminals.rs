//! `provost ps`, `logs`, `stop`, `kill`, `wait` and `rm`, on terminals that a gRPC client made.

use std::process::Output;

use provost::{
    client::{self, Client},
    proto::v1,
};

use super::{
    fixture::{Place, code, eventually, mark, processes_with, shown, stderr, stdout},
    serving::Gateway,
};

/// A gateway with a session, and a client that makes terminals in it.
struct Fixture {
    place: Place,
    gateway: Gateway,
    runtime: tokio::runtime::Runtime,
    client: Client,
    session: String,
}

impl Fixture {
    fn new() -> Self {
        let place = Place::new();
        let gateway = Gateway::start(&place);
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let mut client = runtime.block_on(client::connect(&gateway.address())).expect("the gateway answers");
        let request = v1::CreateSessionRequest {
            roots: vec![place.work().canonicalize().unwrap().display().to_string()],
            ..Default::default()
        };
        let session = runtime
            .block_on(client.sessions.create_session(request))
            .expect("a session opens")
            .into_inner()
            .session
            .expect("it is set")
            .id;
        Self { place, gateway, runtime, client, session }
    }

    fn start(&mut self, script: &str, output_mode: v1::OutputMode) -> String {
        let request = v1::CreateTerminalRequest {
            session_id: self.session.clone(),
            command: Some(v1::create_terminal_request::Command::Program("sh".to_owned())),
            args: vec!["-c".to_owned(), script.to_owned()],
            output_mode: output_mode.into(),
            ..Default::default()
        };
        self.runtime
            .block_on(self.client.terminals.create_terminal(request))
            .expect("a terminal starts")
            .into_inner()
            .terminal
            .expect("it is set")
            .id
    }

    fn provost(&self, arguments: &[&str]) -> Output {
        let mut command = self.place.provost();
        command.args(arguments).env("PROVOST_GATEWAY", self.gateway.address());
        command.output().expect("provost starts")
    }
}

#[test]
fn ps_lists_what_runs_and_what_has_ended() {
    let mut fixture = Fixture::new();
    let runs = fixture.start("sleep 600", v1::OutputMode::Merged);
    let ended = fixture.start("exit 4", v1::OutputMode::Merged);
    assert_eq!(code(&fixture.provost(&["wait", &ended])), 4);
    let table = stdout(&fixture.provost(&["ps"]));
    let line =
        |id: &str| table.lines().find(|line| line.starts_with(id)).unwrap_or_else(|| panic!("{id}: {table}"));
    assert!(line(&runs).contains("running"), "{table}");
    assert!(line(&ended).contains("exit code 4"), "{table}");
    let list: serde_json::Value =
        serde_json::from_str(&stdout(&fixture.provost(&["ps", "-o", "json"]))).unwrap();
    assert_eq!(list.as_array().map(Vec::len), Some(2), "{list}");
    assert_eq!(list[0]["id"], runs.as_str());
    assert_eq!(list[1]["outcome"]["exit_code"], 4);
    fixture.gateway.stop();
}

#[test]
fn logs_print_each_stream_to_its_own() {
    let mut fixture = Fixture::new();
    let split = fixture.start("echo out; echo err >&2", v1::OutputMode::Split);
    let followed = fixture.provost(&["logs", "-f", &split]);
    assert_eq!((stdout(&followed).as_str(), stderr(&followed).as_str()), ("out\n", "err\n"));
    let merged = fixture.start("echo out; echo err >&2", v1::OutputMode::Merged);
    assert_eq!(code(&fixture.provost(&["wait", &merged])), 0);
    assert_eq!(stdout(&fixture.provost(&["logs", &merged])), "out\nerr\n");
    let lines = stdout(&fixture.provost(&["logs", "-o", "json", &merged]));
    let last: serde_json::Value = serde_json::from_str(lines.lines().last().unwrap()).unwrap();
    assert_eq!(last["end"]["next_offset"], 8, "{lines}");
    assert_eq!(last["end"]["outcome"]["exit_code"], 0, "{lines}");
    fixture.gateway.stop();
}

#[test]
fn bytes_that_are_no_longer_held_are_counted() {
    let mut fixture = Fixture::new();
    let flood = fixture.start("head -c 9000000 /dev/zero", v1::OutputMode::Merged);
    assert_eq!(code(&fixture.provost(&["wait", &flood])), 0);
    let logs = fixture.provost(&["logs", &flood]);
    let said = stderr(&logs);
    let lost: usize = said.split(' ').find_map(|word| word.parse().ok()).unwrap_or_else(|| panic!("{said}"));
    assert_eq!(lost + logs.stdout.len(), 9_000_000, "{said}");
    fixture.gateway.stop();
}

#[test]
fn stop_ends_the_tree_and_wait_exits_with_its_status() {
    let mut fixture = Fixture::new();
    let mark = mark();
    let terminal = fixture.start(&format!("(setsid sleep {mark} &); sleep {mark}"), v1::OutputMode::Merged);
    assert_eq!(code(&fixture.provost(&["stop", "--grace", "0s", &terminal])), 0);
    let waited = fixture.provost(&["wait", "-o", "json", &terminal]);
    assert_eq!(code(&waited), 137, "{}", shown(&waited));
    let outcome: serde_json::Value = serde_json::from_str(&stdout(&waited)).unwrap();
    assert_eq!(outcome["cause"], "killed");
    assert_eq!(outcome["survivors"], 0);
    assert_eq!(processes_with(&mark), Vec::<String>::new());
    // Once more: it has ended, and that is no failure.
    assert_eq!(code(&fixture.provost(&["stop", &terminal])), 0);
    fixture.gateway.stop();
}

#[test]
fn kill_sends_the_signal_that_is_named() {
    let mut fixture = Fixture::new();
    let script = "trap 'echo got HUP; exit 7' HUP; echo ready; while :; do sleep 0.05 & wait $!; done";
    let terminal = fixture.start(script, v1::OutputMode::Merged);
    eventually("the command has set its trap", || {
        stdout(&fixture.provost(&["logs", &terminal])) == "ready\n"
    });
    let unknown = fixture.provost(&["kill", "-s", "NOPE", &terminal]);
    assert_eq!(code(&unknown), 125, "{}", shown(&unknown));
    assert_eq!(code(&fixture.provost(&["kill", "-s", "HUP", &terminal])), 0);
    assert_eq!(code(&fixture.provost(&["wait", &terminal])), 7);
    assert!(stdout(&fixture.provost(&["logs", &terminal])).ends_with("got HUP\n"));
    let other = fixture.start("echo ready; exec sleep 600", v1::OutputMode::Merged);
    eventually("the command runs", || stdout(&fixture.provost(&["logs", &other])) == "ready\n");
    assert_eq!(code(&fixture.provost(&["kill", &other])), 0);
    assert_eq!(code(&fixture.provost(&["wait", &other])), 137);
    fixture.gateway.stop();
}

#[test]
fn a_removed_terminal_is_gone() {
    let mut fixture = Fixture::new();
    let mark = mark();
    let terminal = fixture.start(&format!("sleep {mark}"), v1::OutputMode::Merged);
    assert_eq!(code(&fixture.provost(&["rm", "--grace", "0s", &terminal])), 0);
    assert_eq!(processes_with(&mark), Vec::<String>::new());
    for command in ["rm", "stop", "kill", "wait", "logs"] {
        let output = fixture.provost(&[command, &terminal]);
        assert_eq!(code(&output), 125, "{command}: {}", shown(&output));
        assert_eq!(stderr(&output).lines().count(), 1, "{}", shown(&output));
    }
    assert_eq!(stdout(&fixture.provost(&["ps", "-o", "json"])).trim(), "[]");
    fixture.gateway.stop();
}

#[test]
fn prune_removes_what_has_ended_and_nothing_that_runs() {
    let mut fixture = Fixture::new();
    let runs = fixture.start("sleep 600", v1::OutputMode::Merged);
    let (first, second) =
        (fixture.start("exit 0", v1::OutputMode::Merged), fixture.start("exit 3", v1::OutputMode::Merged));
    for ended in [&first, &second] {
        fixture.provost(&["wait", ended]);
    }
    let young = fixture.provost(&["prune", "--older-than", "1h"]);
    assert_eq!((code(&young), stdout(&young).as_str()), (0, ""), "{}", shown(&young));
    let elsewhere = fixture.provost(&["prune", "--session", "sess_other"]);
    assert_eq!((code(&elsewhere), stdout(&elsewhere).as_str()), (0, ""), "{}", shown(&elsewhere));
    let pruned = fixture.provost(&["prune"]);
    assert_eq!(code(&pruned), 0, "{}", shown(&pruned));
    let said = stdout(&pruned);
    let mut removed: Vec<_> = said.lines().collect();
    removed.sort_unstable();
    let mut ended = [first.as_str(), second.as_str()];
    ended.sort_unstable();
    assert_eq!(removed, ended);
    let left: serde_json::Value =
        serde_json::from_str(&stdout(&fixture.provost(&["ps", "-o", "json"]))).unwrap();
    assert_eq!((left.as_array().map(Vec::len), left[0]["id"].as_str()), (Some(1), Some(runs.as_str())));
    fixture.gateway.stop();
}

#[test]
fn logs_begin_where_they_are_told() {
    let mut fixture = Fixture::new();
    let merged = fixture.start("echo first; echo second", v1::OutputMode::Merged);
    assert_eq!(code(&fixture.provost(&["wait", &merged])), 0);
    assert_eq!(stdout(&fixture.provost(&["logs", "--offset", "6", &merged])), "second\n");
    assert_eq!(stdout(&fixture.provost(&["logs", "--offset", "13", &merged])), "");
    let split = fixture.start("echo out; echo err >&2", v1::OutputMode::Split);
    let refused = fixture.provost(&["logs", "--offset", "1", &split]);
    assert_eq!(code(&refused), 125, "{}", shown(&refused));
    fixture.gateway.stop();
}
