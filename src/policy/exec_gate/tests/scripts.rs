//! Scripts that a request names: what interprets them is denied and asked about as in the tree, and needs no rule.

use super::{
    super::super::{CommandSpec, evaluate::EvaluationTrace},
    requests::{decided, requested},
    *,
};

/// First lines of nominal files: the script, and its interpreter with an argument.
const LINES: &[(&str, &str)] = &[
    ("/work/build.sh", "/bin/bash"),
    ("/work/strict.sh", "/bin/sh -eu"),
    ("/work/login.sh", "/bin/bash -l"),
    ("/work/tool.py", "/usr/bin/env python3"),
    ("/work/split.py", "/usr/bin/env -S python3 -u"),
    ("/work/a-script", "/usr/bin/git push"),
    ("/work/push", "/usr/bin/git"),
    ("/work/by-env", "/usr/bin/env -S git push"),
    ("/work/by-options", "/usr/bin/env -S -i A=b git push"),
    ("/work/by-quotes", "/usr/bin/env -S 'git' push"),
    ("/work/by-loader", "/lib64/ld-linux-x86-64.so.2 /usr/bin/rm"),
    ("/work/by-busybox", "/usr/bin/busybox rm"),
    ("/work/by-own-busybox", "/opt/busybox rm"),
    ("/work/shell-in-busybox", "/usr/bin/busybox sh"),
    ("/work/nested", "/work/a-script"),
    ("/work/itself", "/bin/bash -c"),
    ("/work/again", "/usr/bin/env /work/again"),
    ("/work/of-home", "/tmp/x"),
    ("/usr/bin/fixed", "/usr/bin/git push"),
];

pub(super) fn interpreters(path: &str) -> Interpreters {
    let mut found = Interpreters::default();
    let mut script = path.to_owned();
    while let Some((_, line)) = LINES.iter().find(|(name, _)| *name == script) {
        let (path, argument) = line.split_once(' ').map_or((*line, None), |(path, rest)| (path, Some(rest)));
        let file = if path.starts_with("/tmp/") { Resolved::Unknown } else { file(path) };
        found.may_go_on = file == Resolved::Unknown;
        script = file.path().unwrap_or_default().to_owned();
        let argument = argument.map(|argument| argument.as_bytes().to_vec());
        found.chain.push(Interpreter { path: path.as_bytes().to_vec(), argument, file });
    }
    found
}

fn both(policy: &PolicySet, line: &str) -> [ExecDecision; 2] {
    ["gated", "a"].map(|profile| requested(policy, profile, line.split(' ').map(str::to_owned).collect()))
}

fn lines(policy: &PolicySet, line: &str) -> [ExecDecision; 2] {
    ["gated", "a"].map(|profile| {
        let command = CommandSpec::ShellLine(line.to_owned());
        decided(policy, profile, command).map_or_else(|denial| denial.decision(), |_| Allow)
    })
}

fn rules() -> PolicySet {
    policy(
        &(rule("push", "deny", "['git', 'push', '**']", "")
            + &rule("rm", "deny", "['rm', '**']", "")
            + &rule("scripts", "allow", "[['./*', '/usr/bin/fixed'], '**']", "")),
    )
}

#[test]
fn what_interprets_the_script_of_a_request_is_denied_as_in_the_tree() {
    let policy = rules();
    for script in ["a-script", "by-env", "by-options", "by-loader", "by-busybox", "by-own-busybox", "nested"]
    {
        assert_eq!(both(&policy, &format!("./{script} HEAD:x")), [Deny, Deny], "{script}");
        assert_eq!(lines(&policy, &format!("true && ./{script} HEAD:x")), [Deny, Deny], "{script}");
        assert_eq!(lines(&policy, &format!("cd /work; timeout 5 ./{script} $X")), [Deny, Deny], "{script}");
    }
    assert_eq!(both(&policy, "fixed x"), [Deny, Deny], "nobody can exchange it, and it is one");
    // The name that it is given by is an argument.
    assert_eq!(both(&policy, "./push x"), [Allow, Allow]);
    // What cannot be read of the first line, or of a file, may be anything.
    assert_eq!(both(&policy, "./by-quotes x")[1], Ask);
    assert_eq!(both(&policy, "./of-home x"), [Ask, Ask]);
    assert_eq!(both(&policy, "./again x")[1], Ask);
    assert_eq!(both(&policy, "./itself x")[1], Ask);
    // The shell in busybox may run what no gate sees.
    assert_eq!(both(&policy, "./shell-in-busybox x"), [Ask, Allow]);
}

#[test]
fn everyday_scripts_need_no_rule_for_what_interprets_them() {
    let policy = rules();
    for script in ["build.sh", "strict.sh", "login.sh", "tool.py", "split.py"] {
        assert_eq!(both(&policy, &format!("./{script} push --force")), [Allow, Allow], "{script}");
        assert_eq!(lines(&policy, &format!("./{script} push")), [Allow, Allow], "{script}");
    }
    assert_eq!(both(&policy, "/opt/other"), [Deny, Deny], "no rule allows it");
    let python = self::policy(
        &(rule("scripts", "allow", "['./*', '**']", "")
            + &rule("python", "ask", "['python3', '**', '--danger', '**']", "")),
    );
    for script in ["tool.py", "split.py"] {
        assert_eq!(both(&python, &format!("./{script} x")), [Allow, Allow], "{script}");
        assert_eq!(both(&python, &format!("./{script} --danger")), [Ask, Ask], "{script}");
    }
}

#[test]
fn a_rule_that_allows_an_interpreter_says_nothing_about_its_scripts() {
    let rules = rule("git", "allow", "['git', '**']", "starts = 'any'\neffects = { time_limit = '1s' }")
        + &rule("scripts", "allow", "['./a-script', '**']", "");
    let policy = policy(&rules);
    assert_eq!(both(&policy, "./push x"), [Deny, Deny], "the script needs a rule");
    let permit = decided(&policy, "gated", CommandSpec::Argv { command: "./a-script".into(), args: vec![] });
    let permit = permit.unwrap_or_else(|denial| panic!("{denial}"));
    assert_eq!((permit.spec().starts_any_rule(), permit.spec().time_limit()), (None, None));
}

#[test]
fn a_rule_for_requests_or_for_the_tree_holds_for_the_interpreter_of_a_request() {
    for at in ["request", "tree"] {
        let deny = rule("push", "deny", "['git', 'push', '**']", &format!("at = '{at}'"));
        let policy = policy(&(deny + &rule("scripts", "allow", "['./*', '**']", "")));
        assert_eq!(both(&policy, "./a-script x"), [Deny, Deny], "{at}");
    }
}

#[test]
fn what_interprets_a_script_is_recorded() {
    let command = CommandSpec::Argv { command: "./tool.py".into(), args: vec!["x".into()] };
    let policy = rules();
    let request = super::requests::request("gated", command);
    let EvaluationTrace { commands, .. } = policy.evaluate(&request, &LINKS).trace();
    assert_eq!(commands, ["./tool.py x", "/usr/bin/env python3 ./tool.py x", "python3 ./tool.py x"]);
}
