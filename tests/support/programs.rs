//! Programs of the host that a test needs and a host may lack.

use std::{
    io::{Write, stderr},
    path::Path,
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
