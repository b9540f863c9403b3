//! `provost run --env`, `provost policy test` and `explain`: a variable that changes what a name means is refused by all of
//! them, and the attack works where nothing refuses it.

use std::{fs, os::unix::fs::PermissionsExt, path::PathBuf, process::Command};

use super::fixture::{Place, code, shown, stderr, stdout};

fn program(path: PathBuf, text: &str) {
    fs::create_dir_all(path.parent().expect("it is in a directory")).expect("a directory can be made");
    fs::write(&path, text).expect("a file can be written");
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("it is ours");
}

/// A policy that allows `ls` and `git status` and nothing else.
fn narrow(place: &Place) -> String {
    let directory = place.path().join("narrow");
    fs::create_dir_all(&directory).expect("a directory can be made");
    let rules = "default_profile = 'workspace'\n[profile.workspace]\nlimits.requirement = 'prefer'\n\
                 [[rule]]\nid = 'look'\ndecision = 'allow'\nargv = ['ls', '**']\n\
                 [[rule]]\nid = 'status'\ndecision = 'allow'\nargv = ['git', ['init', 'status'], '**']\n";
    fs::write(directory.join("narrow.toml"), rules).expect("a file can be written");
    directory.display().to_string()
}

#[test]
fn what_the_callers_environment_means_by_a_name_is_not_run() {
    let place = Place::new();
    let at = |name: &str| place.work().join(name);
    program(at("bin/ls"), "#!/bin/sh\necho ATTACK\n");
    program(at("hook"), "#!/bin/sh\necho ATTACK >&2\n");
    program(at("home/.gitconfig"), &format!("[core]\nfsmonitor = {}\n", at("hook").display()));
    let (bin, home) = (at("bin").display().to_string(), at("home").display().to_string());
    for (name, value, words) in [
        ("PATH", &bin, &["sh", "-c", "ls"][..]),
        ("HOME", &home, &["sh", "-c", "git init -q . && git status"]),
    ] {
        let outside = Command::new("/bin/sh")
            .args(&words[1..])
            .env(name, value)
            .current_dir(place.work())
            .output()
            .expect("sh runs");
        assert!(shown(&outside).contains("ATTACK"), "{name} does nothing outside: {}", shown(&outside));
        let variable = format!("{name}={value}");
        for policies in [narrow(&place), place.policies().display().to_string()] {
            let mut run = place.provost();
            run.args(["run", "--policies", &policies, "--env", &variable, "--"]).args(words);
            let output = run.output().expect("provost starts");
            assert_eq!(code(&output), 126, "{}", shown(&output));
            assert!(!stdout(&output).contains("ATTACK"), "{}", shown(&output));
            assert!(stderr(&output).contains(&format!("{name:?} is denied")), "{}", shown(&output));
        }
        let mut explain = place.provost();
        explain
            .args(["policy", "explain", "--policies", &narrow(&place), "--env", &variable, "--"])
            .args(words);
        let output = explain.output().expect("provost starts");
        assert_eq!(code(&output), 1, "{}", shown(&output));
        assert!(stdout(&output).contains(&format!("{name:?} is denied")), "{}", shown(&output));
    }
    // Without them, both run, and say what the host says.
    let mut run = place.provost();
    run.args([
        "run",
        "--policies",
        &narrow(&place),
        "--",
        "sh",
        "-c",
        "ls bin && git init -q . && git status",
    ]);
    let output = run.output().expect("provost starts");
    assert_eq!(code(&output), 0, "{}", shown(&output));
    assert!(!shown(&output).contains("ATTACK"), "{}", shown(&output));
}

#[test]
fn what_agents_pass_every_day_reaches_the_command() {
    let place = Place::new();
    let given = [
        "LANG=C.UTF-8",
        "LC_ALL=C",
        "TERM=dumb",
        "CI=true",
        "NO_COLOR=1",
        "PAGER=cat",
        "GIT_PAGER=cat",
        "RUST_BACKTRACE=1",
        "CARGO_TERM_COLOR=never",
        "NODE_OPTIONS=--max-old-space-size=4096",
        "GIT_EDITOR=true",
        "PYTHONUNBUFFERED=1",
        "HOME=/home/agent",
    ];
    let options: Vec<&str> = given.iter().flat_map(|variable| ["--env", variable]).collect();
    let output = place.output(&options, &["env"]);
    assert_eq!(code(&output), 0, "{}", shown(&output));
    let seen = stdout(&output);
    for variable in given {
        assert!(seen.lines().any(|line| line == variable), "{variable}: {seen}");
    }
}

/// Tools that take commands or code from variables: name, value (`@` is the attack), and the line.
const TAKEN_FOR_COMMANDS: [(&str, &str, &str, &str); 8] = [
    ("make", "RM", "@", "make clean"),
    ("make", ".SHELLFLAGS", "-c @;", "make hi"),
    ("make", "COMPILE.c", "@", "make a.o"),
    ("make", "OUTPUT_OPTION", "; @", "make a.o"),
    ("make", "TARGET_ARCH", "; @", "make a.o"),
    ("git", "GIT_TEST_MAINT_SCHEDULER", "crontab:@", "git init -q . && git maintenance start"),
    (
        "python3",
        "_PYTHON_SYSCONFIGDATA_NAME",
        "attack",
        "python3 -c 'import sysconfig; sysconfig.get_config_vars()'",
    ),
    ("bash", "OLDPWD", "/usr", "cd -P - && [ \"$PWD\" = /usr ] && echo ATTACK"),
];

#[test]
fn what_tools_take_for_commands_is_not_run() {
    let place = Place::new();
    let at = |name: &str| place.work().join(name);
    program(at("attack"), "#!/bin/sh\necho ATTACK >&2\n");
    program(at("attack.py"), "import sys\nprint('ATTACK', file=sys.stderr)\nbuild_time_vars = {}\n");
    program(at("Makefile"), "hi:\n\t@echo hi\nclean:\n\t$(RM) nothing\n");
    program(at("a.c"), "int a;\n");
    let narrow = narrow(&place);
    for (tool, name, value, line) in TAKEN_FOR_COMMANDS {
        let value = value.replace('@', &at("attack").display().to_string());
        let run = |program: &mut Command| program.current_dir(place.work()).output().expect("it starts");
        if !run(Command::new("sh").args(["-c", "command -v \"$0\"", tool])).status.success() {
            println!("SKIPPED: {tool} is not here: {name} is not tried");
            continue;
        }
        let outside = run(Command::new("env")
            .arg("HOME=/nonexistent")
            .arg(format!("{name}={value}"))
            .args(["bash", "-c", line]));
        // A tool's version may not have it; a host that has none of these shows nothing.
        if !shown(&outside).contains("ATTACK") {
            println!("SKIPPED: {name} does nothing to this {tool}: {}", shown(&outside));
            continue;
        }
        let variable = format!("{name}={value}");
        for policies in [&narrow, &place.policies().display().to_string()] {
            let mut provost = place.provost();
            provost.args(["run", "--policies", policies, "--env", &variable, "--", "bash", "-c", line]);
            let output = provost.output().expect("provost starts");
            assert_eq!(code(&output), 126, "{name}: {}", shown(&output));
            assert!(stderr(&output).contains(&format!("{name:?} is denied")), "{name}: {}", shown(&output));
        }
    }
}
