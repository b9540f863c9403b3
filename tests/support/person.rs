//! A person who follows a page: a home, a project, programs of their own, and shells in which what the page shows is run as it stands.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use tempfile::TempDir;

/// Where a page has a project.
const PROJECT: &str = "/home/me/project";

/// Removed with the test.
pub struct Person {
    directory: TempDir,
}

impl Person {
    /// With an empty home and project, and `provost` in the `PATH`.
    pub fn new() -> Self {
        let directory =
            tempfile::Builder::new().prefix("provost-page-").tempdir().expect("a temporary directory");
        for name in ["home", "project", "bin"] {
            fs::create_dir(directory.path().join(name)).expect("a directory can be made");
        }
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_provost"), directory.path().join("bin/provost"))
            .expect("a link can be made");
        Self { directory }
    }

    /// A path of this person: `home`, `project`, `bin`, or below one of them.
    pub fn at(&self, name: &str) -> PathBuf {
        self.directory.path().canonicalize().expect("it is there").join(name)
    }

    /// Puts a shell script into the `PATH`.
    pub fn install(&self, name: &str, script: &str) {
        self.install_as(&self.at("bin").join(name), &format!("#!/bin/sh\n{script}\n"));
    }

    /// Makes a program.
    pub fn install_as(&self, path: &Path, text: &str) {
        fs::write(path, text).expect("a program can be written");
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("it is ours");
    }

    /// Writes a file of the project.
    pub fn write(&self, name: &str, text: &str) {
        let path = self.at("project").join(name);
        fs::create_dir_all(path.parent().expect("it lies in the project")).expect("a directory can be made");
        fs::write(path, text).expect("a file can be written");
    }

    /// What the page shows, in a shell in this person's project, which stands for the page's.
    pub fn shell(&self, lines: &str) -> Command {
        let mut shell = Command::new("bash");
        shell.args(["-ec", &lines.replace(PROJECT, &self.at("project").display().to_string())]);
        shell.current_dir(self.at("project")).stdin(Stdio::null()).env_remove("PROVOST_GATEWAY");
        shell.env("HOME", self.at("home")).env("XDG_RUNTIME_DIR", self.at("home"));
        shell.env("PATH", format!("{}:/usr/local/bin:/usr/bin:/bin", self.at("bin").display()));
        shell
    }
}
