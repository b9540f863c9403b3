//! Launches a sandbox: its processes, the connections to them, and the task that owns it.

use std::{
    io,
    net::Ipv4Addr,
    os::fd::AsFd,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use tokio::{io::Interest, sync::watch};

use super::{
    cleanup::Cleanup,
    connection::ControlConnection,
    gate::link_gate,
    handle::{Sandbox, SandboxLife},
    links::SandboxLinks,
};
use crate::{
    failpoint,
    kept_cache::KeepError,
    link::{LinkError, Peer},
    policy::profile::Network,
    pool::PoolError,
    sandbox::{
        agent_link::AgentOwner,
        counters::SandboxCounters,
        gate_link::{GateOwner, Gates},
        host::Host,
        launch::{self, LaunchError, LaunchedSandbox},
        net_link::{NetError, NetOwner},
        process_links::SUPERVISOR_HELLO_TIMEOUT,
        spec::{SandboxSpec, SessionFilesUse},
    },
    sys::{async_fd, namespace},
};

/// Why there is no sandbox.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StartError {
    /// It could not be launched.
    #[error(transparent)]
    Launch(LaunchError),
    /// It was launched, and the handshake failed.
    #[error(transparent)]
    Connect(LinkError),
    /// A root of the session was replaced or removed.
    #[error("the session's root {} is gone, or another directory is in its place", crate::printable::path(.0))]
    RootGone(PathBuf),
    /// What earlier sessions have left of the profile's caches cannot be opened.
    #[error("open the kept caches")]
    KeptCaches(#[source] KeepError),
    /// Others hold it for too long.
    #[error("wait for the kept caches")]
    KeptCachesWait(#[source] PoolError),
    /// The gateway has no descriptors left for it.
    #[error("hold the sandbox's descriptors")]
    Descriptors(#[source] io::Error),
    /// It was launched, and nothing carries its connections.
    #[error(transparent)]
    Net(#[from] NetError),
    /// It was launched, and its gate does not answer.
    #[error(transparent)]
    Gate(LinkError),
}

impl From<LaunchError> for StartError {
    fn from(error: LaunchError) -> Self {
        match error {
            LaunchError::SourceGone { path } => Self::RootGone(path),
            other => Self::Launch(other),
        }
    }
}

impl StartError {
    /// Whether a command has the address that was to be the sandbox's.
    pub(crate) fn is_of_own_address(&self) -> bool {
        match self {
            Self::Launch(error) => error.is_of_own_address(),
            Self::Connect(_)
            | Self::RootGone(_)
            | Self::KeptCaches(_)
            | Self::KeptCachesWait(_)
            | Self::Descriptors(_)
            | Self::Net(_)
            | Self::Gate(_) => false,
        }
    }

    /// Whether the kernel does not attach the session's directories.
    pub(crate) fn is_of_session_files(&self) -> bool {
        match self {
            Self::Launch(error) => error.is_of_session_files(),
            Self::Connect(_)
            | Self::RootGone(_)
            | Self::KeptCaches(_)
            | Self::KeptCachesWait(_)
            | Self::Descriptors(_)
            | Self::Net(_)
            | Self::Gate(_) => false,
        }
    }
}

impl Sandbox {
    /// Launches a sandbox and completes the handshake.
    pub(crate) async fn start(
        host: &Arc<Host>,
        state: &Path,
        spec: SandboxSpec,
        links: SandboxLinks<'_>,
        counters: &Arc<SandboxCounters>,
    ) -> Result<Arc<Self>, StartError> {
        let started = Self::launch(host, state, spec, links, counters.clone()).await;
        if started.is_err() {
            counters.failed.inc();
        }
        started
    }

    async fn launch(
        host: &Arc<Host>,
        state: &Path,
        spec: SandboxSpec,
        links: SandboxLinks<'_>,
        counters: Arc<SandboxCounters>,
    ) -> Result<Arc<Self>, StartError> {
        let owner = GateOwner {
            sandbox_id: spec.id.clone(),
            session_id: spec.assignment.session_id.clone(),
            uid: spec.principal_uid,
        };
        let net_owner = (spec.network == Network::Proxy).then(|| NetOwner::of(&spec));
        let agent = spec.agent.clone().map(|agent| {
            let owner = AgentOwner {
                session_id: owner.session_id.clone(),
                sandbox_id: spec.id.clone(),
                uid: spec.principal_uid,
                rule: spec.profile.ssh_agent.clone(),
            };
            (agent, owner)
        });
        let has_session_files = !matches!(spec.session_files, SessionFilesUse::Own);
        let mut launched = launch::launch(host, state, spec).await?;
        let agent_listener = launched.agent_listener.take();
        failpoint::reach("sandbox.launched");
        let sandbox = Self::from_launched(launched, links.gates, owner, counters, has_session_files).await?;
        // The caller may be cancelled during the handshake; then the sandbox is killed.
        let mut kill_on_drop = KillOnDrop(Some(sandbox.clone()));
        match Peer::Supervisor.within(SUPERVISOR_HELLO_TIMEOUT, sandbox.control.hello()).await {
            Ok(answer) => {
                sandbox.start_net(host, links.nets, net_owner).await?;
                if let (Some(listener), Some((agent, owner))) = (agent_listener, agent) {
                    sandbox.serve_agent(listener, agent, owner, links.agents);
                }
                kill_on_drop.0 = None;
                failpoint::reach("sandbox.greeted");
                let effective_confinement = answer.effective_confinement.unwrap_or_default();
                sandbox
                    .effective_confinement
                    .set(effective_confinement)
                    .expect("only this function sets the effective confinement, once");
                tracing::info!(sandbox.id = %sandbox.id, "sandbox up");
                Ok(sandbox)
            }
            Err(error) => {
                sandbox.kill().await;
                Err(StartError::Connect(error))
            }
        }
    }

    /// Connects, and starts the task that owns the sandbox.
    async fn from_launched(
        launched: LaunchedSandbox,
        gates: &Arc<Gates>,
        owner: GateOwner,
        counters: Arc<SandboxCounters>,
        has_session_files: bool,
    ) -> Result<Arc<Self>, StartError> {
        let LaunchedSandbox {
            id,
            socket,
            supervisor,
            gate,
            cgroup,
            identity,
            shortfalls,
            kept_caches,
            covered,
            protections,
            ptys,
            own_address,
            ..
        } = launched;
        let cleanup = Cleanup::new(cgroup.clone(), socket.parent().map(Path::to_owned)).with_ptys(ptys);
        let gate_socket = gate.as_ref().map(|gate| gate.socket.clone());
        let cleanup = cleanup.with_gate(gate.map(|gate| gate.process));
        let connected = ControlConnection::connect(&socket);
        let supervisor = match async_fd::register(supervisor, Interest::READABLE) {
            Ok(supervisor) => supervisor,
            Err(unwatched) => {
                cleanup.end_and_remove_unregistered(&id, unwatched.descriptor).await;
                return Err(StartError::Descriptors(unwatched.cause));
            }
        };
        let control = match connected {
            Ok(control) => control,
            Err(error) => {
                cleanup.end_and_remove(&id, &supervisor).await;
                return Err(StartError::Connect(error));
            }
        };
        let gate = match link_gate(gate_socket.as_deref(), gates, owner).await {
            Ok(gate) => gate,
            Err(error) => {
                cleanup.end_and_remove(&id, &supervisor).await;
                return Err(StartError::Gate(error));
            }
        };
        let sandbox = Arc::new(Self {
            id,
            identity,
            shortfalls,
            kept_caches,
            covered,
            protections,
            effective_confinement: OnceLock::new(),
            control,
            gate,
            terminals: Mutex::default(),
            life: watch::Sender::new(SandboxLife::Up),
            ending: AtomicBool::new(false),
            counters,
            cgroup,
            supervisor,
            has_session_files,
            has_session_network: false,
            own_address: own_address.as_ref().map_or(Ipv4Addr::LOCALHOST, |own| own.0),
            held_address: Mutex::new(own_address),
            programs: Arc::default(),
        });
        sandbox.counters.launched.inc();
        tokio::spawn(sandbox.clone().supervise(cleanup));
        Ok(sandbox)
    }
}

/// Kills a sandbox that has no owner; the task that owns it cleans up.
struct KillOnDrop(Option<Arc<Sandbox>>);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        let Some(sandbox) = &self.0 else { return };
        sandbox.ending.store(true, Relaxed);
        if let Err(errno) = namespace::kill_pidfd(sandbox.supervisor.get_ref().as_fd()) {
            tracing::error!(sandbox.id = %sandbox.id, error = %errno, "cannot kill the supervisor");
        }
    }
}
