//! What is executed, denied and reported when nobody is hostile.

use std::fs;

use provost::proto::gate::{exec_denied::Cause, report};

use crate::sandbox::{Sandbox, can_launch};

/// `cat` and `rm` are denied, `echo`, `true` and `ls` allowed.
pub const RULES: &str = "
[[rule]]
id = 'some'
decision = 'allow'
argv = [['echo', 'true', 'ls', 'printf'], '**']
[[rule]]
id = 'no-cat'
decision = 'deny'
argv = ['cat', '**']
reason = 'cats are not allowed'
";

#[test]
fn a_denied_exec_fails_with_eacces_when_the_journal_has_it_and_an_allowed_one_runs() {
    if !can_launch() {
        return;
    }
    let mut sandbox = Sandbox::launch();
    let mut gateway = sandbox.gateway(RULES);
    assert_eq!(gateway.hello.policy_generation, 0);
    let held = sandbox.start("/bin/cat /etc/passwd; echo $?; /bin/echo ran; /usr/bin/rm x; echo $?");
    let report = gateway.report();
    let Some(report::Report::Denied(denied)) = &report.report else { panic!("{report:?}") };
    assert_eq!((denied.cause(), denied.rule.as_str()), (Cause::Rule, "no-cat"));
    assert_eq!(denied.reason, "cats are not allowed");
    let exec = denied.exec.as_ref().unwrap();
    assert_eq!(exec.argv, ["/bin/cat", "/etc/passwd"]);
    assert!(exec.file.ends_with("/cat") && exec.cwd == sandbox.work.path().display().to_string());
    assert_eq!((report.number, report.terminal_id.as_str()), (1, "term_0"));
    // It waits for the journal: nothing was written.
    assert_eq!(held.output(0), b"");
    gateway.recorded(report.number);
    let report = gateway.recorded_report();
    let Some(report::Report::Denied(denied)) = &report.report else { panic!("{report:?}") };
    assert_eq!((denied.cause(), report.number), (Cause::Default, 2));
    let (exit, output) = sandbox.end(&held);
    let lines: Vec<&str> = output.lines().collect();
    assert_eq!(&lines[1..3], ["126", "ran"], "{output}");
    assert!(lines[0].contains("Permission denied") && lines[3].contains("Permission denied"), "{output}");
    assert_eq!(exit.survivors, 0);
    let report = gateway.recorded_report();
    let Some(report::Report::Allowed(allowed)) = &report.report else { panic!("{report:?}") };
    assert_eq!(allowed.execs.len(), 1);
    assert_eq!((allowed.execs[0].count, allowed.execs[0].rule.as_str()), (1, "some"));
}

#[test]
fn a_program_that_is_not_there_is_answered_as_without_a_gate_and_not_reported() {
    if !can_launch() {
        return;
    }
    let mut sandbox = Sandbox::launch();
    fs::write(sandbox.work.path().join("plain"), "no program").unwrap();
    let mut gateway = sandbox.gateway(RULES);
    let line =
        "/no/such/program; echo $?; ./plain; echo $?; /etc/passwd/x; echo $?; /etc; echo $?; nosuch; echo $?";
    let output = sandbox.run(&mut gateway, line);
    let codes: Vec<&str> = output.lines().filter(|line| line.len() < 4).collect();
    assert_eq!(codes, ["127", "126", "127", "126", "127"], "{output}");
    assert_eq!(gateway.denials(), []);
}
