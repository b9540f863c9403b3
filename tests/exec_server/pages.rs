//! The environments of Codex that `docs/agents.md` shows, without Codex: the file is read as Codex reads it, and what it names serves.

use std::{
    fs,
    io::{BufRead, BufReader},
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Child, Command, Stdio},
};

use serde_json::json;

use crate::{
    exec_server::{nightly::codex::block_in, peer::Peer, socket},
    support::{Gateway, Person, StdioServer},
};

/// Where the page has the program.
const PROGRAM: &str = "/usr/bin/provost";

/// The one environment of the text, of which a host is no part.
fn environment(text: &str) -> toml::Table {
    let file: toml::Table = text.parse().expect("it is TOML");
    assert_eq!(file["include_local"].as_bool(), Some(false), "commands have no other place");
    let environments = file["environments"].as_array().expect("a list");
    assert_eq!(environments.len(), 1);
    assert_eq!(environments[0]["id"], file["default"]);
    environments[0].as_table().expect("a table").clone()
}

/// A command runs confined, in the person's project.
fn must_confine(peer: &mut Peer, person: &Person) {
    let outside = Command::new("grep").args(["Seccomp:", "/proc/self/status"]).output().expect("grep starts");
    assert_ne!(outside.stdout, b"Seccomp:\t2\n", "it shows the difference");
    let ran = peer.line("p", "grep Seccomp: /proc/self/status; pwd; echo made >file");
    assert_eq!(ran.stdout, format!("Seccomp:\t2\n{}\n", person.at("project").display()), "{ran:?}");
    assert!(person.at("project/file").exists(), "{ran:?}");
}

#[test]
fn the_environment_of_the_page_runs_a_command_confined() {
    let person = Person::new();
    let text = block_in("toml", "program = ").replace(PROGRAM, env!("CARGO_BIN_EXE_provost"));
    assert!(text.contains(env!("CARGO_BIN_EXE_provost")), "{text}");
    let environment = environment(&text);
    let args = environment["args"].as_array().expect("a list").iter();
    let args: Vec<&str> = args.map(|arg| arg.as_str().expect("a text")).collect();
    // As Codex starts it: without a gateway it starts one in itself.
    let line = format!("exec {} {}", environment["program"].as_str().expect("a text"), args.join(" "));
    let mut peer = Peer::with(StdioServer::start(&mut person.shell(&line)), person.at("project"));
    peer.result("initialize", json!({ "clientName": "codex-environment" }));
    peer.send(&json!({ "method": "initialized" }));
    must_confine(&mut peer, &person);
    assert!(peer.leave().success());
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
fn the_url_of_the_page_is_served_to_who_has_the_pages_environment() {
    let (person, gateway) = (Person::new(), Gateway::start());
    let at_gateway = |lines: &str| {
        let mut shell = person.shell(lines);
        shell.env("PROVOST_GATEWAY", format!("unix:{}", gateway.socket.display()));
        shell
    };
    let serve = block_in("sh", "provost exec-server --listen");
    // A port of the page could be in use here.
    let mut server = at_gateway(&format!("exec {}", serve.replace(":7322", ":0")));
    let mut server = Server(server.stdout(Stdio::piped()).spawn().expect("bash starts"));
    let mut url = String::new();
    let stdout = server.0.stdout.take().expect("its stdout is piped");
    BufReader::new(stdout).read_line(&mut url).expect("it says its URL");
    let written = at_gateway(&block_in("sh", "environments.toml <<END")).status();
    assert!(written.expect("bash starts").success());
    let file = person.at("home/.codex/environments.toml");
    let mode = fs::metadata(&file).expect("it was written").permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "it has the token");
    let named = environment(&fs::read_to_string(&file).expect("it is text"));
    let named = named["url"].as_str().expect("a text");
    let path = named.strip_prefix("ws://127.0.0.1:7322").expect("the address of the page");
    let authority = url.trim().trim_start_matches("ws://").trim_end_matches('/');
    let socket = socket::Socket::open(authority, path);
    let mut peer = Peer::over(socket, Path::new(&person.at("project")).to_path_buf());
    peer.result("initialize", json!({ "clientName": "codex-environment" }));
    peer.send(&json!({ "method": "initialized" }));
    must_confine(&mut peer, &person);
    drop(server);
    gateway.stop();
}
