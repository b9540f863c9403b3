//! What is executed, denied and reported when nobody is hostile.

use std::{fs, os::unix::fs::PermissionsExt};

use provost::proto::gate::{exec_denied::Cause, report};

use crate::{
    exec_gate::sandbox::{Sandbox, can_launch},
    support::{Attack, run_outside},
};

/// `cat` and `rm` are denied, `echo`, `true` and `ls` allowed.
pub(super) const RULES: &str = "
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

#[test]
fn an_exec_is_judged_by_its_file_however_it_is_named() {
    if !can_launch() {
        return;
    }
    let attack = Attack::compiled("execs");
    let mut sandbox = Sandbox::launch();
    let work = sandbox.work.path().to_owned();
    let program = sandbox.place(&attack).display().to_string();
    std::os::unix::fs::symlink("/bin/cat", work.join("innocent")).unwrap();
    let mut gateway = sandbox.gateway(RULES);
    let innocent = work.join("innocent").display().to_string();
    for argv in [
        vec!["plain", "/bin/cat", "x"],
        vec!["plain", "/bin/../bin//cat", "x"],
        vec!["plain", &innocent, "x"],
        vec!["plain", "./innocent", "x"],
        vec!["plain", "/proc/self/cwd/innocent", "x"],
        vec!["fd", "/bin/cat", "x"],
        vec!["at", "/bin", "cat", "x"],
        vec!["selffd", "/bin/cat", "x"],
    ] {
        let argv: Vec<&str> = std::iter::once(program.as_str()).chain(argv).collect();
        let output = sandbox.run_argv(&mut gateway, &argv);
        assert_eq!(output, "errno 13\n", "{argv:?}");
        let denial = gateway.denials().pop();
        assert_eq!(denial, Some((Cause::Rule, "cat".into())), "{argv:?}");
    }
    for (argv, expected) in [
        (vec!["plain", "/bin/echo", "a b", "", "c"], "a b  c\n"),
        (vec!["fd", "/bin/echo", "a"], "a\n"),
        (vec!["at", "/bin", "echo", "a"], "a\n"),
        (vec!["plain", "/proc/thread-self/root/bin/echo", "a"], "a\n"),
        (vec!["empty", "/bin/echo"], "\n"),
    ] {
        let argv: Vec<&str> = std::iter::once(program.as_str()).chain(argv).collect();
        let before = gateway.denials().len();
        assert_eq!(sandbox.run_argv(&mut gateway, &argv), expected, "{argv:?}");
        assert_eq!(gateway.denials().len(), before, "{argv:?}: {:?}", gateway.denials().last());
    }
    // A copy in memory is a file that no rule names.
    let output = sandbox.run_argv(&mut gateway, &[&program, "memfd", "/bin/echo", "a"]);
    assert_eq!((output.as_str(), gateway.denials().pop().unwrap().0), ("errno 13\n", Cause::Default));
}

#[test]
fn a_script_and_its_interpreter_are_both_judged() {
    if !can_launch() {
        return;
    }
    let mut sandbox = Sandbox::launch();
    let work = sandbox.work.path().to_owned();
    let script = |name: &str, text: &str| {
        fs::write(work.join(name), text).unwrap();
        fs::set_permissions(work.join(name), fs::Permissions::from_mode(0o755)).unwrap();
    };
    script("good", "#!/bin/sh\necho \"$0 $1\"\n");
    script("nested", "#!./good with\n");
    script("reads", "#!/bin/cat\nsecret\n");
    script("other", "#!/bin/sh\necho other\n");
    let rules = format!(
        "{RULES}[[rule]]\nid = 'scripts'\ndecision = 'allow'\nargv = [['./good', './reads', './nested'], '**']\n"
    );
    let mut gateway = sandbox.gateway(&rules);
    assert_eq!(sandbox.run(&mut gateway, "./good one"), "./good one\n");
    assert_eq!(sandbox.run(&mut gateway, "./nested"), "./good with\n");
    assert_eq!(gateway.denials(), []);
    let output = sandbox.run(&mut gateway, "./reads; echo $?; ./other; echo $?");
    assert!(!output.contains("secret") && !output.contains("other\n"), "{output}");
    assert_eq!(gateway.denials(), [(Cause::Rule, "reads".into()), (Cause::Default, "other".into())]);
}

#[test]
fn an_exec_that_is_only_asked_about_is_answered_by_the_same_rules() {
    if !can_launch() {
        return;
    }
    let attack = Attack::compiled("execs");
    if run_outside(&attack, &["check", "/bin/cat"]).1 != "checked\n" {
        println!("SKIPPED: AT_EXECVE_CHECK is there since Linux 6.14");
        return;
    }
    let mut sandbox = Sandbox::launch();
    let program = sandbox.place(&attack).display().to_string();
    let mut gateway = sandbox.gateway(RULES);
    assert_eq!(sandbox.run_argv(&mut gateway, &[&program, "check", "/bin/echo", "a"]), "checked\n");
    assert_eq!(gateway.denials(), []);
    assert_eq!(sandbox.run_argv(&mut gateway, &[&program, "check", "/bin/cat", "a"]), "errno 13\n");
    assert_eq!(gateway.denials(), [(Cause::Rule, "cat".into())]);
}

#[test]
fn what_another_process_traces_is_not_executed() {
    if !can_launch() {
        return;
    }
    let attack = Attack::compiled("execs");
    assert_eq!(run_outside(&attack, &["traced", "/bin/echo"]).1, "traced\n");
    let mut sandbox = Sandbox::launch();
    let program = sandbox.place(&attack).display().to_string();
    let mut gateway = sandbox.gateway(RULES);
    assert_eq!(sandbox.run_argv(&mut gateway, &[&program, "traced", "/bin/echo"]), "errno 13\n");
    assert_eq!(gateway.denials(), [(Cause::Traced, "echo".into())]);
}

#[test]
fn commands_cannot_install_a_listener_or_find_the_gate() {
    if !can_launch() {
        return;
    }
    let attack = Attack::compiled("execs");
    assert_eq!(run_outside(&attack, &["listener"]).1.lines().next(), Some("listener"));
    let mut sandbox = Sandbox::launch();
    let program = sandbox.place(&attack).display().to_string();
    let mut gateway = sandbox.gateway(RULES);
    assert_eq!(sandbox.run_argv(&mut gateway, &[&program, "listener"]), "errno 1\nerrno 1\n");
    let gate = sandbox.gate().pid;
    let line =
        format!("for p in /proc/[0-9]*; do read c <$p/comm; echo $c; done; kill -9 {gate}; kill -9 -1");
    let output = sandbox.run(&mut gateway, &line);
    assert!(output.contains("sh\n") && !output.contains("provost-gate"), "{output}");
    assert!(fs::read_to_string(format!("/proc/{gate}/comm")).is_ok_and(|name| name == "provost-gate\n"));
    assert_eq!(sandbox.run(&mut gateway, "/bin/echo still"), "still\n");
}

#[test]
fn a_new_policy_holds_for_the_next_exec_and_a_broken_one_does_not() {
    if !can_launch() {
        return;
    }
    let mut sandbox = Sandbox::launch();
    let mut gateway = sandbox.gateway(RULES);
    assert_eq!(sandbox.run(&mut gateway, "/bin/echo ran"), "ran\n");
    gateway.set_policy(2, "[[rule]]\nid = 'other'\ndecision = 'allow'\nargv = ['true']\n");
    assert!(sandbox.run(&mut gateway, "/bin/echo ran").contains("Permission denied"));
    assert_eq!(gateway.reports.last().unwrap().policy_generation, 2);
    let failure = gateway.set_broken_policy(3);
    assert!(failure.contains("no_such_key"), "{failure}");
    assert!(sandbox.run(&mut gateway, "/bin/echo ran").contains("Permission denied"));
    assert_eq!(gateway.reports.last().unwrap().policy_generation, 2);
}

#[test]
fn the_gate_has_two_capabilities_over_the_sandbox_and_an_id_of_its_own() {
    if !can_launch() {
        return;
    }
    let sandbox = Sandbox::launch();
    let (gate, supervisor) = (sandbox.gate().pid, sandbox.launched.supervisor_pid);
    let status = fs::read_to_string(format!("/proc/{gate}/status")).unwrap();
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.unwrap_or_default().split_whitespace().collect::<Vec<_>>().join(" ")
    };
    // CAP_KILL and CAP_SYS_PTRACE.
    let both = format!("{:016x}", (1_u64 << 5) | (1 << 19));
    for (name, expected) in [
        ("CapEff", both.as_str()),
        ("CapPrm", &both),
        ("CapBnd", "0000000000000000"),
        ("CapInh", "0000000000000000"),
        ("NoNewPrivs", "1"),
        ("Threads", "1"),
        ("Seccomp", "2"),
    ] {
        assert_eq!(field(name), expected, "{name}");
    }
    // Also where the tests themselves run under filters.
    let own = fs::read_to_string("/proc/self/status").unwrap();
    let own = own.lines().find_map(|line| line.strip_prefix("Seccomp_filters:"));
    let own = own.map_or(0, |count| count.trim().parse::<u32>().unwrap());
    assert_eq!(field("Seccomp_filters"), (own + 1).to_string());
    // Nobody but root can look at these.
    if nix::unistd::geteuid().is_root() {
        let namespace = |pid: u32, name| fs::read_link(format!("/proc/{pid}/ns/{name}")).unwrap();
        for name in ["user", "mnt", "ipc", "uts", "net", "cgroup"] {
            assert_eq!(namespace(gate, name), namespace(supervisor, name));
        }
        assert_ne!(namespace(gate, "pid"), namespace(supervisor, "pid"));
    }
    let ids = &sandbox.launched.identity;
    if ids.privileged {
        let (own, files) = (ids.gate_host_uid, ids.command_host_uid);
        assert_eq!(field("Uid"), format!("{own} {own} {own} {files}"));
        assert!(![0, ids.supervisor_host_uid, files].contains(&own));
    }
}
