//! An ordinary user: the README's first command works, confines, and says what is weaker than under root.
//!
//! Run by root these tests take an id that nobody has; run by anybody else they take that user's. No entry in
//! /etc/passwd, no subordinate ids and no delegated cgroup is needed, and none is made.

mod boxes;
mod detached;
mod input;
mod threads;
mod user;

use std::{
    fs,
    net::TcpListener,
    os::unix::fs::{MetadataExt, PermissionsExt},
};

use user::{NOBODYS_ID, User, shown, text};

#[test]
fn the_first_command_of_the_readme_works_and_is_confined() {
    let Some(user) = User::find() else { return };
    let output = user.run(&["uname", "-a"]);
    assert!(output.status.success(), "{}", shown(&output));
    assert!(text(&output.stdout).starts_with("Linux "), "{}", shown(&output));

    let status = text(&user.run(&["cat", "/proc/self/status"]).stdout);
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':').map(str::trim));
        line.unwrap_or_else(|| panic!("no {name} in {status}"))
    };
    for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
        assert_eq!(field(set), "0000000000000000", "{set}");
    }
    assert_eq!(field("NoNewPrivs"), "1");
    assert_eq!(field("Seccomp"), "2");
}

#[test]
fn every_namespace_is_the_sandboxs_own() {
    let Some(user) = User::find() else { return };
    let script = "for ns in user pid mnt ipc uts cgroup net; do echo $ns $(readlink /proc/self/ns/$ns); done";
    let outside = text(&user.outside(&["sh", "-c", script]).stdout);
    let inside = user.run(&["sh", "-c", script]);
    assert!(inside.status.success(), "{}", shown(&inside));
    let inside = text(&inside.stdout);
    assert_eq!(outside.lines().count(), inside.lines().count(), "{inside}");
    for (theirs, ours) in outside.lines().zip(inside.lines()) {
        assert!(ours.contains('['), "{ours}");
        assert_ne!(theirs, ours, "shared with the host");
    }
}

#[test]
fn files_of_the_host_are_absent() {
    let Some(user) = User::find() else { return };
    let secret = user.directory().join("secret");
    fs::write(&secret, "secret").unwrap();
    let read = ["cat", secret.to_str().unwrap()];
    assert_eq!(text(&user.outside(&read).stdout), "secret", "outside it can be read");
    let inside = user.run(&read);
    assert!(!inside.status.success() && !text(&inside.stdout).contains("secret"), "{}", shown(&inside));
}

#[test]
fn what_is_written_in_the_workspace_belongs_to_the_user() {
    let Some(user) = User::find() else { return };
    let output = user.run(&["sh", "-c", "echo x > made && mkdir directory && echo y > directory/deep"]);
    assert!(output.status.success(), "{}", shown(&output));
    for name in ["made", "directory", "directory/deep"] {
        assert_eq!(user.work().join(name).metadata().unwrap().uid(), user.id, "{name}");
    }
    let output = user.run(&["sh", "-c", "echo x > /etc/made || echo x > /usr/made"]);
    assert!(!output.status.success(), "{}", shown(&output));
}

#[test]
fn the_hosts_loopback_is_out_of_reach() {
    let Some(user) = User::find() else { return };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let connect = format!("exec 3<>/dev/tcp/127.0.0.1/{port}");
    assert!(user.outside(&["bash", "-c", &connect]).status.success(), "outside it can be reached");
    let inside = user.run(&["bash", "-c", &connect]);
    assert!(!inside.status.success(), "{}", shown(&inside));
    assert!(user.run(&["bash", "-c", "true"]).status.success(), "the shell is there");
}

#[test]
fn the_whole_tree_ends_with_the_command() {
    let Some(user) = User::find() else { return };
    let mark = format!("{}77", std::process::id());
    let script = format!("(setsid sleep {mark} &); (trap '' TERM; sleep {mark}) & echo begun; exit 5");
    let output = user.run(&["sh", "-c", &script]);
    assert_eq!(output.status.code(), Some(5), "{}", shown(&output));
    let left = fs::read_dir("/proc").unwrap().flatten().filter(|entry| {
        let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0).any(|argument| argument == mark.as_bytes())
    });
    assert_eq!(left.count(), 0, "processes are left");
}

/// Nobody else runs with this id: the directory is named by it, and another test's gateway would make it meanwhile.
const TRAPPED: u32 = NOBODYS_ID - 3;

#[test]
fn a_runtime_directory_that_another_user_made_is_not_used() {
    let Some(user) = User::find_as(TRAPPED) else { return };
    if user.id != TRAPPED {
        println!("SKIPPED: only root can make another user's directory");
        return;
    }
    let trap = std::path::PathBuf::from(format!("/tmp/provost-{TRAPPED}"));
    // What a run that was killed has left.
    let _ = fs::remove_dir_all(&trap);
    fs::create_dir(&trap).expect("nobody has this id");
    fs::set_permissions(&trap, fs::Permissions::from_mode(0o777)).unwrap();
    std::os::unix::fs::chown(&trap, Some(TRAPPED - 1), None).unwrap();
    let provost = user.provost();
    let output = user.outside(&[
        "env",
        "-u",
        "XDG_RUNTIME_DIR",
        provost.to_str().expect("UTF-8"),
        "run",
        "--",
        "echo",
        "ran",
    ]);
    let modified = fs::read_dir(&trap).unwrap().count();
    fs::remove_dir_all(&trap).unwrap();
    assert_eq!(text(&output.stdout), "ran\n", "{}", shown(&output));
    assert_eq!(modified, 0, "something was put into it");
}

#[test]
fn what_is_missing_is_one_line_on_stderr() {
    let Some(user) = User::find() else { return };
    let output = user.run(&["true"]);
    let said = text(&output.stderr);
    assert!(said.lines().count() <= 1, "{said}");
    if user.id == NOBODYS_ID {
        assert!(said.starts_with("provost: notice: ") && said.contains("provost doctor"), "{said}");
    }
}

/// With the compiled-in policy a gateway that serves runs what `provost run` runs by itself.
#[test]
fn a_gateway_that_serves_runs_commands_with_the_same_shortfalls() {
    let Some(user) = User::find() else { return };
    let provost = user.provost().to_str().expect("UTF-8").to_owned();
    let socket = user.kept().join("p.sock").to_str().expect("UTF-8").to_owned();
    let state = user.kept().join("state").to_str().expect("UTF-8").to_owned();
    let script = "\"$0\" serve --state \"$2\" --listen unix:\"$1\" & gateway=$!
        until [ -S \"$1\" ]; do kill -0 $gateway || exit 99; sleep 0.02; done
        \"$0\" run --gateway unix:\"$1\" --receipt -- echo ran; status=$?
        kill $gateway; wait $gateway; exit $status";
    let output = user.outside(&["sh", "-c", script, &provost, &socket, &state]);
    assert_eq!(output.status.code(), Some(0), "{}", shown(&output));
    assert_eq!(text(&output.stdout), "ran\n", "{}", shown(&output));
    if user.id == NOBODYS_ID {
        let said = text(&output.stderr);
        let told = said.lines().filter(|line| line.contains("without the limits of this controller"));
        assert_eq!(told.filter(|line| line.contains("controller=\"memory\"")).count(), 1, "{said}");
    }
}

#[test]
fn what_is_missing_is_in_the_journal_too() {
    let Some(user) = User::find() else { return };
    let provost = user.provost().to_str().expect("UTF-8").to_owned();
    let journal = user.kept().join("journal").to_str().expect("UTF-8").to_owned();
    let ran = user.outside(&[&provost, "run", "--journal", &journal, "--", "true"]);
    assert!(ran.status.success(), "{}", shown(&ran));
    let asked = user.outside(&[&provost, "audit", "--journal", &journal, "query", "-o", "json"]);
    let records: Vec<serde_json::Value> = text(&asked.stdout)
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).expect("a record")["record"].clone())
        .collect();
    let place = |kind: &str| records.iter().position(|record| record["kind"] == kind);
    assert!(place("started").is_some(), "{}", shown(&asked));
    if user.id == NOBODYS_ID {
        // This id has no cgroup of its own, and the profile prefers its limits.
        let (shortfall, spawn) = (place("shortfall").expect("a shortfall"), place("spawn").expect("a spawn"));
        assert!(shortfall < spawn, "it is written before what it weakens");
        for field in ["protection", "reason", "sandbox", "session"] {
            assert!(records[shortfall][field].as_str().is_some_and(|text| !text.is_empty()), "{field}");
        }
    }
}

#[test]
fn doctor_says_what_is_weaker_and_how_to_fix_it() {
    let Some(user) = User::find() else { return };
    let provost = user.provost();
    let provost = provost.to_str().expect("UTF-8");
    let output = user.outside(&[provost, "doctor", "-o", "json"]);
    assert!(output.status.success(), "nothing that is required is missing: {}", shown(&output));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("doctor prints JSON");
    let protections = report["protections"].as_array().expect("a list");
    let of = |state: &str| protections.iter().filter(|one| one["state"] == state).count();
    assert!(of("available") >= 5, "{report}");
    for one in protections.iter().filter(|one| one["state"] != "available") {
        assert!(one["reason"].as_str().is_some_and(|reason| !reason.is_empty()), "{one}");
        assert!(one["remedy"].as_str().is_some_and(|remedy| !remedy.is_empty()), "{one}");
    }
    if user.id == NOBODYS_ID {
        // This id has neither a range of ids nor a cgroup of its own.
        assert!(of("weaker") + of("missing") >= 1, "{report}");
        let page = text(&user.outside(&[provost, "doctor"]).stdout);
        assert!(page.contains("weaker") || page.contains("missing"), "{page}");
    }
}

#[test]
fn doctor_names_a_source_of_subordinate_ids_that_is_not_asked() {
    let Some(user) = User::find() else { return };
    if user.id != NOBODYS_ID || fs::metadata("/etc/nsswitch.conf").is_err() {
        println!("SKIPPED: only root can show another /etc/nsswitch.conf, and only in the place of one");
        return;
    }
    let switch = user.directory().join("nsswitch.conf");
    fs::write(&switch, "passwd: files\nsubid: sss\n").unwrap();
    fs::set_permissions(&switch, fs::Permissions::from_mode(0o644)).unwrap();
    let script = format!(
        "mount --bind '{}' /etc/nsswitch.conf && exec setpriv --reuid {id} --regid {id} --clear-groups '{}' doctor",
        switch.display(),
        user.provost().display(),
        id = user.id,
    );
    let shows = |source: &[&str]| {
        let output = std::process::Command::new(source[0]).args(&source[1..]).output();
        let output = output.expect("the command starts");
        text(&output.stdout).contains("come from sss (/etc/nsswitch.conf), which is not asked")
    };
    assert!(shows(&["unshare", "--mount", "sh", "-c", &script]));
    let plain = script.split_once("exec ").expect("it executes").1;
    assert!(!shows(&["sh", "-c", plain]), "this host has the files");
}

#[test]
fn the_home_of_a_user_without_an_entry_is_no_workspace() {
    let Some(user) = User::find() else { return };
    if user.id != NOBODYS_ID {
        println!("SKIPPED: only root can be a user without an entry in /etc/passwd");
        return;
    }
    let (provost, work) = (user.provost(), user.work());
    let provost = provost.to_str().expect("UTF-8");
    fs::create_dir_all(work.join("project")).unwrap();
    std::os::unix::fs::chown(work.join("project"), Some(user.id), Some(user.id)).unwrap();
    fs::write(work.join("token"), "secret").unwrap();
    fs::set_permissions(work.join("token"), fs::Permissions::from_mode(0o644)).unwrap();
    let link = user.directory().join("home");
    std::os::unix::fs::symlink(&work, &link).unwrap();
    let read = |home: &std::path::Path, directory: &str| {
        let home = format!("HOME={}", home.display());
        let line = format!("cd {directory} && exec \"$0\" run -- cat token");
        user.outside(&["env", &home, "sh", "-c", &line, provost])
    };
    // The directory is no home as long as nothing calls it one.
    assert_eq!(text(&read(user.directory(), ".").stdout), "secret");
    for home in [&work, &link] {
        let output = read(home, ".");
        assert!(!output.status.success() && !text(&output.stdout).contains("secret"), "{}", shown(&output));
        assert!(text(&output.stderr).contains("is or holds the whole home"), "{}", shown(&output));
        let output = read(home, "project");
        assert!(
            text(&output.stderr).contains("token"),
            "a directory in it can be worked in: {}",
            shown(&output)
        );
        assert!(!text(&output.stderr).contains("whole home"), "{}", shown(&output));
    }
}

#[test]
fn a_hook_cannot_be_planted_in_the_workspace() {
    let Some(user) = User::find() else { return };
    assert!(user.outside(&["git", "init", "-q", "."]).status.success(), "git is there");
    assert!(user.outside(&["rm", "-r", ".git/hooks"]).status.success());
    let plant = "mkdir -p .git/hooks && touch .git/hooks/pre-commit; mv .git aside && cp -r aside .git";
    let output = user.run(&["sh", "-c", plant]);
    assert!(!output.status.success(), "{}", shown(&output));
    assert_eq!(fs::read_dir(user.work().join(".git/hooks")).unwrap().count(), 0, "{}", shown(&output));
    let commit = "echo 1 > file && git add file && git -c user.name=A -c user.email=a@b.c commit -qm first";
    let output = user.run(&["sh", "-c", commit]);
    assert!(output.status.success(), "{}", shown(&output));
    assert!(
        user.outside(&["sh", "-c", "mkdir -p .git/hooks && touch .git/hooks/pre-commit"]).status.success()
    );
}
