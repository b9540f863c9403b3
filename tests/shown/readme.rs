//! README.md: the first command, single commands, a service, and the front ends for agents.

use crate::support::lacks;
use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    process::{Child, Command, Output, Stdio},
    sync::Arc,
};

use serde_json::{Value, json};

use crate::{
    shown::blocks::lines,
    support::{Gateway, Person, StdioServer},
};

const PAGE: &str = "README.md";

/// Ended with the test.
pub(crate) struct Running(pub(crate) Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The result of a command that must succeed.
pub(crate) fn succeeded(command: &mut Command) -> Output {
    let output = command.output().expect("bash starts");
    assert!(output.status.success(), "{command:?}: {output:?}");
    output
}

/// A terminal in the background, at a gateway: its id.
pub(crate) fn detached(person: &Person, gateway: &Gateway, command: &str) -> String {
    let mut run = at(person, gateway, &format!("provost run --detach -- {command}"));
    text(&succeeded(&mut run).stdout).trim().to_owned()
}

pub(crate) fn at(person: &Person, gateway: &Gateway, line: &str) -> Command {
    let mut shell = person.shell(line);
    shell.env("PROVOST_GATEWAY", format!("unix:{}", gateway.socket.display()));
    shell
}

/// `npm ci`, offline: a project without dependencies.
pub(crate) fn npm_project(person: &Person) {
    let package = json!({ "name": "shown", "version": "1.0.0", "lockfileVersion": 3, "requires": true,
                          "packages": { "": { "name": "shown", "version": "1.0.0" } } });
    person.write("package.json", r#"{ "name": "shown", "version": "1.0.0" }"#);
    person.write("package-lock.json", &package.to_string());
}

/// A line that forwards a port: what it prints is reached while it runs.
pub(crate) fn forwarded(person: &Person, gateway: &Gateway, line: &str, reach: impl FnOnce(&str)) {
    let mut forward = at(person, gateway, &format!("exec {line}"));
    let mut forward = Running(forward.stdout(Stdio::piped()).spawn().expect("bash starts"));
    let mut said = String::new();
    let stdout = forward.0.stdout.take().expect("its stdout is piped");
    BufReader::new(stdout).read_line(&mut said).expect("it says where it listens");
    reach(said.trim());
}

/// The status line of an HTTP server's answer.
pub(crate) fn http_status(mut stream: impl Read + Write) -> String {
    stream.write_all(b"GET / HTTP/1.0\r\n\r\n").expect("the server listens");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it answers");
    answer.lines().next().unwrap_or_default().to_owned()
}

/// A web server in a terminal, which listens.
pub(crate) fn web_server(person: &Person, gateway: &Gateway) -> String {
    let server = "python3 -u -m http.server --bind 127.0.0.1 5173";
    let terminal = detached(person, gateway, server);
    let mut logs = at(person, gateway, &format!("exec provost logs -f {terminal}"));
    let mut logs = Running(logs.stdout(Stdio::piped()).spawn().expect("bash starts"));
    let mut said = String::new();
    let stdout = logs.0.stdout.take().expect("its stdout is piped");
    BufReader::new(stdout).read_line(&mut said).expect("it says that it serves");
    assert!(said.contains("5173"), "{said}");
    terminal
}

#[test]
fn the_first_command_runs() {
    let person = Person::new();
    person.write("mine", "");
    for line in lines(PAGE, "--receipt") {
        let output = succeeded(&mut person.shell(&line));
        let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
        assert!(stdout.contains("uid=") && stdout.contains("mine"), "{output:?}");
        assert!(format!("{stdout}{stderr}").to_lowercase().contains("seccomp"), "the receipt: {output:?}");
    }
}

#[test]
fn single_commands_run() {
    if lacks(&["make", "npm", "python3"]) {
        return;
    }
    let (person, gateway) = (Person::new(), Gateway::start());
    person.write("Makefile", "test:\n\techo tested >tested\n");
    person.write("src/code", "code");
    npm_project(&person);
    for line in lines(PAGE, "make test") {
        match line.split(" --").next().unwrap_or_default().split_whitespace().nth(1).unwrap_or_default() {
            "run" if line.contains("make test") => {
                succeeded(&mut person.shell(&line));
                assert!(person.at("project/tested").exists());
            }
            "run" if line.contains("npm ci") => drop(succeeded(&mut person.shell(&line))),
            "forward" => {
                let terminal = web_server(&person, &gateway);
                forwarded(&person, &gateway, &line.replace("TERMINAL", &terminal), |said| {
                    assert!(said.contains("127.0.0.1:5173"), "{said}");
                    let stream = TcpStream::connect("127.0.0.1:5173").expect("it listens");
                    assert!(http_status(stream).contains("200"));
                });
            }
            "c" => {
                let inside = succeeded(&mut person.shell(&line)).stdout;
                let outside = succeeded(&mut person.shell("tar c src | sha256sum")).stdout;
                assert_eq!(text(&inside), text(&outside), "{line}");
            }
            _ => panic!("{PAGE} has a line that nobody runs: {line}"),
        }
    }
    gateway.stop();
}

#[test]
fn a_services_terminals_are_managed() {
    let (person, gateway) = (Person::new(), Gateway::start());
    let terminal = detached(&person, &gateway, "sh -c 'echo said; exec sleep 1000'");
    let listed = text(&succeeded(&mut at(&person, &gateway, "provost ps -o json")).stdout);
    let listed: Value = serde_json::from_str(listed.lines().next().unwrap_or_default()).expect("JSON");
    let session = find(&listed, "session").expect("a session's id");
    for line in lines(PAGE, "provost serve") {
        let command = line.replace("TERMINAL", &terminal).replace("SESSION", &session);
        // Without -e: the status of `provost wait` is the command's.
        let run =
            |command: &str| at(&person, &gateway, &format!("set +e; {command}")).output().expect("bash");
        match line.split_whitespace().nth(1).unwrap_or_default() {
            // The one that runs here has places of its own, so that a gateway of this host is left alone.
            "serve" => assert!(succeeded(&mut person.shell("provost serve --help")).stdout.len() > 100),
            "ps" => assert!(text(&run(&command).stdout).contains(&terminal), "{line}"),
            "logs" => {
                let mut logs = at(&person, &gateway, &format!("exec {command}"));
                let mut logs = Running(logs.stdout(Stdio::piped()).spawn().expect("bash starts"));
                let mut said = String::new();
                let stdout = logs.0.stdout.take().expect("its stdout is piped");
                BufReader::new(stdout).read_line(&mut said).expect("it prints");
                assert_eq!(said, "said\n");
            }
            "stop" => {
                let output = run(&command);
                assert!(output.status.success(), "the last of them closes the session: {output:?}");
                let after = text(&succeeded(&mut at(&person, &gateway, "provost ps")).stdout);
                assert!(!after.contains(&terminal), "{after}");
            }
            "approvals" => assert!(run(&command).status.success(), "{line}"),
            _ => panic!("{PAGE} has a line that nobody runs: {line}"),
        }
    }
    gateway.stop();
}

/// The first text of a member whose name has this in it.
fn find(value: &Value, name: &str) -> Option<String> {
    match value {
        Value::Object(members) => members.iter().find_map(|(key, value)| match value {
            Value::String(text) if key.contains(name) && text.starts_with("sess_") => Some(text.clone()),
            other => find(other, name),
        }),
        Value::Array(values) => values.iter().find_map(|value| find(value, name)),
        _ => None,
    }
}

/// An agent of the Agent Client Protocol that answers `initialize` and nothing else.
pub(crate) const AGENT: &str = "#!/usr/bin/env python3\n\
    import json, sys\n\
    for line in sys.stdin:\n    asked = json.loads(line)\n    \
    print(json.dumps({'jsonrpc': '2.0', 'id': asked['id'], 'result': {'protocolVersion': 1,\n        \
    'agentInfo': {'name': ' '.join(sys.argv[1:]) or 'none', 'version': '1'}, 'agentCapabilities': {}}}), flush=True)\n";

/// What an agent behind `provost acp` answers to an editor that starts this line.
pub(crate) fn agent_behind(shell: &mut Command) -> Value {
    let mut editor = StdioServer::start(shell);
    let params = json!({ "protocolVersion": 1, "clientCapabilities": {} });
    editor.send_line(
        &json!({ "jsonrpc": "2.0", "id": 7, "method": "initialize", "params": params }).to_string(),
    );
    let answer = editor.receive();
    assert_eq!((&answer["id"], &answer["result"]["protocolVersion"]), (&json!(7), &json!(1)), "{answer}");
    editor.leave();
    answer
}

#[test]
fn each_front_end_for_agents_answers() {
    if lacks(&["python3"]) {
        return;
    }
    let (person, gateway): (Person, Arc<Gateway>) = (Person::new(), Gateway::start());
    person.install_as(&person.at("bin/my-agent"), AGENT);
    // It stays, as the agent whose session this is.
    person.install("some-agent", "\"$SHELL\" -c 'grep Seccomp: /proc/self/status'; exit $?");
    fs::create_dir_all(person.at("home/.local/bin")).expect("a directory can be made");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_provost"), person.at("home/.local/bin/provost-shell"))
        .expect("a link can be made");
    let mcp = json!({ "jsonrpc": "2.0", "id": 7, "method": "initialize", "params": {
        "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": { "name": "t", "version": "1" } } });
    let exec_server = json!({ "id": 7, "method": "initialize", "params": { "clientName": "t" } });
    for line in lines(PAGE, "my-agent --acp").into_iter().chain(lines(PAGE, "provost mcp --root")) {
        let answered = |asked: &Value| {
            // The server as bash's own process: it ends with it.
            let mut server = StdioServer::start(&mut person.shell(&format!("exec {line}")));
            server.send_line(&asked.to_string());
            let answer = server.receive();
            assert!(answer["id"] == 7 && answer.get("result").is_some(), "{line}: {answer}");
            assert!(server.leave().success(), "{line}");
        };
        match line.split_whitespace().nth(1).unwrap_or_default() {
            "acp" => {
                let answer = agent_behind(&mut person.shell(&format!("exec {line}")));
                assert_eq!(answer["result"]["agentInfo"]["name"], "--acp", "{line}");
            }
            "mcp" => answered(&mcp),
            "exec-server" => answered(&exec_server),
            "some-agent" => {
                let said = text(&succeeded(&mut at(&person, &gateway, &line)).stdout);
                assert_eq!(said, "Seccomp:\t2\n", "{line}");
            }
            _ => panic!("{PAGE} has a line that nobody runs: {line}"),
        }
    }
    gateway.stop();
}
