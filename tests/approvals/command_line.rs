//! `provost approvals`, `provost policy status` and `reload`, and `provost run` where a rule asks.

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    process::{Child, Command, Output, Stdio},
    sync::Arc,
};

use serde_json::Value;

use crate::{
    approvals::desk::{REASON, RULE, begin, gateway, outcome, refusal, touch, unattended},
    support::{Gateway, Session, code, eventually, in_session, new_workspace},
};

/// `provost ARGUMENTS` for this gateway.
fn provost(gateway: &Gateway, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_provost"));
    command.args(arguments).stdin(Stdio::null());
    command.env("PROVOST_GATEWAY", format!("unix:{}", gateway.socket.display()));
    command
}

/// Runs it to its end, on a thread that the runtime can spare.
async fn run(gateway: &Gateway, arguments: &[&str]) -> Output {
    let mut command = provost(gateway, arguments);
    tokio::task::spawn_blocking(move || command.output()).await.expect("no panic").expect("provost starts")
}

fn json(output: &Output) -> Value {
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    serde_json::from_slice(&output.stdout).expect("it is JSON")
}

async fn pending(gateway: &Gateway) -> Value {
    loop {
        let list = json(&run(gateway, &["approvals", "-o", "json"]).await);
        if let Some(first) = list.as_array().and_then(|list| list.first()) {
            break first.clone();
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn approvals_are_listed_watched_and_answered() {
    let gateway = gateway("");
    in_session(&gateway, async |session| {
        let mut watching = Watching::start(&gateway);
        let begun = begin(touch(session, "a\u{1b}[2J"));
        let asked = watching.next().await;
        assert_eq!((asked["state"].as_str(), asked["rule"].as_str()), (Some("pending"), Some(RULE)));
        assert_eq!(pending(&gateway).await, asked);
        let id = asked["id"].as_str().expect("it has an id").to_owned();
        let table = run(&gateway, &["approvals"]).await;
        let table = String::from_utf8(table.stdout).expect("it is text");
        assert!(table.contains(&id) && !table.contains('\u{1b}'), "{table:?}");
        let workspace = session.workspace.display().to_string();
        assert!(table.contains(&session.id) && table.contains(&workspace), "who asks, and where: {table}");

        let approved =
            run(&gateway, &["approvals", "approve", &id, "--comment", "fine", "--on-behalf-of", "Ada"]).await;
        assert_eq!(approved.status.code(), Some(0), "{approved:?}");
        outcome(begun).await.expect("it runs").release().await;
        assert_eq!(watching.next().await["state"], "approved");
        let used = watching.next().await;
        assert_eq!(
            (used["state"].as_str(), used["answer"]["comment"].as_str()),
            (Some("used"), Some("fine"))
        );
        assert_eq!(used["answer"]["on_behalf_of"], "Ada");

        let begun = begin(touch(session, "b"));
        let asked = watching.next().await;
        let id = asked["id"].as_str().expect("it has an id");
        let denied = json(&run(&gateway, &["approvals", "deny", id, "-o", "json"]).await);
        assert_eq!(denied["state"], "denied");
        assert_eq!(refusal(begun).await.reason, "APPROVAL_DENIED");
        let again = run(&gateway, &["approvals", "approve", id]).await;
        assert_eq!(again.status.code(), Some(125), "{again:?}");
        let none = json(&run(&gateway, &["approvals", "list", "-o", "json"]).await);
        assert_eq!(none, Value::Array(Vec::new()));
        let all = json(&run(&gateway, &["approvals", "list", "--all", "-o", "json"]).await);
        assert_eq!(all.as_array().map(Vec::len), Some(2));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn status_and_reload_say_what_is_in_force_and_what_is_refused() {
    let gateway = gateway("");
    let status = json(&run(&gateway, &["policy", "status", "-o", "json"]).await);
    assert_eq!((status["generation"].as_u64(), status["rules"].as_u64()), (Some(1), Some(3)));
    fs::write(gateway.directory().join("policies/more.toml"), "[[rule]]\nid = 3\n")
        .expect("it can be written");
    let reloaded = run(&gateway, &["policy", "reload", "-o", "json"]).await;
    assert_eq!(reloaded.status.code(), Some(1), "{reloaded:?}");
    let reloaded: Value = serde_json::from_slice(&reloaded.stdout).expect("it is JSON");
    assert_eq!(reloaded["refused"]["line"], 2);
    let status = run(&gateway, &["policy", "status"]).await;
    assert_eq!(status.status.code(), Some(1), "{status:?}");
    let text = String::from_utf8(status.stdout).expect("it is text");
    assert!(text.contains("REFUSED") && text.contains("more.toml:2:6") && text.contains('^'), "{text}");
}

/// What each way to run a command says of a question that nobody was asked.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_command_line_that_does_not_wait_says_how_its_question_is_answered() {
    let gateway = gateway("");
    let directory = new_workspace(&gateway, None);
    let root = directory.to_str().expect("it is text");
    let opened = run(&gateway, &["run", "--session", "kept", "--root", root, "--", "true"]).await;
    assert_eq!(opened.status.code(), Some(0), "{opened:?}");
    let mut shell = Command::new(env!("CARGO_BIN_EXE_provost-shell"));
    shell.args(["-c", "touch made"]).env("PROVOST_SHELL_ROOT", root).current_dir(&directory);
    shell.env("PROVOST_GATEWAY", format!("unix:{}", gateway.socket.display())).stdin(Stdio::null());
    let ways = [
        (provost(&gateway, &["run", "--root", root, "--", "touch", "made"]), true),
        (provost(&gateway, &["run", "-d", "--root", root, "--", "touch", "made"]), true),
        (provost(&gateway, &["exec", "kept", "touch", "made"]), false),
        (provost(&gateway, &["shell", "--root", root, "--line", "touch made"]), false),
        (shell, false),
    ];
    for (mut way, has_option) in ways {
        let called = format!("{way:?}");
        let output = tokio::task::spawn_blocking(move || way.output()).await.expect("no panic");
        let output = output.expect("provost starts");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_ne!(output.status.code(), Some(0), "{called}: {said}");
        assert!(said.contains("provost approvals approve appr_"), "{called}: {said}");
        assert_eq!(said.contains("--on-ask wait"), has_option, "{called}: {said}");
    }
    assert!(!directory.join("made").exists());
    gateway.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn run_without_a_terminal_is_refused_at_once_and_says_how_to_approve() {
    let gateway = gateway("");
    let directory = new_workspace(&gateway, None);
    let run_touch = [
        "run",
        "--report",
        "/dev/stdout",
        "--root",
        directory.to_str().expect("it is text"),
        "--",
        "touch",
        "made",
    ];
    let refused = run(&gateway, &run_touch).await;
    assert_eq!(refused.status.code(), Some(126), "{refused:?}");
    let object: Value = serde_json::from_slice(&refused.stdout).expect("it is JSON");
    let error = &object["error"];
    assert_eq!(error["reason"], "APPROVAL_REQUIRED");
    assert_eq!(error["details"]["rule"], RULE);
    assert!(error["message"].as_str().is_some_and(|message| message.contains(REASON)), "{error}");
    let id = error["details"]["approval_id"].as_str().expect("it has an id").to_owned();
    assert!(error["advice"].as_str().is_some_and(|advice| advice.contains(&id)), "{error}");
    assert_eq!(run(&gateway, &["approvals", "approve", &id]).await.status.code(), Some(0));
    assert_eq!(run(&gateway, &run_touch).await.status.code(), Some(0));
    assert!(directory.join("made").exists());

    // With `--on-ask wait`, it waits for an approver to answer.
    let waits =
        ["run", "--on-ask", "wait", "--root", directory.to_str().expect("it is text"), "--", "touch", "b"];
    let mut waiting = provost(&gateway, &waits).spawn().expect("provost starts");
    let asked = pending(&gateway).await;
    let id = asked["id"].as_str().expect("it has an id");
    assert_eq!(run(&gateway, &["approvals", "approve", id]).await.status.code(), Some(0));
    let status = eventually("the end of the run", || waiting.try_wait().expect("it is ours")).await;
    assert_eq!(status.code(), Some(0));
    assert!(directory.join("b").exists());

    // What another policy has ended nobody can approve any more.
    let mut run_again = waits;
    run_again[7] = "c";
    let mut waiting = provost(&gateway, &run_again);
    let waiting = waiting.stderr(std::process::Stdio::piped()).spawn().expect("provost starts");
    pending(&gateway).await;
    let rule = "[[rule]]\nid = 'more'\ndecision = 'deny'\nargv = ['no-such-program']\n";
    std::fs::write(gateway.directory().join("policies/more.toml"), rule).expect("a rule can be written");
    assert_eq!(run(&gateway, &["policy", "reload"]).await.status.code(), Some(0));
    let ended = tokio::task::spawn_blocking(|| waiting.wait_with_output().expect("it is ours"));
    let ended = ended.await.expect("it ends");
    let said = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(126), "{said}");
    assert!(said.contains("the policy was replaced") && said.contains("run it again"), "{said}");
    assert!(!said.contains("approvals approve"), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn run_on_a_terminal_asks_its_user() {
    let gateway = gateway("");
    let directory = new_workspace(&gateway, None);
    for (typed, status) in [("y\n", 0), ("n\n", 126), ("\n", 126)] {
        let mut on_terminal = OnTerminal::start(&gateway, &directory);
        on_terminal.until("[y/N]");
        assert!(on_terminal.shown.contains(REASON) && on_terminal.shown.contains("touch made"));
        assert!(!directory.join("made").exists(), "it has not run");
        on_terminal
            .child
            .stdin
            .as_mut()
            .expect("it is a pipe")
            .write_all(typed.as_bytes())
            .expect("it reads");
        let ended =
            eventually("the end of the run", || on_terminal.child.try_wait().expect("it is ours")).await;
        assert_eq!(ended.code(), Some(status), "{typed:?}: {}", on_terminal.shown);
        assert_eq!(directory.join("made").exists(), status == 0, "{typed:?}");
        let _ = fs::remove_file(directory.join("made"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_person_is_shown_all_that_the_answer_is_for() {
    let gateway = gateway("");
    let directory = new_workspace(&gateway, None);
    let line = ["sh", "-c", "touch made; ./tool --all; ./tool --all; touch made"];
    let mut on_terminal = OnTerminal::start_with(&gateway, &directory, &line);
    on_terminal.until("[y/N]");
    for shown in ["touch made\n", "and rule own asks: it is your own\n", "./tool --all\n", "run all 2? [y/N]"]
    {
        assert_eq!(
            on_terminal.shown.replace('\r', "").matches(shown).count(),
            1,
            "{shown:?}: {}",
            on_terminal.shown
        );
    }
    let asked = pending(&gateway).await;
    let other = serde_json::json!([{"command": "./tool --all", "rule": "own", "reason": "it is your own"}]);
    assert_eq!((&asked["matched_command"], &asked["others"]), (&"touch made".into(), &other), "{asked}");
    let table = run(&gateway, &["approvals"]).await;
    assert!(String::from_utf8_lossy(&table.stdout).contains("touch made; and ./tool --all"), "{table:?}");
    on_terminal.child.stdin.as_mut().expect("it is a pipe").write_all(b"n\n").expect("it reads");
    let ended = eventually("the end of the run", || on_terminal.child.try_wait().expect("it is ours")).await;
    assert_eq!(ended.code(), Some(126), "{}", on_terminal.shown);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_questions_of_a_session_can_be_told_from_others() {
    let gateway = gateway("");
    let (one, other) = (Session::open(&gateway).await, Session::open(&gateway).await);
    let refused = unattended(touch(&one, "x")).refusal().await;
    unattended(touch(&other, "y")).refusal().await;
    let list = json(&run(&gateway, &["approvals", "list", "--session", &one.id, "-o", "json"]).await);
    let ids: Vec<&str> = list.as_array().into_iter().flatten().filter_map(|it| it["id"].as_str()).collect();
    assert_eq!(ids, [refused.meta("approval_id")]);
    assert_eq!(code(&one.command("true").finish().await.outcome), 0);
    one.close().await;
    other.close().await;
}

/// `provost approvals watch -o json`.
struct Watching {
    child: Child,
    lines: tokio::sync::mpsc::Receiver<String>,
}

impl Watching {
    fn start(gateway: &Arc<Gateway>) -> Self {
        let mut command = provost(gateway, &["approvals", "watch", "-o", "json"]);
        let mut child = command.stdout(Stdio::piped()).spawn().expect("provost starts");
        let stdout = BufReader::new(child.stdout.take().expect("it is a pipe"));
        let (send, lines) = tokio::sync::mpsc::channel(64);
        std::thread::spawn(move || {
            stdout.lines().map_while(Result::ok).try_for_each(|line| send.blocking_send(line))
        });
        Self { child, lines }
    }

    async fn next(&mut self) -> Value {
        let line = crate::support::within("a line", self.lines.recv()).await.expect("the watch goes on");
        serde_json::from_str(&line).expect("it is JSON")
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// `provost run -- touch made` on a terminal that script(1) makes.
struct OnTerminal {
    child: Child,
    shown: String,
}

impl OnTerminal {
    fn start(gateway: &Gateway, directory: &std::path::Path) -> Self {
        Self::start_with(gateway, directory, &["touch", "made"])
    }

    fn start_with(gateway: &Gateway, directory: &std::path::Path, command: &[&str]) -> Self {
        let command: Vec<String> = command.iter().map(|word| format!("'{word}'")).collect();
        let run = format!(
            "{} run --root {} -- {}",
            env!("CARGO_BIN_EXE_provost"),
            directory.display(),
            command.join(" ")
        );
        let child = Command::new("script")
            .args(["-q", "-e", "-c", &run, "/dev/null"])
            .env("PROVOST_GATEWAY", format!("unix:{}", gateway.socket.display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("script(1) of util-linux is there");
        Self { child, shown: String::new() }
    }

    /// Reads what is shown until it holds this.
    fn until(&mut self, wanted: &str) {
        use std::io::Read;
        let stdout = self.child.stdout.as_mut().expect("it is a pipe");
        let mut byte = [0];
        while !self.shown.contains(wanted) {
            assert_eq!(stdout.read(&mut byte).expect("it can be read"), 1, "it ended with: {}", self.shown);
            self.shown.push(char::from(byte[0]));
        }
    }
}

impl Drop for OnTerminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
