//! A sandbox as the gateway holds it: launched or adopted, running, ended, removed.
//!
//! One task owns a sandbox from its launch until nothing of it is left: it reads the control connection, passes
//! each event to its terminal, watches the supervisor's pidfd, and cleans up. Requests to the supervisor are in
//! [`requests`](super::requests).

use std::{
    collections::HashMap,
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use tokio::{
    io::{Interest, unix::AsyncFd},
    sync::watch,
    time::timeout,
};

use crate::{
    failpoint,
    policy::profile::Network,
    proto::supervisor::{EffectiveConfinement, Identity, Shutdown, to_supervisor::Request},
    sandbox::{
        cgroup::sandbox::SandboxCgroup,
        control::{
            cleanup::{Cleanup, KillOutcome},
            connection::{ControlConnectError, ControlConnection, SupervisorEvent},
            gate::{SandboxGate, link_gate},
            links::SandboxLinks,
            listener::{CommandEnd, Listener},
        },
        counters::SandboxCounters,
        gate_link::{GateError, GateOwner, Gates},
        host::Host,
        launch::{self, LaunchError, LaunchedSandbox},
        net_link::{NetError, NetOwner},
        sandbox_state::SandboxState,
        spec::{SandboxSpec, Shortfall},
    },
    sys::{async_fd, namespace},
};

/// How long a supervisor may take for the handshake.
const HELLO_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a supervisor may take to end beyond the grace of its commands, before it is killed.
const SHUTDOWN_MARGIN: Duration = Duration::from_secs(3);

/// Why there is no sandbox.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// It could not be launched.
    #[error(transparent)]
    Launch(#[from] LaunchError),
    /// It was launched, and the handshake failed.
    #[error(transparent)]
    Connect(#[from] ControlConnectError),
    /// A root of the session was replaced or removed.
    #[error("the session's root {} is gone, or another directory is in its place", crate::printable::path(.0))]
    RootGone(PathBuf),
    /// The gateway has no descriptors left for it.
    #[error("hold the sandbox's descriptors")]
    Descriptors(#[source] io::Error),
    /// It was launched, and nothing carries its connections.
    #[error(transparent)]
    Net(#[from] NetError),
    /// It was launched, and its gate does not answer.
    #[error(transparent)]
    Gate(#[from] GateError),
    /// It was launched, and did not answer in time.
    #[error("the sandbox did not answer within {} s", HELLO_TIMEOUT.as_secs())]
    TimedOut,
}

/// How far the life of a sandbox has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SandboxLife {
    /// It answers.
    Up,
    /// It has ended and is being removed.
    Ended,
    /// Nothing is left of it, or the kernel does not end it and nobody waits any more.
    Gone,
}

/// What is connected of a sandbox that another gateway has launched.
#[derive(Debug)]
pub(crate) struct AnsweredSandbox {
    /// In force, as its supervisor says.
    pub(crate) effective_confinement: EffectiveConfinement,
    /// A pidfd of its supervisor.
    pub(crate) supervisor: AsyncFd<OwnedFd>,
    /// To its supervisor.
    pub(crate) control: ControlConnection,
    /// Its gate.
    pub(crate) gate: SandboxGate,
}

/// A sandbox.
#[derive(Debug)]
pub struct Sandbox {
    id: String,
    identity: Identity,
    shortfalls: Vec<Shortfall>,
    effective_confinement: OnceLock<EffectiveConfinement>,
    control: ControlConnection,
    gate: SandboxGate,
    terminals: Mutex<HashMap<String, Arc<dyn Listener>>>,
    life: watch::Sender<SandboxLife>,
    /// This gateway has asked it to end.
    ending: AtomicBool,
    counters: Arc<SandboxCounters>,
    cgroup: SandboxCgroup,
    supervisor: AsyncFd<OwnedFd>,
}

impl Sandbox {
    /// Launches a sandbox and completes the handshake.
    pub async fn start(
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
        let launched = launch::launch(host, state, spec).await?;
        failpoint::reach("sandbox.launched");
        let sandbox = Self::from_launched(launched, links.gates, owner, counters).await?;
        // The caller may be cancelled during the handshake; then the sandbox is killed.
        let mut kill_on_drop = KillOnDrop(Some(sandbox.clone()));
        match timeout(HELLO_TIMEOUT, sandbox.control.hello()).await {
            Ok(Ok(answer)) => {
                sandbox.start_net(host, links.nets, net_owner).await?;
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
            Ok(Err(error)) => {
                sandbox.kill().await;
                Err(error.into())
            }
            Err(_) => {
                sandbox.kill().await;
                Err(StartError::TimedOut)
            }
        }
    }

    /// Connects, and starts the task that owns the sandbox.
    async fn from_launched(
        launched: LaunchedSandbox,
        gates: &Arc<Gates>,
        owner: GateOwner,
        counters: Arc<SandboxCounters>,
    ) -> Result<Arc<Self>, StartError> {
        let LaunchedSandbox { id, socket, supervisor, gate, cgroup, identity, shortfalls, ptys, .. } =
            launched;
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
                return Err(error.into());
            }
        };
        let gate = match link_gate(gate_socket.as_deref(), gates, owner).await {
            Ok(gate) => gate,
            Err(error) => {
                cleanup.end_and_remove(&id, &supervisor).await;
                return Err(error.into());
            }
        };
        let sandbox = Arc::new(Self {
            id,
            identity,
            shortfalls,
            effective_confinement: OnceLock::new(),
            control,
            gate,
            terminals: Mutex::default(),
            life: watch::Sender::new(SandboxLife::Up),
            ending: AtomicBool::new(false),
            counters,
            cgroup,
            supervisor,
        });
        sandbox.counters.launched.inc();
        tokio::spawn(sandbox.clone().supervise(cleanup));
        Ok(sandbox)
    }

    /// Starts the task that owns an adopted sandbox.
    pub(crate) fn from_adopted(
        state: SandboxState,
        cleanup: Cleanup,
        answered: AnsweredSandbox,
        listeners: HashMap<String, Arc<dyn Listener>>,
        counters: &Arc<SandboxCounters>,
    ) -> Arc<Self> {
        let AnsweredSandbox { effective_confinement, supervisor, control, gate } = answered;
        counters.adopted.inc();
        let SandboxState { id, identity, shortfalls, cgroup, .. } = state;
        let sandbox = Arc::new(Self {
            id,
            identity,
            shortfalls,
            effective_confinement: OnceLock::from(effective_confinement),
            control,
            gate,
            terminals: Mutex::new(listeners),
            life: watch::Sender::new(SandboxLife::Up),
            ending: AtomicBool::new(false),
            counters: counters.clone(),
            cgroup,
            supervisor,
        });
        tokio::spawn(sandbox.clone().supervise(cleanup));
        sandbox
    }

    /// The task that owns a sandbox, until it is removed. Its pseudo-terminals are released last.
    async fn supervise(self: Arc<Self>, cleanup: Cleanup) {
        let broken = self.control.serve(|event| self.dispatch(event)).await;
        if let Some(error) = broken {
            tracing::error!(sandbox.id = %self.id, error = %error, "control connection broken");
        }
        if !self.ending.load(Relaxed) {
            self.counters.lost.inc();
        }
        self.life.send_replace(SandboxLife::Ended);
        // The gate ends with the supervisor. What it has reported is recorded before the ends of the commands.
        if let SandboxGate::Linked(gate) = &self.gate {
            gate.wait_ended().await;
        }
        let ended = cleanup.kill_and_wait(&self.id, &self.supervisor).await;
        let orphaned: Vec<_> = self.lock_terminals().drain().collect();
        if !orphaned.is_empty() {
            tracing::error!(sandbox.id = %self.id, terminals = orphaned.len(), "sandbox lost");
        }
        for (id, terminal) in orphaned {
            let survivors = if ended == KillOutcome::Ended { 0 } else { cleanup.processes_left(&id) };
            terminal.ended(CommandEnd::SandboxLost { survivors });
        }
        if ended == KillOutcome::StillAlive {
            tracing::error!(sandbox.id = %self.id, "the kernel does not end a killed sandbox: its directory and cgroup are left until it has");
            self.life.send_replace(SandboxLife::Gone);
            cleanup.wait_for_end(&self.id, &self.supervisor).await;
        }
        cleanup.remove(&self.id).await;
        cleanup.release_ptys();
        self.counters.gone.inc();
        self.life.send_replace(SandboxLife::Gone);
        tracing::info!(sandbox.id = %self.id, "sandbox gone");
    }

    fn dispatch(&self, event: SupervisorEvent) {
        match event {
            SupervisorEvent::Progress(progress) => {
                let terminal = self.lock_terminals().get(&progress.terminal_id).cloned();
                if let Some(terminal) = terminal {
                    terminal.progressed();
                }
            }
            SupervisorEvent::Exited(exited) => {
                failpoint::reach("exit.reported");
                let exit = exited.exit.unwrap_or_default();
                if exit.end.is_none() {
                    let terminal = self.lock_terminals().get(&exited.terminal_id).cloned();
                    if let Some(terminal) = terminal {
                        terminal.given_up(exit.stopped());
                    }
                    return;
                }
                let terminal = self.lock_terminals().remove(&exited.terminal_id);
                if let Some(terminal) = terminal {
                    self.after_gate_backlog(move || terminal.ended(CommandEnd::Reported(Box::new(exit))));
                }
            }
            SupervisorEvent::GateLost => {
                tracing::error!(sandbox.id = %self.id, "gate lost: commands of the sandbox can execute nothing more");
                match &self.gate {
                    SandboxGate::Linked(gate) => gate.gate_lost(),
                    SandboxGate::None | SandboxGate::Lost => {}
                }
            }
        }
    }

    /// Does what comes after the reports that the gate made while no gateway was there: at once where there are none.
    pub fn after_gate_backlog(&self, then: impl FnOnce() + Send + 'static) {
        match &self.gate {
            SandboxGate::Linked(gate) if gate.has_backlog() => {
                let gate = gate.clone();
                tokio::spawn(async move {
                    gate.wait_backlog().await;
                    then();
                });
            }
            SandboxGate::Linked(_) | SandboxGate::None | SandboxGate::Lost => then(),
        }
    }

    /// Stops every command and ends the sandbox. Returns when it is removed.
    pub async fn shut_down(&self, grace: Duration) {
        self.ending.store(true, Relaxed);
        if let (SandboxGate::Linked(gate), true) = (&self.gate, self.is_up()) {
            gate.finish().await;
        }
        let request = Request::Shutdown(Shutdown { grace_ms: grace.as_millis() as u64 });
        let limit = grace + SHUTDOWN_MARGIN;
        let ended = async {
            let _ = self.control.send(request).await;
            self.wait_until(SandboxLife::Ended).await;
        };
        if timeout(limit, ended).await.is_err() {
            tracing::warn!(sandbox.id = %self.id, "sandbox did not end in time: killed");
            self.kill().await;
        }
        self.wait_until(SandboxLife::Gone).await;
    }

    /// Kills the supervisor, and with it the sandbox. Returns when it is removed.
    pub async fn kill(&self) {
        self.ending.store(true, Relaxed);
        if let Err(errno) = namespace::kill_pidfd(self.supervisor.get_ref().as_fd()) {
            tracing::error!(sandbox.id = %self.id, error = %errno, "cannot kill the supervisor");
        }
        self.wait_until(SandboxLife::Gone).await;
    }

    /// Whether it accepts requests.
    pub fn is_up(&self) -> bool {
        *self.life.borrow() == SandboxLife::Up
    }

    /// Whether a new command may be spawned in it: it is up, and so is its gate where it has one.
    pub fn takes_commands(&self) -> bool {
        self.is_up()
            && match &self.gate {
                SandboxGate::None => true,
                SandboxGate::Linked(gate) => gate.is_up(),
                SandboxGate::Lost => false,
            }
    }

    /// Its gate.
    pub fn gate(&self) -> &SandboxGate {
        &self.gate
    }

    /// `sbx_` and a ULID.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The identity of its commands.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Protections that the profile prefers and this host lacks.
    pub fn shortfalls(&self) -> &[Shortfall] {
        &self.shortfalls
    }

    /// The confinement in force, as the supervisor has read it back from the kernel.
    pub fn effective_confinement(&self) -> Option<&EffectiveConfinement> {
        self.effective_confinement.get()
    }

    pub(super) async fn wait_until(&self, life: SandboxLife) {
        let mut watched = self.life.subscribe();
        // The sender is a field of `self`, so it cannot be dropped.
        let _ = watched.wait_for(|now| *now as u8 >= life as u8).await;
    }

    pub(crate) fn cgroup(&self) -> &SandboxCgroup {
        &self.cgroup
    }

    pub(crate) fn supervisor(&self) -> BorrowedFd<'_> {
        self.supervisor.get_ref().as_fd()
    }

    pub(crate) fn control(&self) -> &ControlConnection {
        &self.control
    }

    /// Registers the listener for a terminal's events.
    pub(crate) fn add_listener(&self, terminal_id: String, listener: Arc<dyn Listener>) {
        self.lock_terminals().insert(terminal_id, listener);
    }

    pub(crate) fn remove_listener(&self, terminal_id: &str) {
        self.lock_terminals().remove(terminal_id);
    }

    pub(super) fn lock_terminals(&self) -> std::sync::MutexGuard<'_, HashMap<String, Arc<dyn Listener>>> {
        self.terminals.lock().expect("no code panics while it holds the table of listeners")
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
