//! Variables that a line sets for itself, and those that reach a program.

use super::*;
use Decision::{Allow, Ask, Deny};

/// `PUSH`: any command but a push of git's. `ONLY`: nothing but `ls`.
const PUSH: &str = r#"
rule = [
    { id = "all", decision = "allow", argv = ["**"] },
    { id = "push", decision = "deny", argv = ["git", "push", "**"] },
]
"#;
const ONLY: &str = r#"rule = [{ id = "ls", decision = "allow", argv = ["ls", "**"] }]"#;

fn decide(rules: &str, line: &str, unseen: Unseen) -> Decision {
    let rules = rules_of(rules);
    let env = [("SET".to_owned(), "1".to_owned())].into();
    let request = RequestContext { env, ..in_work() };
    let context = EvalContext {
        unseen,
        assignment_verdict: &|name, _| match name {
            "DENIED" => AssignmentVerdict::Denied,
            "LOADS" => AssignmentVerdict::Loads,
            "GUARDED" | "SET" | "ENV" | "IFS" | "MY_EDITOR" => AssignmentVerdict::Guarded,
            _ => AssignmentVerdict::Allowed,
        },
        ..context(&rules, &NominalResolver, &request)
    };
    evaluate_rules(CommandInput::ShellLine(line, Dialect::Bash), context).decision
}

#[test]
fn a_variable_that_is_not_exported_reaches_no_program() {
    for line in [
        "GUARDED=1; ls",
        "for GUARDED in a b; do ls; done",
        "for ENV in dev prod; do ls; done",
        "read GUARDED; ls",
        "printf -v GUARDED x; ls",
        "MY_EDITOR='git push'; ls",
        "export OTHER=1; GUARDED=1; ls",
        "set -e; GUARDED=1; ls",
        "GUARDED=1; eval ls",
        "n=1; ls",
    ] {
        for unseen in [Unseen::Asked, Unseen::JudgedAtExec] {
            assert_eq!(decide(PUSH, line, unseen), Allow, "{line}");
            assert_eq!(decide(ONLY, line, unseen), Allow, "{line}");
        }
    }
}

#[test]
fn a_variable_that_is_exported_or_that_a_shell_reads_counts() {
    for line in [
        "GUARDED=1 ls",
        "export GUARDED=1; ls",
        "GUARDED=1; export GUARDED; ls",
        "GUARDED=1; eval 'export GUARDED'; ls",
        "export GUARDED; GUARDED=1; ls",
        "for i in a b; do GUARDED=1; ls; export GUARDED; done",
        "f() { GUARDED=1; ls; export GUARDED; }; f; f",
        "for i in a b; do GUARDED=1; ls; eval 'set -a'; done",
        "command export GUARDED; GUARDED=1; ls",
        "declare -x GUARDED; for GUARDED in a; do ls; done",
        "set -a; GUARDED=1; ls",
        "set -ea; GUARDED=1; ls",
        "set -o allexport; GUARDED=1; ls",
        "set $x; GUARDED=1; ls",
        "bash -a -c 'GUARDED=1; ls'",
        "export $x; GUARDED=1; ls",
        "SET=2; ls",
        "ENV=x ls",
        "IFS=x; ls",
        "for IFS in a; do ls; done",
    ] {
        assert_eq!(decide(PUSH, line, Unseen::Asked), Ask, "{line}");
    }
    for line in
        ["DENIED=1", "DENIED=1; ls", "for DENIED in a; do ls; done", "read DENIED", "export DENIED=1; ls"]
    {
        assert_eq!(decide(PUSH, line, Unseen::JudgedAtExec), Deny, "{line}");
    }
    assert_eq!(decide(PUSH, "MY_EDITOR='git push' ls", Unseen::JudgedAtExec), Deny);
    assert_eq!(decide(ONLY, "n=$(rm x)", Unseen::JudgedAtExec), Deny);
}

#[test]
fn code_is_loaded_only_where_any_command_is_allowed() {
    for line in ["LOADS=x ls", "export LOADS=x; ls", "env LOADS=x ls"] {
        assert_eq!(decide(PUSH, line, Unseen::JudgedAtExec), Allow, "{line}");
        assert_eq!(decide(PUSH, line, Unseen::Asked), Ask, "{line}");
        assert_eq!(decide(ONLY, line, Unseen::JudgedAtExec), Deny, "{line}");
        assert_eq!(decide(ONLY, line, Unseen::Asked), Deny, "{line}");
    }
    assert_eq!(decide(PUSH, "LOADS=x git push", Unseen::JudgedAtExec), Deny);
    let asks = r#"rule = [{ id = "all", decision = "ask", argv = ["**"] }]"#;
    assert_eq!(decide(asks, "LOADS=x ls", Unseen::JudgedAtExec), Deny);
}
