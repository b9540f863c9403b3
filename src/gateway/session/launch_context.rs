//! What all sessions of a gateway share to launch sandboxes and to access their callers' file systems.

use std::{path::PathBuf, sync::Arc, time::Duration};

use super::descriptors::DescriptorQuota;
use crate::{
    kept_cache::KeptCaches,
    pool::Pool,
    sandbox::{
        agent_link::Agents, counters::SandboxCounters, gate_link::Gates, governing::Governing, host::Host,
        net_link::Nets, spec::WithoutGateway,
    },
};

/// How long the file systems of a caller's directories may take to answer, for one request.
pub const FILESYSTEM_TIMEOUT: Duration = Duration::from_secs(5);

/// Where sandboxes are built: this host, this gateway's state.
#[derive(Debug)]
pub struct LaunchContext {
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
