//! docs/acp.md: the first checks, editors' settings, a confined agent, and the suite for proxies.

use crate::support::{acp_conformance, lacks};
use std::{fs, path::Path};

use serde_json::Value;

use crate::{
    shown::{
        blocks::{block, blocks, lines},
        readme::{AGENT, agent_behind, succeeded, text},
    },
    support::Person,
};

const PAGE: &str = "docs/acp.md";
/// The agent of the page's settings.
const NAME: &str = "claude-code-acp";

#[test]
fn the_first_checks_pass() {
    let person = Person::new();
    for line in lines(PAGE, "echo \"it works\"") {
        let output = person.shell(&line).output().expect("bash starts");
        let said = text(&[output.stdout, output.stderr].concat());
        match line.split_whitespace().take(2).collect::<Vec<_>>()[..] {
            // What is missing here is no fault of the page.
            ["provost", "doctor"] => assert!(output.status.code().is_some_and(|code| code < 125), "{said}"),
            ["provost", "run"] => assert!(output.status.success() && said.contains("it works"), "{said}"),
            _ => panic!("{PAGE} has a line that nobody runs: {line}"),
        }
    }
}

/// The command of each of the page's settings, with its arguments.
fn commands() -> Vec<Vec<String>> {
    let (mut commands, mut settings) = (Vec::new(), 0);
    for block in blocks(PAGE).iter().filter(|block| block.contains(NAME) && !block.contains("npx ")) {
        settings += 1;
        let command = match serde_json::from_str::<Value>(block) {
            Ok(json) => of_json(&json),
            // Another language: its words, from the program on.
            Err(_) => block.split('"').skip(1).step_by(2).map(str::to_owned).collect(),
        };
        let from =
            command.iter().position(|word| Path::new(word).file_name().is_some_and(|name| name == "provost"));
        let from = from.unwrap_or_else(|| panic!("no command of provost: {block}"));
        commands.push(command[from..].to_vec());
    }
    assert_eq!(settings, 6, "the page has that many settings");
    commands
}

fn of_json(value: &Value) -> Vec<String> {
    let Some(members) = value.as_object() else { return Vec::new() };
    match (members.get("command"), members.get("args").and_then(Value::as_array)) {
        (Some(command), Some(args)) => {
            let words = std::iter::once(command).chain(args);
            words.map(|word| word.as_str().expect("a text").to_owned()).collect()
        }
        _ => members.values().flat_map(of_json).collect(),
    }
}

#[test]
fn an_editors_settings_start_the_agent_behind_provost() {
    if lacks(&["python3"]) {
        return;
    }
    let person = Person::new();
    person.install_as(&person.at("bin").join(NAME), AGENT);
    for mut command in commands() {
        assert!(command.ends_with(&["--".to_owned(), NAME.to_owned()]), "{command:?}");
        // Where it is installed differs.
        command[0] = "provost".to_owned();
        let answer = agent_behind(&mut person.shell(&format!("exec {}", command.join(" "))));
        assert_eq!(answer["result"]["agentInfo"]["name"], "none", "{command:?}");
    }
}

#[test]
fn a_confined_agent_starts_with_the_policy_of_the_page() {
    if lacks(&["python3"]) {
        return;
    }
    let person = Person::new();
    let policies = person.at("home").join("policies");
    fs::create_dir(&policies).expect("a directory can be made");
    let default = Path::new(env!("CARGO_MANIFEST_DIR")).join("policies/default.toml");
    fs::copy(default, policies.join("default.toml")).expect("the policy is there");
    let own = [block(PAGE, "[profile.mine]"), block(PAGE, "id = \"model\"")].join("\n");
    fs::write(policies.join("own.toml"), own).expect("a file can be written");
    // In the project, which the sandbox shows; the page's is where npm installs.
    let agent = person.at("project/agent");
    let told = AGENT.replace(
        "' '.join(sys.argv[1:])",
        "open('/proc/self/status').read().split('Seccomp:')[1].split()[0]",
    );
    assert_ne!(told, AGENT);
    person.install_as(&agent, &told);
    let named = |line: &str| line.replace("DIR", &policies.display().to_string());
    succeeded(&mut person.shell(&named("provost policy check DIR")));
    let line = named("provost acp --policies DIR --profile mine -- AGENT");
    let line = line.replace("AGENT", &agent.display().to_string());
    let answer = agent_behind(&mut person.shell(&format!("exec {line}")));
    assert_eq!(answer["result"]["agentInfo"]["name"], "0", "the agent itself is outside: {answer}");
    for line in lines(PAGE, "--confine-agent --network proxy") {
        let line = named(&line).replace("/usr/local/bin/claude-agent-acp", &agent.display().to_string());
        let mut shell = person.shell(&format!("exec {line}"));
        let answer = agent_behind(shell.env("ANTHROPIC_API_KEY", "none"));
        assert_eq!(answer["result"]["agentInfo"]["name"], "2", "it has a filter of system calls: {line}");
    }
}

#[test]
fn a_proxy_is_checked_by_the_suite() {
    let person = Person::new();
    std::os::unix::fs::symlink(acp_conformance(), person.at("bin/acp-conformance"))
        .expect("a link can be made");
    person.install_as(&person.at("project/my-proxy"), "#!/bin/sh\nexec provost acp \"$@\"\n");
    for line in lines(PAGE, "--list") {
        // All cases are acp::the_suite_passes' and the like; here it is the command that counts.
        let line = match line.contains("--only") || line.contains("--list") {
            true => line,
            false => line.replace("acp-conformance", "acp-conformance --only TC-001"),
        };
        let said = text(&succeeded(&mut person.shell(&line)).stdout);
        assert!(said.contains("TC-"), "{line}: {said}");
    }
}
