//! The launcher: a short-lived process between the gateway and a supervisor.
//!
//! It receives the plan on descriptor 0, prepares what only the host's root may (id maps, id-mapped mounts), clones
//! the supervisor into its namespaces, waits until the supervisor has set itself up, and answers once. It has one
//! thread, runs no command, and reports failures as stage, index and errno, never as text.

use std::{
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::PathBuf,
    process::exit,
};

use nix::{errno::Errno, sched::CloneFlags, unistd::Pid};
use prost::Message;

use super::{
    gate_launch::{self, GateLaunch, StartedGate},
    launch_network::{LaunchNetwork, PreparedNetwork, SessionNetworkMaker, UserNamespace},
    outcome::{read_outcome, wait_until_ready},
    setup::{self, LaunchSockets, NetworkMaker, OOM_SCORE_STEP, PlanDescriptors, StageError},
    subordinate_maps::{self, IdMaps},
};
use crate::{
    proto::supervisor::{
        Identity, LaunchResult, Launched, SandboxPlan, Stage, launch_result::Result as Answer,
    },
    sys::{
        credentials::UsernsOwner,
        fdpass::{self, FrameReceiver},
        file,
        namespace::{self, Cloned, IdPair, Parent},
        oom,
    },
    wire::{self, launch::PLAN_VERSION},
};

/// Serves one launch and exits. The new supervisor does not return from here either.
pub fn main() -> ! {
    let Some(socket) = file::dup_stdin() else { exit(EXIT_NO_SOCKET) };
    // Done while no plan is waiting. The gateway's own OOM score must not be inherited.
    let scored = oom::become_supervisor().map_err(StageError::of_step(Stage::Identity, OOM_SCORE_STEP));
    let network = PreparedNetwork::make();
    let result = scored
        .and_then(|()| receive_plan(&socket))
        .and_then(|(plan, descriptors)| launch(&plan, descriptors, network))
        .unwrap_or_else(|failure| LaunchOutcome {
            answer: Answer::Failure(failure.into()),
            processes: Vec::new(),
            network: Vec::new(),
        });
    exit(answer(&socket, result))
}

const EXIT_ANSWERED: i32 = 0;
const EXIT_NO_SOCKET: i32 = 70;
const EXIT_NOT_ANSWERED: i32 = 71;

/// The answer, and the pidfds of supervisor and gate, if they were made: the gateway reaps failed ones too.
struct LaunchOutcome {
    answer: Answer,
    processes: Vec<OwnedFd>,
    /// Of a session's network that was made.
    network: Vec<OwnedFd>,
}

fn receive_plan(socket: &OwnedFd) -> Result<(SandboxPlan, Vec<OwnedFd>), StageError> {
    let malformed = |_| StageError::new(Stage::Plan, Errno::EBADMSG);
    let frame = FrameReceiver::new()
        .receive(socket.as_fd())
        .map_err(|_| StageError::new(Stage::Plan, Errno::EBADMSG))?
        .ok_or(StageError::new(Stage::Plan, Errno::ENODATA))?;
    let plan = SandboxPlan::decode(frame.message.as_slice()).map_err(malformed)?;
    if plan.protocol_version != PLAN_VERSION {
        return Err(StageError::new(Stage::Plan, Errno::EPROTONOSUPPORT));
    }
    Ok((plan, frame.descriptors))
}

/// In the launcher: makes the supervisor and waits for it to be ready. In the supervisor: does not return.
fn launch(
    plan: &SandboxPlan,
    descriptors: Vec<OwnedFd>,
    network: Option<PreparedNetwork>,
) -> Result<LaunchOutcome, StageError> {
    let identity = plan.identity.as_ref().ok_or(StageError::new(Stage::Plan, Errno::EINVAL))?;
    let mut descriptors = PlanDescriptors::from_plan(plan, descriptors)?;
    if identity.privileged {
        setup::detached_mounts::detach_sources(plan, identity, &mut descriptors)?;
    }
    descriptors.v1_join_fds = setup::cgroups::open_v1_join_fds(&descriptors)?;

    let id_maps = maps(plan, identity);
    let given = std::mem::take(&mut descriptors.session_network);
    let network = LaunchNetwork::enter(plan, identity, &id_maps, network, given)?;

    let (permission, permit) = pipe()?;
    let (outcome, report) = pipe()?;
    let (supervisors_end, gates_end) = gate_launch::sockets(plan)?.unzip();
    let (cloned, birthplace) = clone_supervisor(identity, &descriptors, &network)?;
    let (names, session, session_maker, user_namespace) = match network {
        LaunchNetwork::Host | LaunchNetwork::Clone => {
            (NetworkMaker::Clone, Vec::new(), SessionNetworkMaker::Earlier, UserNamespace::Gateways)
        }
        LaunchNetwork::Entered { names, session, maker, user_namespace } => {
            (NetworkMaker::Launcher(names), session, maker, user_namespace)
        }
    };
    match cloned {
        Cloned::Child => {
            drop((permit, outcome, gates_end, descriptors.gate_listener.take()));
            // For the gateway after this one.
            descriptors.session_network = session;
            setup::run(
                plan,
                identity,
                descriptors,
                LaunchSockets { permission, report, gate: supervisors_end },
                names,
            )
        }
        Cloned::Parent { pid, pidfd } => {
            drop((permission, report, supervisors_end, names));
            let made = match session_maker {
                SessionNetworkMaker::This => session,
                SessionNetworkMaker::Earlier => Vec::new(),
            };
            let seated = match birthplace {
                InitialCgroup::Sandbox => Ok(()),
                InitialCgroup::Launcher => setup::cgroups::move_into_v2_cgroup(&descriptors, pid),
            };
            descriptors.binds.clear();
            let ready = seated
                .and_then(|()| write_maps_and_release(identity, &id_maps, user_namespace, pid, &permit))
                .map_err(|failure| first_failure(pid, &outcome, failure))
                .and_then(|granted| wait_until_ready(&outcome).map(|()| granted))
                .and_then(|granted| {
                    start_gate(plan, &granted, gates_end, descriptors).map(|gate| (granted, gate))
                });
            let mut processes = vec![pidfd];
            let answer = match ready {
                Ok((granted, gate)) => {
                    let gate_pid = gate.as_ref().map_or(0, |gate| gate.pid.as_raw().unsigned_abs());
                    processes.extend(gate.map(|gate| gate.process));
                    let one_id = identity.separate_ids && !granted.separate_ids;
                    Answer::Launched(Launched {
                        host_pid: pid.as_raw().unsigned_abs(),
                        gate_pid,
                        one_id,
                        session_network: made.len() as u32,
                    })
                }
                Err(failure) => {
                    // It may still wait for the id maps. It is the gateway's child, so the gateway reaps it.
                    let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL);
                    Answer::Failure(failure.into())
                }
            };
            let network = if matches!(answer, Answer::Launched(_)) { made } else { Vec::new() };
            Ok(LaunchOutcome { answer, processes, network })
        }
    }
}

/// In the launcher: the gate, when it is set up, if the plan has one. In the gate: does not return.
fn start_gate(
    plan: &SandboxPlan,
    identity: &Identity,
    socket: Option<OwnedFd>,
    mut descriptors: PlanDescriptors,
) -> Result<Option<StartedGate>, StageError> {
    let Some(socket) = socket else { return Ok(None) };
    let launch = GateLaunch::prepare(socket, &mut descriptors)?;
    drop(descriptors);
    launch.start(plan, identity).map(Some)
}

fn pipe() -> Result<(OwnedFd, OwnedFd), StageError> {
    nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC)
        .map_err(|errno| StageError::new(Stage::CloneNamespaces, errno))
}

/// Which v2 cgroup a supervisor is cloned into.
enum InitialCgroup {
    /// The sandbox's.
    Sandbox,
    /// The launcher's. The supervisor must be moved.
    Launcher,
}

fn clone_supervisor(
    identity: &Identity,
    descriptors: &PlanDescriptors,
    network: &LaunchNetwork,
) -> Result<(Cloned, InitialCgroup), StageError> {
    let mut namespaces = CloneFlags::CLONE_NEWUSER
        | CloneFlags::CLONE_NEWNS
        | CloneFlags::CLONE_NEWPID
        | CloneFlags::CLONE_NEWIPC
        | CloneFlags::CLONE_NEWUTS;
    match network {
        LaunchNetwork::Clone => namespaces |= CloneFlags::CLONE_NEWNET,
        LaunchNetwork::Host | LaunchNetwork::Entered { .. } => {}
    }
    setup::user_limits::limit_namespace().map_err(StageError::of_step(Stage::CloneNamespaces, 1))?;
    let owner = identity
        .privileged
        .then(|| UsernsOwner::assume(identity.supervisor_host_uid))
        .transpose()
        .map_err(StageError::of_step(Stage::CloneNamespaces, 2))?;
    let cloned = clone(namespaces, setup::cgroups::v2_cgroup(descriptors))?;
    if let ((Cloned::Child, _), Some(owner)) = (&cloned, owner) {
        owner.stay().map_err(StageError::of_step(Stage::CloneNamespaces, 3))?;
    }
    Ok(cloned)
}

fn clone(
    namespaces: CloneFlags,
    birthplace: Option<BorrowedFd<'_>>,
) -> Result<(Cloned, InitialCgroup), StageError> {
    let parent = Parent::CallersParent;
    match namespace::clone_into(namespaces, birthplace, parent) {
        Ok(cloned) => Ok((cloned, InitialCgroup::Sandbox)),
        // Linux before 5.7, or a filter. If the error has another cause, the second call fails too.
        Err(Errno::E2BIG | Errno::EINVAL) => namespace::clone_into(namespaces, None, parent)
            .map(|cloned| (cloned, InitialCgroup::Launcher))
            .map_err(|errno| StageError::new(Stage::CloneNamespaces, errno)),
        Err(errno) => Err(StageError::new(Stage::CloneNamespaces, errno)),
    }
}

/// Writes the id maps that need privilege, and lets the supervisor continue. Returns the ids that there are.
fn write_maps_and_release(
    identity: &Identity,
    IdMaps { uids, gids }: &IdMaps,
    user_namespace: UserNamespace,
    supervisor: Pid,
    permit: &OwnedFd,
) -> Result<Identity, StageError> {
    let (granted, permission) = if identity.privileged {
        let process = PathBuf::from(format!("/proc/{supervisor}"));
        namespace::write_map(&process, "uid_map", uids)
            .map_err(|errno| StageError::at(Stage::IdMap, 0, errno))?;
        namespace::write_map(&process, "gid_map", gids)
            .map_err(|errno| StageError::at(Stage::IdMap, 1, errno))?;
        (identity.clone(), setup::MAPS_WRITTEN)
    } else if identity.separate_ids {
        let mapped = match user_namespace {
            UserNamespace::Gateways => subordinate_maps::write(supervisor, uids, gids)?,
            UserNamespace::SessionNetworks => subordinate_maps::write_directly(supervisor, uids, gids)?,
        };
        match mapped {
            subordinate_maps::Mapped::Written => (identity.clone(), setup::MAPS_WRITTEN),
            subordinate_maps::Mapped::Refused => (setup::one_id(identity), setup::WRITE_OWN_MAP),
        }
    } else {
        (identity.clone(), setup::WRITE_OWN_MAP)
    };
    nix::unistd::write(permit, &[permission]).map_err(|errno| StageError::new(Stage::IdMap, errno))?;
    Ok(granted)
}

/// Which ids of the sandbox are which of the host: the supervisor's, the commands', the gate's, and groups.
fn maps(plan: &SandboxPlan, identity: &Identity) -> IdMaps {
    let mut uids = vec![
        IdPair { inside: 0, outside: identity.supervisor_host_uid },
        IdPair { inside: identity.command_uid, outside: identity.command_host_uid },
    ];
    let mut gids = vec![
        IdPair { inside: 0, outside: identity.supervisor_host_gid },
        IdPair { inside: identity.command_gid, outside: identity.command_host_gid },
    ];
    if setup::has_gate(plan) {
        uids.push(IdPair { inside: identity.gate_uid, outside: identity.gate_host_uid });
        gids.push(IdPair { inside: identity.gate_gid, outside: identity.gate_host_gid });
    }
    let more = identity.groups.iter();
    gids.extend(more.map(|group| IdPair { inside: group.inside_gid, outside: group.host_gid }));
    IdMaps { uids, gids }
}

/// The first failure of a supervisor that could not be released: it may have failed by itself before, and reported
/// that.
fn first_failure(supervisor: Pid, outcome: &OwnedFd, failure: StageError) -> StageError {
    // It may be waiting. Its report, if any, is in the pipe.
    let _ = nix::sys::signal::kill(supervisor, nix::sys::signal::Signal::SIGKILL);
    match read_outcome(outcome).map(StageError::decode) {
        Ok(Some(said)) => said,
        Ok(None) | Err(_) => failure,
    }
}

fn answer(socket: &OwnedFd, launch: LaunchOutcome) -> i32 {
    let message = LaunchResult { result: Some(launch.answer) };
    let descriptors: Vec<_> = launch.processes.iter().chain(&launch.network).map(AsFd::as_fd).collect();
    let sent = wire::encode(&message, descriptors.len())
        .is_ok_and(|frame| fdpass::send(socket.as_fd(), &frame, &descriptors).is_ok());
    if sent {
        return EXIT_ANSWERED;
    }
    for process in &launch.processes {
        // No other process knows of it.
        let _ = namespace::kill_pidfd(process.as_fd());
    }
    EXIT_NOT_ANSWERED
}
