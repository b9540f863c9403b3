//! What `docs/agents.md` shows, as it stands there.

use std::{
    fs,
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
};

use serde_json::{Value, json};

use crate::{
    mcp::{
        agents::claude_code,
        libraries::{Missing, run_bounded},
        peer::Peer,
    },
    support::{self, Gateway, Person},
};

/// Where the page has a project, the test has a workspace.
const PROJECT: &str = "/home/me/project";

#[test]
fn the_entry_that_the_page_shows_starts_a_server_that_runs_a_command_without_a_gateway() {
    let entry = block("json", "mcpServers");
    assert!(entry.contains(PROJECT));
    let start = |workspace: &Path| {
        let entry = entry.replace(PROJECT, workspace.to_str().expect("UTF-8"));
        let list: Value = serde_json::from_str(&entry).expect("it is JSON");
        let server = &list["mcpServers"]["provost"];
        let mut command = Command::new(server["command"].as_str().expect("a program"));
        let args = server["args"].as_array().expect("a list");
        command.args(args.iter().map(|arg| arg.as_str().expect("a text")));
        let built = Path::new(env!("CARGO_BIN_EXE_provost")).parent().expect("it lies in a directory");
        command.env("PATH", format!("{}:/usr/bin:/bin", built.display()));
        command
    };
    let mut peer = Peer::start(start, json!({}));
    let said = peer.text("run_command", json!({ "command": "echo made > file; pwd" }));
    assert!(said.starts_with("exit code 0\n"), "{said}");
    assert!(said.ends_with(&format!("{}\n", peer.workspace.display())), "{said}");
    assert!(peer.workspace.join("file").exists());
    assert!(peer.leave().success());
}

/// The pieces of the page that are in this language, in their order.
fn blocks(language: &str) -> Vec<String> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/agents.md");
    let page = fs::read_to_string(page).expect("the page is there");
    let begin = format!("```{language}\n");
    let pieces = page.split(&begin).skip(1);
    pieces.map(|rest| rest.split("```").next().unwrap_or_default().to_owned()).collect()
}

/// The piece that has this text.
fn block(language: &str, text: &str) -> String {
    blocks(language).into_iter().find(|block| block.contains(text)).expect("the page has it")
}

#[test]
fn the_shell_that_the_page_shows_confines_the_lines_of_an_agent() {
    let (person, gateway) = (Person::new(), Gateway::start());
    let (made, printed) = (block("sh", "ln -sf"), block("sh", "some-agent"));
    assert!(person.shell(&made).status().expect("bash starts").success(), "{made}");
    // An agent that knows nothing of Provost.
    person
        .install("some-agent", "\"$SHELL\" -c 'grep Seccomp: /proc/self/status; echo made >file; pwd'; true");
    let line = printed.lines().find(|line| line.contains("some-agent")).expect("the page has it");
    let outside = person.shell("SHELL=/bin/sh some-agent").output().expect("bash starts");
    assert!(!String::from_utf8_lossy(&outside.stdout).contains("Seccomp:\t2"), "{outside:?}");
    fs::remove_file(person.at("project/file")).expect("the agent has made it");
    let socket = format!("unix:{}", gateway.socket.display());
    let inside = person.shell(line).env("PROVOST_GATEWAY", socket).output().expect("bash starts");
    let said = String::from_utf8_lossy(&inside.stdout);
    assert!(said.contains("Seccomp:\t2"), "{inside:?}");
    assert!(said.ends_with(&format!("{}\n", person.at("project").display())), "{inside:?}");
    assert!(person.at("project/file").exists(), "{inside:?}");
    gateway.stop();
}

/// Ended with the test.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
#[ignore = "long: installs from npm; .ci/run runs it"]
fn the_commands_that_the_page_shows_give_claude_code_its_servers() {
    let agent = match claude_code() {
        Ok(agent) => agent,
        Err(Missing(what)) => return support::skip(&what),
    };
    let person = Person::new();
    let wrapper = agent.get_args().next().expect("its file").display().to_string();
    person.install("claude", &format!("exec node '{wrapper}' \"$@\""));
    let claude = |line: &str| {
        let mut shell = person.shell(line);
        shell.env("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1").env("DISABLE_TELEMETRY", "1");
        let (printed, status) = run_bounded(&mut shell);
        assert!(status.success(), "{line}: {printed}");
        printed
    };
    // On stdio, as the table has it.
    let page = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/agents.md"));
    let page = page.expect("the page is there");
    let line =
        page.split('`').find(|code| code.starts_with("claude mcp add provost -- ")).expect("the page has it");
    claude(&line.replace("DIR", &person.at("project").display().to_string()));
    let listed = claude("claude mcp list");
    assert!(listed.contains("provost: ") && listed.contains("Connected"), "{listed}");
    claude("claude mcp remove provost");

    // Over HTTP.
    let serve = block("sh", "provost mcp --http");
    let mut server = person.shell(&format!("exec {serve}"));
    let mut server = Server(server.stdout(Stdio::piped()).spawn().expect("bash starts"));
    let mut address = String::new();
    let stdout = server.0.stdout.take().expect("its stdout is piped");
    BufReader::new(stdout).read_line(&mut address).expect("it says where it listens");
    assert_eq!(address, "http://127.0.0.1:7321/mcp\n");
    claude(&block("sh", "claude mcp add --transport http"));
    let listed = claude("claude mcp list");
    assert!(listed.contains("127.0.0.1:7321") && listed.contains("Connected"), "{listed}");
    drop(server);
    let listed = claude("claude mcp list");
    assert!(!listed.contains("Connected"), "a server that is gone: {listed}");
}
