//! `provost ps`, `logs`, `kill`, `wait` and `release`, on terminals that a gRPC client made.

use std::process::Output;

use provost::{
    client::{self, Client},
    proto::v1,
};

use super::{
    fixture::{Place, code, mark, processes_with, shown, stderr, stdout},
    serving::Gateway,
};

/// A gateway with a session, and a client that makes terminals in it.
struct Desk {
    place: Place,
    gateway: Gateway,
    runtime: tokio::runtime::Runtime,
    client: Client,
    session: String,
}

impl Desk {
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
    let mut desk = Desk::new();
    let runs = desk.start("sleep 600", v1::OutputMode::Merged);
    let ended = desk.start("exit 4", v1::OutputMode::Merged);
    assert_eq!(code(&desk.provost(&["wait", &ended])), 4);
    let table = stdout(&desk.provost(&["ps"]));
    let line =
        |id: &str| table.lines().find(|line| line.starts_with(id)).unwrap_or_else(|| panic!("{id}: {table}"));
    assert!(line(&runs).contains("running"), "{table}");
    assert!(line(&ended).contains("exit code 4"), "{table}");
    let list: serde_json::Value = serde_json::from_str(&stdout(&desk.provost(&["ps", "--json"]))).unwrap();
    assert_eq!(list.as_array().map(Vec::len), Some(2), "{list}");
    assert_eq!(list[0]["id"], runs.as_str());
    assert_eq!(list[1]["outcome"]["exit_code"], 4);
    desk.gateway.stop();
}

#[test]
fn logs_print_each_stream_to_its_own() {
    let mut desk = Desk::new();
    let split = desk.start("echo out; echo err >&2", v1::OutputMode::Split);
    let followed = desk.provost(&["logs", "-f", &split]);
    assert_eq!((stdout(&followed).as_str(), stderr(&followed).as_str()), ("out\n", "err\n"));
    let merged = desk.start("echo out; echo err >&2", v1::OutputMode::Merged);
    assert_eq!(code(&desk.provost(&["wait", &merged])), 0);
    assert_eq!(stdout(&desk.provost(&["logs", &merged])), "out\nerr\n");
    let lines = stdout(&desk.provost(&["logs", "--json", &merged]));
    let last: serde_json::Value = serde_json::from_str(lines.lines().last().unwrap()).unwrap();
    assert_eq!(last["end"]["next_offset"], 8, "{lines}");
    assert_eq!(last["end"]["outcome"]["exit_code"], 0, "{lines}");
    desk.gateway.stop();
}

#[test]
fn bytes_that_are_no_longer_held_are_counted() {
    let mut desk = Desk::new();
    let flood = desk.start("head -c 9000000 /dev/zero", v1::OutputMode::Merged);
    assert_eq!(code(&desk.provost(&["wait", &flood])), 0);
    let logs = desk.provost(&["logs", &flood]);
    let said = stderr(&logs);
    let lost: usize = said.split(' ').find_map(|word| word.parse().ok()).unwrap_or_else(|| panic!("{said}"));
    assert_eq!(lost + logs.stdout.len(), 9_000_000, "{said}");
    desk.gateway.stop();
}

#[test]
fn kill_ends_the_tree_and_wait_tells_how() {
    let mut desk = Desk::new();
    let mark = mark();
    let terminal = desk.start(&format!("(setsid sleep {mark} &); sleep {mark}"), v1::OutputMode::Merged);
    assert_eq!(code(&desk.provost(&["kill", "--grace", "0s", &terminal])), 0);
    let waited = desk.provost(&["wait", "--json", &terminal]);
    assert_eq!(code(&waited), 137, "{}", shown(&waited));
    let outcome: serde_json::Value = serde_json::from_str(&stdout(&waited)).unwrap();
    assert_eq!(outcome["cause"], "killed");
    assert_eq!(outcome["survivors"], 0);
    assert_eq!(processes_with(&mark), Vec::<String>::new());
    // Once more: it has ended, and that is no failure.
    assert_eq!(code(&desk.provost(&["kill", &terminal])), 0);
    desk.gateway.stop();
}

#[test]
fn a_released_terminal_is_gone() {
    let mut desk = Desk::new();
    let mark = mark();
    let terminal = desk.start(&format!("sleep {mark}"), v1::OutputMode::Merged);
    assert_eq!(code(&desk.provost(&["release", "--grace", "0s", &terminal])), 0);
    assert_eq!(processes_with(&mark), Vec::<String>::new());
    for command in ["release", "kill", "wait", "logs"] {
        let output = desk.provost(&[command, &terminal]);
        assert_eq!(code(&output), 125, "{command}: {}", shown(&output));
        assert_eq!(stderr(&output).lines().count(), 1, "{}", shown(&output));
    }
    assert_eq!(stdout(&desk.provost(&["ps", "--json"])).trim(), "[]");
    desk.gateway.stop();
}
