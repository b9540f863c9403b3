//! Says where a program is on this host that a sandbox does not show, and which line of its profile would.
//!
//! Looks with this process's own rights, in its own search path: what is said is what the caller can see anyway.

use std::{
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use crate::{cli::console::error::CliError, policy::toolchain, printable};

/// Adds the advice to a failure whose command was not found.
pub(super) fn advise(failure: CliError, program: &str) -> CliError {
    if failure.reason != "COMMAND_NOT_FOUND" {
        return failure;
    }
    let home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
    let Some(found) = find(program, &home) else { return failure };
    // What is shown by default was not found there for another reason.
    if ["/usr", "/bin", "/sbin", "/opt"].iter().any(|shown| found.starts_with(shown)) {
        return failure;
    }
    let of_home = found.strip_prefix(&home).ok().and_then(toolchain::holding);
    let directory = found.parent().map(|parent| toml::Value::from(printable::path(parent)).to_string());
    let directory = directory.unwrap_or_default();
    let line = match of_home {
        Some(toolchain) => format!("`toolchains = [\"{}\"]`", toolchain.name),
        None if program.contains('/') => format!("`filesystem = {{ read_only = [{directory}] }}`"),
        None => format!("`filesystem = {{ read_only = [{directory}] }}` and {directory} in `path`"),
    };
    let advice = format!(
        "{} is {} on this host, which the profile does not show; this line of the profile would: {line}",
        printable::line(program),
        printable::path(&found)
    );
    failure.with_advice(advice)
}

/// The program that a shell would run here.
fn find(program: &str, home: &Path) -> Option<PathBuf> {
    if program.contains('/') {
        return std::path::absolute(program).ok().filter(|path| is_program(path));
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let parts = toolchain::all().iter().flat_map(|one| &one.part);
    let of_home = parts.flat_map(|part| &part.path).map(|directory| home.join(directory));
    let directories = std::env::split_paths(&path).filter(|directory| directory.is_absolute()).chain(of_home);
    directories.map(|directory| directory.join(program)).find(|path| is_program(path))
}

fn is_program(path: &Path) -> bool {
    path.metadata().is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}
