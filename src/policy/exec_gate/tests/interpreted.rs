//! Scripts that a process executes, and what interprets them.

use super::*;

#[test]
fn a_script_is_allowed_by_its_own_rule_and_denied_by_its_interpreters_too() {
    let rules = rule("scripts", "allow", "['./scripts/*', '**']", "")
        + &rule("perl", "deny", "['perl', '**']", "")
        + &rule("exec", "ask", "['python3', '**', '--danger', '**']", "");
    let policy = policy(&rules);
    let script = |line: &str, by: &[(&str, Option<&str>)]| Exec::of(line).by(by).decision(&policy);
    assert_eq!(script("/work/scripts/x --fast", &[("/usr/bin/python3", None)]), Allow);
    assert_eq!(script("/work/scripts/x --danger", &[("/usr/bin/python3", None)]), Ask);
    assert_eq!(script("/work/scripts/x", &[("/usr/bin/python3", Some("--danger"))]), Ask);
    assert_eq!(script("/work/scripts/x", &[("/usr/bin/perl", Some("-w"))]), Deny);
    assert_eq!(script("/work/scripts/x", &[("/work/own", None), ("/usr/bin/perl", None)]), Deny);
    assert_eq!(script("/work/scripts/x", &[("/usr/bin/busybox", Some("perl"))]), Deny);
    assert_eq!(script("/work/other/x", &[("/bin/sh", None)]), Deny);
    assert_eq!(
        Exec::of("/work/other/x").by(&[("/bin/sh", None)]).starting_anything().decision(&policy),
        Allow
    );
}

#[test]
fn a_script_is_what_the_kernel_calls_it_to_its_interpreter() {
    let policy = policy(&rule("push", "deny", "['git', 'push', '**']", ""));
    let git = |script: &'static str, argument: Option<&str>| {
        let exec = Exec::of("/work/push x").called_script(script).by(&[("/usr/bin/git", argument)]);
        exec.starting_anything().decision(&policy)
    };
    // The name is an argument.
    assert_eq!(git("push", None), Deny);
    assert_eq!(git("./push", None), Allow);
    assert_eq!(git("/work/push", None), Allow);
    assert_eq!(git("/dev/fd/3", None), Allow);
    assert_eq!(git("./push", Some("push")), Deny);
    // As git reads it, this is one word.
    assert_eq!(git("./push", Some("push -f")), Allow);
    let nested = |script: &'static str, by: &[(&str, Option<&str>)]| {
        Exec::of("/work/push x").called_script(script).by(by).starting_anything().decision(&policy)
    };
    assert_eq!(nested("push", &[("/work/own", None), ("/usr/bin/git", None)]), Allow);
    assert_eq!(nested("x", &[("push", None), ("/usr/bin/git", None)]), Deny);
    assert_eq!(nested("x", &[("/work/own", None), ("/usr/bin/git", Some("push"))]), Deny);
    assert_eq!(nested("push", &[("/usr/bin/git", None), ("/usr/bin/true", None)]), Deny);
    // Bytes that are no text are still an interpreter.
    let mut bytes = Exec::of("/work/push x").by(&[("/usr/bin/git", Some("push"))]).starting_anything();
    assert_eq!(bytes.decision(&policy), Deny);
    bytes.interpreters[0].argument = Some(b"push\xff".to_vec());
    assert_eq!(bytes.decision(&policy), Allow);
    let any_argument = self::policy(&rule("git", "deny", "['git', 'p*', '**']", ""));
    assert_eq!(bytes.decision(&any_argument), Deny);
}
