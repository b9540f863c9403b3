//! `provost audit tail` and `query` through the gateway: the same records in the same words, and whose they are.

use std::{
    io::{BufRead, BufReader},
    os::unix::{fs::PermissionsExt, process::CommandExt},
    process::{Command, Output, Stdio},
};

use serde_json::Value;

use crate::{
    journaled::{audit, directory, tailing::Tail},
    support::{Gateway, Options, Session, eventually, in_session, is_root, skip},
};

/// `provost audit` that is told of the gateway by the environment.
fn command(gateway: &Gateway, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_provost"));
    command.arg("audit").args(arguments).stdin(Stdio::null());
    command.env("PROVOST_GATEWAY", format!("unix:{}", gateway.socket.display()));
    command
}

/// Runs it to its end, on a thread that the runtime can spare.
async fn run(mut command: Command) -> Output {
    let ended = tokio::task::spawn_blocking(move || command.output());
    ended.await.expect("no panic").expect("provost starts")
}

async fn asked(gateway: &Gateway, arguments: &[&str]) -> String {
    text(run(command(gateway, arguments)).await)
}

fn text(output: Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).expect("records are text")
}

fn kinds(lines: &str) -> Vec<String> {
    let kind = |line: &str| {
        let line: Value = serde_json::from_str(line).expect("a line is JSON");
        line["record"]["kind"].as_str().unwrap_or("?").to_owned()
    };
    lines.lines().map(kind).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn what_the_gateway_is_asked_for_is_what_the_files_have() {
    let gateway = Gateway::start();
    let session = Session::open(&gateway).await;
    session.command("true").finish().await;
    session.command("true").env("LD_PRELOAD", "x").refusal().await;
    session.close().await;
    let files = directory(&gateway);
    crate::journaled::record(&files, "the session's end", |record| record["kind"] == "session_closed").await;
    for arguments in [
        &["query"][..],
        &["query", "-o", "json"],
        &["query", "--session", &session.id],
        &["query", "--session", &session.id, "--decision", "deny"],
        &["query", "--since", "1h", "-o", "json"],
        &["query", "--since", "2500-01-01"],
        &["query", "--terminal", "term_none"],
        &["tail"],
        &["tail", "-n", "3", "-o", "json"],
        &["tail", "-n", "0"],
        &["tail", "-n", "2", "--session", &session.id],
        &["tail", "-n", "1000"],
    ] {
        let of_files = text(audit(&files, arguments));
        assert_eq!(asked(&gateway, arguments).await, of_files, "{arguments:?}");
    }
    let own = asked(&gateway, &["query", "-o", "json", "--session", &session.id]).await;
    assert_eq!(kinds(&own)[..2], ["session_opened", "decision"]);
    let last = asked(&gateway, &["tail", "-n", "1", "-o", "json"]).await;
    assert_eq!(kinds(&last), ["session_closed"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn an_ordinary_caller_asks_for_its_own_records_and_cannot_read_the_files() {
    if !is_root() {
        return skip("only root can be other users");
    }
    let gateway = Gateway::start();
    let [one, other] = [4001, 4002].map(|uid| Session::open_as(&gateway, uid));
    let (one, other) = (one.await, other.await);
    for session in [&one, &other] {
        session.command("true").finish().await;
        session.close().await;
    }
    // Where another user can execute it.
    let program = gateway.directory().join("provost");
    std::fs::copy(env!("CARGO_BIN_EXE_provost"), &program).expect("the program can be copied");
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).expect("the file is ours");
    let as_one = |arguments: &[&str]| {
        let mut command = Command::new(&program);
        command.arg("audit").args(arguments).uid(4001).gid(4001).stdin(Stdio::null());
        command.env("PROVOST_GATEWAY", format!("unix:{}", gateway.socket.display()));
        command
    };
    for arguments in [&["query", "-o", "json"][..], &["tail", "-o", "json", "-n", "50"]] {
        let lines = text(run(as_one(arguments)).await);
        assert_eq!(
            kinds(&lines),
            ["session_opened", "decision", "spawn", "started", "exit", "session_closed"],
            "{arguments:?}"
        );
        assert!(lines.contains(&one.id) && !lines.contains(&other.id));
    }
    assert_eq!(text(run(as_one(&["query", "--session", &other.id])).await), "");
    // Its own by name, too, and nobody else's.
    let own = text(run(as_one(&["query", "--principal", "uid:4001", "-o", "json"])).await);
    assert_eq!(kinds(&own).len(), 6, "{own}");
    for named in ["uid:4002", "uid:0", "4001", "nobody"] {
        let refused = run(as_one(&["query", "--principal", named])).await;
        assert!(!refused.status.success() && refused.stdout.is_empty(), "{named}: {refused:?}");
        assert!(String::from_utf8_lossy(&refused.stderr).contains("principal"), "{named}: {refused:?}");
    }
    let files = directory(&gateway);
    let refused = run(as_one(&["query", "--journal", &files.display().to_string()])).await;
    assert!(!refused.status.success() && refused.stdout.is_empty(), "{refused:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn root_asks_by_principal_at_the_gateway_and_in_the_files() {
    if !is_root() {
        return skip("only root can be other users");
    }
    let gateway = Gateway::start();
    let [one, other] = [4003, 4004].map(|uid| Session::open_as(&gateway, uid));
    let (one, other) = (one.await, other.await);
    one.command("true").finish().await;
    other.command("true").finish().await;
    other.command("true").env("LD_PRELOAD", "x").refusal().await;
    for session in [&one, &other] {
        session.close().await;
        let is_end = |record: &Value| record["kind"] == "session_closed" && record["session"] == *session.id;
        crate::journaled::record(&directory(&gateway), "the session's end", is_end).await;
    }
    let by = |more: &[&'static str]| [&["query", "-o", "json", "--principal", "uid:4004"], more].concat();
    let denied = by(&["--decision", "deny"]);
    for (arguments, count) in [(by(&[]), 7), (denied, 1), (vec!["query", "--principal", "uid:4999"], 0)] {
        let lines = asked(&gateway, &arguments).await;
        assert_eq!(lines.lines().count(), count, "{arguments:?}: {lines}");
        assert!(!lines.contains(&one.id), "{lines}");
        assert_eq!(text(audit(&directory(&gateway), &arguments)), lines, "{arguments:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_gateway_is_followed_from_its_last_records_on() {
    let gateway = Gateway::start();
    in_session(&gateway, async |session| {
        session.command("true").finish().await;
        crate::journaled::record(&directory(&gateway), "the end", |record| record["kind"] == "exit").await;
        let arguments = ["tail", "--follow", "-o", "json", "-n", "1", "--session", &session.id];
        let mut process =
            command(&gateway, &arguments).stdout(Stdio::piped()).spawn().expect("provost can be started");
        let mut lines = BufReader::new(process.stdout.take().expect("it is a pipe")).lines();
        let _tail = Tail(process);
        let mut next = move || kinds(&lines.next().expect("it goes on").expect("it is text")).remove(0);
        // What was there, and all that comes, once each.
        assert_eq!(next(), "exit");
        session.command("uname").finish().await;
        for kind in ["decision", "spawn", "started", "exit"] {
            assert_eq!(next(), kind);
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn what_cannot_be_asked_is_said() {
    let config = Some("[journal]\nenabled = false\n".to_owned());
    let gateway = Gateway::start_with(Options { config, ..Options::default() });
    let none = run(command(&gateway, &["query"])).await;
    let said = String::from_utf8_lossy(&none.stderr).into_owned();
    assert!(none.status.code() == Some(125) && said.contains("keeps no journal"), "{none:?}");
    let address = format!("unix:{}", gateway.socket.display());
    let verify = run(command(&gateway, &["verify", "--gateway", &address])).await;
    let said = String::from_utf8_lossy(&verify.stderr).into_owned();
    assert!(verify.status.code() == Some(125) && said.contains("reads the files"), "{verify:?}");
    let many = run(command(&gateway, &["tail", "-n", "10001"])).await;
    let said = String::from_utf8_lossy(&many.stderr).into_owned();
    assert!(many.status.code() == Some(125) && said.contains("10000"), "{many:?}");
    // A gateway that was named and is not there is never passed over for the files.
    gateway.stop();
    let gone = eventually("an answer", || {
        Some(command(&gateway, &["query"]).output().expect("provost can be started"))
    })
    .await;
    let said = String::from_utf8_lossy(&gone.stderr).into_owned();
    assert!(gone.status.code() == Some(125) && said.contains("cannot use the gateway"), "{gone:?}");
}
