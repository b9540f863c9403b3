//! Set-up of a sandbox from inside: what a supervisor does between its clone and its event loop.
//!
//! Each step succeeds, or ends the process with its stage, index and errno: there is no partial sandbox. The plan
//! says what is done, in the order of the stages.

mod beneath;
mod cgroup_files;
pub mod cgroups;
mod commands_rights;
mod confinement;
mod descriptors;
pub mod detached_mounts;
mod effective_confinement;
mod gate;
mod identity;
mod masked_proc;
mod network_rights;
mod new_root;
mod overlay;
mod pivot_root;
pub mod proxy_listeners;
mod refusing_resolver;
mod session_files;
mod stage;
pub mod user_limits;

use std::{
    os::fd::{AsFd, OwnedFd},
    process::exit,
    sync::Arc,
    time::Duration,
};

use nix::{
    fcntl::OFlag,
    sched::CloneFlags,
    sys::stat::{Mode, umask},
};

use self::{confinement::LandlockRules, gate::GateHandover, proxy_listeners::NameAddresses};
pub use self::{
    descriptors::{PlanDescriptors, has_gate},
    identity::{MAPS_WRITTEN, WRITE_OWN_MAP, one_id},
    stage::{OOM_SCORE_STEP, StageError},
};
use super::{
    ready::{CommandIdentity, ModeListener, Ready, SharedFiles, WithoutGatewayLimits},
    route_counters::RouteCounters,
};
use crate::{
    proto::supervisor::{Identity, SandboxPlan, Stage},
    sys::{file, keyring, loopback, oom::OwnOomScore},
};

/// Exit code after a failed set-up. The failure was sent to the launcher.
const EXIT_SETUP_FAILED: i32 = 72;
/// Exit code when the launcher died before set-up was complete.
const EXIT_LAUNCHER_GONE: i32 = 74;

/// What connects the supervisor with its launcher, and with the gate that the launcher will make.
#[derive(Debug)]
pub struct LaunchSockets {
    /// Readable when the id maps are written.
    pub permission: OwnedFd,
    /// For the result.
    pub report: OwnedFd,
    /// The gate's, if there is one.
    pub gate: Option<OwnedFd>,
}

/// Who has made the network namespace of the supervisor.
#[derive(Debug)]
pub enum NetworkMaker {
    /// The launcher, before the clone: only it has power over the namespace. It has prepared it for the plan.
    Launcher(PreparedNames),
    /// The clone, for the supervisor's user namespace; or nobody, and it is the host's.
    Clone,
}

/// How names are found in a network namespace that the launcher has prepared.
#[derive(Debug)]
pub struct PreparedNames {
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
    pub fn prepare(plan: &SandboxPlan, command_gid: u32) -> Result<Self, StageError> {
        let ports = network_rights::give(plan, command_gid);
        let addresses = match proxy_listeners::has_proxies(plan)? {
            true => proxy_listeners::add_name_addresses(ports),
            false => NameAddresses::Missing,
        };
        Ok(Self { addresses, refusing: refusing_resolver::open(plan)? })
    }
}

/// Sets the sandbox up and continues as its supervisor.
pub fn run(
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
    let fail = |stage| stage::inject(plan, stage);

    // Commands must be able to enter the directories made here, whatever the gateway's umask was.
    umask(Mode::from_bits_truncate(0o022));
    cgroups::join_v1_cgroups(std::mem::take(&mut descriptors.v1_join_fds))?;
    fail(Stage::IdMap)?;
    let granted = identity::await_id_maps(ids, permission)?;
    let ids = &granted;
    let host_cgroup = effective_confinement::read_cgroup()?;
    fail(Stage::Identity)?;
    let score = OwnOomScore::open().map_err(StageError::of_step(Stage::Identity, OOM_SCORE_STEP))?;
    identity::become_root_of_namespace(ids)?;
    fail(Stage::Keyring)?;
    keyring::leave_inherited().map_err(StageError::of(Stage::Keyring))?;
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
        NetworkMaker::Clone => PreparedNames::prepare(plan, network_rights::own_gid(ids))?,
    };
    let unix = std::mem::take(&mut descriptors.unix_listeners);
    let proxy_listeners = proxy_listeners::open(plan, names.addresses, unix)?;
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
    cgroup_files::show(&view, &directories)
        .map_err(StageError::of_step(Stage::Mount, plan.mounts.len() + CGROUP_FILES_STEP))?;
    fail(Stage::PivotRoot)?;
    pivot_root::enter(&view)?;
    fail(Stage::NestedNamespaces)?;
    user_limits::limit_sandbox(ids, &view)?;
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
    let effective_confinement = effective_confinement::read_back(plan, ids, landlock_abi, host_cgroup)?;

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
