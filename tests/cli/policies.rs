//! `provost policy check`, `test` and `explain`, on what processes of a terminal execute.

use std::{fs, path::PathBuf};

use super::fixture::{Place, code, shown, stderr, stdout};

const RULES: &str = "default_profile = 'a'\n[profile.a]\ngate.enabled = true\n\
    [[rule]]\nid = 'build'\ndecision = 'allow'\nargv = ['make', '**']\nstarts = 'any'\n\
    [[rule]]\nid = 'no-cat'\ndecision = 'deny'\nargv = ['cat', '/etc/*']\nreason = 'not from here'\n\
    [[rule]]\nid = 'ask-sort'\ndecision = 'ask'\nargv = ['sort', '**']\n";

fn policies(place: &Place, rules: &str) -> PathBuf {
    let directory = place.path().join("policies");
    fs::create_dir_all(&directory).expect("a directory can be made");
    fs::write(directory.join("p.toml"), rules).expect("a file can be written");
    directory
}

#[test]
fn an_exec_is_explained_with_its_file_and_its_rule() {
    let place = Place::new();
    let directory = policies(&place, RULES);
    let explain = |options: &[&str], command: &[&str]| {
        let mut explain = place.provost();
        explain
            .args(["policy", "explain", "--policies"])
            .arg(&directory)
            .args(options)
            .arg("--")
            .args(command);
        explain.output().expect("provost starts")
    };
    for (options, command, status, says) in [
        // As a request nobody may; as an exec a shell may, because what it starts is an exec of its own.
        (&["--exec"][..], &["sh", "-c", "cat /etc/passwd"][..], 0, "allow"),
        (&[], &["sh", "-c", "cat /etc/passwd"], 1, "no-cat"),
        (&["--exec"], &["cat", "/etc/passwd"], 1, "not from here"),
        (&["--exec"], &["sort", "x"], 3, "ask-sort"),
        (&["--exec"], &["uname"], 1, "no rule allows it"),
        (&["--exec", "--starts-any", "build"], &["uname"], 0, "\"build\" lets what it allows start anything"),
        (&["--exec", "--starts-any", "build"], &["cat", "/etc/passwd"], 1, "no-cat"),
        (&["--exec"], &["no-such-program"], 125, ""),
    ] {
        let output = explain(options, command);
        assert_eq!(code(&output), status, "{command:?}: {}", shown(&output));
        assert!(stdout(&output).contains(says), "{command:?}: {}", shown(&output));
    }
    let missing = explain(&["--exec"], &["no-such-program"]);
    assert!(stderr(&missing).contains("no file in the sandbox"), "{}", shown(&missing));
}

#[test]
fn a_test_file_has_execs_and_a_check_warns_of_a_rule_that_an_option_gets_round() {
    let place = Place::new();
    let more = "[[rule]]\nid = 'mine'\ndecision = 'deny'\nargv = ['mytool', 'publish', '**']\n";
    let directory = policies(&place, &format!("{RULES}{more}"));
    let mut check = place.provost();
    let output = check.args(["policy", "check"]).arg(&directory).output().expect("provost starts");
    assert_eq!(code(&output), 0, "{}", shown(&output));
    let warned =
        stderr(&output).contains("p.toml:18: rule \"mine\" does not match \"mytool\" with an option before");
    assert!(warned, "{}", shown(&output));

    let cases = place.path().join("cases.toml");
    let text = "[[case]]\nat = 'tree'\ncommand = ['cc']\nexpect = 'deny'\n\
                [[case]]\nat = 'tree'\ncommand = ['cc']\nexpect = 'allow'\ncontext = { starts_any = 'build' }\n\
                [[case]]\nat = 'tree'\ncommand = ['make']\nexpect = 'deny'\n";
    fs::write(&cases, text).expect("a file can be written");
    let mut test = place.provost();
    test.args(["policy", "test", "--policies"]).arg(&directory).arg(&cases);
    let output = test.output().expect("provost starts");
    assert_eq!(code(&output), 1, "{}", shown(&output));
    assert!(stdout(&output).contains("2 of 3 cases as expected"), "{}", shown(&output));
    assert!(stdout(&output).contains("expected deny, got allow (rule build)"), "{}", shown(&output));
}

fn json(output: &std::process::Output) -> serde_json::Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {}", shown(output)))
}

#[test]
fn what_a_check_and_a_test_find_can_be_printed_as_json() {
    let place = Place::new();
    let more = "[[rule]]\nid = 'mine'\ndecision = 'deny'\nargv = ['mytool', 'publish', '**']\n";
    let directory = policies(&place, &format!("{RULES}{more}"));
    let run = |arguments: &[&str]| {
        let mut command = place.provost();
        command.arg("policy").args(arguments).arg("-o").arg("json").output().expect("provost starts")
    };
    let directory = directory.to_str().expect("text");
    let valid = run(&["check", directory]);
    assert_eq!(code(&valid), 0, "{}", shown(&valid));
    let found = json(&valid);
    assert_eq!((&found["valid"], stderr(&valid).as_str()), (&true.into(), ""), "{found}");
    let warning = found["warnings"].as_array().into_iter().flatten().find(|one| one["subject"] == "mine");
    let warning = warning.unwrap_or_else(|| panic!("{found}"));
    assert_eq!((&warning["id"], &warning["line"]), (&"unknown-options".into(), &18.into()), "{found}");

    let cases = place.path().join("cases.toml");
    let text = "[[case]]\nat = 'tree'\ncommand = ['cc']\nexpect = 'deny'\n\
                [[case]]\nat = 'tree'\ncommand = ['cc']\nexpect = 'allow'\n";
    fs::write(&cases, text).expect("a file can be written");
    let tested = run(&["test", "--corpus", "--policies", directory, cases.to_str().expect("text")]);
    let found = json(&tested);
    assert_eq!((code(&tested), &found["passed"]), (1, &false.into()), "{}", shown(&tested));
    assert_eq!(found["files"][0]["cases"], 2, "{found}");
    assert_eq!(found["files"][0]["failed"][0]["line"], 5, "{found}");
    assert!(found["corpus"]["bypasses"].is_array(), "{found}");

    fs::write(std::path::Path::new(directory).join("p.toml"), "a = 1\nno_such_key = 1\n")
        .expect("a file can be written");
    let broken = run(&["check", directory]);
    let found = json(&broken);
    assert_eq!((code(&broken), &found["valid"]), (1, &false.into()), "{}", shown(&broken));
    assert!(found["error"]["line"].is_u64() && found["error"]["problem"].is_string(), "{found}");
}

#[test]
fn a_check_refuses_files_that_say_nothing_and_policies_that_let_nothing_run() {
    let profile = "default_profile = 'a'\n[profile.a]\n";
    for (text, says) in [
        ("", "the file says nothing"),
        (" \n\n", "the file says nothing"),
        ("# nothing but this\n", "the file says nothing"),
        (profile, "there is no rule, so nothing would run"),
    ] {
        let place = Place::new();
        let directory = policies(&place, text);
        let mut check = place.provost();
        let output = check.args(["policy", "check"]).arg(&directory).output().expect("provost starts");
        assert_eq!(code(&output), 1, "{text:?}: {}", shown(&output));
        assert!(stderr(&output).contains(&format!("p.toml:1:1: {says}")), "{text:?}: {}", shown(&output));
    }
    // Next to a file that says something.
    let place = Place::new();
    let directory = policies(&place, RULES);
    fs::write(directory.join("q.toml"), "").expect("a file can be written");
    let mut check = place.provost();
    let output = check.args(["policy", "check"]).arg(&directory).output().expect("provost starts");
    assert_eq!(code(&output), 1, "{}", shown(&output));
    assert!(stderr(&output).contains("q.toml:1:1: the file says nothing"), "{}", shown(&output));
}
