//! Programs of the host that a test needs and a host may lack.

use std::{
    io::{Write, stderr},
    path::{Path, PathBuf},
    process::Command,
    sync::LazyLock,
};

/// Where a sandbox finds programs, too.
const DIRECTORIES: [&str; 3] = ["/usr/bin", "/usr/local/bin", "/bin"];

/// Says loudly which of these programs the host lacks; fails instead where a CI host must have them. Whether one is missing.
pub fn lacks(programs: &[&str]) -> bool {
    let is_there =
        |program: &str| DIRECTORIES.iter().any(|directory| Path::new(directory).join(program).exists());
    let missing: Vec<&str> = programs.iter().copied().filter(|program| !is_there(program)).collect();
    if missing.is_empty() {
        return false;
    }
    let said = format!("{} is not on this host", missing.join(", "));
    say_skipped(&said);
    assert!(std::env::var("CI").as_deref() != Ok("true"), "skipped where CI must have it: {said}");
    true
}

/// Past the harness, which shows what a test prints only when it fails.
pub(crate) fn say_skipped(why: &str) {
    let name = std::thread::current().name().unwrap_or_default().to_owned();
    let _ = writeln!(stderr(), "SKIPPED: {name}: {why}");
}

/// Has cargo build what is no program of the package at the top, and gives the directory of all programs. `cargo test` builds it too; asked
/// for here so that a single suite can be run from a clean tree.
pub fn built_by_cargo(what: &[&str]) -> PathBuf {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--quiet", "--offline"]).args(what);
    // Variables of this test's own build. A build script that reads them would run again, and with it the whole build.
    for (name, _) in std::env::vars().filter(|(name, _)| {
        ["OUT_DIR", "CARGO_PKG_", "CARGO_MANIFEST_"]
            .iter()
            .any(|of_this_build| name.starts_with(of_this_build))
    }) {
        cargo.env_remove(name);
    }
    let built = cargo.current_dir(env!("CARGO_MANIFEST_DIR")).output().expect("cargo runs");
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    Path::new(env!("CARGO_BIN_EXE_provost")).parent().expect("it lies in a directory").to_owned()
}

/// The conformance suite for ACP terminals, which is not installed with `provost`.
pub fn acp_conformance() -> &'static Path {
    static PROGRAM: LazyLock<PathBuf> = LazyLock::new(|| {
        built_by_cargo(&["--package", "provost-conformance", "--bin", "acp-conformance"])
            .join("acp-conformance")
    });
    &PROGRAM
}

/// Copies `provost` into a directory, with the program of its sandboxes, which belongs next to it.
pub fn copy_provost(directory: &Path) {
    // By another process: a child of another test could inherit a descriptor that is open for writing (ETXTBSY).
    let built = [env!("CARGO_BIN_EXE_provost"), env!("CARGO_BIN_EXE_provost-sandbox")];
    let copied = Command::new("cp").args(built).arg(directory).status();
    assert!(copied.is_ok_and(|status| status.success()), "the programs can be copied");
}
