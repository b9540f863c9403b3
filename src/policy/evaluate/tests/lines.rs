//! Lines for the profile's shell: judged as what they are, that shell with the line as its argument.

use super::*;

const PROFILES: &str = "default_profile = 'a'\n[profile.a]\nenvironment.deny = ['LD_*']\n";

fn policy_of(rules: &[(&str, &str, &str)]) -> PolicySet {
    let rules = rules.iter().map(|(id, decision, argv)| {
        format!("[[rule]]\nid = '{id}'\ndecision = '{decision}'\nargv = {argv}\n")
    });
    PolicySet::parse("p", &(PROFILES.to_owned() + &rules.collect::<String>())).unwrap()
}

/// What is decided, and the rule.
fn decided(policy: &PolicySet, command: CommandSpec) -> (Decision, Option<String>) {
    match decide(policy, &Request { command, ..request() }) {
        Ok(permit) => (Decision::Allow, permit.rule().map(str::to_owned)),
        Err(denial) => (denial.decision(), Some(denial.rule())),
    }
}

fn both_forms(policy: &PolicySet, line: &str) -> (Decision, Option<String>) {
    let as_line = decided(policy, CommandSpec::ShellLine(line.into()));
    let args = vec!["-c".into(), line.into()];
    assert_eq!(as_line, decided(policy, CommandSpec::Argv { command: "/bin/sh".into(), args }), "{line:?}");
    as_line
}

const WITHOUT_COMMANDS: [&str; 8] =
    ["", "  ", "# c", "x=1", "x=1 y=2", ">f", "x=$(( 1 + 1 ))", "f() { rm x; }; :"];

#[test]
fn a_line_without_a_command_runs_the_shell_alone() {
    let open = policy_of(&[("anything", "allow", "['**']")]);
    let closed = policy_of(&[("list", "allow", "['ls', '**']")]);
    let careful = policy_of(&[("all", "ask", "['**']")]);
    for line in &WITHOUT_COMMANDS[..7] {
        assert_eq!(both_forms(&open, line), (Decision::Allow, Some("anything".into())), "{line:?}");
        assert_eq!(both_forms(&closed, line), (Decision::Allow, None), "{line:?}");
        assert_eq!(both_forms(&careful, line), (Decision::Ask, Some("all".into())), "{line:?}");
    }
}

#[test]
fn a_rule_about_the_shell_means_the_same_for_a_line_and_for_its_argument_vector() {
    for (decision, expected) in [("deny", Decision::Deny), ("ask", Decision::Ask)] {
        for argv in ["['sh', '**']", "['sh', '-c', '**']", "['/bin/sh', '**']"] {
            let policy = policy_of(&[("anything", "allow", "['**']"), ("no-shell", decision, argv)]);
            for line in WITHOUT_COMMANDS.into_iter().chain(["ls", "ls | wc"]) {
                assert_eq!(both_forms(&policy, line), (expected, Some("no-shell".into())), "{argv} {line:?}");
            }
        }
    }
    let other = policy_of(&[("anything", "allow", "['**']"), ("no-bash", "deny", "['bash', '**']")]);
    assert_eq!(both_forms(&other, "ls").0, Decision::Allow);
    assert_eq!(both_forms(&other, "bash -c ls").0, Decision::Deny);
}

#[test]
fn the_shell_hides_and_permits_nothing_of_its_line() {
    let closed = policy_of(&[("list", "allow", "['ls', '**']"), ("no-rm", "deny", "['rm', '**']")]);
    for (line, expected) in [
        ("ls", (Decision::Allow, Some("list"))),
        ("x=1; ls", (Decision::Allow, Some("list"))),
        ("x=1 ls >f", (Decision::Allow, Some("list"))),
        ("make", (Decision::Deny, Some("default"))),
        ("x=1; rm f", (Decision::Deny, Some("no-rm"))),
        ("LD_PRELOAD=./x", (Decision::Deny, Some("profile.a.environment"))),
        ("$X", (Decision::Ask, Some("no-rm"))),
        ("x=$(make)", (Decision::Deny, Some("default"))),
        ("(", (Decision::Ask, Some("no-rm"))),
    ] {
        let expected = (expected.0, expected.1.map(str::to_owned));
        assert_eq!(both_forms(&closed, line), expected, "{line:?}");
    }
}

#[test]
fn the_profiles_shell_is_seen_through_whatever_its_file_is_called() {
    let text = "default_profile = 'a'\n[profile.a]\nshell = '/opt/tools/bin/bash'\n\
                [[rule]]\nid = 'list'\ndecision = 'allow'\nargv = ['ls', '**']\n\
                [[rule]]\nid = 'no-rm'\ndecision = 'deny'\nargv = ['rm', '**']\n";
    let policy = PolicySet::parse("p", text).unwrap();
    let line = |line: &str| decided(&policy, CommandSpec::ShellLine(line.into())).0;
    assert_eq!((line("ls"), line("x=1"), line("rm f")), (Decision::Allow, Decision::Allow, Decision::Deny));
}
