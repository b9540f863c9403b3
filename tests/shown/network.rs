//! docs/network.md: its commands, its policies, and what a command is told.

use crate::support::lacks;
use std::{
    fs,
    net::TcpStream,
    os::unix::{fs::PermissionsExt, net::UnixStream},
    path::{Path, PathBuf},
};

use crate::{
    shown::{
        blocks::{block, lines},
        readme::{forwarded, http_status, npm_project, succeeded, text, web_server},
    },
    support::{Gateway, Person},
};

const PAGE: &str = "docs/network.md";

/// A directory with the shipped policy and these pieces of the page.
fn policies(person: &Person, name: &str, pieces: &[&str]) -> PathBuf {
    let directory = person.at("home").join(name);
    fs::create_dir(&directory).expect("a directory can be made");
    let default = Path::new(env!("CARGO_MANIFEST_DIR")).join("policies/default.toml");
    fs::copy(default, directory.join("default.toml")).expect("the policy is there");
    let own: Vec<String> = pieces.iter().map(|text| block(PAGE, text)).collect();
    fs::write(directory.join("own.toml"), own.join("\n")).expect("a file can be written");
    directory
}

#[test]
fn the_commands_run_and_the_rules_are_explained() {
    if lacks(&["python3", "curl", "npm"]) {
        return;
    }
    let person = Person::new();
    npm_project(&person);
    let rules = policies(&person, "policies", &["id = \"registries\""]);
    for line in lines(PAGE, "npm ci") {
        match line.split_whitespace().nth(1).unwrap_or_default() {
            "run" => drop(succeeded(&mut person.shell(&line))),
            "policy" => {
                let shipped = person.shell(&line).output().expect("bash starts");
                assert!(text(&shipped.stdout).contains("default"), "{line}: {shipped:?}");
                let line = format!("{line} --policies {}", rules.display());
                let own = person.shell(&line).output().expect("bash starts");
                let said = text(&own.stdout);
                assert_eq!(
                    said.contains("corporate-git"),
                    line.contains("git.corp.example"),
                    "{line}: {said}"
                );
            }
            _ => panic!("{PAGE} has a line that nobody runs: {line}"),
        }
    }
}

#[test]
fn the_policies_are_what_the_page_says() {
    let person = Person::new();
    for (name, piece) in [
        ("rules", "id = \"registries\""),
        ("sockets", "[profile.build.network]"),
        ("opened", "[secrets.FORGE_TOKEN]"),
    ] {
        let directory = policies(&person, name, &[piece]);
        // Checks what `matches` and `rejects` say, too.
        let output = succeeded(&mut person.shell(&format!("provost policy check {}", directory.display())));
        assert!(!text(&output.stdout).contains("error"), "{output:?}");
        // It is the piece that was checked.
        let own = fs::read_to_string(directory.join("own.toml")).expect("it is ours");
        let broken = own.replace("matches = [", "matches = [\"nowhere.example:1\", ");
        fs::write(directory.join("own.toml"), broken).expect("it is ours");
        let checked = person.shell(&format!("provost policy check {}", directory.display())).output();
        assert!(
            !checked.expect("bash starts").status.success(),
            "{name}: an example that is wrong is an error"
        );
    }
}

#[test]
fn a_command_is_told_what_the_page_shows() {
    if lacks(&["curl"]) {
        return;
    }
    let person = Person::new();
    let connect = "import socket, sys; socket.create_connection((sys.argv[1], 443), 60)";
    for (shown, options, host) in [
        ("provost: denied: connection", "--network proxy", "example.org"),
        ("provost: not reached", "", "registry.npmjs.org"),
    ] {
        let line = format!("provost run {options} -- python3 -c '{connect}' {host}");
        let proxied = "provost run --network proxy -- curl -sS https://example.org";
        let line = if options.is_empty() { line } else { proxied.to_owned() };
        let output = person.shell(&line).output().expect("bash starts");
        let said = text(&output.stderr);
        for wanted in lines(PAGE, shown) {
            assert!(said.lines().any(|line| line == wanted), "{wanted:?} is not in {said:?}");
        }
    }
}

#[test]
fn a_port_is_forwarded_to_the_loopback_and_to_a_socket() {
    if lacks(&["python3", "curl"]) {
        return;
    }
    let (person, gateway) = (Person::new(), Gateway::start());
    let terminal = web_server(&person, &gateway);
    for line in lines(PAGE, "preview.sock") {
        let line = line.replace("TERMINAL", &terminal);
        forwarded(&person, &gateway, &line, |said| {
            if line.contains("preview.sock") {
                let socket = person.at("project/preview.sock");
                let mode = fs::metadata(&socket).expect("it is there").permissions().mode();
                assert_eq!(mode & 0o077, 0, "for you alone");
                assert!(http_status(UnixStream::connect(socket).expect("it listens")).contains("200"));
            } else {
                assert!(said.contains("127.0.0.1:5173"), "it prints that: {said}");
                let stream = TcpStream::connect("127.0.0.1:5173").expect("it listens");
                assert!(http_status(stream).contains("200"));
            }
        });
    }
    gateway.stop();
}
