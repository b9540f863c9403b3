//! The request to launch a sandbox, parsed and complete.
//!
//! Only types. Profile, roots and network were decided before.

use std::{
    borrow::Cow, collections::BTreeMap, fmt::Debug, os::fd::OwnedFd, path::PathBuf, sync::Arc, time::Duration,
};

use crate::{
    kept_cache::LayerName,
    policy::profile::{Network, Profile},
    sandbox::{agent_link::CallersAgent, roots::governing::Governing, session_network::SessionNetwork},
};

pub use crate::sandbox::roots::{Root, RootRole};

/// A sandbox to launch.
#[derive(Debug)]
pub struct SandboxSpec {
    /// `sbx_` and a ulid. Names its directories and cgroups.
    pub id: String,
    /// The profile's name, for reports.
    pub profile_name: String,
    /// How it is confined.
    pub profile: Arc<Profile>,
    /// The session's roots, opened by [`crate::sandbox::roots::open()`].
    pub roots: Vec<Root>,
    /// The names that the caller has for directories in the roots, where links lead to them.
    pub named: Vec<NamedDirectory>,
    /// Its network.
    pub network: Network,
    /// The user who owns the files in the roots.
    pub owner: Owner,
    /// The user id of the session's principal.
    pub principal_uid: u32,
    /// The owner's other groups.
    pub groups: Arc<[u32]>,
    /// What it has of the caller's home.
    pub caller_home: CallerHome,
    /// Caches of the caller's home that commands begin with.
    pub caches: Vec<SharedCache>,
    /// The caller's SSH agent, where the profile gives commands something of it and the caller has one.
    pub agent: Option<AgentUse>,
    /// Whether rules by program are about its connections when it is launched.
    pub has_program_rules: bool,
    /// The directory with the certificates by which TLS of its commands is opened, where it has the network for that.
    pub certificates: Option<PathBuf>,
    /// Files that the roots must not reach.
    pub governing: Arc<Governing>,
    /// The session's network namespace, where the sandbox has not one of its own.
    pub session_network: Option<Arc<SessionNetwork>>,
    /// Whether it has `/tmp`, home and the commands' id for itself.
    pub session_files: SessionFilesUse,
    /// The session and profile that it serves.
    pub assignment: SandboxAssignment,
    /// Whether it ends with the control connection (embedded gateway), or waits for the next gateway.
    pub die_with_gateway: bool,
    /// How long it waits for the next gateway; absent: for ever.
    pub without_gateway: Option<WithoutGateway>,
    /// A stage at which to fail, in builds with failpoints; see `Stage` for the names.
    pub fail_at: Option<String>,
}

/// How long a sandbox goes on to which no gateway comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WithoutGateway {
    /// When none can come, because the state directory is gone.
    pub unreachable_max: Duration,
    /// In any case; absent: for ever.
    pub max: Option<Duration>,
}

/// A directory that a caller names by way of links.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedDirectory {
    /// As the caller names it.
    pub name: PathBuf,
    /// Without links.
    pub real: PathBuf,
}

/// Whose a sandbox's `/tmp`, home and commands' id are.
#[derive(Debug, Clone, Default)]
pub enum SessionFilesUse {
    /// Its own.
    #[default]
    Own,
    /// The session's. This sandbox makes them.
    First,
    /// The session's, which another sandbox has made.
    Given(SessionFiles),
}

/// What the sandboxes of a session have in common. It is there as long as one of them or a copy of this is.
#[derive(Debug, Clone)]
pub struct SessionFiles {
    /// Detached mounts, by their names in a plan.
    pub mounts: BTreeMap<String, Arc<OwnedFd>>,
    /// The commands' id; absent: it is the gateway's user's.
    pub command_id: Option<SharedHostId>,
}

/// A host id that the commands of several sandboxes have, as user and as group.
#[derive(Debug, Clone)]
pub struct SharedHostId {
    /// The id.
    pub id: u32,
    /// It belongs to the session while a copy of this is open.
    pub lock: Arc<OwnedFd>,
}

/// What a sandbox has of its caller's SSH agent.
#[derive(Debug, Clone)]
pub struct AgentUse {
    /// The agent.
    pub agent: CallersAgent,
    /// What its principal holds of the gateway's descriptors for it.
    pub held: Arc<dyn Debug + Send + Sync>,
}

/// What a sandbox has of its caller's home.
#[derive(Debug, Clone, Default)]
pub struct CallerHome {
    /// The name and address of the commits that git makes.
    pub git_identity: Option<GitIdentity>,
    /// What else git has of the caller's configuration, and then those of the identity, too.
    pub git_configuration: Option<GitConfiguration>,
}

/// A cache of a home: commands see it at this place of theirs, and write to a private layer above it.
#[derive(Debug, Clone)]
pub struct SharedCache {
    /// Relative to the home.
    pub place: PathBuf,
    /// What lies below. Only read.
    pub below: CacheBelow,
}

/// What lies below a cache's private layer.
#[derive(Debug, Clone)]
pub enum CacheBelow {
    /// The caller's own.
    Own(Arc<Root>),
    /// What earlier sessions have left, and below that the caller's own, where there is one.
    Kept {
        /// What they have left.
        kept: KeptLayer,
        /// The caller's own.
        own: Option<Arc<Root>>,
    },
}

/// What earlier sessions have left of a cache.
#[derive(Debug, Clone)]
pub struct KeptLayer {
    /// The name of the session's layer above it.
    pub name: LayerName,
    /// Its directory.
    pub directory: Arc<Root>,
}

impl CacheBelow {
    /// The caller's own.
    pub fn own(&self) -> Option<&Arc<Root>> {
        match self {
            Self::Own(own) => Some(own),
            Self::Kept { own, .. } => own.as_ref(),
        }
    }

    /// What earlier sessions have left.
    pub fn kept(&self) -> Option<&KeptLayer> {
        match self {
            Self::Own(_) => None,
            Self::Kept { kept, .. } => Some(kept),
        }
    }
}

/// The name and address of git's commits. Texts without control characters.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GitIdentity {
    /// `user.name`; empty: none.
    pub name: String,
    /// `user.email`; empty: none.
    pub email: String,
    /// How the caller signs with SSH; absent: not.
    pub signing: Option<GitSigning>,
}

/// What git has of a caller's configuration.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GitConfiguration {
    /// In the form of git-config(1).
    pub text: String,
    /// What it names: files of the private home.
    pub files: Vec<GitFile>,
    /// The names of keys that were left out.
    pub left_out: Vec<String>,
}

/// A file of the private home.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GitFile {
    /// Relative to the home.
    pub name: String,
    /// All of it.
    pub content: Vec<u8>,
}

/// How git signs with a key of an SSH agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GitSigning {
    /// The public key: its type and its base64. Plain text.
    pub key: String,
    /// `commit.gpgsign`.
    pub commits: bool,
    /// `tag.gpgsign`.
    pub tags: bool,
}

/// The session and profile that a sandbox serves, for a gateway that adopts it.
#[derive(Debug, Clone, Default)]
pub struct SandboxAssignment {
    /// The session.
    pub session_id: String,
    /// A hash of the profile's content: a changed profile of the same name has another one.
    pub confinement: u64,
    /// Which terminals may use it.
    pub sharing: Sharing,
}

/// Which terminals may use a sandbox.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Sharing {
    /// All terminals of the session with that profile and network.
    #[default]
    Shared,
    /// One terminal. The sandbox ends with it.
    Exclusive,
}

/// A user of the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owner {
    /// User.
    pub uid: u32,
    /// Primary group.
    pub gid: u32,
}

/// A protection that the profile prefers and that is missing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shortfall {
    /// Which one, by its name in [`crate::sandbox::probe::protections`].
    pub protection: Cow<'static, str>,
    /// Why it is missing, for people.
    pub reason: String,
}
