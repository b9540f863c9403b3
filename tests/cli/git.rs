//! Everyday git in a sandbox: the caller's name on commits, and nothing else of the caller's configuration.

use std::{
    fs,
    os::unix::fs::chown,
    path::Path,
    process::{Command, Output},
};

use crate::fixture::{Place, code, shown, stderr, stdout};

/// A caller's configuration: a name, and what must not come with it.
const CONFIGURATION: &str = "[user]\n\tname = \"Ann \\\"A\\\" Other\"\n\temail = ann@example.org\n[credential]\n\thelper = !cat \
                             /secret\n[core]\n\thooksPath = /home/ann/hooks\n[url \"https://token@host/\"]\n\tinsteadOf = x\n";

/// A repository without a name of its own.
fn repository(place: &Place) {
    let made = Command::new("git").args(["init", "-q", "."]).current_dir(place.work()).status();
    assert!(made.expect("git is there").success());
}

/// Runs a script for a caller whose home has this configuration.
fn with_home(place: &Place, options: &[&str], script: &str) -> Output {
    let home = place.path().join("home");
    fs::create_dir_all(&home).expect("a directory can be made");
    fs::write(home.join(".gitconfig"), CONFIGURATION).expect("a file can be written");
    place.run(options, &["sh", "-c", script]).env("HOME", &home).output().expect("provost starts")
}

fn last_author(place: &Place) -> String {
    let mut log = Command::new("git");
    log.args(["log", "-1", "--format=%an <%ae>"]).current_dir(place.work());
    String::from_utf8_lossy(&log.output().expect("git is there").stdout).trim().to_owned()
}

#[test]
fn a_commit_has_the_callers_name_and_nothing_else_of_the_callers_configuration() {
    let place = Place::new();
    repository(&place);
    let script = "echo x > file; git add file; git commit -qm first && git config --global --list && \
                  git config --global init.defaultBranch main && git config --global init.defaultBranch";
    let done = with_home(&place, &[], script);
    assert_eq!(code(&done), 0, "{}", shown(&done));
    assert_eq!(last_author(&place), "Ann \"A\" Other <ann@example.org>");
    let listed = "user.name=Ann \"A\" Other\nuser.email=ann@example.org\nsafe.directory=*\nmain\n";
    assert_eq!(stdout(&done), listed, "{}", shown(&done));
    let home = fs::read_to_string(place.path().join("home/.gitconfig")).expect("it is there");
    assert_eq!(home, CONFIGURATION, "the caller's own is not written");
}

#[test]
fn a_profile_can_keep_the_callers_name_to_itself() {
    let place = Place::new();
    repository(&place);
    let more = "[profile.nameless]\nextends = \"workspace\"\ngit = { identity = false }\n";
    fs::write(place.policies().join("nameless.toml"), more).expect("a file can be written");
    let done =
        with_home(&place, &["--profile", "nameless"], "git config user.name; git config --global --list");
    assert_eq!(stdout(&done), "safe.directory=*\n", "{}", shown(&done));
}

#[test]
fn a_repositorys_own_name_wins() {
    let place = Place::new();
    repository(&place);
    let script = "git config user.name Local; echo x > file; git add file; git commit -qm first";
    let done = with_home(&place, &[], script);
    assert_eq!(code(&done), 0, "{}", shown(&done));
    assert_eq!(last_author(&place), "Local <ann@example.org>");
}

#[test]
fn git_works_where_it_would_doubt_the_owner() {
    if !nix::unistd::geteuid().is_root() {
        println!("SKIPPED: only root can give a directory to another user");
        return;
    }
    let place = Place::new();
    repository(&place);
    chown(place.work().join(".git"), Some(4_323), Some(4_323)).expect("root can");
    chown(place.work(), Some(4_323), Some(4_323)).expect("root can");
    let mut outside = Command::new("git");
    let outside =
        outside.arg("status").current_dir(place.work()).env("GIT_CONFIG_GLOBAL", "/dev/null").output();
    let outside = outside.expect("git is there");
    assert!(stderr(&outside).contains("dubious ownership"), "without Provost: {}", shown(&outside));
    let done = place.output(&[], &["git", "status"]);
    assert_eq!(code(&done), 0, "{}", shown(&done));
}

/// Runs in a directory that is no place to work in.
fn refused(place: &Place, directory: &Path) -> String {
    let done = place.run(&[], &["true"]).current_dir(directory).output().expect("provost starts");
    assert_eq!(code(&done), 125, "{}", shown(&done));
    stderr(&done)
}

#[test]
fn a_directory_that_is_no_workspace_is_refused_with_what_to_do() {
    let place = Place::new();
    let home = nix::unistd::User::from_uid(nix::unistd::geteuid())
        .expect("it can be read")
        .expect("it is listed")
        .dir;
    let said = refused(&place, &home);
    assert!(said.contains("whole home") && said.contains("work in a directory in it"), "{said}");
    let said = refused(&place, Path::new("/tmp"));
    assert!(said.contains("shared by all users: make a directory in it and work there"), "{said}");
    let said = refused(&place, Path::new("/usr"));
    assert!(said.contains("work in a directory of your own"), "{said}");
}
