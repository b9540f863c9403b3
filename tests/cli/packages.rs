//! What `deploy/package` makes: the program with its pages, completions, units and a configuration, which all go together.

use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use super::fixture::shown;

/// Runs a program that must end well, and returns what it printed.
fn printed(command: &mut Command) -> String {
    let output: Output = command.output().expect("it starts");
    assert!(output.status.success(), "{command:?}: {}", shown(&output));
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// Makes a package of the program under test.
fn package(kind: &str, directory: &Path) -> PathBuf {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/package");
    let mut command = Command::new(script);
    command.arg(kind).args(["--program", env!("CARGO_BIN_EXE_provost"), "--output"]).arg(directory);
    // It is a large program, with what debuggers read.
    let file = printed(command.env("DPKG_DEB_COMPRESSOR_TYPE", "none"));
    PathBuf::from(file.trim_end())
}

/// Everything below a directory, as paths from it.
fn files_of(root: &Path) -> BTreeSet<String> {
    let mut command = Command::new("find");
    let listed = printed(command.arg(".").args(["-not", "-type", "d"]).current_dir(root));
    listed.lines().map(|line| line.trim_start_matches('.').to_owned()).collect()
}

/// What a package has, unpacked below a directory.
fn must_go_together(root: &Path) {
    let files = files_of(root);
    for wanted in [
        "/usr/bin/provost",
        "/usr/bin/provost-shell",
        "/usr/libexec/provost-sandbox",
        "/usr/share/man/man1/provost.1.gz",
        "/usr/share/man/man1/provost-run.1.gz",
        "/usr/share/bash-completion/completions/provost",
        "/usr/share/zsh/vendor-completions/_provost",
        "/usr/share/fish/vendor_completions.d/provost.fish",
        "/usr/lib/systemd/system/provost.service",
        "/usr/lib/systemd/system/provost.socket",
        "/usr/lib/systemd/system/provost-sandboxes.service",
        "/etc/provost/provost.toml",
        "/etc/provost/policies/default.toml",
        "/usr/share/doc/provost/copyright",
    ] {
        assert!(files.contains(wanted), "{wanted} is missing: {files:#?}");
    }
    let program = root.join("usr/bin/provost");
    let version = printed(Command::new(&program).arg("--version"));
    assert_eq!(version, format!("provost {}\n", env!("CARGO_PKG_VERSION")));
    // The small program, and not the large one under its name.
    let shell = root.join("usr/bin/provost-shell");
    let length = |path: &Path| fs::symlink_metadata(path).expect("it is there").len();
    assert!(shell.is_file() && !shell.is_symlink() && 3 * length(&shell) < 2 * length(&program));
    let called = Command::new(&shell).args(["-c", "true"]).env("PROVOST_GATEWAY", "unix:/nowhere").output();
    assert_eq!(called.expect("it starts").status.code(), Some(125), "there is no gateway");
    printed(Command::new(&program).args(["policy", "check"]).arg(root.join("etc/provost/policies")));
    let page = printed(Command::new("gzip").arg("-dc").arg(root.join("usr/share/man/man1/provost-run.1.gz")));
    assert!(page.contains(".TH provost-run"), "{page}");
    // The unit starts what the package has, with the configuration that the package has.
    let unit = fs::read_to_string(root.join("usr/lib/systemd/system/provost.service")).expect("a unit");
    let start = unit.lines().find_map(|line| line.strip_prefix("ExecStart=")).expect("it starts something");
    for word in start.split(' ').filter(|word| word.starts_with("/usr") || word.starts_with("/etc")) {
        assert!(files.contains(word), "{start}");
    }
    let config = fs::read_to_string(root.join("etc/provost/provost.toml")).expect("a configuration");
    assert!(config.lines().any(|line| line == "policies = \"/etc/provost/policies\""), "{config}");
    for path in &files {
        let mode = fs::metadata(root.join(&path[1..])).expect("it is there").permissions().mode() & 0o7777;
        assert_eq!(
            mode,
            if path.starts_with("/usr/bin/") || path.starts_with("/usr/libexec/") { 0o755 } else { 0o644 },
            "{path}"
        );
    }
}

#[test]
#[ignore = "long: .ci/run runs it"]
fn an_archive_has_the_program_and_all_that_belongs_to_it() {
    let directory = tempfile::tempdir().expect("a directory");
    let archive = package("tar", directory.path());
    let root = directory.path().join("root");
    fs::create_dir(&root).expect("a directory");
    printed(Command::new("tar").arg("-C").arg(&root).arg("-xzf").arg(&archive));
    must_go_together(&root);
    let listed = printed(Command::new("tar").arg("--numeric-owner").arg("-tvzf").arg(&archive));
    assert!(listed.lines().all(|line| line.split_whitespace().nth(1) == Some("0/0")), "{listed}");
}

#[test]
#[ignore = "long: .ci/run runs it"]
fn a_debian_package_has_the_same_and_keeps_what_a_person_configured() {
    if Command::new("dpkg-deb").arg("--version").output().is_err() {
        println!("SKIPPED: dpkg-deb is not here");
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let file = package("deb", directory.path());
    let root = directory.path().join("root");
    printed(Command::new("dpkg-deb").arg("-x").arg(&file).arg(&root));
    must_go_together(&root);
    let listed = printed(Command::new("dpkg-deb").arg("-c").arg(&file));
    assert!(listed.lines().all(|line| line.split_whitespace().nth(1) == Some("root/root")), "{listed}");
    let control = directory.path().join("control");
    printed(Command::new("dpkg-deb").arg("-e").arg(&file).arg(&control));
    let kept = fs::read_to_string(control.join("conffiles")).expect("a list");
    let kept: BTreeSet<&str> = kept.lines().collect();
    assert_eq!(kept, BTreeSet::from(["/etc/provost/policies/default.toml", "/etc/provost/provost.toml"]));
    let field = |name: &str| printed(Command::new("dpkg-deb").arg("-f").arg(&file).arg(name));
    assert_eq!(field("Version").trim(), env!("CARGO_PKG_VERSION"));
    assert!(field("Depends").starts_with("libc6 (>= 2."), "{}", field("Depends"));
}
