//! `provost acp --agent NAME`: agents that are known by name.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Command, Output, Stdio},
};

fn acp(arguments: &[&str], path: &Path) -> Output {
    let mut shim = Command::new(env!("CARGO_BIN_EXE_provost"));
    shim.arg("acp").args(arguments).env("PATH", format!("{}:/usr/bin:/bin", path.display()));
    shim.env_remove("PROVOST_GATEWAY").env("XDG_RUNTIME_DIR", path).env_remove("OPENCODE_PERMISSION");
    shim.stdin(Stdio::null()).output().expect("provost starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Name, command, what is covered, tested version and install line, as `--agent list` prints them.
fn listed() -> Vec<Vec<String>> {
    let nothing = tempfile::tempdir().expect("a directory");
    let list = acp(&["--agent", "list"], nothing.path());
    assert!(list.status.success(), "{list:?}");
    let row = |line: &str| {
        line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).map(str::to_owned).collect()
    };
    text(&list.stdout).lines().skip(1).map(row).collect()
}

#[test]
fn the_table_of_agents_is_the_pages() {
    let page =
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/agents.md")).expect("a page");
    let (_, section) = page.split_once("\n## An agent by its name\n").expect("the section");
    let rows: Vec<Vec<String>> = section
        .lines()
        .skip_while(|line| !line.starts_with('|'))
        .take_while(|line| line.starts_with('|'))
        .skip(2)
        .map(|row| row.trim_matches('|').split(" | ").map(|cell| cell.trim().replace('`', "")).collect())
        .collect();
    assert!(rows.len() >= 5, "{rows:?}");
    assert_eq!(rows, listed());
}

#[test]
fn a_known_agent_is_started_by_its_name_and_an_unknown_one_is_refused_with_the_list() {
    let path = tempfile::tempdir().expect("a directory");
    let seen = path.path().join("seen");
    let unknown = acp(&["--agent", "no-such-agent"], path.path());
    let said = text(&unknown.stderr);
    assert_eq!(unknown.status.code(), Some(125), "{said}");
    assert!(listed().iter().all(|row| said.contains(&row[0])), "{said}");

    for row in listed() {
        let (name, command) = (&row[0], row[1].split(' ').collect::<Vec<_>>());
        let absent = acp(&["--agent", name], path.path());
        let said = text(&absent.stderr);
        assert_eq!(absent.status.code(), Some(125), "{said}");
        assert!(said.contains(&row[4]), "{name} is named with its install line: {said}");

        let program = path.path().join(command[0]);
        let script = format!("#!/bin/sh\necho \"$0 $*; $OPENCODE_PERMISSION\" > '{}'\n", seen.display());
        fs::write(&program, script).expect("a program can be written");
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("a mode can be set");
        let started = acp(&["--agent", name, "--", "and", "more"], path.path());
        assert!(started.status.success(), "{started:?}");
        let words = fs::read_to_string(&seen).expect("it was started");
        let first = format!("{} {}", program.display(), command[1..].join(" "));
        assert!(words.starts_with(first.trim_end()) && words.contains(" and more;"), "{words}");
        assert_eq!(words.contains(r#"{"bash":"deny"}"#), name == "opencode", "{words}");
        let is_told_of = text(&started.stderr).contains("--confine-agent");
        assert_eq!(is_told_of, row[2] != "its terminals", "{name}: {started:?}");
        fs::remove_file(program).expect("it is there");
    }
}

#[test]
fn a_setting_that_says_otherwise_is_refused_and_not_overwritten() {
    let path = tempfile::tempdir().expect("a directory");
    let program = path.path().join("opencode");
    fs::write(&program, "#!/bin/sh\n").expect("a program can be written");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("a mode can be set");
    let started = |value: &str| {
        let mut shim = Command::new(env!("CARGO_BIN_EXE_provost"));
        shim.args(["acp", "--agent", "opencode"]).env("PATH", path.path()).env("OPENCODE_PERMISSION", value);
        shim.env_remove("PROVOST_GATEWAY").env("XDG_RUNTIME_DIR", path.path());
        let output = shim.stdin(Stdio::null()).output().expect("provost starts");
        (output.status.code(), text(&output.stderr))
    };
    let (status, said) = started(r#"{"edit":"deny"}"#);
    assert!(status == Some(125) && said.contains("OPENCODE_PERMISSION"), "{status:?} {said}");
    assert_eq!(started(r#"{"bash":"deny"}"#).0, Some(0));
}
