//! Everyday git in a sandbox: the caller's name on commits, and of the rest of the caller's configuration what runs nothing.

use std::{
    fs,
    os::unix::fs::chown,
    path::Path,
    process::{Command, Output},
};

use crate::cli::fixture::{Place, code, shown, stderr, stdout};

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
    let listed = "user.name=Ann \"A\" Other\nuser.email=ann@example.org\nsafe.directory=*\ngc.autodetach=false\n\
                  maintenance.autodetach=false\nmain\n";
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
    let own = "safe.directory=*\ngc.autodetach=false\nmaintenance.autodetach=false\n";
    assert_eq!(stdout(&done), own, "{}", shown(&done));
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

/// A caller's home whose configuration has settings, identities by place, patterns and filters, and what must not come with them.
fn configured_home(place: &Place) -> std::path::PathBuf {
    let home = place.path().join("home");
    fs::create_dir_all(home.join(".config/git")).expect("a directory can be made");
    let file = |name: &str, text: &str| fs::write(home.join(name), text).expect("a file can be written");
    file(
        ".gitconfig",
        &format!(
            "[user]\n name = Ann\n email = ann@home\n[core]\n autocrlf = input\n sshCommand = false\n attributesFile = ~/attributes\n\
             [init]\n defaultBranch = trunk\n[status]\n showUntrackedFiles = all\n[diff \"x\"]\n textconv = false\n\
             [includeIf \"gitdir:{0}/\"]\n path = ~/work.inc\n[includeIf \"gitdir:/elsewhere/\"]\n path = ~/other.inc\n\
             [includeIf \"onbranch:side\"]\n path = ~/side.inc\n[include]\n path = ~/more.inc\n[credential]\n helper = store\n",
            place.work().display()
        ),
    );
    file("work.inc", "[user]\n email = ann@work\n");
    file("other.inc", "[user]\n email = ann@elsewhere\n");
    file("side.inc", "[user]\n name = Side\n");
    file("more.inc", "[merge]\n conflictStyle = diff3\n[core]\n pager = false\n");
    file("attributes", "*.dat -text diff\n");
    file(".config/git/ignore", "*.log\nkeys/\n");
    home
}

#[test]
fn git_does_inside_what_it_does_outside_with_the_callers_configuration() {
    let place = Place::new();
    let home = configured_home(&place);
    let make = || {
        let mut init = Command::new("git");
        let made = init.args(["init", "-q", "."]).current_dir(place.work()).env("HOME", &home).status();
        assert!(made.expect("git is there").success());
    };
    make();
    for (name, text) in
        [("a.log", "x"), ("keys/k", "x"), ("lines.txt", "a\r\nb\r\n"), ("raw.dat", "a\r\nb\r\n")]
    {
        fs::create_dir_all(place.work().join(name).parent().expect("it has one"))
            .expect("a directory can be made");
        fs::write(place.work().join(name), text).expect("a file can be written");
    }
    let script = "git status --porcelain; git check-ignore a.log keys/k lines.txt; git check-attr -a raw.dat; \
                  git config init.defaultBranch; git config merge.conflictStyle; git config status.showUntrackedFiles; \
                  git add -A 2>/dev/null; git ls-files -s; git commit -qm one; git log -1 --format='%an <%ae>'; git symbolic-ref HEAD; \
                  git checkout -qb side; git config user.name";
    let told = |command: &mut Command| {
        let told = command.current_dir(place.work()).env("HOME", &home).output().expect("it starts");
        (stdout(&told), stderr(&told))
    };
    let (outside, _) = told(Command::new("sh").args(["-c", script]));
    assert!(
        outside.contains("Ann <ann@work>")
            && outside.contains("Side\n")
            && outside.contains("refs/heads/trunk"),
        "{outside}"
    );
    fs::remove_dir_all(place.work().join(".git")).expect("it is ours");
    make();
    let (inside, notices) = told(&mut place.run(&[], &["sh", "-c", script]));
    assert_eq!(inside, outside, "{notices}");
    let named =
        notices.lines().filter(|line| line.contains("your configuration without")).collect::<Vec<_>>();
    assert_eq!(named.len(), 1, "{notices}");
    assert!(
        named[0].contains("core.sshcommand, diff.*.textconv") && !named[0].contains("credential"),
        "{notices}"
    );
    let (listed, _) =
        told(&mut place.run(&[], &["sh", "-c", "git config --list; cat ~/.gitconfig ~/.config/git/*"]));
    assert!(
        !listed.contains("store") && !listed.contains("textconv") && !listed.contains("sshcommand"),
        "{listed}"
    );
}

/// What a person's own git does in the workspace, with the configuration of this home.
fn own_git(place: &Place, home: &Path, args: &[&str]) -> Output {
    let mut git = Command::new("git");
    git.args(args).current_dir(place.work()).env("HOME", home).env_remove("GIT_CONFIG_GLOBAL");
    git.output().expect("git is there")
}

#[test]
fn what_the_callers_own_configuration_runs_in_the_workspace_is_guarded() {
    let place = Place::new();
    repository(&place);
    let work = place.work().display().to_string();
    let home = place.path().join("home");
    fs::create_dir_all(&home).expect("a directory can be made");
    let write = |path: std::path::PathBuf, text: &str| fs::write(path, text).expect("a file can be written");
    write(
        home.join(".gitconfig"),
        &format!(
            "[user]\n name = a\n email = a@x\n[core]\n hooksPath = tools/gh\n[alias]\n x = !./al.sh\n[filter \"f\"]\n clean = {work}/clean.sh\n\
             [include]\n path = {work}/inc\n[includeIf \"gitdir:/nowhere/\"]\n path = ~/other.inc\n"
        ),
    );
    write(home.join("other.inc"), "[diff \"d\"]\n textconv = ./tc.sh\n");
    fs::create_dir_all(place.work().join("tools/gh")).expect("a directory can be made");
    write(place.work().join("inc"), "[user]\n email = b@x\n");
    for name in ["tools/gh/pre-commit", "al.sh", "clean.sh"] {
        write(place.work().join(name), "#!/bin/sh\n");
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(place.work().join(name), mode).expect("it is ours");
    }
    let files = ["tools/gh/pre-commit", "al.sh", "clean.sh", "inc"];
    let before = files.map(|name| fs::read(place.work().join(name)).expect("it is there"));
    let evil = "for f in tools/gh/pre-commit al.sh clean.sh; do echo 'touch ran' >> $f; done; \
                git config -f inc core.fsmonitor ./mon.sh; cp al.sh tools/gh/post-commit; cp al.sh tc.sh";

    let without = Command::new("sh").args(["-c", evil]).current_dir(place.work()).status();
    assert!(without.expect("it runs").success());
    own_git(&place, &home, &["commit", "-q", "--allow-empty", "-m", "x"]);
    assert!(place.work().join("ran").exists(), "without Provost the person's git runs it");
    for name in ["ran", "tools/gh/post-commit", "tc.sh"] {
        fs::remove_file(place.work().join(name)).expect("it is there");
    }
    for (name, bytes) in files.iter().zip(&before) {
        fs::write(place.work().join(name), bytes).expect("it is ours");
    }

    let done = place.run(&[], &["sh", "-c", evil]).env("HOME", &home).output().expect("provost starts");
    for (name, bytes) in files.iter().zip(&before) {
        assert_eq!(
            &fs::read(place.work().join(name)).expect("it is there"),
            bytes,
            "{name}: {}",
            shown(&done)
        );
    }
    for name in ["tools/gh/post-commit", "tc.sh"] {
        assert!(!place.work().join(name).exists(), "{name}: {}", shown(&done));
    }
    let committed = own_git(&place, &home, &["commit", "-q", "--allow-empty", "-m", "y"]);
    assert!(committed.status.success() && !place.work().join("ran").exists(), "{}", shown(&committed));
    assert!(stderr(&done).contains("post-commit"), "{}", shown(&done));
}

#[test]
fn a_configuration_in_the_workspace_gives_the_sandbox_no_file_of_the_host() {
    let place = Place::new();
    repository(&place);
    let home = place.path().join("home");
    fs::create_dir_all(&home).expect("a directory can be made");
    let write = |path: std::path::PathBuf, text: &str| fs::write(path, text).expect("a file can be written");
    write(home.join("secret"), "TOP-SECRET\n");
    write(home.join("gitignore"), "*.mine\n");
    let inc = place.work().join("inc");
    let secret = home.join("secret").display().to_string();
    std::os::unix::fs::symlink(&secret, place.work().join("gitignore")).expect("a link can be made");
    let include = format!("[include]\n path = {}\n", inc.display());
    for (own, included, is_copied) in [
        (include.clone(), format!("[core]\n excludesFile = {secret}\n"), false),
        (include, "[core]\n attributesFile = ~/gitignore\n".to_owned(), false),
        (format!("[core]\n excludesFile = {}/gitignore\n", place.work().display()), String::new(), false),
        (format!("[core]\n excludesFile = {secret}\n"), String::new(), false),
        ("[core]\n excludesFile = ~/gitignore\n".to_owned(), String::new(), true),
    ] {
        write(home.join(".gitconfig"), &own);
        write(inc.clone(), &included);
        let show = ["sh", "-c", "cat ~/.config/git/* ~/.gitconfig"];
        let done = place.run(&[], &show).env("HOME", &home).output().expect("provost starts");
        assert!(!stdout(&done).contains("TOP-SECRET"), "{own}{included}: {}", shown(&done));
        assert_eq!(stdout(&done).contains("*.mine"), is_copied, "{own}{included}: {}", shown(&done));
        let names_it = stderr(&done).contains("include.path") || stderr(&done).contains("core.excludesfile");
        assert_eq!(names_it, !is_copied, "{own}{included}: {}", shown(&done));
    }
}
