//! Profiles: named descriptions of confinement, as policy files write them.
//!
//! Types only. [`super::check`] refuses values that make no sense, and the doc comments are the descriptions of the JSON schema. A umask is
//! text in octal digits, as shells write it: a bare number would be read as a decimal one.

use std::{collections::BTreeMap, fmt, path::PathBuf, sync::Arc, time::Duration};

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, de::Error};

use crate::{byte_text, duration, network::socket_path::SocketPath, workspace_files};

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

impl CgroupLimits {
    /// The lower one of the two for each limit.
    pub(crate) fn lowered_by(self, other: Self) -> Self {
        Self {
            memory_bytes: lower_limit(self.memory_bytes, other.memory_bytes),
            swap_bytes: lower_limit(self.swap_bytes, other.swap_bytes),
            pids: lower_limit(self.pids, other.pids),
            cpu_millis: lower_limit(self.cpu_millis, other.cpu_millis),
        }
    }
}

/// The lower one of two limits. An absent limit is none.
pub(crate) fn lower_limit<T: Ord>(a: Option<T>, b: Option<T>) -> Option<T> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
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

/// Which network a command has, and which a caller may ask for.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct NetworkRule {
    /// When the caller says nothing.
    pub default: Network,
    /// What the caller may ask for.
    pub choices: Vec<Network>,
    /// TCP ports that may be connected to, in either network, and no others: enforced by landlock. Absent: all.
    pub tcp_connect: Option<Vec<u16>>,
    /// TCP ports that may be bound, likewise.
    pub tcp_bind: Option<Vec<u16>>,
    /// With `proxy`: what becomes of open connections when another policy comes into force.
    pub on_reload: OnReload,
    /// With `proxy`: bytes that the connections of one session may carry, in both directions together. Absent: any number.
    pub max_bytes: Option<u64>,
    /// With `proxy`: unix sockets of the host that commands see, as listeners of the sandbox's own. Rules with `unix` decide about each
    /// connection.
    pub sockets: Vec<SocketPlace>,
}

/// A socket of the host, and where commands find it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SocketPlace {
    /// Its path on the host, without symbolic links.
    pub host: PathBuf,
    /// Its path inside, below `/run`. Absent: the same.
    pub inside: Option<PathBuf>,
}

impl SocketPlace {
    /// Its path inside.
    pub fn inside(&self) -> &std::path::Path {
        self.inside.as_deref().unwrap_or(&self.host)
    }
}

/// What becomes of open connections when another policy comes into force.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum OnReload {
    /// They go on.
    #[default]
    Keep,
    /// Those that the new rules do not allow are closed.
    Close,
}

impl Default for NetworkRule {
    fn default() -> Self {
        Self {
            default: Network::None,
            choices: vec![Network::None],
            tcp_connect: None,
            tcp_bind: None,
            on_reload: OnReload::Keep,
            max_bytes: None,
            sockets: Vec::new(),
        }
    }
}

impl NetworkRule {
    /// Whether commands see this socket of the host.
    pub fn lets_in(&self, path: &SocketPath) -> bool {
        self.sockets.iter().any(|one| one.host == path.as_path())
    }

    /// What a caller could ask for instead.
    pub fn choices_but(&self, chosen: Network) -> Vec<Network> {
        self.choices.iter().copied().filter(|choice| *choice != chosen).collect()
    }
}

/// A kind of network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Network {
    /// A network of its own, with a loopback only.
    None,
    /// The host's.
    Host,
    /// A network of its own, with proxies on its loopback that carry what rules about connections allow.
    Proxy,
}

impl Network {
    /// As policy files write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Host => "host",
            Self::Proxy => "proxy",
        }
    }

    /// The network with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::None, Self::Host, Self::Proxy].into_iter().find(|one| one.name() == name)
    }
}

/// The namespaces that a profile can name: what git(1) signs. A namespace of files signs anything.
pub const SIGNED_NAMESPACES: [&str; 1] = ["git"];

/// What commands have of the caller's SSH agent. Nothing, unless it is said.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SshAgentRule {
    /// The namespaces of texts that the agent's keys may sign (ssh-keygen(1), `-Y sign`): "git" for commits and tags
    pub sign: Vec<String>,
    /// The hosts to which the agent's keys may log in, by ssh(1): each with its own keys, by which it is known.
    pub hosts: Vec<SshHost>,
}

/// A host that commands may log in to.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SshHost {
    /// For people and the journal. What the host is, its keys say.
    pub name: String,
    /// Its Ed25519 keys, as `ssh-keyscan -t ed25519` prints them without the name: "ssh-ed25519 AAAA...".
    pub keys: Vec<String>,
}

impl SshAgentRule {
    /// Whether commands have anything of an agent.
    pub fn is_empty(&self) -> bool {
        self.sign.is_empty() && self.hosts.is_empty()
    }
}

/// Which of `caches` a later session finds as an earlier one has left them. None, unless it is said.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct KeptCachesRule {
    /// The caches among `caches` that are kept.
    pub names: Vec<String>,
    /// Which later sessions find them.
    pub between: KeptBetween,
    /// Bytes that all kept caches of a principal may have, in whole pages of 4 KiB. Those that were not used for
    /// longest are removed; what a session adds beyond that is not kept.
    pub max_bytes: u64,
    /// After this time a kept cache begins again with nothing, so that what a command has planted in it does not
    /// stay.
    #[serde(deserialize_with = "duration::deserialize")]
    #[schemars(with = "String")]
    pub max_age: Duration,
}

impl Default for KeptCachesRule {
    fn default() -> Self {
        Self {
            names: Vec::new(),
            between: KeptBetween::default(),
            max_bytes: 4 << 30,
            max_age: Duration::from_secs(14 * 24 * 3600),
        }
    }
}

/// Which sessions of a principal share kept caches, of those with the same profile and network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema, Default)]
#[serde(rename_all = "lowercase")]
pub enum KeptBetween {
    /// Those with the same writable roots.
    #[default]
    Workspace,
    /// All: what a command of one workspace plants is built by the others.
    Principal,
}

/// A file mode creation mask: the permissions that new files do not get.
#[derive(Debug, Clone, Copy, PartialEq, Eq, JsonSchema)]
#[schemars(transparent)]
pub struct Umask(#[schemars(with = "String")] u32);

/// A number that is no mask.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("must be at most 511 (0o777)")]
pub struct UmaskError;

impl Umask {
    const MAX: u32 = 0o777;

    /// A mask.
    ///
    /// # Errors
    /// The number has more than permissions.
    pub fn new(bits: u32) -> Result<Self, UmaskError> {
        if bits > Self::MAX { Err(UmaskError) } else { Ok(Self(bits)) }
    }

    /// The number that umask(2) takes.
    pub fn bits(self) -> u32 {
        self.0
    }
}

/// What a command has whose caller says nothing.
impl Default for Umask {
    fn default() -> Self {
        Self(0o022)
    }
}

impl<'de> Deserialize<'de> for Umask {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let is_octal =
            (1..=4).contains(&text.len()) && text.bytes().all(|byte| (b'0'..=b'7').contains(&byte));
        let bits = if is_octal { u32::from_str_radix(&text, 8).ok() } else { None };
        bits.and_then(|bits| Self::new(bits).ok())
            .ok_or_else(|| D::Error::custom(format!("{text:?} is no umask in octal digits, as in \"0027\"")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mask_is_octal_text_and_has_nothing_but_permissions() {
        let read = |json: &str| serde_json::from_str::<Umask>(json).map(Umask::bits).ok();
        assert_eq!(read("\"077\""), Some(0o77));
        assert_eq!(read("\"0027\""), Some(0o27));
        assert_eq!(read("\"0\""), Some(0));
        for refused in ["\"\"", "\"1000\"", "\"08\"", "\"+22\"", "\"00022\"", "\"u=rwx\"", "22"] {
            assert_eq!(read(refused), None, "{refused}");
        }
        assert_eq!(Umask::new(0o777).map(Umask::bits), Ok(0o777));
        assert_eq!(Umask::new(0o1000), Err(UmaskError));
        assert_eq!(Umask::default().bits(), 0o22);
    }
}
