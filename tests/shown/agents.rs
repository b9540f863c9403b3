//! docs/agents.md: the rows of its table that need no other program. Its blocks are run by `tests/mcp` and `tests/exec_server`.

use crate::support::lacks;
use crate::{
    shown::readme::{AGENT, agent_behind, at, succeeded, text},
    support::{Gateway, Person},
};

#[test]
fn the_rows_of_the_table_start_an_agent() {
    if lacks(&["python3"]) {
        return;
    }
    let person = Person::new();
    // In the project, which the sandbox of a confined agent shows. Its name is its filter of system calls.
    let agent = person.at("project/agent");
    let told = AGENT.replace(
        "' '.join(sys.argv[1:])",
        "open('/proc/self/status').read().split('Seccomp:')[1].split()[0]",
    );
    assert_ne!(told, AGENT);
    person.install_as(&agent, &told);
    for line in
        ["provost acp -- AGENT", "provost acp --offer-tools -- AGENT", "provost acp --confine-agent -- AGENT"]
    {
        let line = line.replace("AGENT", &agent.display().to_string());
        let answer = agent_behind(&mut person.shell(&format!("exec {line}")));
        let is_confined = answer["result"]["agentInfo"]["name"] == "2";
        assert_eq!(is_confined, line.contains("--confine-agent"), "{line}: {answer}");
    }
}

#[test]
fn the_row_of_a_script_runs_a_command() {
    let person = Person::new();
    let line = "provost run -- COMMAND".replace("COMMAND", "grep Seccomp: /proc/self/status");
    assert_eq!(text(&succeeded(&mut person.shell(&line)).stdout), "Seccomp:\t2\n");
}

#[test]
fn what_an_agent_ran_by_its_shell_is_found_in_the_journal() {
    let (person, gateway) = (Person::new(), Gateway::start());
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_provost"), person.at("bin/provost-shell"))
        .expect("a link can be made");
    person.install("some-agent", "\"$SHELL\" -c 'echo said by an agent'; true");
    succeeded(&mut at(&person, &gateway, "SHELL=provost-shell some-agent"));
    succeeded(&mut at(&person, &gateway, "provost run -- echo said by a person"));
    let found = text(&succeeded(&mut at(&person, &gateway, "provost audit query --front-end shell")).stdout);
    assert!(found.contains("said by an agent") && !found.contains("said by a person"), "{found}");
    // The gateway is a test's: its journal has no usual place.
    let journal = gateway.state.join("journal");
    let verify = "provost audit verify".replace("audit", &format!("audit --journal {}", journal.display()));
    succeeded(&mut at(&person, &gateway, &verify));
    gateway.stop();
}

#[test]
fn doctor_lists_the_agents_that_are_installed_and_ends_with_the_next_thing_to_do() {
    let person = Person::new();
    let page = || {
        // What this host lacks is no fault of the page.
        let output = person.shell("provost doctor").output().expect("bash starts");
        assert!(output.status.code().is_some_and(|code| code < 125), "{output:?}");
        text(&output.stdout)
    };
    let next = |page: &str| {
        let last = page.lines().last().and_then(|line| line.strip_prefix("Next: ")).unwrap_or_default();
        assert!(!last.is_empty(), "{page}");
        last.to_owned()
    };
    let without = page();
    assert!(!without.contains("Agents found here"), "{without}");
    let before = next(&without);
    for name in ["codex", "claude-code-acp"] {
        person.install(name, "exit 1");
    }
    let with = page();
    for (name, configured) in
        [("codex", "provost exec-server --root DIR"), ("claude-code-acp", "provost acp --agent claude-code")]
    {
        let program = person.at("bin").join(name).display().to_string();
        let line = with.lines().find(|line| line.trim_start().starts_with(&format!("{program}: ")));
        assert!(line.is_some_and(|line| line.contains(configured)), "{name}: {with}");
    }
    // Where nothing is missing, it is an agent.
    assert_eq!(next(&with).contains("provost acp --agent"), before.starts_with("provost run"), "{with}");
}
