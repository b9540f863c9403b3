//! Set-up of a sandbox from inside: what a supervisor does between its clone and its event loop.
//!
//! Each step succeeds, or ends the process with its stage, index and errno: there is no partial sandbox. The plan
//! says what is done, in the order of the stages.

pub(super) mod cgroups;
mod confinement;
pub(super) mod identity;
pub(super) mod network;
pub(super) mod new_root;

use std::{
    collections::VecDeque,
    os::fd::{AsFd, OwnedFd},
    process::exit,
    sync::Arc,
    time::Duration,
};

use nix::{
    errno::Errno,
    fcntl::OFlag,
    sched::CloneFlags,
    sys::stat::{Mode, umask},
};

pub(super) use self::identity::one_id;
pub(crate) use self::identity::{MAPS_WRITTEN, WRITE_OWN_MAP};
use self::{
    confinement::{GateHandover, LandlockRules},
    network::NameAddresses,
};
use super::ready::{CommandIdentity, ModeListener, Ready, RouteCounters, SharedFiles, WithoutGatewayLimits};
use crate::{
    cgroup::{CgroupDirectory, Hierarchy},
    proto::supervisor::{Identity, SandboxPlan, Stage, StageFailure, cgroup_directory},
    sys::{
        file, loopback,
        own_process::{self, OwnOomScore},
    },
};

/// Exit code after a failed set-up. The failure was sent to the launcher.
const EXIT_SETUP_FAILED: i32 = 72;
/// Exit code when the launcher died before set-up was complete.
const EXIT_LAUNCHER_GONE: i32 = 74;

/// What connects the supervisor with its launcher, and with the gate that the launcher will make.
#[derive(Debug)]
pub(super) struct LaunchSockets {
    /// Readable when the id maps are written.
    pub permission: OwnedFd,
    /// For the result.
    pub report: OwnedFd,
    /// The gate's, if there is one.
    pub gate: Option<OwnedFd>,
}

/// Who has made the network namespace of the supervisor.
#[derive(Debug)]
pub(super) enum NetworkMaker {
    /// The launcher, before the clone: only it has power over the namespace. It has prepared it for the plan.
    Launcher(PreparedNames),
    /// The clone, for the supervisor's user namespace; or nobody, and it is the host's.
    Clone,
}

/// How names are found in a network namespace that the launcher has prepared.
#[derive(Debug)]
pub(super) struct PreparedNames {
    /// With proxies: whether names have addresses.
    pub addresses: NameAddresses,
    /// Without proxies: the socket at which names are refused.
    pub refusing: Option<OwnedFd>,
}

impl PreparedNames {
    /// Prepares the calling process's network namespace, which has its loopback up. Needs `CAP_NET_ADMIN` and `CAP_NET_BIND_SERVICE` over
    /// it. `command_gid` is the commands' group in the calling process's user namespace.
    ///
    /// # Errors
    /// [`StageError`] of the loopback.
    pub(super) fn prepare(plan: &SandboxPlan, command_gid: u32) -> Result<Self, StageError> {
        let ports = network::give_low_ports(plan, command_gid);
        let addresses = match network::has_proxies(plan)? {
            true => network::add_name_addresses(ports),
            false => NameAddresses::Missing,
        };
        Ok(Self { addresses, refusing: network::open_refusing_resolver(plan)? })
    }
}

/// Sets the sandbox up and continues as its supervisor.
pub(super) fn run(
    plan: &SandboxPlan,
    identity: &Identity,
    descriptors: PlanDescriptors,
    sockets: LaunchSockets,
    network: NetworkMaker,
) -> ! {
    let LaunchSockets { permission, report, gate } = sockets;
    match set_up(plan, identity, descriptors, gate, network, &permission, &report) {
        Ok((ready, _claim)) => {
            // Success is written explicitly: a closed pipe also means death.
            if nix::unistd::write(&report, &StageError::encode_success()).is_err() {
                // The launcher is gone, so the gateway will never know of this sandbox.
                exit(EXIT_LAUNCHER_GONE);
            }
            drop(report);
            super::runtime::run(ready)
        }
        Err(failure) => {
            let _ = nix::unistd::write(&report, &failure.encode());
            exit(EXIT_SETUP_FAILED)
        }
    }
}

/// The step of the mount stage that shows the cgroups, after those of the plan and the root's.
const CGROUP_FILES_STEP: usize = 1;

/// The lock on the host ids, held open while the supervisor lives.
type HostIdLock = Option<OwnedFd>;

fn set_up(
    plan: &SandboxPlan,
    ids: &Identity,
    mut descriptors: PlanDescriptors,
    gate: Option<OwnedFd>,
    network: NetworkMaker,
    permission: &OwnedFd,
    report: &OwnedFd,
) -> Result<(Ready, HostIdLock), StageError> {
    let fail = |stage| inject(plan, stage);

    // Commands must be able to enter the directories made here, whatever the gateway's umask was.
    umask(Mode::from_bits_truncate(0o022));
    cgroups::join_v1_cgroups(std::mem::take(&mut descriptors.v1_join_fds))?;
    fail(Stage::IdMap)?;
    let granted = identity::await_id_maps(ids, permission)?;
    let ids = &granted;
    let host_cgroup = confinement::read_cgroup()?;
    fail(Stage::Identity)?;
    let score = OwnOomScore::open().map_err(StageError::of_step(Stage::Identity, OOM_SCORE_STEP))?;
    identity::become_root_of_namespace(ids)?;
    fail(Stage::Keyring)?;
    own_process::leave_inherited_keyring().map_err(StageError::of(Stage::Keyring))?;
    fail(Stage::CgroupNamespace)?;
    nix::sched::unshare(CloneFlags::CLONE_NEWCGROUP).map_err(StageError::of(Stage::CgroupNamespace))?;
    fail(Stage::SupervisorCgroup)?;
    cgroups::move_to_supervisor_leaf(&descriptors)?;
    if ids.separate_ids && !ids.privileged {
        cgroups::share_with_owner(&descriptors, ids)?;
    }
    fail(Stage::Hostname)?;
    nix::unistd::sethostname(&plan.hostname).map_err(StageError::of(Stage::Hostname))?;
    fail(Stage::Loopback)?;
    if plan.own_network {
        loopback::bring_up().map_err(StageError::of(Stage::Loopback))?;
    }
    let names = match network {
        NetworkMaker::Launcher(names) => names,
        NetworkMaker::Clone => PreparedNames::prepare(plan, network::own_gid(ids))?,
    };
    let unix = std::mem::take(&mut descriptors.unix_listeners);
    let proxy_listeners = network::open_listeners(plan, names.addresses, unix)?;
    let route_counters = plan.own_network.then(RouteCounters::open).flatten();

    fail(Stage::Gate)?;
    let gate = gate.map(|socket| GateHandover::open(plan, socket)).transpose()?;
    fail(Stage::Mount)?;
    let PlanDescriptors {
        listener,
        socket_file,
        directories,
        binds,
        claim,
        session_claim,
        session_network,
        ..
    } = descriptors;
    let session_network: Vec<_> = session_network.into_iter().map(Arc::new).collect();
    let mut view = new_root::build(plan, ids, binds)?;
    cgroups::show(&view, &directories)
        .map_err(StageError::of_step(Stage::Mount, plan.mounts.len() + CGROUP_FILES_STEP))?;
    fail(Stage::PivotRoot)?;
    new_root::enter(&view)?;
    fail(Stage::NestedNamespaces)?;
    identity::limit_sandbox(ids, &view)?;
    identity::forbid_nested_namespaces(ids, &view)?;
    let session_files = SharedFiles { mounts: std::mem::take(&mut view.shared), lock: session_claim };
    fail(Stage::Landlock)?;
    let landlock = confinement::landlock_rules(plan, &view, &directories)?;
    drop(view);
    replace_standard_descriptors()?;

    fail(Stage::Capabilities)?;
    confinement::drop_privileges(ids)?;
    fail(Stage::NoNewPrivs)?;
    nix::sys::prctl::set_no_new_privs().map_err(StageError::of(Stage::NoNewPrivs))?;
    let kept: Vec<_> = std::iter::once(listener.as_fd())
        .chain(socket_file.iter().map(AsFd::as_fd))
        .chain(directories.iter().map(|directory| directory.descriptor.as_fd()))
        .chain(claim.iter().map(AsFd::as_fd))
        .chain([score.descriptor().as_fd()])
        .chain([report.as_fd()])
        .chain(landlock.iter().map(LandlockRules::descriptor))
        .chain(gate.iter().flat_map(GateHandover::descriptors).map(AsFd::as_fd))
        .chain(proxy_listeners.iter().map(|listener| listener.as_fd()))
        .chain(names.refusing.iter().map(AsFd::as_fd))
        .chain(route_counters.iter().flat_map(RouteCounters::descriptors))
        .chain(session_files.descriptors().map(|kept| kept.as_fd()))
        .chain(session_network.iter().map(|kept| kept.as_fd()))
        .collect();
    file::close_all_except(&kept).map_err(StageError::of(Stage::Descriptors))?;
    let landlock_abi = landlock.map(LandlockRules::enforce).transpose()?.unwrap_or(0);
    fail(Stage::Seccomp)?;
    let notified = confinement::install_seccomp(plan)?;
    let (gate, mode_listener) = match (gate, notified) {
        (Some(gate), Some(notified)) => (Some(gate.send(notified)?), None),
        (None, Some(descriptor)) => {
            let nonce = confinement::nonce_of(plan).ok_or_else(StageError::malformed_plan)?;
            (None, Some(ModeListener { descriptor, nonce }))
        }
        (None, None) => (None, None),
        (Some(_), None) => return Err(StageError::malformed_plan()),
    };
    fail(Stage::EffectiveConfinement)?;
    let effective_confinement = confinement::read_back(plan, ids, landlock_abi, host_cgroup)?;

    let ready = Ready {
        sandbox_id: plan.sandbox_id.clone(),
        listener,
        directories,
        identity: if ids.separate_ids {
            CommandIdentity::Change { uid: ids.command_uid, gid: ids.command_gid }
        } else {
            CommandIdentity::Keep
        },
        effective_confinement,
        oom_score: score,
        gate,
        mode_listener,
        proxy_listeners,
        unix_sockets: plan.proxy.as_ref().map(|proxy| proxy.unix_sockets.clone()).unwrap_or_default(),
        refusing_resolver: names.refusing,
        route_counters,
        session_files,
        session_network,
        command_host_id: if ids.privileged { ids.command_host_uid } else { 0 },
        own_network: plan.own_network,
        die_with_gateway: plan.die_with_gateway,
        without_gateway: without_gateway(plan, socket_file),
    };
    Ok((ready, claim))
}

fn without_gateway(plan: &SandboxPlan, socket_file: Option<OwnedFd>) -> WithoutGatewayLimits {
    let given = plan.without_gateway.unwrap_or_default();
    WithoutGatewayLimits {
        socket_file,
        unreachable_max: Duration::from_millis(given.unreachable_ms),
        max: (given.max_ms > 0).then(|| Duration::from_millis(given.max_ms)),
    }
}

/// Replaces the launch socket and the gateway's output by the sandbox's null device.
fn replace_standard_descriptors() -> Result<(), StageError> {
    let null = nix::fcntl::open("/dev/null", OFlag::O_RDWR | OFlag::O_CLOEXEC, Mode::empty())
        .map_err(StageError::of(Stage::Descriptors))?;
    file::replace_standard(null.as_fd()).map_err(StageError::of(Stage::Descriptors))
}

/// The step of [`Stage::Identity`] that sets the supervisor's OOM score.
pub(super) const OOM_SCORE_STEP: usize = 3;

/// A failed step. It carries no text: the gateway formats the message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StageError {
    stage: Stage,
    index: u32,
    errno: i32,
}

impl StageError {
    /// Length of the encoded form, in bytes.
    pub const BYTES: usize = 12;

    /// A failure of a stage that has only one step.
    #[must_use]
    pub fn new(stage: Stage, errno: Errno) -> Self {
        Self::at(stage, 0, errno)
    }

    /// A failure of the step with this number.
    #[must_use]
    pub fn at(stage: Stage, index: usize, errno: Errno) -> Self {
        Self { stage, index: u32::try_from(index).unwrap_or(u32::MAX), errno: errno as i32 }
    }

    /// The plan lacks something, or says something that no gateway sends.
    #[must_use]
    pub fn malformed_plan() -> Self {
        Self::new(Stage::Plan, Errno::EINVAL)
    }

    /// For `map_err`.
    pub fn of(stage: Stage) -> impl Fn(Errno) -> Self {
        move |errno| Self::new(stage, errno)
    }

    /// For `map_err`, with the step's number.
    pub fn of_step(stage: Stage, index: usize) -> impl Fn(Errno) -> Self {
        move |errno| Self::at(stage, index, errno)
    }

    /// The encoding for the pipe.
    #[must_use]
    pub fn encode(self) -> [u8; Self::BYTES] {
        Self::join(self.stage as i32, self.index, self.errno)
    }

    /// The encoding of success.
    #[must_use]
    pub fn encode_success() -> [u8; Self::BYTES] {
        Self::join(Stage::Unspecified as i32, 0, 0)
    }

    /// Decodes what came through the pipe; `None` is success.
    #[must_use]
    pub fn decode(bytes: [u8; Self::BYTES]) -> Option<Self> {
        let number = |at: usize| i32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let (stage, index, errno) = (number(0), number(4), number(8));
        if stage == Stage::Unspecified as i32 && errno == 0 {
            return None;
        }
        let stage = Stage::try_from(stage).unwrap_or(Stage::Unspecified);
        Some(Self { stage, index: index.cast_unsigned(), errno })
    }

    fn join(stage: i32, index: u32, errno: i32) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..4].copy_from_slice(&stage.to_ne_bytes());
        bytes[4..8].copy_from_slice(&index.to_ne_bytes());
        bytes[8..].copy_from_slice(&errno.to_ne_bytes());
        bytes
    }
}

impl From<StageError> for StageFailure {
    fn from(error: StageError) -> Self {
        Self { stage: error.stage.into(), index: error.index, errno: error.errno }
    }
}

/// Fails when the plan names this stage and the build has failpoints.
#[cfg(feature = "failpoints")]
pub(super) fn inject(plan: &SandboxPlan, stage: Stage) -> Result<(), StageError> {
    if plan.fail_at == stage.as_str_name() { Err(StageError::new(stage, Errno::ECANCELED)) } else { Ok(()) }
}

/// Does nothing: this build has no failpoints.
#[cfg(not(feature = "failpoints"))]
#[allow(clippy::unnecessary_wraps)]
pub(super) fn inject(_: &SandboxPlan, _: Stage) -> Result<(), StageError> {
    Ok(())
}

/// The `tasks` file of a v1 cgroup. The launcher opens it, because it has the right to; the supervisor writes it.
/// If the launcher joined, the cgroup could not be removed before the launcher exits.
#[derive(Debug)]
pub struct V1JoinFd {
    pub(super) tasks: OwnedFd,
    /// The cgroup's index in the plan.
    pub(super) index: usize,
}

impl From<V1JoinFd> for OwnedFd {
    fn from(file: V1JoinFd) -> Self {
        file.tasks
    }
}

/// The plan's descriptors, by purpose.
#[derive(Debug)]
pub(super) struct PlanDescriptors {
    /// The control listener.
    pub listener: OwnedFd,
    /// The file of its socket, if the sandbox is to know when that is unlinked.
    pub socket_file: Option<OwnedFd>,
    /// The socket on which the gate listens, if there is one.
    pub gate_listener: Option<OwnedFd>,
    /// The session's network namespace, and the user namespace to which it belongs if that is not the gateway's: empty where the sandbox
    /// shares none. In the launcher those that come with the plan, in the supervisor those that it keeps.
    pub session_network: Vec<OwnedFd>,
    /// The cgroups, in the plan's order.
    pub directories: Vec<CgroupDirectory>,
    /// The sources of binds with `from_descriptor`, in the plan's order. In a privileged launch they are replaced
    /// by detached mounts.
    pub binds: VecDeque<OwnedFd>,
    /// The lock on the host ids.
    pub claim: Option<OwnedFd>,
    /// The lock on the id that the commands of all sandboxes of the session have.
    pub session_claim: Option<Arc<OwnedFd>>,
    /// The v1 cgroups that the supervisor still has to join.
    pub v1_join_fds: Vec<V1JoinFd>,
    /// Listeners in the place of sockets of the host, in the plan's order.
    pub unix_listeners: Vec<OwnedFd>,
}

/// Whether the plan has a gate.
pub(super) fn has_gate(plan: &SandboxPlan) -> bool {
    plan.gate.is_some_and(|gate| gate.enabled)
}

impl PlanDescriptors {
    /// Assigns the received descriptors to their purposes. Their number must be exactly what the plan says.
    pub(super) fn from_plan(plan: &SandboxPlan, descriptors: Vec<OwnedFd>) -> Result<Self, StageError> {
        let mut rest = VecDeque::from(descriptors);
        let listener = rest.pop_front().ok_or_else(StageError::malformed_plan)?;
        let socket_file = match plan.without_gateway {
            Some(_) => Some(rest.pop_front().ok_or_else(StageError::malformed_plan)?),
            None => None,
        };
        let directories = plan
            .cgroups
            .iter()
            .map(|directory| {
                let hierarchy = match directory.hierarchy() {
                    cgroup_directory::Hierarchy::V2 => Hierarchy::V2,
                    cgroup_directory::Hierarchy::V1 => Hierarchy::V1,
                    cgroup_directory::Hierarchy::Unspecified => return Err(StageError::malformed_plan()),
                };
                let descriptor = rest.pop_front().ok_or_else(StageError::malformed_plan)?;
                Ok(CgroupDirectory { descriptor, hierarchy, controllers: directory.controllers.clone() })
            })
            .collect::<Result<_, _>>()?;
        let gate_listener = match has_gate(plan) {
            true => Some(rest.pop_front().ok_or_else(StageError::malformed_plan)?),
            false => None,
        };
        let shared = plan.session_network.map_or(0, |network| network.descriptors as usize);
        if shared > rest.len() {
            return Err(StageError::malformed_plan());
        }
        let session_network = rest.drain(..shared).collect();
        let count = plan.mounts.iter().filter(|mount| mount.from_descriptor).count();
        if rest.len() < count {
            return Err(StageError::malformed_plan());
        }
        let mut claims = rest.split_off(count);
        let sockets = plan.proxy.as_ref().map_or(0, |proxy| proxy.unix_sockets.len());
        if claims.len() < sockets {
            return Err(StageError::malformed_plan());
        }
        let unix_listeners = claims.split_off(claims.len() - sockets).into();
        let (claim, session_claim) = (claims.pop_front(), claims.pop_front().map(Arc::new));
        if claims.is_empty() {
            Ok(Self {
                listener,
                socket_file,
                gate_listener,
                session_network,
                directories,
                binds: rest,
                claim,
                session_claim,
                v1_join_fds: Vec::new(),
                unix_listeners,
            })
        } else {
            Err(StageError::malformed_plan())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_survives_the_pipe() {
        let failure = StageError::at(Stage::Mount, 7, Errno::EPERM);
        assert_eq!(StageError::decode(failure.encode()), Some(failure));
        assert_eq!(StageError::decode(StageError::encode_success()), None);
    }
}
