//! What a caller asks of a new session, and why there is none.

use std::collections::BTreeMap;

use super::{descriptors::DescriptorQuotaReached, session::Lifetime, workspace_extent::WorkspaceExtent};
use crate::{
    policy::{AbsPath, Denial, environment::EnvEntry, profile::Network},
    pool::PoolError,
    sandbox::{governing::GoverningError, roots::RootError},
};

/// A session to be opened; every field checked for form.
#[derive(Debug)]
pub struct NewSession {
    /// At least one.
    pub roots: Vec<AbsPath>,
    /// Directories that commands may read and never write.
    pub read_only_roots: Vec<AbsPath>,
    /// Whether the repository around the first root takes its place.
    pub extent: WorkspaceExtent,
    /// Absent: the first root.
    pub cwd: Option<AbsPath>,
    /// No name twice.
    pub env: Vec<EnvEntry>,
    /// As the caller gave them.
    pub labels: BTreeMap<String, String>,
    /// By which front end it is opened, as the caller claims.
    pub front_end: String,
    /// Absent: the policy's default.
    pub profile: Option<String>,
    /// The network of its terminals that ask for none; absent: their profile's.
    pub network: Option<Network>,
    /// The socket of the caller's SSH agent.
    pub ssh_agent: Option<AbsPath>,
    /// When it ends by itself.
    pub lifetime: Lifetime,
    /// The process that it ends with, if that is not the caller's.
    pub owner_process: Option<NamedProcess>,
    /// Makes a request for the same session by another process answer with it.
    pub name: Option<String>,
    /// Makes a repeated request answer with the first session.
    pub request_id: Option<String>,
}

/// A process that a caller names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NamedProcess {
    /// In the gateway's pid namespace.
    pub pid: i32,
    /// Clock ticks from boot to its start.
    pub start_ticks: u64,
}

/// Opening a session failed.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Policy refuses it.
    #[error(transparent)]
    Denied(#[from] Denial),
    /// A root cannot be used: its field in the request, and the reason.
    #[error("{0}")]
    Root(String, #[source] RootError),
    /// A root's own name, without links, is no text.
    #[error("{0} leads to a directory whose name is not text")]
    RootName(String),
    /// A session of this name is open, and is another one.
    #[error(
        "a session of this name is open, with another value: close it (`provost close NAME`), or take another name"
    )]
    OtherSession {
        /// The field of the request that differs; `name` for the policy, which has changed meanwhile.
        field: &'static str,
    },
    /// A session of this name is open, on a directory that was removed or replaced since.
    #[error(
        "a session of this name is open, and another directory is at {:?} now: close it (`provost close NAME`), or take another name",
        .0.as_path()
    )]
    RootReplaced(AbsPath),
    /// The session is to end with its owner's process, and the kernel does not tell which one that is.
    #[error("the calling process is not known, so the session cannot end with it")]
    NoOwnerProcess,
    /// The process that the caller names has ended, or is not the caller's. The two are not told apart.
    #[error("no process of the caller has this number and this start")]
    ForeignOwnerProcess,
    /// The gateway is going down.
    #[error("the gateway is draining")]
    Draining,
    /// What governs commands changed while the session was opened, and a root reaches it now.
    #[error(transparent)]
    Governing(GoverningError),
    /// It cannot be stored, and would not outlive this gateway.
    #[error("the session cannot be kept")]
    StateUnwritable(#[source] std::io::Error),
    /// Its roots could not be looked at in time.
    #[error("the roots cannot be opened")]
    Filesystem(#[from] PoolError),
    /// The principal has as many sessions as it may.
    #[error("{0} sessions are open, the most that one principal may have")]
    TooMany(u32),
    /// The principal's sessions and terminals hold as many of the gateway's descriptors as they may.
    #[error(transparent)]
    Descriptors(#[from] DescriptorQuotaReached),
}
