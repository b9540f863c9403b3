//! Profiles: named descriptions of confinement, as policy files write them.
//!
//! Types only. [`super::check`] refuses values that make no sense, and the doc comments are the descriptions of the JSON
//! schema.

mod kept_caches;
mod network;
mod ssh_agent;

use std::{collections::BTreeMap, fmt, path::PathBuf, sync::Arc, time::Duration};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use self::{
    kept_caches::{KeptBetween, KeptCachesRule},
    network::{Network, NetworkRule, OnReload, SocketPlace},
    ssh_agent::{SIGNED_NAMESPACES, SshAgentRule, SshHost},
};
use super::{duration, umask::Umask, workspace_files};
use crate::byte_text;

/// What happens when the host cannot give a protection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema, Default)]
#[serde(rename_all = "lowercase")]
pub enum Requirement {
    /// The command is refused.
    #[default]
    Require,
    /// The command runs without it; the shortfall is reported and recorded.
    Prefer,
}

/// A profile's name: letters, digits, `-` and `_`.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ProfileName(pub(super) Arc<str>);

impl ProfileName {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// A name that was read back from a file. The profile may not exist any more.
    pub fn from_recorded(name: &str) -> Self {
        Self(name.into())
    }
}

/// In quotes, as error texts show it.
impl fmt::Debug for ProfileName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl fmt::Display for ProfileName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A named description of confinement.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Profile {
    /// The profile that this one extends: it gives every value that this one leaves out.
    pub extends: Option<String>,
    /// A description for people, in one line.
    pub description: String,
    /// One sandbox for all terminals of a session, or one for each. A terminal with secrets always has its own.
    pub isolation: Isolation,
    /// What commands see of the file system.
    pub filesystem: Filesystem,
    /// The network that commands have.
    pub network: NetworkRule,
    /// The user and group that commands run as.
    pub identity: IdentityRule,
    /// Resource limits of each terminal and of each session.
    pub limits: LimitRules,
    /// The system call filter.
    pub seccomp: Layer,
    /// The landlock domain.
    pub landlock: Layer,
    /// The exec gate: every exec of every process is evaluated, and what only then can be seen in a line is not asked about before.
    pub gate: Layer,
    /// The commands' environment.
    pub environment: EnvironmentRule,
    /// Names of secrets, each of which is a variable of every command.
    pub secrets: Vec<String>,
    /// Times: limits and graces.
    pub times: TimeRules,
    /// How much output is retained.
    pub output: OutputRule,
    /// What git has of the caller's configuration.
    pub git: GitRule,
    /// What commands have of the caller's SSH agent.
    pub ssh_agent: SshAgentRule,
    /// Toolchains of the caller's home that are shown, to be read: "rust", "node", "python", "go", "java", "asdf", "mise"
    /// (`policies/data/toolchains.toml`). Their programs join `path`: after the host's, or before them where the caller is the
    /// gateway's own user.
    pub toolchains: Vec<String>,
    /// Whose homes are looked at for `toolchains`.
    pub toolchain_homes: ToolchainHomes,
    /// Caches of the caller's home that commands begin with: "cargo", "npm", "pip", "uv", "go", "maven", "gradle",
    /// "ccache" (`policies/data/caches.toml`). What a command writes to them is the session's, and never the caller's.
    pub caches: Vec<String>,
    /// Which of `caches` later sessions of the principal find as an earlier one has left them.
    pub kept_caches: KeptCachesRule,
    /// The shell for whole lines; absolute, in the sandbox's view.
    pub shell: PathBuf,
    /// Directories that a bare program name is looked for in, in order. Also the commands' `PATH`.
    pub path: Vec<PathBuf>,
    /// `path` with directories of the workspace from a caller's own PATH; empty: `path` alone. No key of files.
    #[serde(skip)]
    #[schemars(skip)]
    pub(crate) searched: Vec<PathBuf>,
}

impl Profile {
    /// Where a bare name of a command is looked for, in order.
    pub fn searched(&self) -> &[PathBuf] {
        if self.searched.is_empty() { &self.path } else { &self.searched }
    }

    /// Whether a file that was looked for at this path was found in a directory of the workspace.
    pub fn is_found_in_workspace(&self, lookup_path: &str) -> bool {
        let path = byte_text::to_path(lookup_path);
        let is_there = |directory: &&PathBuf| path.parent() == Some(directory.as_path());
        self.searched.iter().find(is_there).is_some_and(|directory| !self.path.contains(directory))
    }
}

/// How terminals of one session share kernel objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema, Default)]
#[serde(rename_all = "lowercase")]
pub enum Isolation {
    /// One sandbox for the (session, profile).
    #[default]
    Session,
    /// One sandbox for each terminal.
    Terminal,
}

/// A layer that is on or off, and required or preferred.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Layer {
    /// On or off.
    pub enabled: bool,
    /// What to do when this host cannot give it.
    pub requirement: Requirement,
}

impl Default for Layer {
    fn default() -> Self {
        Self { enabled: true, requirement: Requirement::Require }
    }
}

/// The commands' view of the file system: nothing but what is listed, plus the session's roots.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Filesystem {
    /// Host directories and files shown read-only at the same place; absent ones are left out. Links are shown as links.
    pub system: Vec<PathBuf>,
    /// More of the same, for a team's own toolchains; an absent one is refused.
    pub read_only: Vec<PathBuf>,
    /// Host directories shown writable at the same place in addition to the session's roots; an absent one is refused.
    pub writable: Vec<PathBuf>,
    /// Whether the session's roots are writable.
    pub workspace: Access,
    /// Whether a directory of another user may be a root that is worked in, where the caller may write there, as members of a group share
    /// one: access counts then, and not ownership. Others' files in roots are written as far as their modes let the caller.
    pub shared_workspaces: bool,
    /// Files and directories, absolute, of which programs may be executed by any process, and no others: enforced by
    /// landlock in the whole tree. The system's dynamic loaders always may be. Memory becomes no program either: memfd_create(2) is
    /// refused without `MFD_NOEXEC_SEAL`. Absent: all that is shown. A path that is not there is refused.
    pub execute: Option<Vec<PathBuf>>,
    /// Files and directories of the session's roots, relative to them, in addition to those that are shipped, that no
    /// command can change: people's tools run what is in them, outside. Where one does not exist, nothing keeps a command from making it.
    pub protected: Vec<PathBuf>,
    /// As `protected`, for directories that must not be made by a command either: where the directory above one exists and it
    /// does not, it is made, empty, and stays.
    pub reserved: Vec<PathBuf>,
    /// What becomes of a change in the session's roots that would make people's tools run a command's code: git's
    /// configuration, hooks and links between repositories, and what `protected` names and was not there.
    pub changes: OnChange,
    /// What of the paths that are protected or reserved is not, by name.
    pub drop: Vec<PathBuf>,
    /// The umask that every command starts with, in octal digits ("0027"), whatever its caller has. Absent: the caller's.
    pub umask: Option<Umask>,
    /// Size of the private `/tmp`, and of the home, in bytes.
    pub tmp_bytes: u64,
    /// Files and directories that `/tmp` may hold.
    pub tmp_inodes: u64,
}

/// Where a host has its programs and their configuration.
const SYSTEM: [&str; 9] = ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt", "/etc"];

/// What of the system is installed, for dpkg, rpm and pacman (apk has its database in `/lib`): builds ask for versions and owners of
/// files. Everybody may read it on a host. Answers to questions of packages (debconf) and what was downloaded lie elsewhere.
pub const PACKAGE_DATABASES: [&str; 3] = ["/var/lib/dpkg", "/var/lib/rpm", "/var/lib/pacman/local"];

impl Default for Filesystem {
    fn default() -> Self {
        Self {
            system: SYSTEM.iter().chain(&PACKAGE_DATABASES).map(PathBuf::from).collect(),
            read_only: Vec::new(),
            writable: Vec::new(),
            workspace: Access::Write,
            shared_workspaces: false,
            execute: None,
            protected: workspace_files::paths(),
            reserved: vec![".git/hooks".into()],
            changes: OnChange::default(),
            drop: Vec::new(),
            umask: None,
            tmp_bytes: 1 << 30,
            tmp_inodes: 262_144,
        }
    }
}

/// What happens after a dangerous change in a workspace. Each variant does what the one before it does, and more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize, JsonSchema, Default)]
#[serde(rename_all = "lowercase")]
pub enum OnChange {
    /// It is reported: in the outcome and in the journal.
    Report,
    /// What was there before is restored; what was changed, and what is new, is moved aside.
    #[default]
    Undo,
    /// The same, since nothing is removed by the variant before it either.
    Quarantine,
}

/// Read or write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema, Default)]
#[serde(rename_all = "lowercase")]
pub enum Access {
    /// Read-only.
    Read,
    /// Readable and writable.
    #[default]
    Write,
}

/// The user and group that commands run as. Never the host's root.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct IdentityRule {
    /// The id that the commands see themselves as, where the host can map ids.
    pub uid: u32,
    /// The group, likewise.
    pub gid: u32,
    /// The name of that id.
    pub user: String,
    /// The commands' home: private and empty.
    pub home: PathBuf,
}

impl Default for IdentityRule {
    fn default() -> Self {
        Self { uid: 1000, gid: 1000, user: "agent".into(), home: "/home/agent".into() }
    }
}

/// Limits that the kernel enforces: of cgroups, and of setrlimit(2).
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema, Default)]
#[serde(deny_unknown_fields, default)]
pub struct LimitRules {
    /// What happens when the host cannot enforce cgroup limits.
    pub requirement: Requirement,
    /// On each terminal.
    pub terminal: CgroupLimits,
    /// On all terminals of a session together.
    pub session: CgroupLimits,
    /// By setrlimit(2), on each process: lower-case names without the prefix ("core", "nofile") to values.
    pub rlimits: BTreeMap<String, u64>,
}

/// Limits of a cgroup; absent ones are not set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Default)]
#[serde(deny_unknown_fields, default)]
pub struct CgroupLimits {
    /// Bytes of memory.
    pub memory_bytes: Option<u64>,
    /// Bytes of swap beyond the memory.
    pub swap_bytes: Option<u64>,
    /// Processes and threads.
    pub pids: Option<u64>,
    /// Thousandths of one processor.
    pub cpu_millis: Option<u64>,
}

/// The commands' environment: nothing is inherited from the gateway.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema, Default)]
#[serde(deny_unknown_fields, default)]
pub struct EnvironmentRule {
    /// Fixed values; a caller's or session's value of the same name replaces one unless it is denied.
    pub set: BTreeMap<String, String>,
    /// Name patterns (`*` stands for any text) that a caller may pass. Empty means all that is not denied.
    pub allow: Vec<String>,
    /// Name patterns that nobody may pass, in addition to those of the shipped list (`policies/data/variables.toml`): a
    /// request that does is refused.
    pub deny: Vec<String>,
    /// What a caller may pass of the shipped list: a pattern as it stands there, or one name that a pattern covers.
    pub drop: Vec<String>,
}

/// Times. Each a number with a unit: "500ms", "5s", "10m", "2h".
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TimeRules {
    /// The time limit when the caller gives none.
    #[serde(deserialize_with = "duration::optional::deserialize")]
    #[schemars(with = "Option<String>")]
    pub limit: Option<Duration>,
    /// The highest time limit that a caller may ask for.
    #[serde(deserialize_with = "duration::optional::deserialize")]
    #[schemars(with = "Option<String>")]
    pub ceiling: Option<Duration>,
    /// The idle limit when the caller gives none.
    #[serde(deserialize_with = "duration::optional::deserialize")]
    #[schemars(with = "Option<String>")]
    pub idle: Option<Duration>,
    /// Between TERM and KILL.
    #[serde(deserialize_with = "duration::deserialize")]
    #[schemars(with = "String")]
    pub grace: Duration,
    /// How long other processes may go on after the main process has ended.
    #[serde(deserialize_with = "duration::deserialize")]
    #[schemars(with = "String")]
    pub linger: Duration,
}

impl Default for TimeRules {
    fn default() -> Self {
        Self {
            limit: None,
            ceiling: None,
            idle: None,
            grace: Duration::from_secs(5),
            linger: Duration::from_millis(200),
        }
    }
}

/// How much output is retained for a terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct OutputRule {
    /// Bytes, when the caller says nothing.
    pub default_bytes: u64,
    /// The most that a caller may ask for; more is cut to this.
    pub ceiling_bytes: u64,
}

impl Default for OutputRule {
    fn default() -> Self {
        Self { default_bytes: 1 << 20, ceiling_bytes: 64 << 20 }
    }
}

/// What git has of the caller's configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct GitRule {
    /// The name and the address of commits are the caller's (`user.name`, `user.email`).
    pub identity: bool,
    /// With `identity`: what else of the caller's configuration runs no program and holds no secret (`policies/data/git-carried.toml`).
    pub configuration: bool,
}

impl Default for GitRule {
    fn default() -> Self {
        Self { identity: true, configuration: true }
    }
}

/// Whose toolchains a profile shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema, Default)]
#[serde(rename_all = "lowercase")]
pub enum ToolchainHomes {
    /// Those of every caller: what a name means that the host does not have, the caller decides.
    #[default]
    Callers,
    /// Those of a caller that is the gateway's own user, and nobody else's.
    Gateway,
}

impl Default for Profile {
    fn default() -> Self {
        Self {
            extends: None,
            description: String::new(),
            isolation: Isolation::default(),
            filesystem: Filesystem::default(),
            network: NetworkRule::default(),
            identity: IdentityRule::default(),
            limits: LimitRules::default(),
            seccomp: Layer::default(),
            landlock: Layer::default(),
            gate: Layer { enabled: false, requirement: Requirement::Require },
            environment: EnvironmentRule::default(),
            secrets: Vec::new(),
            times: TimeRules::default(),
            output: OutputRule::default(),
            git: GitRule::default(),
            ssh_agent: SshAgentRule::default(),
            toolchains: Vec::new(),
            toolchain_homes: ToolchainHomes::default(),
            caches: Vec::new(),
            kept_caches: KeptCachesRule::default(),
            shell: "/bin/sh".into(),
            path: ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"]
                .map(PathBuf::from)
                .to_vec(),
            searched: Vec::new(),
        }
    }
}
