//! Launches a sandbox: prepares it, hands the plan to a launcher, and awaits the answer.
//!
//! A failed launch leaves nothing behind. Nothing that the profile requires is skipped: on an error nothing runs.
//! The control connection is not used here.

use std::{
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::net::UnixListener,
    },
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use nix::{
    errno::Errno,
    sys::wait::{Id, WaitPidFlag, waitid},
};
use prost::Message;

use crate::sandbox::{
    cgroup::SandboxCgroup,
    host::{
        Host,
        ptys::PtyReservation,
        subordinate_ids::other_source,
        warm_launcher::{LAUNCH_TIMEOUT, Launcher},
    },
    launch::{
        error::{LaunchError, explain},
        prepare::{Keep, LaunchCleanup, PreparedLaunch, prepare},
    },
    protections::Protections,
    sandbox_state,
    session_network::OwnAddress,
    spec::{SandboxSpec, Shortfall},
};
use crate::{
    proto::supervisor::{self as proto, Identity, LaunchResult, Stage, launch_result::Result as Answer},
    sandbox_program::ProgramError,
    sys::fdpass::{self, FrameReceiver},
    wire::{
        self,
        gate::SOCKET_NAME,
        launch::{CONTROL_SOCKET, PROCESS_NAME},
    },
};

/// How long a launch may wait for earlier ones of the same user, and how long it may take itself.
const QUEUE_TIMEOUT: Duration = Duration::from_secs(30);

/// A sandbox whose supervisor runs.
#[derive(Debug)]
pub struct LaunchedSandbox {
    /// As in the spec.
    pub id: String,
    /// Where its supervisor listens. The path may be longer than a socket address.
    pub socket: PathBuf,
    /// Its address on its loopback, where it shares that.
    pub own_address: Option<Arc<OwnAddress>>,
    /// A pidfd of its supervisor, a child of this process: readable when it has exited. Reap it with [`reap`].
    pub supervisor: OwnedFd,
    /// The supervisor's process id on the host, for reports only.
    pub supervisor_pid: u32,
    /// Its gate, if the profile has one.
    pub gate: Option<LaunchedGate>,
    /// Where its commands ask for the caller's SSH agent, if the spec has one.
    pub agent_listener: Option<UnixListener>,
    /// Its cgroup directories.
    pub cgroup: SandboxCgroup,
    /// Its ids.
    pub identity: Identity,
    /// Protections that the profile prefers and that are missing.
    pub shortfalls: Vec<Shortfall>,
    /// The caches that it began with as earlier sessions have left them, relative to the home.
    pub kept_caches: Vec<String>,
    /// What it does not see of the host's directories, though it lies in them.
    pub covered: Vec<String>,
    /// What its commands cannot change.
    pub protections: Protections,
    /// Its reserved pseudo-terminals.
    pub(crate) ptys: PtyReservation,
}

/// The gate of a sandbox: it runs, and evaluates execs.
#[derive(Debug)]
pub struct LaunchedGate {
    /// A pidfd, of a child of this process, as the supervisor's. The gate ends with its supervisor. Reap it with [`reap`].
    pub process: OwnedFd,
    /// Its process id on the host, for reports only.
    pub pid: u32,
    /// Where it listens; see [`LaunchedSandbox::socket`].
    pub socket: PathBuf,
}

/// Launches a sandbox whose directory is made below `state`.
///
/// # Errors
/// [`LaunchError`].
pub async fn launch(
    host: &Arc<Host>,
    state: &Path,
    spec: SandboxSpec,
) -> Result<LaunchedSandbox, LaunchError> {
    let program = Arc::clone(host.program().map_err(LaunchError::Start)?);
    let warm_launcher = Arc::clone(host.warm_launcher());
    // An embedded gateway launches once or twice, so no launcher is started ahead for it.
    let goes_on = !spec.die_with_gateway;
    let (its_host, state, uid) = (Arc::clone(host), state.to_owned(), spec.owner.uid);
    // Reading the roots and waiting for the launcher can block, so a thread of the pool does it. A launch takes
    // some milliseconds. If the caller gives up, the result is dropped, which ends the sandbox.
    let work = move || run_launcher(prepare(&its_host, &state, spec)?);
    let started = host.launch_pool().run(uid, QUEUE_TIMEOUT, work).await.map_err(LaunchError::Wait)??;
    let (launched, launcher) = started.claim();
    // The caller need not wait for this.
    tokio::task::spawn_blocking(move || {
        launcher.reap();
        if goes_on {
            warm_launcher.refill(&program, LAUNCH_TIMEOUT);
        }
    });
    Ok(launched)
}

/// The blocking form of [`launch`].
///
/// # Errors
/// [`LaunchError`].
pub fn launch_blocking(host: &Host, state: &Path, spec: SandboxSpec) -> Result<LaunchedSandbox, LaunchError> {
    let (launched, launcher) = run_launcher(prepare(host, state, spec)?)?.claim();
    launcher.reap();
    Ok(launched)
}

/// A sandbox that no caller owns yet. Dropping this kills its processes, then removes its directories and cgroups.
struct UnclaimedSandbox {
    launcher: Launcher,
    launched: LaunchedSandbox,
    cleanup: LaunchCleanup,
}

impl UnclaimedSandbox {
    fn claim(mut self) -> (LaunchedSandbox, Launcher) {
        self.cleanup.keep = Keep::Everything;
        (self.launched, self.launcher)
    }
}

fn run_launcher(prepared: PreparedLaunch) -> Result<UnclaimedSandbox, LaunchError> {
    let descriptors: Vec<BorrowedFd<'_>> = std::iter::once(prepared.listener.as_fd())
        .chain(prepared.socket_file.iter().map(AsFd::as_fd))
        .chain(prepared.cgroup_descriptors.iter().map(AsFd::as_fd))
        .chain(prepared.gate_listener.iter().map(AsFd::as_fd))
        .chain(prepared.shared_network.iter().flat_map(|shared| shared.given.iter()).map(AsFd::as_fd))
        .chain(prepared.sources.iter().map(AsFd::as_fd))
        .chain(prepared.claim.iter().map(AsFd::as_fd))
        .chain(prepared.session_claim.iter().map(AsFd::as_fd))
        .chain(prepared.unix_listeners.iter().map(AsFd::as_fd))
        .collect();
    let frame = wire::encode(&prepared.plan, descriptors.len())?;

    let launcher = match prepared.warm_launcher.take() {
        Some(waiting) => waiting,
        None => {
            Launcher::start(&prepared.program, PROCESS_NAME, LAUNCH_TIMEOUT).map_err(LaunchError::Start)?
        }
    };
    let received = fdpass::send(launcher.socket(), &frame, &descriptors)
        .map_err(LaunchError::Send)
        .and_then(|()| receive_answer(launcher.socket()));
    let answer = match received {
        Ok((Answer::Launched(launched), processes)) => {
            Processes::of(processes, launched.session_network, &prepared)
                .map(|processes| (launched, processes))
                .ok_or(LaunchError::MalformedAnswer)
        }
        Ok((Answer::Failure(failure), _)) => {
            if let Some(shared) =
                prepared.shared_network.as_ref().filter(|_| failure.stage() == Stage::Loopback)
            {
                shared.cannot_listen();
            }
            Err(explain(&failure, &prepared.plan))
        }
        Err(error) => Err(error),
    };
    match answer {
        Ok((answer, processes)) => Ok(conclude(&answer, processes, launcher, prepared)),
        // The processes are killed first: a supervisor that was not reported may hang in the sandbox's cgroups.
        Err(error) => match launcher.discard() {
            true => Err(ProgramError::OtherBuild(prepared.program.path().to_owned()).into()),
            false => Err(error),
        },
    }
}

/// Pidfds of what was launched, and what it has made.
struct Processes {
    supervisor: OwnedFd,
    gate: Option<OwnedFd>,
    /// The descriptors of a session's network that was made.
    network: Vec<OwnedFd>,
}

impl Processes {
    /// `None` if there are not as many as the plan has and the answer says.
    fn of(descriptors: Vec<OwnedFd>, network: u32, prepared: &PreparedLaunch) -> Option<Self> {
        let mut descriptors = descriptors.into_iter();
        let supervisor = descriptors.next()?;
        let gate = match prepared.gate_listener {
            Some(_) => Some(descriptors.next()?),
            None => None,
        };
        let rest: Vec<_> = descriptors.collect();
        (rest.len() == network as usize).then_some(Self { supervisor, gate, network: rest })
    }
}

fn receive_answer(socket: BorrowedFd<'_>) -> Result<(Answer, Vec<OwnedFd>), LaunchError> {
    let frame =
        FrameReceiver::new().receive(socket).map_err(LaunchError::Receive)?.ok_or(LaunchError::NoAnswer)?;
    let result = LaunchResult::decode(frame.message.as_slice()).map_err(|_| LaunchError::MalformedAnswer)?;
    Ok((result.result.ok_or(LaunchError::MalformedAnswer)?, frame.descriptors))
}

fn conclude(
    answer: &proto::Launched,
    processes: Processes,
    launcher: Launcher,
    prepared: PreparedLaunch,
) -> UnclaimedSandbox {
    let cleanup = prepared.cleanup;
    let own_address = prepared.shared_network.as_ref().map(|shared| shared.own_address.clone());
    if let Some(shared) = prepared.shared_network {
        shared.made(processes.network);
    }
    let gate = processes.gate.map(|process| LaunchedGate {
        process,
        pid: answer.gate_pid,
        socket: cleanup.directory.join(SOCKET_NAME),
    });
    let (mut identity, mut shortfalls) = (prepared.identity, prepared.shortfalls);
    if answer.one_id {
        identity.separate_ids = false;
        let refused = "newuidmap and newgidmap refuse to map the subordinate ids of the gateway's user";
        let reason = match other_source() {
            Some(source) => format!("{refused}: they ask {source} (/etc/nsswitch.conf), and not the files"),
            None => refused.to_owned(),
        };
        shortfalls.push(Shortfall { protection: "supervisor-id".into(), reason });
    }
    let launched = LaunchedSandbox {
        kept_caches: sandbox_state::kept_caches(&prepared.plan),
        covered: sandbox_state::covered(&prepared.plan),
        protections: prepared.protections,
        id: prepared.plan.sandbox_id,
        socket: cleanup.directory.join(CONTROL_SOCKET),
        own_address,
        supervisor: processes.supervisor,
        supervisor_pid: answer.host_pid,
        gate,
        agent_listener: prepared.agent_listener,
        cgroup: cleanup.cgroup.clone(),
        identity,
        shortfalls,
        ptys: prepared.ptys,
    };
    UnclaimedSandbox { launcher, launched, cleanup }
}

/// Waits for a supervisor to exit, and reaps it.
///
/// # Errors
/// `ECHILD` when it is not this process's child, as after a restart of the gateway: then there is nothing to reap.
pub fn reap(supervisor: BorrowedFd<'_>) -> Result<(), Errno> {
    loop {
        match waitid(Id::PIDFd(supervisor), WaitPidFlag::WEXITED) {
            Ok(_) => return Ok(()),
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno),
        }
    }
}
