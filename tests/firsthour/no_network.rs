//! A command that fails without a network says what it wanted to reach, and what would reach it.

use std::{
    process::Output,
    time::{Duration, Instant},
};

use crate::firsthour::{person::Person, toolchains, walk::shown};

/// Longer than a tool takes on a slow machine that is refused at once, and shorter than any of them tries again.
const AT_ONCE: Duration = Duration::from_secs(40);

struct Desk {
    person: Person,
    work: std::path::PathBuf,
}

impl Desk {
    fn new(person: Person) -> Self {
        let work = person.home().join("work");
        person.make(&work);
        Self { person, work }
    }

    fn run(&self, options: &[&str], script: &str) -> Output {
        let mut command = self.person.command(self.person.provost(), &self.work);
        command.arg("run").args(options).args(["--", "bash", "-c", script]);
        command.output().expect("provost starts")
    }

    /// What is said about the network of a command that ends with this status.
    fn said(&self, options: &[&str], script: &str, status: i32) -> Vec<String> {
        let output = self.run(options, script);
        assert_eq!(output.status.code(), Some(status), "{script}: {}", shown(&output));
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        let about = |line: &&str| {
            line.contains("not reached:") || line.contains("--network") || line.contains("choices")
        };
        text.lines().filter(|line| line.starts_with("provost: ")).filter(about).map(str::to_owned).collect()
    }
}

const OPTION: &str = "provost: this option would give it one: --network proxy";
const ROUTELESS: &str = "echo > /dev/tcp/192.0.2.1/80; exit 3";

fn must_say_what_was_not_reached(person: Person) {
    let desk = Desk::new(person);
    let of_name = desk.said(&[], "getent hosts registry.npmjs.org; exit 3", 3);
    assert_eq!(
        of_name,
        [
            "provost: not reached: the name registry.npmjs.org: it has no network; the network \"proxy\" reaches what the \
             policy's [[connect]] rules allow",
            OPTION
        ]
    );
    let of_address = desk.said(&[], ROUTELESS, 3);
    assert_eq!(of_address.len(), 2, "{of_address:?}");
    assert!(
        of_address[0].starts_with("provost: not reached: an address without a route: it has no"),
        "{of_address:?}"
    );
    // A command that ends well has what it needs, and what has no network to begin with asks for none.
    let silent = [("getent hosts a.example; true", 0), ("exit 3", 3), ("getent hosts localhost; exit 3", 3)];
    for (script, status) in silent {
        assert_eq!(desk.said(&[], script, status), [""; 0], "{script}");
    }
    let offline = desk.said(&["--profile", "offline"], "getent hosts a.example; exit 3", 3);
    assert!(
        offline[0].ends_with("it has no network, and its profile offers none that reaches names"),
        "{offline:?}"
    );
    assert!(offline[1].contains("`network = { choices = [\"none\", \"proxy\"] }`"), "{offline:?}");
    let with_proxy = desk.said(&["--network", "proxy"], ROUTELESS, 3);
    assert!(with_proxy.len() == 1 && with_proxy[0].contains("by its proxies and resolver"), "{with_proxy:?}");
    // What a command asks for is bytes that it chose: neither noise nor a flood keeps the resolver from its next answer.
    let flood = "for i in {1..2000}; do printf 'noise%s' $i > /dev/udp/127.0.0.1/53; done; getent hosts after.example; exit 3";
    let flooded = desk.said(&[], flood, 3);
    assert!(flooded[0].contains("the name after.example:"), "{flooded:?}");
    let many = desk.said(&[], "for i in {1..12}; do getent hosts n$i.example; done; exit 3", 3);
    assert!(many[0].contains("the names n1.example, n2.example, n3.example and 9 more:"), "{many:?}");
}

/// Four commands in one session of a gateway that this user serves.
const SESSION: &str = r#"
"$PROVOST" serve --listen "unix:$HOME/run/socket" --state "$HOME/state" --policies "$POLICIES" 2> "$HOME/log" &
gateway=$!
export PROVOST_GATEWAY="unix:$HOME/run/socket"
for try in {1..1200}; do "$PROVOST" ps > /dev/null 2>&1 && break; sleep 0.05; done
run() { "$PROVOST" run --session dev -- bash -c "$1"; }
run 'getent hosts first.example; exit 3'
run 'getent hosts between.example; true'
run 'getent hosts second.example; exit 4'
run 'exit 5'
status=$?
kill -INT $gateway && wait $gateway
exit $status
"#;

fn must_be_of_its_own_command(person: Person) {
    let desk = Desk::new(person);
    let runtime = desk.person.home().join("run");
    desk.person.make(&runtime);
    let mut command = desk.person.command("bash", &desk.work);
    command.env("PROVOST", desk.person.provost()).env("POLICIES", desk.person.policies_with_hosts_network());
    let output = command.args(["-c", SESSION]).output().expect("a shell is there");
    assert_eq!(output.status.code(), Some(5), "{}", shown(&output));
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let said: Vec<_> = text.lines().filter(|line| line.contains("not reached:")).collect();
    assert_eq!(said.len(), 2, "{text}");
    assert!(
        said[0].contains("the name first.example:") && said[1].contains("the name second.example:"),
        "{text}"
    );
}

/// A tool, how it is known to be there, what it is asked to fetch, and the name that it needs for it.
type Fetch = (&'static str, &'static str, &'static str, &'static str);

const FETCHES: [Fetch; 3] = [
    ("npm", "npm --version", "npm install --no-audit --no-fund is-number", "registry.npmjs.org"),
    (
        "pip",
        "python3 -m venv .venv && .venv/bin/pip --version",
        ".venv/bin/pip install --no-cache-dir six",
        "pypi.org",
    ),
    ("cargo", "cargo --version", "cargo init -q --vcs none --name a . ; cargo add itoa", "index.crates.io"),
];

/// With what outside is configured, the registry may have another name.
fn tools_must_say_so_at_once(person: Person) {
    if !toolchains::rustup(&person) {
        println!("SKIPPED: without cargo");
    }
    let desk = Desk::new(person);
    let mut tried = 0;
    for (tool, probe, fetch, name) in FETCHES {
        // rustup writes to its home when it first runs.
        let outside = desk.person.outside(probe, &desk.work);
        let inside = desk.run(&[], probe);
        if !(outside.status.success() && inside.status.success()) {
            println!("SKIPPED: {tool} is not in the sandbox: {} {}", shown(&outside), shown(&inside));
            continue;
        }
        tried += 1;
        let begun = Instant::now();
        let output = desk.run(&[], fetch);
        let took = begun.elapsed();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && took < AT_ONCE, "{tool} took {took:?}: {}", shown(&output));
        assert!(text.contains("not reached: the name") && text.contains(name), "{tool}: {}", shown(&output));
        assert!(text.lines().last() == Some(OPTION), "{tool}: {}", shown(&output));
        println!("{tool} says so after {took:?}");
    }
    assert!(tried > 0, "none of the tools is here");
}

#[test]
fn a_failed_command_says_what_it_did_not_reach_as_root() {
    Person::root().into_iter().for_each(must_say_what_was_not_reached);
}

#[test]
fn a_failed_command_says_what_it_did_not_reach_as_an_ordinary_user() {
    Person::ordinary().into_iter().for_each(must_say_what_was_not_reached);
}

#[test]
fn a_command_of_a_session_says_nothing_of_what_another_did_not_reach() {
    Person::ordinary().into_iter().for_each(must_be_of_its_own_command);
}

#[test]
#[ignore = "long: takes a toolchain of Rust"]
fn npm_pip_and_cargo_say_at_once_that_there_is_no_network_as_an_ordinary_user() {
    Person::ordinary().into_iter().for_each(tools_must_say_so_at_once);
}

/// Run by `.ci/long` alone.
mod nightly {
    use super::*;

    #[test]
    #[ignore = "long: takes a toolchain of Rust; .ci/long firsthour runs it"]
    fn npm_pip_and_cargo_say_at_once_that_there_is_no_network_as_root() {
        Person::root().into_iter().for_each(tools_must_say_so_at_once);
    }
}
