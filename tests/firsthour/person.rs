//! Who walks: a user with a home, an identity for git and a copy of the binary.

use std::{
    fs,
    os::unix::{
        fs::{PermissionsExt, chown},
        process::CommandExt,
    },
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use tempfile::TempDir;

use crate::support::copy_provost;

/// An id above those of people and services, and not one of another suite.
const ORDINARY_ID: u32 = 59_987;

/// What comes behind the toolchains of the home.
const SYSTEM_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// A user.
pub(crate) struct Person {
    id: u32,
    directory: TempDir,
}

impl Person {
    /// Root, where this is root.
    pub(crate) fn root() -> Option<Self> {
        if nix::unistd::geteuid().is_root() {
            return Some(Self::with_id(0));
        }
        println!("SKIPPED: this is not root");
        None
    }

    /// An ordinary user, where one may make a user namespace.
    pub(crate) fn ordinary() -> Option<Self> {
        let own = nix::unistd::geteuid();
        let person = Self::with_id(if own.is_root() { ORDINARY_ID } else { own.as_raw() });
        if person
            .command("unshare", person.home())
            .args(["--user", "true"])
            .status()
            .is_ok_and(|status| status.success())
        {
            return Some(person);
        }
        println!("SKIPPED: this machine lets no ordinary user make a user namespace");
        assert!(std::env::var("CI").is_err(), "CI must let ordinary users make user namespaces");
        None
    }

    fn with_id(id: u32) -> Self {
        let directory = tempfile::tempdir().expect("a directory can be made");
        let person = Self { id, directory };
        fs::set_permissions(person.directory.path(), fs::Permissions::from_mode(0o755)).expect("it is ours");
        copy_provost(person.directory.path());
        for directory in [person.home(), person.runtime()] {
            person.make(&directory);
            fs::set_permissions(&directory, fs::Permissions::from_mode(0o700)).expect("it is ours");
        }
        let identity = "[user]\n\tname = First Hour\n\temail = first@example.org\n";
        fs::write(person.home().join(".gitconfig"), identity).expect("a file can be written");
        person
    }

    /// The id of the user.
    pub(crate) fn id(&self) -> u32 {
        self.id
    }

    /// The home.
    pub(crate) fn home(&self) -> PathBuf {
        self.directory.path().canonicalize().expect("it is there").join("home")
    }

    /// The binary.
    pub(crate) fn provost(&self) -> PathBuf {
        self.directory.path().join("provost")
    }

    /// The shipped policy as `provost run` has it, with the host's network for those who ask: registries may be mirrors at private
    /// addresses.
    pub(crate) fn policies_with_hosts_network(&self) -> PathBuf {
        let directory = self.directory.path().join("policies");
        self.make(&directory);
        let policy = include_str!("../../policies/default.toml")
            .replace("choices = [\"none\", \"proxy\"]", "choices = [\"none\", \"proxy\", \"host\"]")
            .replace("requirement = \"require\"", "requirement = \"prefer\"");
        fs::write(directory.join("default.toml"), policy).expect("the policy can be written");
        directory
    }

    fn runtime(&self) -> PathBuf {
        self.directory.path().join("runtime")
    }

    /// Makes a directory of this user's.
    pub(crate) fn make(&self, directory: &Path) {
        fs::create_dir_all(directory).expect("a directory can be made");
        for above in directory.ancestors().take_while(|above| above.starts_with(self.directory.path())) {
            if above != self.directory.path() && nix::unistd::geteuid().is_root() {
                chown(above, Some(self.id), Some(self.id)).expect("root may");
            }
        }
    }

    /// A command of this user's, with the environment of a plain login.
    pub(crate) fn command(
        &self,
        program: impl AsRef<std::ffi::OsStr>,
        directory: impl AsRef<Path>,
    ) -> Command {
        let mut command = Command::new(program);
        command.current_dir(directory).stdin(Stdio::null()).env_clear();
        command.env("HOME", self.home()).env("PATH", self.path()).env("XDG_RUNTIME_DIR", self.runtime());
        command.env("LANG", "C.UTF-8");
        if self.id != nix::unistd::geteuid().as_raw() {
            // The standard library also gives up root's groups then.
            command.uid(self.id).gid(self.id);
        }
        command
    }

    /// Runs a line, outside.
    pub(crate) fn outside(&self, line: &str, directory: &Path) -> Output {
        self.command("sh", directory).args(["-c", line]).output().expect("a shell is there")
    }

    /// The search path that a profile file of the shell would make.
    fn path(&self) -> String {
        let home = self.home();
        let mut directories: Vec<PathBuf> =
            [".cargo/bin", ".local/bin", ".local/share/mise/shims"].map(|name| home.join(name)).into();
        let versions = fs::read_dir(home.join(".nvm/versions/node")).into_iter().flatten().flatten();
        directories.extend(versions.map(|version| version.path().join("bin")));
        let there = directories.into_iter().filter(|directory| directory.is_dir());
        let home: Vec<String> = there.map(|directory| directory.display().to_string()).collect();
        [home, vec![SYSTEM_PATH.to_owned()]].concat().join(":")
    }
}
