//! Sessions: trust domains opened by a principal.
//!
//! What all sessions of a gateway share is here: to launch sandboxes, and to access their callers' file systems.

#![forbid(unsafe_code)]

mod descriptors;
mod directories;
mod files;
mod git_configuration;
mod git_identity;
mod home_search;
mod id;
mod kept_caches;
mod launch;
mod new_session;
mod opened_caches;
mod principal;
mod real_path;
mod registry;
mod repository;
mod sandboxes;
#[expect(clippy::module_inception, reason = "the directory is about sessions, the file about one")]
mod session;
mod small_file;
mod store;
mod store_roots;
mod workspace_roots;

use std::{path::PathBuf, sync::Arc, time::Duration};

use crate::{
    kept_cache::KeptCaches,
    pool::Pool,
    sandbox::{
        agent_link::Agents, counters::SandboxCounters, gate_link::Gates, host::Host, net_link::Nets,
        roots::governing::Governing, spec::WithoutGateway,
    },
};
pub(crate) use descriptors::{
    DescriptorQuota, DescriptorQuotaReached, DescriptorReservation as HeldDescriptors,
};
pub(crate) use directories::EscapesRoot;
pub(crate) use home_search::Toolchains;
pub(crate) use id::SessionId;
pub(crate) use id::parse_ulid;
pub(crate) use kept_caches::KeptReport;
pub(crate) use launch::SandboxOrigin;
pub(crate) use new_session::OpenError;
pub(crate) use new_session::{NamedProcess, NewSession};
pub(crate) use principal::GivenInput;
pub(crate) use principal::{Peer, Principal};
pub(crate) use registry::Opened;
pub(crate) use registry::Sessions;
pub(crate) use session::Closing;
pub(crate) use session::{Lifetime, Session, WorkspaceExtent};
pub(crate) use store::{Persistence, RestoreError};

/// How long the file systems of a caller's directories may take to answer, for one request.
pub(crate) const FILESYSTEM_TIMEOUT: Duration = Duration::from_secs(5);

/// Where sandboxes are built: this host, this gateway's state.
#[derive(Debug)]
pub(crate) struct LaunchContext {
    /// What the host offers.
    pub host: Arc<Host>,
    /// Where the file systems of callers are looked at.
    pub pool: Arc<Pool>,
    /// Where large requests are judged.
    pub large_request_pool: Pool,
    /// The gateway's state directory.
    pub state: PathBuf,
    /// The caches that outlive their sessions.
    pub kept_caches: KeptCaches,
    /// What sessions and terminals hold of the gateway's descriptors.
    pub descriptors: Arc<DescriptorQuota>,
    /// What no sandbox may reach.
    pub governing: Arc<Governing>,
    /// Sandboxes end with the gateway's connection.
    pub die_with_gateway: bool,
    /// How long they wait for the next gateway otherwise.
    pub without_gateway: Option<WithoutGateway>,
    /// The gates of all sandboxes.
    pub gates: Arc<Gates>,
    /// The net processes of all sandboxes.
    pub nets: Arc<Nets>,
    /// The callers' SSH agents.
    pub agents: Arc<Agents>,
    /// What has become of the sandboxes.
    pub counters: Arc<SandboxCounters>,
}
