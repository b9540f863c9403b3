//! Directories of the workspace in the caller's PATH: an activated virtual environment, `node_modules/.bin`. What lies there is a
//! program of the workspace to every rule.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Command, Output},
};

use crate::{
    cli::{
        fixture::{Place, code, shown, stderr, stdout},
        serving::Gateway,
    },
    support::lacks,
};

fn program(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().expect("it has one")).expect("a directory can be made");
    fs::write(path, text).expect("a file can be written");
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("it is ours");
}

/// With these directories of the workspace before the system's, as activation puts them.
fn activated<'a>(place: &Place, command: &'a mut Command, directories: &[&str]) -> &'a mut Command {
    let first = directories.iter().map(|directory| place.work().join(directory).display().to_string());
    let path: Vec<String> =
        first.chain(["/usr/local/bin".into(), "/usr/bin".into(), "/bin".into()]).collect();
    command.env("PATH", path.join(":"))
}

fn output(command: &mut Command) -> Output {
    command.output().expect("provost starts")
}

#[test]
fn an_activated_environment_is_the_commands_too() {
    if lacks(&["python3"]) {
        return;
    }
    let place = Place::new();
    let made = Command::new("/usr/bin/python3")
        .args(["-m", "venv", "--without-pip", ".venv"])
        .current_dir(place.work())
        .status();
    if !made.is_ok_and(|status| status.success()) {
        println!("SKIPPED: python3 makes no virtual environments here");
        return;
    }
    let prefix = place.work().join(".venv");
    let script = format!("#!{}/bin/python\nimport sys; print(sys.prefix)\n", prefix.display());
    program(&prefix.join("bin/tool"), &script);
    let expected = format!("{}\n", prefix.display());
    let say = "import sys; print(sys.prefix)";
    let gateway = Gateway::start(&place);
    let address = gateway.address();
    for command in [
        &["python", "-c", say][..],
        &["tool"],
        &["sh", "-c", "tool"],
        &["sh", "-c", &format!("python3 -c '{say}'")],
    ] {
        for mut run in [place.run(&[], command), {
            let mut run = place.provost();
            run.args(["run", "--gateway", &address, "--"]).args(command);
            run
        }] {
            activated(&place, &mut run, &[".venv/bin"]).env("VIRTUAL_ENV", &prefix);
            let ran = output(&mut run);
            assert_eq!(stdout(&ran), expected, "{command:?}: {}", shown(&ran));
        }
    }
    let mut run = place.run(&["-e", "PATH"], &["sh", "-c", "echo $VIRTUAL_ENV $PATH"]);
    activated(&place, &mut run, &[".venv/bin"]).env("VIRTUAL_ENV", &prefix);
    let told = stdout(&output(&mut run));
    assert!(
        told.starts_with(&format!("{0} {0}/bin:", prefix.display())) && told.contains(":/usr/bin:"),
        "{told}"
    );
    gateway.stop();
}

#[test]
fn only_directories_of_the_workspace_are_taken_and_in_their_place() {
    let place = Place::new();
    program(&place.work().join("node_modules/.bin/tool"), "#!/bin/sh\necho of the workspace\n");
    program(&place.work().join("after/true"), "#!/bin/sh\necho a shadow\n");
    program(&place.path().join("outside/other"), "#!/bin/sh\necho from outside\n");
    let run = |command: &[&str]| {
        let mut run = place.run(&[], command);
        let path = format!(
            "{0}/node_modules/.bin:{1}/outside:/usr/bin:/bin:{0}/after:.:relative",
            place.work().display(),
            place.path().display()
        );
        output(run.env("PATH", path))
    };
    assert_eq!(stdout(&run(&["tool"])), "of the workspace\n");
    assert_eq!(stdout(&run(&["true"])), "", "the system's comes first");
    let hidden = run(&["other"]);
    assert_ne!(code(&hidden), 0, "{}", shown(&hidden));
    let path = stdout(&run(&["sh", "-c", "echo $PATH"]));
    assert!(path.starts_with(&format!("{}/node_modules/.bin:", place.work().display())), "{path}");
    assert!(
        path.trim_end().ends_with("/after") && !path.contains("outside") && !path.contains("relative"),
        "{path}"
    );
}

#[test]
fn a_rule_that_trusts_the_systems_program_does_not_allow_a_shadow_and_one_that_denies_meets_it() {
    let place = Place::new();
    program(&place.work().join("bin/uname"), "#!/bin/sh\necho a shadow\n");
    program(&place.work().join("bin/forbidden"), "#!/bin/sh\necho forbidden\n");
    program(&place.work().join("bin/plain"), "#!/bin/sh\necho plain\n");
    let policies = place.path().join("strict");
    fs::create_dir(&policies).expect("a directory can be made");
    let strict = |gate: bool, allowed: &str| {
        let text = format!(
            "default_profile = \"p\"\n[profile.p]\ngate = {{ enabled = {gate} }}\nlimits = {{ requirement = \"prefer\" }}\n\
             [[rule]]\nid = \"some\"\ndecision = \"allow\"\nargv = [{allowed}, \"**\"]\n\
             [[rule]]\nid = \"no\"\ndecision = \"deny\"\nargv = [\"forbidden\", \"**\"]\n"
        );
        fs::write(policies.join("p.toml"), text).expect("a file can be written");
    };
    let run = |command: &[&str]| {
        let mut run = place.provost();
        run.arg("run").arg("--policies").arg(&policies).arg("--").args(command);
        output(activated(&place, &mut run, &["bin"]))
    };
    for gate in [true, false] {
        strict(gate, "[\"uname\", \"id\", \"sh\", \"forbidden\", \"bin/plain\", \"./bin/plain\"]");
        let shadow = run(&["uname"]);
        assert_eq!((stdout(&shadow).as_str(), code(&shadow)), ("", 126), "gate {gate}: {}", shown(&shadow));
        assert!(stderr(&shadow).contains("uname"), "{}", shown(&shadow));
        let trusted = run(&["id", "-u"]);
        assert_eq!(code(&trusted), 0, "gate {gate}: {}", shown(&trusted));
        let denied = run(&["forbidden"]);
        assert_ne!(code(&denied), 0, "gate {gate}: {}", shown(&denied));
        assert_eq!(stdout(&denied), "");
        let line = run(&["sh", "-c", "uname"]);
        assert_ne!(stdout(&line), "a shadow\n", "gate {gate}: {}", shown(&line));
    }
}

#[test]
fn an_allowed_script_finds_no_program_of_the_workspace_where_no_gate_judges_what_it_starts() {
    let place = Place::new();
    program(&place.work().join("bin/gzip"), "#!/bin/sh\necho a shadow\n");
    let mut outside = Command::new("zcat");
    let outside = output(activated(&place, outside.arg("x").current_dir(place.work()), &["bin"]));
    assert_eq!(stdout(&outside), "a shadow\n", "without Provost: {}", shown(&outside));
    let policies = place.path().join("strict");
    fs::create_dir(&policies).expect("a directory can be made");
    for (rule, runs_it) in
        [("[\"zcat\", \"**\"]", false), ("[[\"zcat\", \"./bin/other\"], \"**\"]", false), ("[\"**\"]", true)]
    {
        let text = format!(
            "default_profile = \"p\"\n[profile.p]\ngate = {{ enabled = false }}\nlimits = {{ requirement = \"prefer\" }}\n\
             [[rule]]\nid = \"some\"\ndecision = \"allow\"\nargv = {rule}\n"
        );
        fs::write(policies.join("p.toml"), text).expect("a file can be written");
        let mut run = place.provost();
        run.arg("run").arg("--policies").arg(&policies).args(["--", "zcat", "x"]);
        let done = output(activated(&place, &mut run, &["bin"]));
        assert_eq!(stdout(&done) == "a shadow\n", runs_it, "{rule}: {}", shown(&done));
    }
}

#[test]
fn a_refused_program_of_the_workspace_is_named_with_the_rule_that_allows_it() {
    let place = Place::new();
    let shadow = place.work().join("bin/uname");
    program(&shadow, "#!/bin/sh\necho a shadow\n");
    let policies = place.path().join("strict");
    fs::create_dir(&policies).expect("a directory can be made");
    for gate in [true, false] {
        let text = format!(
            "default_profile = \"p\"\n[profile.p]\ngate = {{ enabled = {gate} }}\nlimits = {{ requirement = \"prefer\" }}\n\
             [[rule]]\nid = \"some\"\ndecision = \"allow\"\nargv = [[\"uname\", \"sh\"], \"**\"]\n"
        );
        fs::write(policies.join("p.toml"), text).expect("a file can be written");
        let mut run = place.provost();
        run.arg("run").arg("--policies").arg(&policies).args(["--", "uname"]);
        let done = output(activated(&place, &mut run, &["bin"]));
        assert_eq!(code(&done), 126, "{}", shown(&done));
        assert!(stderr(&done).contains(&shadow.display().to_string()), "gate {gate}: {}", shown(&done));
    }
}
