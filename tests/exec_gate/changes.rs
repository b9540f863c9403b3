//! Honest work around an exec: its file is linked, replaced or may not be read, and what follows an exec that fails.

use std::{fs, os::unix::fs::PermissionsExt, path::Path};

use crate::{
    exec_gate::{
        execs::RULES,
        sandbox::{Gateway, Sandbox, can_launch},
    },
    support::{Attack, run_outside},
};

const TOOL: &str =
    "[[rule]]\nid = 'tool'\ndecision = 'allow'\nargv = [['./tool', './script', './broken'], '**']\n";

fn place(from: &Path, to: &Path, mode: u32) {
    fs::copy(from, to).unwrap();
    fs::set_permissions(to, fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn a_file_that_is_changed_around_its_exec_is_executed() {
    if !can_launch() {
        return;
    }
    let attack = Attack::compiled("execs");
    let mut sandbox = Sandbox::launch();
    let work = sandbox.work.path().to_owned();
    let program = sandbox.place(&attack).display().to_string();
    let mut gateway = sandbox.gateway(&format!("{RULES}{TOOL}"));
    fs::write(work.join("script"), "#!/bin/true\n").unwrap();
    for (tool, copied) in [("tool", Path::new("/bin/true")), ("script", &work.join("original"))] {
        fs::write(work.join("original"), "#!/bin/true\n").unwrap();
        let at = work.join(tool);
        place(copied, &at, 0o755);
        let (at, copied) = (at.display().to_string(), copied.display().to_string());
        let argv = ["changed", "2", &at, &copied];
        assert_eq!(run_outside(&attack, &argv).1, "killed 0, others ran\n", "{tool}");
        // The copies outside are root's.
        place(Path::new(&copied), Path::new(&at), 0o755);
        let argv: Vec<&str> = std::iter::once(program.as_str()).chain(argv).collect();
        let printed = sandbox.run_argv(&mut gateway, &argv);
        assert_eq!(printed, "killed 0, others ran\n", "{tool}: {:?}", gateway.reports);
        assert_eq!(gateway.denials(), [], "{tool}");
    }
}

/// A sandbox with a file `./broken`, which the kernel refuses to execute and no rule does; and the program that tries.
fn with_broken() -> (Sandbox, Gateway, String) {
    let attack = Attack::compiled("execs");
    let sandbox = Sandbox::launch();
    let program = sandbox.place(&attack).display().to_string();
    let broken = sandbox.work.path().join("broken");
    fs::write(&broken, "no program").unwrap();
    fs::set_permissions(&broken, fs::Permissions::from_mode(0o755)).unwrap();
    let gateway = sandbox.gateway(&format!("{RULES}{TOOL}"));
    (sandbox, gateway, program)
}

#[test]
fn a_thread_whose_exec_failed_executes_again_at_once() {
    if !can_launch() {
        return;
    }
    let (mut sandbox, mut gateway, program) = with_broken();
    for (threads, count, failed) in [("1", "500", "failed 500\n"), ("4", "100", "failed 400\n")] {
        let argv = [&program, "failing", threads, count, "./broken"];
        assert_eq!(sandbox.run_argv(&mut gateway, &argv), failed);
    }
    assert_eq!(gateway.denials(), []);
    // Nothing that was seized is left so.
    assert_eq!(sandbox.run_argv(&mut gateway, &[&program, "plain", "/bin/echo", "still"]), "still\n");
}

#[test]
fn a_call_after_an_exec_that_failed_is_not_interrupted() {
    if !can_launch() {
        return;
    }
    let (mut sandbox, mut gateway, program) = with_broken();
    let argv = [&program, "waiting", "200", "./broken"];
    assert_eq!(sandbox.run_argv(&mut gateway, &argv), "interrupted 0\n");
}

#[test]
fn a_program_that_may_be_executed_and_not_read_runs() {
    if !can_launch() {
        return;
    }
    let attack = Attack::compiled("execs");
    let mut sandbox = Sandbox::launch();
    let program = sandbox.place(&attack).display().to_string();
    let work = sandbox.work.path().to_owned();
    place(Path::new("/bin/echo"), &work.join("tool"), 0o111);
    let mut gateway = sandbox.gateway(&format!("{RULES}{TOOL}"));
    assert_eq!(sandbox.run_argv(&mut gateway, &[&program, "plain", "./tool", "a"]), "a\n");
    // A rule holds for it as for any other.
    place(Path::new("/bin/cat"), &work.join("cat"), 0o111);
    assert_eq!(sandbox.run_argv(&mut gateway, &[&program, "plain", "./cat", "a"]), "errno 13\n");
    // The interpreter could not read it either. It is not what was evaluated.
    fs::write(work.join("script"), "#!/bin/echo\n").unwrap();
    fs::set_permissions(work.join("script"), fs::Permissions::from_mode(0o111)).unwrap();
    assert_eq!(sandbox.run_argv(&mut gateway, &[&program, "plain", "./script"]), "");
}
