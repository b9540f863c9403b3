//! An ordinary user to run things as, with a binary that it may execute and a workspace that is its own.

use std::{
    env, fs,
    os::unix::{fs::PermissionsExt, process::CommandExt},
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use tempfile::TempDir;

use crate::support::copy_provost;

/// An id above those of people and services, and below the ranges that containers get.
pub(crate) const NOBODYS_ID: u32 = 59_999;

/// The user, and a directory that goes away with it.
pub(crate) struct User {
    pub(crate) id: u32,
    directory: TempDir,
}

impl User {
    /// None when this machine lets no ordinary user make a namespace. That is said, and a failure in CI.
    pub(crate) fn find() -> Option<Self> {
        Self::find_as(NOBODYS_ID)
    }

    /// As [`Self::find`], with this id for root: for what is counted by id.
    pub(crate) fn find_as(id: u32) -> Option<Self> {
        let mine = nix::unistd::geteuid();
        let id = if mine.is_root() { id } else { mine.as_raw() };
        let user = Self { id, directory: tempfile::tempdir().expect("a directory can be made") };
        fs::set_permissions(user.directory(), fs::Permissions::from_mode(0o755)).expect("it is ours");
        copy_provost(user.directory());
        for directory in [user.work(), user.runtime(), user.kept()] {
            fs::create_dir(&directory).expect("a directory can be made");
            fs::set_permissions(&directory, fs::Permissions::from_mode(0o700)).expect("it is ours");
            if mine.is_root() {
                std::os::unix::fs::chown(&directory, Some(id), Some(id)).expect("root may");
            }
        }
        if user.outside(&["unshare", "--user", "true"]).status.success() {
            return Some(user);
        }
        println!("SKIPPED: this machine lets no ordinary user make a user namespace");
        assert!(env::var("CI").is_err(), "CI must let ordinary users make user namespaces");
        None
    }

    pub(crate) fn directory(&self) -> &Path {
        self.directory.path()
    }

    pub(crate) fn work(&self) -> PathBuf {
        self.directory().join("work")
    }

    pub(crate) fn provost(&self) -> PathBuf {
        self.directory().join("provost")
    }

    /// A directory of the user's that is no workspace.
    pub(crate) fn kept(&self) -> PathBuf {
        self.directory().join("kept")
    }

    fn runtime(&self) -> PathBuf {
        self.directory().join("runtime")
    }

    /// `provost run -- COMMAND` in the workspace.
    pub(crate) fn run(&self, command: &[&str]) -> Output {
        let provost = self.provost();
        let mut line = vec![provost.to_str().expect("UTF-8"), "run", "--"];
        line.extend(command);
        self.outside(&line)
    }

    /// A command as this user, unconfined.
    pub(crate) fn outside(&self, command: &[&str]) -> Output {
        let mut ready = Command::new(command[0]);
        ready.args(&command[1..]).current_dir(self.work()).stdin(Stdio::null()).env_clear();
        ready.env("PATH", "/usr/local/bin:/usr/bin:/bin").env("HOME", self.directory());
        ready.env("XDG_RUNTIME_DIR", self.runtime());
        if nix::unistd::geteuid().is_root() {
            // The standard library also gives up root's groups then.
            ready.uid(self.id).gid(self.id);
        }
        ready.output().expect("the command starts")
    }
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

pub(crate) fn shown(output: &Output) -> String {
    format!("{}\nstdout: {}\nstderr: {}", output.status, text(&output.stdout), text(&output.stderr))
}
