//! Nothing that was not evaluated runs one instruction, whatever changes while an exec is evaluated.
//!
//! Each race is won first: outside, and against a listener that judges and does not verify.

use std::{fs, os::unix::fs::PermissionsExt, path::Path, time::Instant};

use provost::proto::gate::exec_denied::Cause;

use crate::{
    exec_gate::sandbox::{Sandbox, TIMEOUT, can_launch},
    support::{Attack, run_outside},
};

/// How long each race takes; `PROVOST_RACE_SECONDS` says otherwise.
const SECONDS: u32 = 2;

fn seconds() -> String {
    let given = std::env::var("PROVOST_RACE_SECONDS").ok().and_then(|text| text.parse().ok());
    given.unwrap_or(SECONDS).to_string()
}

const RULES: &str = "
[[rule]]
id = 'good'
decision = 'allow'
argv = ['echo', 'good']
[[rule]]
id = 'ran'
decision = 'allow'
argv = ['echo', ['ran', 'leader', 'thread', 'killed']]
";

/// A program that prints `evil`, which no rule allows.
fn evil_in(directory: &Path) -> String {
    let path = directory.join("echo");
    fs::write(&path, "#!/bin/sh\necho evil\n").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path.display().to_string()
}

/// What was printed: the number that started, and all other lines.
fn lines_of(output: &str) -> (u32, Vec<&str>) {
    let started = output.lines().find_map(|line| line.strip_prefix("started ")?.parse().ok());
    let others = output.lines().filter(|line| !line.starts_with("started ")).collect();
    (started.unwrap_or_else(|| panic!("it did not come to its end: {output}")), others)
}

/// Runs the attack outside, a second at a time, until the race is won: on a busy host the two threads of one may not meet for seconds.
fn assert_wins(arguments: &[&str]) {
    let (attack, begun) = (Attack::compiled("execs"), Instant::now());
    while !lines_of(&run_outside(&attack, arguments).1).1.contains(&"evil") {
        assert!(begun.elapsed() < TIMEOUT, "the race is won without the gate");
    }
}

/// Runs a race under the gate: only what is good ran, and something was caught at its exec.
fn race(arguments: impl Fn(&Path) -> Vec<String>, good: &str, is_caught_at_exec: bool) {
    race_under(|_| RULES.to_owned(), arguments, good, is_caught_at_exec);
}

/// The same under rules that depend on the workspace.
fn race_under(
    rules: impl Fn(&Path) -> String,
    arguments: impl Fn(&Path) -> Vec<String>,
    good: &str,
    is_caught_at_exec: bool,
) {
    let attack = Attack::compiled("execs");
    let mut sandbox = Sandbox::launch();
    let program = sandbox.place(&attack).display().to_string();
    let mut gateway = sandbox.gateway(&rules(sandbox.work.path()));
    let arguments = arguments(sandbox.work.path());
    let argv: Vec<&str> =
        std::iter::once(program.as_str()).chain(arguments.iter().map(String::as_str)).collect();
    let output = sandbox.run_argv(&mut gateway, &argv);
    let (started, printed) = lines_of(&output);
    let denied = gateway.denials();
    let changed = denied.iter().filter(|(cause, _)| *cause == Cause::Changed).count();
    println!(
        "{started} started, {} ran, {changed} killed at their exec, {} denied",
        printed.len(),
        denied.len()
    );
    assert!(printed.iter().all(|line| *line == good), "only {good} runs: {printed:?}");
    assert!(!printed.is_empty(), "something runs");
    assert!(!is_caught_at_exec || changed > 0, "the race was on");
}

fn owned(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

fn rewritten_arguments(mode: &str, seconds: &str) {
    if !can_launch() {
        return;
    }
    assert_wins(&[mode, "1", "/bin/echo"]);
    race(|_| owned(&[mode, seconds, "/bin/echo"]), "good", true);
}

#[test]
fn a_listener_that_does_not_verify_loses_the_race() {
    assert_wins(&["judged", "1", "/bin/echo"]);
}

#[test]
fn an_argument_that_a_thread_rewrites_is_the_one_that_was_evaluated() {
    rewritten_arguments("argv", &seconds());
}

#[test]
fn an_argument_that_a_process_with_the_same_memory_rewrites_is_the_one_that_was_evaluated() {
    rewritten_arguments("sibling", &seconds());
}

#[test]
fn an_argument_that_another_process_rewrites_is_the_one_that_was_evaluated() {
    rewritten_arguments("mem", &seconds());
}

/// Only with this variable may it run.
const VARIABLE_RULES: &str = "
[[rule]]
id = 'good-variable'
decision = 'allow'
argv = ['printenv', 'W']
when = { principal = ['tester'], env = { W = 'good' } }
";

fn rewritten_environment(seconds: &str) {
    if !can_launch() {
        return;
    }
    assert_wins(&["env", "1", "/usr/bin/printenv"]);
    let arguments = |_: &Path| owned(&["env", seconds, "/usr/bin/printenv"]);
    race_under(|_| VARIABLE_RULES.to_owned(), arguments, "good", true);
}

#[test]
fn a_variable_that_a_thread_rewrites_is_the_one_that_was_evaluated() {
    rewritten_environment(&seconds());
}

/// A script whose first line runs `echo good`, or `echo evil` after four of its bytes were written.
fn script_in(directory: &Path) -> String {
    let path = directory.join("script");
    fs::write(&path, "#!/bin/echo good\n").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).unwrap();
    path.display().to_string()
}

fn rewritten_file(seconds: &str) {
    if !can_launch() {
        return;
    }
    let attack = Attack::compiled("execs");
    let outside = tempfile::tempdir_in("/var/tmp").unwrap();
    let output = run_outside(&attack, &["rewrite", "1", &script_in(outside.path())]).1;
    assert!(
        lines_of(&output).1.iter().any(|line| line.starts_with("evil ")),
        "the race is won without the gate"
    );
    let mut sandbox = Sandbox::launch();
    let program = sandbox.place(&attack).display().to_string();
    let script = script_in(sandbox.work.path());
    let rules = format!(
        "[[rule]]\nid = 'script'\ndecision = 'allow'\nargv = ['{script}']\n\
         [[rule]]\nid = 'evil'\ndecision = 'deny'\nargv = ['echo', 'evil', '**']\n"
    );
    let mut gateway = sandbox.gateway(&rules);
    let output = sandbox.run_argv(&mut gateway, &[&program, "rewrite", seconds, &script]);
    let (started, printed) = lines_of(&output);
    let denied = gateway.denials();
    println!("{started} started, {} ran, {} denied", printed.len(), denied.len());
    let good = format!("good {script}");
    assert!(printed.iter().all(|line| *line == good), "only what is good runs: {printed:?}");
    assert!(!printed.is_empty() && !denied.is_empty(), "the race was on");
}

#[test]
fn a_script_that_is_changed_in_place_is_the_one_that_was_evaluated() {
    rewritten_file(&seconds());
}

fn rewritten_path(seconds: &str) {
    if !can_launch() {
        return;
    }
    let outside = tempfile::tempdir_in("/var/tmp").unwrap();
    let evil = evil_in(outside.path());
    assert_wins(&["path", "1", "/bin/echo", &evil]);
    race(|work| owned(&["path", seconds, "/bin/echo", &evil_in(work)]), "ran", false);
}

#[test]
fn a_path_that_a_thread_rewrites_is_the_one_that_was_evaluated() {
    rewritten_path(&seconds());
}

fn swapped_link(seconds: &str) {
    if !can_launch() {
        return;
    }
    let outside = tempfile::tempdir_in("/var/tmp").unwrap();
    let link = outside.path().join("link").display().to_string();
    evil_in(outside.path());
    assert_wins(&["swap", "1", &link, "/bin", &outside.path().display().to_string()]);
    let arguments = |work: &Path| {
        evil_in(work);
        let link = work.join("link").display().to_string();
        owned(&["swap", seconds, &link, "/bin", &work.display().to_string()])
    };
    race(arguments, "ran", false);
}

#[test]
fn a_link_that_is_swapped_leads_to_the_file_that_was_evaluated() {
    swapped_link(&seconds());
}

#[test]
fn a_leader_and_a_thread_that_execute_at_once_hang_nobody() {
    if !can_launch() {
        return;
    }
    let attack = Attack::compiled("execs");
    assert!(run_outside(&attack, &["threads", "20", "/bin/echo"]).1.contains("ran 20"));
    let mut sandbox = Sandbox::launch();
    let program = sandbox.place(&attack).display().to_string();
    let mut gateway = sandbox.gateway(RULES);
    let output = sandbox.run_argv(&mut gateway, &[&program, "threads", "200", "/bin/echo"]);
    assert!(output.contains("ran 200"), "{output}");
    assert_eq!(output.lines().filter(|line| ["leader", "thread"].contains(line)).count(), 200, "{output}");
}

#[test]
fn a_process_that_is_killed_at_any_moment_of_its_exec_hangs_no_parent_and_is_not_left_stopped() {
    if !can_launch() {
        return;
    }
    let attack = Attack::compiled("execs");
    let mut sandbox = Sandbox::launch();
    let program = sandbox.place(&attack).display().to_string();
    let mut gateway = sandbox.gateway(RULES);
    let held = sandbox.start_argv(&[&program, "kills", &seconds(), "/bin/echo"]);
    let (exit, output) = sandbox.end_with(&mut gateway, &held);
    let told = output.lines().find_map(|line| line.strip_prefix("killed ")).expect("it came to its end");
    let counts: Vec<u32> = told.split(" ended ").map(|count| count.parse().unwrap()).collect();
    println!("{told}");
    assert!(counts[0] > 100, "{told}");
    assert_eq!((exit.survivors, exit.stragglers_killed), (0, 0));
}
