//! Adopts a sandbox that an earlier gateway has started.
//!
//! Discovery changes nothing: a sandbox that does not answer, or answers with unknown messages, is left as it is,
//! and the error says why. Only [`AdoptableSandbox::adopt`] makes it this gateway's.

use std::{
    collections::HashMap,
    io,
    os::fd::{AsFd, OwnedFd},
    path::{Path, PathBuf},
    sync::Arc,
};

use tokio::io::{Interest, unix::AsyncFd};

use crate::{
    link::{LinkError, Peer},
    policy::profile::Network,
    proto::supervisor::EffectiveConfinement,
    sandbox::{
        control::{
            cleanup::Cleanup,
            connection::ControlConnection,
            gate::SandboxGate,
            handle::{AnsweredSandbox, Sandbox},
            links::SandboxLinks,
            terminal_observer::TerminalObserver,
        },
        counters::SandboxCounters,
        gate_link::{GateHello, GateOwner, Gates},
        host::Host,
        net_link::NetOwner,
        restore::{
            handshake::{self, DiscoveredTerminal, SandboxAdoptError},
            stale,
        },
        sandbox_state::{self, SandboxState},
    },
    sys::{async_fd, process},
    wire::gate::SOCKET_NAME,
};

/// The state of a sandbox whose directory was found.
#[derive(Debug)]
pub(crate) enum Discovered {
    /// It runs and answers.
    Alive(Box<AdoptableSandbox>),
    /// It has ended.
    Dead,
}

/// A sandbox that has answered. Dropping this leaves it alone.
#[derive(Debug)]
pub(crate) struct AdoptableSandbox {
    /// Its record.
    pub state: SandboxState,
    /// Its terminals.
    pub terminals: Vec<DiscoveredTerminal>,
    directory: PathBuf,
    effective_confinement: EffectiveConfinement,
    supervisor: AsyncFd<OwnedFd>,
    control: ControlConnection,
    gate: DiscoveredGate,
    has_session_files: bool,
    has_session_network: bool,
}

/// The gate of a sandbox that has answered.
#[derive(Debug)]
enum DiscoveredGate {
    /// It has none.
    None,
    Answered(Box<GateHello>),
    /// It does not answer. The sandbox is adopted all the same: its commands go on and are governed.
    Lost,
}

/// Contacts the supervisor of a sandbox's directory and lists its terminals.
///
/// # Errors
/// [`SandboxAdoptError`]: it may live, and is as it was.
pub(crate) async fn discover(directory: &Path) -> Result<Discovered, SandboxAdoptError> {
    let socket = match stale::dial(directory) {
        Ok(socket) => socket,
        // The socket was removed: it is made before the record, and before anything runs.
        Err(error) if error.kind() == io::ErrorKind::NotFound && has_processes(directory) => {
            return Err(SandboxAdoptError::Unreachable);
        }
        Err(error) if stale::is_gone(&error) => return Ok(Discovered::Dead),
        Err(error) => return Err(LinkError::Connect(Peer::Supervisor, error).into()),
    };
    let state = sandbox_state::read(directory)?;
    let control = ControlConnection::over(socket).map_err(SandboxAdoptError::Descriptors)?;
    let (answer, mut descriptors) = match control.exchange_hello().await {
        // It ended before it answered.
        Err(error) if error.is_end() => return Ok(Discovered::Dead),
        greeted => greeted?,
    };
    if answer.sandbox_id != state.id {
        return Err(LinkError::WrongSandbox(Peer::Supervisor, answer.sandbox_id).into());
    }
    let supervisor = descriptors.pop().ok_or(SandboxAdoptError::Unverified)?;
    match process::is_namespace_init(supervisor.as_fd()).map_err(SandboxAdoptError::Descriptors)? {
        Some(true) => {}
        Some(false) => return Err(SandboxAdoptError::Unverified),
        None => return Ok(Discovered::Dead),
    }
    let held = match handshake::list(&control).await {
        Err(error) if error.is_end() => return Ok(Discovered::Dead),
        listed => listed?,
    };
    let supervisor = async_fd::register(supervisor, Interest::READABLE)
        .map_err(|unwatched| SandboxAdoptError::Descriptors(unwatched.cause))?;
    let effective_confinement = answer.effective_confinement.unwrap_or_default();
    let gate = discover_gate(directory, &state).await;
    let directory = directory.to_owned();
    Ok(Discovered::Alive(Box::new(AdoptableSandbox {
        state,
        terminals: held,
        directory,
        effective_confinement,
        supervisor,
        control,
        gate,
        has_session_files: answer.has_session_files,
        has_session_network: answer.has_session_network,
    })))
}

async fn discover_gate(directory: &Path, state: &SandboxState) -> DiscoveredGate {
    if !state.gated {
        return DiscoveredGate::None;
    }
    match GateHello::greet(&directory.join(SOCKET_NAME), &state.id).await {
        Ok(hello) => DiscoveredGate::Answered(Box::new(hello)),
        Err(error) => {
            tracing::error!(sandbox.id = %state.id, %error, "its gate does not answer: it takes no new commands");
            DiscoveredGate::Lost
        }
    }
}

/// Whether the cgroup of the sandbox in this directory has processes.
fn has_processes(directory: &Path) -> bool {
    let state = sandbox_state::read(directory);
    state.is_ok_and(|state| state.cgroup.path().is_some_and(crate::cgroup::directory::has_processes))
}

impl AdoptableSandbox {
    /// Makes the sandbox this gateway's, for this user. From here on it ends when its supervisor is lost. The
    /// observers, by terminal id, get the events since the terminals were listed.
    pub(crate) fn adopt(
        self,
        host: &Arc<Host>,
        uid: u32,
        observers: HashMap<String, Arc<dyn TerminalObserver>>,
        SandboxLinks { gates, nets, agents: _ }: SandboxLinks<'_>,
        counters: &Arc<SandboxCounters>,
    ) -> Arc<Sandbox> {
        let Self {
            state,
            directory,
            effective_confinement,
            supervisor,
            control,
            gate,
            has_session_files,
            has_session_network,
            ..
        } = self;
        let owner =
            GateOwner { sandbox_id: state.id.clone(), session_id: state.assignment.session_id.clone(), uid };
        let gate = adopt_gate(gate, gates, owner, &observers);
        let ptys = host.ptys().restore(uid, state.ptys);
        let cleanup = Cleanup::new(state.cgroup.clone(), Some(directory)).with_ptys(ptys);
        let net_owner = (state.network == Network::Proxy).then(|| NetOwner::of_adopted(&state, uid));
        let sandbox = Sandbox::from_adopted(
            state,
            cleanup,
            AnsweredSandbox {
                effective_confinement,
                supervisor,
                control,
                gate,
                has_session_files,
                has_session_network,
            },
            observers,
            counters,
        );
        if let Some(owner) = net_owner {
            sandbox.resume_net(host, nets, owner);
        }
        sandbox
    }
}

fn adopt_gate(
    gate: DiscoveredGate,
    gates: &Arc<Gates>,
    owner: GateOwner,
    observers: &HashMap<String, Arc<dyn TerminalObserver>>,
) -> SandboxGate {
    let hello = match gate {
        DiscoveredGate::None => return SandboxGate::None,
        DiscoveredGate::Answered(hello) => *hello,
        DiscoveredGate::Lost => {
            gates.report_lost(&owner);
            return SandboxGate::Lost;
        }
    };
    match gates.link(owner.clone(), hello) {
        Ok(link) => {
            link.retain_terminals(observers);
            SandboxGate::Linked(link)
        }
        Err(error) => {
            tracing::error!(sandbox.id = %owner.sandbox_id, %error, "its gate is not given the policy: it takes no new commands");
            SandboxGate::Lost
        }
    }
}
