//! A person's first policy: written by `provost init` and `provost policy init`, laid out by `fmt`, looked at by `check`.

use std::{
    fs,
    os::unix::fs::symlink,
    path::Path,
    process::{Command, Output},
};

use crate::cli::fixture::{Place, code, shown, stderr, stdout};

fn provost(place: &Place, arguments: &[&str]) -> Output {
    let mut command = place.provost();
    command.args(arguments).env("HOME", place.path()).env_remove("XDG_CONFIG_HOME");
    command.output().expect("provost starts")
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a path of a test is text")
}

#[test]
fn init_writes_a_policy_for_what_lies_in_the_project_and_run_takes_it() {
    let place = Place::new();
    for sign in ["package.json", "Cargo.toml"] {
        fs::write(place.work().join(sign), "{}").expect("a file can be written");
    }
    let done = provost(&place, &["init"]);
    assert_eq!(code(&done), 0, "{}", shown(&done));
    let directory = place.path().canonicalize().expect("it is there").join(".config/provost/policies/work");
    assert!(
        stdout(&done).contains("node, rust") && stdout(&done).contains(text(&directory)),
        "{}",
        shown(&done)
    );
    let check = provost(&place, &["policy", "check", text(&directory)]);
    assert_eq!((code(&check), stderr(&check).as_str()), (0, ""), "{}", shown(&check));
    let ran = provost(&place, &["run", "--policies", text(&directory), "--", "echo", "ran"]);
    assert_eq!(stdout(&ran), "ran\n", "{}", shown(&ran));
    for publish in ["npm publish", "cargo publish", "git push"] {
        let explained =
            provost(&place, &["policy", "explain", "--policies", text(&directory), "--", publish]);
        assert_eq!(code(&explained), 3, "{publish}: {}", shown(&explained));
    }
    // What is there stays.
    fs::write(directory.join("policy.toml"), "mine").expect("a file can be written");
    let again = provost(&place, &["init"]);
    assert_eq!(code(&again), 125, "{}", shown(&again));
    assert_eq!(fs::read_to_string(directory.join("policy.toml")).expect("it is there"), "mine");
}

#[test]
fn init_never_writes_where_a_command_could_change_the_policy() {
    let place = Place::new();
    fs::create_dir(place.work().join("below")).expect("a directory can be made");
    symlink(place.work().join("below"), place.path().join("elsewhere")).expect("a link can be made");
    for to in [".", "below/policies", "../elsewhere/policies", "../work/x"] {
        let done = provost(&place, &["init", "--to", to]);
        assert_eq!(code(&done), 125, "{to}: {}", shown(&done));
        assert!(stderr(&done).contains("commands could change their own policy"), "{to}: {}", shown(&done));
    }
    assert_eq!(fs::read_dir(place.work().join("below")).expect("it is there").count(), 0);
    let done = provost(&place, &["init", "--to", "../outside"]);
    assert_eq!(code(&done), 0, "{}", shown(&done));
    let outside = place.path().canonicalize().expect("it is there").join("outside");
    let ran = provost(&place, &["run", "--policies", text(&outside), "--", "echo", "ran"]);
    assert_eq!(stdout(&ran), "ran\n", "nothing says what the project is: {}", shown(&ran));
}

#[test]
fn a_policy_that_init_wrote_is_laid_out_and_another_one_is_by_fmt() {
    let place = Place::new();
    let directory = place.path().join("own");
    assert_eq!(code(&provost(&place, &["policy", "init", text(&directory)])), 0);
    let check = provost(&place, &["policy", "fmt", "--check", text(&directory)]);
    assert_eq!((code(&check), stdout(&check).as_str()), (0, ""), "{}", shown(&check));
    let untidy = directory.join("more.toml");
    let written = "[[rule]]\nid='x'\n  decision=\"allow\" # why\nargv=['a=b']\n\n\n";
    fs::write(&untidy, written).expect("a file can be written");
    let check = provost(&place, &["policy", "fmt", "--check", text(&directory)]);
    assert_eq!(code(&check), 1, "{}", shown(&check));
    assert_eq!(fs::read_to_string(&untidy).expect("it is there"), written, "it only looks");
    assert_eq!(code(&provost(&place, &["policy", "fmt", text(&directory)])), 0);
    let expected = "[[rule]]\nid = 'x'\ndecision = \"allow\" # why\nargv = ['a=b']\n";
    assert_eq!(fs::read_to_string(&untidy).expect("it is there"), expected);
    assert_eq!(fs::read_dir(&directory).expect("it is there").count(), 2, "nothing else is left");
    fs::write(&untidy, "[[rule]\n").expect("a file can be written");
    let broken = provost(&place, &["policy", "fmt", text(&untidy)]);
    assert_eq!(code(&broken), 125, "{}", shown(&broken));
    assert_eq!(fs::read_to_string(&untidy).expect("it is there"), "[[rule]\n");
}

#[test]
fn a_check_warns_of_what_decides_nothing_and_a_file_silences_it() {
    let place = Place::new();
    let file = place.path().join("policy.toml");
    let rules = "[[rule]]\nid = 'a'\ndecision = 'allow'\nargv = ['git status']\n\
                 [[rule]]\nid = 'b'\ndecision = 'allow'\nargv = ['git', 'push']\n\
                 [[rule]]\nid = 'c'\ndecision = 'deny'\nargv = ['git', '**']\n";
    fs::write(&file, rules).expect("a file can be written");
    let check = provost(&place, &["policy", "check", text(&file)]);
    assert_eq!(code(&check), 0, "{}", shown(&check));
    let told = stderr(&check);
    let expected = [
        "policy.toml:1: rule \"a\" matches nothing: \"git status\" is one word; write each word of a command by itself [never-matches]",
        "policy.toml:5: rule \"b\" decides nothing: rule \"c\" denies everything that it matches [shadowed]",
    ];
    assert!(expected.iter().all(|line| told.contains(line)) && told.lines().count() == 2, "{told}");
    fs::write(&file, format!("silence = ['never-matches:a', 'shadowed']\n{rules}"))
        .expect("a file can be written");
    let check = provost(&place, &["policy", "check", text(&file)]);
    assert_eq!((code(&check), stderr(&check).as_str()), (0, ""), "{}", shown(&check));
    fs::write(&file, format!("silence = ['all']\n{rules}")).expect("a file can be written");
    let check = provost(&place, &["policy", "check", text(&file)]);
    assert_eq!(code(&check), 1, "{}", shown(&check));
    assert!(stderr(&check).contains("\"all\" is no warning"), "{}", shown(&check));
}

#[test]
fn a_policy_of_rules_alone_runs_under_the_built_in_profile() {
    let place = Place::new();
    let directory = place.path().join("rules");
    fs::create_dir(&directory).expect("a directory can be made");
    let rule = "[[rule]]\nid = 'r'\ndecision = 'allow'\nargv = [['sh', 'ls', 'cat'], '**']\n";
    fs::write(directory.join("rules.toml"), rule).expect("a file can be written");
    let secret = place.path().join("secret");
    fs::write(&secret, "secret\n").expect("a file can be written");
    let outside = Command::new("cat").arg(&secret).output().expect("it starts");
    assert_eq!(stdout(&outside), "secret\n", "outside it can be read");
    let inside = provost(&place, &["run", "--policies", text(&directory), "--", "cat", text(&secret)]);
    assert!(code(&inside) != 0 && !stdout(&inside).contains("secret"), "{}", shown(&inside));
    // The built-in profile has a gate: a process starts nothing that no rule allows.
    let started =
        provost(&place, &["run", "--policies", text(&directory), "--", "sh", "-c", "ls; touch made"]);
    assert!(code(&started) != 0 && !place.work().join("made").exists(), "{}", shown(&started));
}
