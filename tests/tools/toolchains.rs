//! Where a host has its tools, and which directories a sandbox must be shown for them.

use std::{
    env,
    path::{Path, PathBuf},
    process::Command,
};

/// What the default profile shows of the system by itself.
const SHOWN: [&str; 5] = ["/usr", "/bin", "/sbin", "/lib", "/opt"];

/// A tool that was found.
#[derive(Debug, Clone)]
pub(crate) struct Found {
    /// The program.
    pub(crate) program: PathBuf,
    /// The directory that it lives in and needs.
    pub(crate) prefix: PathBuf,
}

impl Found {
    /// Whether a profile has to name the directory for the tool to be there.
    pub(crate) fn must_be_shown(&self) -> bool {
        !SHOWN.iter().any(|shown| self.prefix.starts_with(shown))
    }

    /// The directory that a bare name is found in.
    pub(crate) fn directory(&self) -> &Path {
        self.program.parent().unwrap_or(Path::new("/"))
    }
}

/// Finds a tool by its name. One that is missing is said, and with `CI=true` it is a failure.
pub(crate) fn find(name: &str) -> Option<Found> {
    let found = match name {
        // What is in the path may be a shim that chooses a version: ask it where the real one is.
        "python3" => answer("python3", &["-c", "import sys; print(sys.base_prefix)"])
            .map(|prefix| Found { program: prefix.join("bin/python3"), prefix }),
        "cargo" => answer("rustc", &["--print", "sysroot"])
            .map(|prefix| Found { program: prefix.join("bin/cargo"), prefix }),
        _ => in_path(name).map(|program| Found {
            prefix: program.parent().and_then(Path::parent).unwrap_or(Path::new("/")).to_owned(),
            program,
        }),
    };
    let found = found.filter(|found| found.program.is_file());
    if found.is_none() {
        println!("SKIPPED: this machine has no {name}");
        assert!(env::var("CI").is_err(), "CI must have {name}");
    }
    found
}

fn in_path(name: &str) -> Option<PathBuf> {
    env::split_paths(&env::var_os("PATH")?).map(|directory| directory.join(name)).find(|path| path.is_file())
}

fn answer(program: &str, arguments: &[&str]) -> Option<PathBuf> {
    let output = Command::new(program).args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| PathBuf::from(text.trim()))
}
