//! The launcher: a short-lived process between the gateway and a supervisor.
//!
//! It receives the plan on descriptor 0, prepares what only the host's root may (id maps, id-mapped mounts), clones
//! the supervisor into its namespaces, waits until the supervisor has set itself up, and answers once. It has one
//! thread, runs no command, and reports failures as stage, index and errno, never as text.

use std::{
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::{Path, PathBuf},
    process::{Command, Stdio, exit},
};

use nix::{
    errno::Errno,
    fcntl::{OFlag, openat},
    sched::{CloneFlags, setns},
    sys::{
        socket::{AddressFamily, SockFlag, SockType, socketpair},
        stat::Mode,
        wait::waitpid,
    },
    unistd::Pid,
};
use prost::Message;

use super::setup::{
    self, LaunchSockets, NetworkMaker, OOM_SCORE_STEP, PlanDescriptors, PreparedNames, StageError,
};
use crate::{
    cgroup::Hierarchy,
    gate::{self, GateStart, SetupFailure},
    proto::supervisor::{
        Identity, LaunchResult, Launched, SandboxPlan, Stage, launch_result::Result as Answer,
    },
    sys::{
        credentials::UsernsOwner,
        fdpass::{self, FrameReceiver},
        file, loopback,
        namespace::{self, Cloned, IdPair, NEWGIDMAP, NEWUIDMAP, Parent, find_map_program, write_map},
        own_process,
    },
    wire::{
        self,
        launch::{MAP_OF_SESSION_NETWORK, PLAN_VERSION},
    },
};

/// Serves one launch and exits. The new supervisor does not return from here either.
pub(crate) fn main() -> ! {
    let Some(socket) = file::dup_stdin() else { exit(EXIT_NO_SOCKET) };
    // Done while no plan is waiting. The gateway's own OOM score must not be inherited.
    let scored =
        own_process::set_supervisor_oom_score().map_err(StageError::of_step(Stage::Identity, OOM_SCORE_STEP));
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
    /// The network namespace of a session, where one was made.
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
        setup::new_root::detach_sources(plan, identity, &mut descriptors)?;
    }
    descriptors.v1_join_fds = setup::cgroups::open_v1_join_fds(&descriptors)?;

    let id_maps = maps(plan, identity);
    let given = std::mem::take(&mut descriptors.session_network);
    let network = LaunchNetwork::enter(plan, identity, &id_maps, network, given)?;

    let (permission, permit) = pipe()?;
    let (outcome, report) = pipe()?;
    let (supervisors_end, gates_end) = gate_sockets(plan)?.unzip();
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
    setup::identity::limit_namespace().map_err(StageError::of_step(Stage::CloneNamespaces, 1))?;
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
            UserNamespace::Gateways => write_maps(supervisor, uids, gids)?,
            UserNamespace::SessionNetworks => write_maps_directly(supervisor, uids, gids)?,
        };
        match mapped {
            Mapped::Written => (identity.clone(), setup::MAPS_WRITTEN),
            Mapped::Refused => (setup::one_id(identity), setup::WRITE_OWN_MAP),
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

const EXIT_NO_NETWORK: i32 = 73;

/// A network namespace with its loopback up, made while the launcher waits for its plan: it takes as long as the
/// rest of a sandbox together. It belongs to the host's user namespace, so no process inside has power over it.
struct PreparedNetwork {
    host: OwnedFd,
}

impl PreparedNetwork {
    /// Enters a new network namespace. Without the privilege for it returns `None`, and stays in the host's.
    fn make() -> Option<Self> {
        let host = file::open_read(Path::new(OWN_NETWORK)).ok()?;
        nix::sched::unshare(CloneFlags::CLONE_NEWNET).ok()?;
        let made = Self { host };
        if loopback::bring_up().is_ok() {
            return Some(made);
        }
        match made.restore_host_network() {
            Ok(()) => None,
            // A launcher in an unknown network namespace must not launch anything.
            Err(_) => exit(EXIT_NO_NETWORK),
        }
    }

    /// Returns to the host's network namespace.
    fn restore_host_network(self) -> Result<(), StageError> {
        setns(self.host, CloneFlags::CLONE_NEWNET).map_err(StageError::of(Stage::CloneNamespaces))
    }
}

const OWN_NETWORK: &str = "/proc/self/ns/net";

/// Where a supervisor gets its network namespace.
///
/// It is the host's, made by the supervisor's clone for that sandbox alone, made ahead by a privileged launcher, or one that sandboxes of
/// a session have in common because each of them runs one command. An ordinary user's of the last kind belongs to a user namespace in which
/// nothing runs. The sandboxes' user namespaces are made below that one, so that none of them has power over the network or over another.
enum LaunchNetwork {
    /// The host's: the launcher is in it.
    Host,
    /// Its clone makes it.
    Clone,
    /// The launcher is in it.
    Entered {
        /// As the plan wants it.
        names: PreparedNames,
        /// The descriptors of a session's network, which its next sandboxes are given. Empty: it is this sandbox's alone.
        session: Vec<OwnedFd>,
        /// Who has made that.
        maker: SessionNetworkMaker,
        /// Whose ids the launcher may map.
        user_namespace: UserNamespace,
    },
}

/// Which launch has made a session's network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SessionNetworkMaker {
    /// This one.
    This,
    /// One before.
    Earlier,
}

/// The user namespace of a launcher.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum UserNamespace {
    /// The gateway's.
    Gateways,
    /// That of a session's network, in which it has every capability.
    SessionNetworks,
}

impl LaunchNetwork {
    /// Enters what the plan says; `given` are the descriptors of a session's network that an earlier launch has made, or none.
    fn enter(
        plan: &SandboxPlan,
        identity: &Identity,
        maps: &IdMaps,
        prepared: Option<PreparedNetwork>,
        given: Vec<OwnedFd>,
    ) -> Result<Self, StageError> {
        let (session, maker) = match (plan.own_network, prepared, plan.session_network) {
            (false, None, _) => return Ok(Self::Host),
            (false, Some(prepared), _) => return prepared.restore_host_network().map(|()| Self::Host),
            (true, None, None) => return Ok(Self::Clone),
            (true, Some(_), None) => (Vec::new(), SessionNetworkMaker::This),
            (true, _, Some(_)) if !given.is_empty() => {
                enter_network(&given)?;
                (given, SessionNetworkMaker::Earlier)
            }
            (true, Some(_), Some(_)) => {
                let own = file::open_read(Path::new(OWN_NETWORK)).map_err(network_step(4))?;
                (vec![own], SessionNetworkMaker::This)
            }
            (true, None, Some(_)) => {
                let made = make_network(maps)?;
                enter_network(&made)?;
                loopback::bring_up().map_err(StageError::of(Stage::Loopback))?;
                (made, SessionNetworkMaker::This)
            }
        };
        let user_namespace = match session.len() {
            0 | 1 => UserNamespace::Gateways,
            _ => UserNamespace::SessionNetworks,
        };
        let names = PreparedNames::prepare(plan, identity.command_host_gid)?;
        Ok(Self::Entered { names, session, maker, user_namespace })
    }
}

fn network_step(index: usize) -> impl Fn(Errno) -> StageError {
    StageError::of_step(Stage::CloneNamespaces, index)
}

/// Enters a session's network, and the user namespace to which it belongs.
fn enter_network(descriptors: &[OwnedFd]) -> Result<(), StageError> {
    let (network, user) = match descriptors {
        [network] => (network, None),
        [network, user] => (network, Some(user)),
        _ => return Err(StageError::malformed_plan()),
    };
    if let Some(user) = user {
        setns(user, CloneFlags::CLONE_NEWUSER).map_err(network_step(5))?;
        // Its files in /proc belong to root else, and so do those of the supervisor, whose maps it writes: proc(5).
        nix::sys::prctl::set_dumpable(true).map_err(network_step(6))?;
    }
    setns(network, CloneFlags::CLONE_NEWNET).map_err(network_step(7))
}

/// Makes a network namespace, and the user namespace to which it belongs. In it the ids of the sandboxes are what they are outside.
fn make_network(maps: &IdMaps) -> Result<Vec<OwnedFd>, StageError> {
    let (until_released, release) =
        nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC).map_err(network_step(8))?;
    let namespaces = CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNET;
    match namespace::clone_into(namespaces, None, Parent::Caller).map_err(network_step(9))? {
        Cloned::Child => {
            drop(release);
            // Whatever comes, or the end: the namespaces are held by descriptors then.
            let _ = nix::unistd::read(&until_released, &mut [0]);
            exit(0)
        }
        Cloned::Parent { pid, pidfd: _ } => {
            drop(until_released);
            let process = PathBuf::from(format!("/proc/{pid}"));
            let made = map_as_outside(&process, pid, maps).and_then(|()| {
                let open =
                    |name: &str| file::open_read(&process.join("ns").join(name)).map_err(network_step(10));
                Ok(vec![open("net")?, open("user")?])
            });
            drop(release);
            waitpid(pid, None).map_err(network_step(11))?;
            made
        }
    }
}

/// Maps the ids of the sandboxes to themselves; where the subordinate ones cannot be mapped, the user's alone.
fn map_as_outside(process: &Path, pid: nix::unistd::Pid, maps: &IdMaps) -> Result<(), StageError> {
    let to_itself = |pairs: &[IdPair]| -> Vec<IdPair> {
        let mut ids: Vec<u32> = pairs.iter().map(|pair| pair.outside).collect();
        ids.sort_unstable();
        ids.dedup();
        ids.into_iter().map(|id| IdPair { inside: id, outside: id }).collect()
    };
    let (uids, gids) = (to_itself(&maps.uids), to_itself(&maps.gids));
    if uids.len() > 1 && write_maps(pid, &uids, &gids)? == Mapped::Written {
        return Ok(());
    }
    let (uid, gid) = (nix::unistd::geteuid().as_raw(), nix::unistd::getegid().as_raw());
    file::write_once(&process.join("setgroups"), b"deny").map_err(network_step(12))?;
    namespace::write_map(process, "uid_map", &[IdPair { inside: uid, outside: uid }])
        .map_err(network_step(MAP_OF_SESSION_NETWORK as usize))?;
    namespace::write_map(process, "gid_map", &[IdPair { inside: gid, outside: gid }])
        .map_err(network_step(14))
}

/// Steps of [`Stage::Gate`] in the launcher; those of the supervisor come before them.
const GATE_FIRST_STEP: usize = 64;

fn gate_step(index: usize) -> impl Fn(Errno) -> StageError {
    StageError::of_step(Stage::Gate, GATE_FIRST_STEP + index)
}

/// Both ends of the socket between supervisor and gate, if the plan has a gate: the supervisor's first.
fn gate_sockets(plan: &SandboxPlan) -> Result<Option<(OwnedFd, OwnedFd)>, StageError> {
    let pair = || socketpair(AddressFamily::Unix, SockType::Stream, None, SockFlag::SOCK_CLOEXEC);
    setup::has_gate(plan).then(pair).transpose().map_err(gate_step(0))
}

/// A gate that is not started yet.
struct GateLaunch {
    socket: OwnedFd,
    listener: OwnedFd,
    /// The v2 cgroup of the supervisor.
    cgroup: Option<OwnedFd>,
    /// Files of v1 cgroups.
    join: Vec<OwnedFd>,
}

/// A gate that runs.
#[derive(Debug)]
struct StartedGate {
    pid: Pid,
    process: OwnedFd,
}

impl GateLaunch {
    /// To be called when the supervisor is in its leaf.
    fn prepare(socket: OwnedFd, descriptors: &mut PlanDescriptors) -> Result<Self, StageError> {
        let listener = descriptors.gate_listener.take().ok_or_else(StageError::malformed_plan)?;
        let mut cgroup = None;
        for directory in &descriptors.directories {
            if directory.hierarchy == Hierarchy::V2 {
                let leaf =
                    if directory.controllers.is_empty() { "." } else { setup::cgroups::SUPERVISOR_LEAF };
                let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
                cgroup =
                    Some(openat(&directory.descriptor, leaf, flags, Mode::empty()).map_err(gate_step(1))?);
            }
        }
        let join = setup::cgroups::open_v1_join_fds(descriptors)?.into_iter().map(OwnedFd::from).collect();
        Ok(Self { socket, listener, cgroup, join })
    }

    /// In the launcher: the gate, when it is set up. In the gate: does not return.
    fn start(mut self, plan: &SandboxPlan, ids: &Identity) -> Result<StartedGate, StageError> {
        let (ready, report) = nix::unistd::pipe2(OFlag::O_CLOEXEC).map_err(gate_step(2))?;
        let parent = Parent::CallersParent;
        let into = self.cgroup.as_ref().map(AsFd::as_fd);
        let cloned = match namespace::clone_into(CloneFlags::empty(), into, parent) {
            // Linux before 5.7, or a filter.
            Err(Errno::E2BIG | Errno::EINVAL) => {
                self.join_v2_by_itself()?;
                namespace::clone_into(CloneFlags::empty(), None, parent)
            }
            cloned => cloned,
        };
        match cloned.map_err(gate_step(3))? {
            Cloned::Child => gate::run(GateStart {
                sandbox_id: &plan.sandbox_id,
                identity: ids,
                has_cgroups: !plan.cgroups.is_empty(),
                socket: self.socket,
                listener: self.listener,
                join: self.join,
                report,
                encode: encode_outcome,
            }),
            Cloned::Parent { pid, pidfd } => {
                drop((report, self));
                match wait_until_ready(&ready) {
                    Ok(()) => Ok(StartedGate { pid, process: pidfd }),
                    Err(failure) => {
                        // The gateway reaps it: it is its child.
                        let _ = namespace::kill_pidfd(pidfd.as_fd());
                        Err(failure)
                    }
                }
            }
        }
    }

    fn join_v2_by_itself(&mut self) -> Result<(), StageError> {
        if let Some(cgroup) = &self.cgroup {
            let flags = OFlag::O_WRONLY | OFlag::O_CLOEXEC;
            let processes = Path::new("cgroup.procs");
            self.join.push(openat(cgroup, processes, flags, Mode::empty()).map_err(gate_step(4))?);
        }
        Ok(())
    }
}

fn encode_outcome(outcome: Result<(), SetupFailure>) -> [u8; StageError::BYTES] {
    match outcome {
        Ok(()) => StageError::encode_success(),
        Err(SetupFailure { index, errno }) => StageError::at(Stage::Gate, index, errno).encode(),
    }
}

/// Which ids of a sandbox are which outside.
#[derive(Debug)]
struct IdMaps {
    uids: Vec<IdPair>,
    gids: Vec<IdPair>,
}

/// Whether maps are there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mapped {
    Written,
    /// Not one of them: the process can still write the map of its one id.
    Refused,
}

/// Writes both maps of a process. Where the first is refused, as in containers whose mounts have `nosuid`, none is written.
///
/// newuidmap(1) and newgidmap(1) are set-id programs of the host that check /etc/subuid and /etc/subgid. Nothing of the gateway's environment
/// reaches them. Below a user namespace in which the ids are mapped already the launcher writes the maps itself.
///
/// # Errors
/// [`Stage::IdMap`] with index 3 when only the first could be written.
fn write_maps(process: Pid, uids: &[IdPair], gids: &[IdPair]) -> Result<Mapped, StageError> {
    if !run_map_program(NEWUIDMAP, process, uids) {
        return Ok(Mapped::Refused);
    }
    match run_map_program(NEWGIDMAP, process, gids) {
        true => Ok(Mapped::Written),
        false => Err(StageError::at(Stage::IdMap, 3, Errno::EPERM)),
    }
}

/// As [`write_maps`], by a process with every capability in the parent of the process's user namespace.
fn write_maps_directly(process: Pid, uids: &[IdPair], gids: &[IdPair]) -> Result<Mapped, StageError> {
    let directory = PathBuf::from(format!("/proc/{process}"));
    match write_map(&directory, "uid_map", uids) {
        Ok(()) => {}
        // The parent has not these ids.
        Err(Errno::EPERM) => return Ok(Mapped::Refused),
        Err(errno) => return Err(StageError::at(Stage::IdMap, 0, errno)),
    }
    write_map(&directory, "gid_map", gids).map_err(StageError::of_step(Stage::IdMap, 3))?;
    Ok(Mapped::Written)
}

fn run_map_program(name: &str, process: Pid, pairs: &[IdPair]) -> bool {
    let Some(program) = find_map_program(name) else { return false };
    let mut command = Command::new(program);
    command.arg(process.to_string());
    for pair in pairs {
        command.args([pair.inside.to_string(), pair.outside.to_string(), "1".to_owned()]);
    }
    command.env_clear().stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// Waits for the report.
fn wait_until_ready(outcome: &OwnedFd) -> Result<(), StageError> {
    let bytes = read_outcome(outcome).map_err(|errno| StageError::new(Stage::Unspecified, errno))?;
    StageError::decode(bytes).map_or(Ok(()), Err)
}

/// The report on a set-up; `ECHILD` when it died without one (killed, or out of memory).
fn read_outcome(outcome: &OwnedFd) -> Result<[u8; StageError::BYTES], Errno> {
    let mut bytes = [0_u8; StageError::BYTES];
    let mut filled = 0;
    while filled < bytes.len() {
        match nix::unistd::read(outcome, &mut bytes[filled..]) {
            Ok(0) => return Err(Errno::ECHILD),
            Ok(count) => filled += count,
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(bytes)
}
