//! Prepares everything that a launch needs before any process is started: mounts, directories, cgroups, sockets; its ids by
//! `identity`.
//!
//! What was made is removed again unless the launch succeeds. Starts nothing.

use std::{
    fs::DirBuilder,
    net::Ipv4Addr,
    os::{
        fd::OwnedFd,
        unix::{fs::DirBuilderExt, net::UnixListener},
    },
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use crate::{
    cgroup::directory::{CgroupLimitValues, SOCKET_BYTES},
    failpoint,
    network::OWN_NAME,
    policy::{
        environment::SSH_AGENT_SOCKET,
        implied_variables::CERTIFICATES_DIRECTORY,
        profile::{CgroupLimits, Network, Profile},
    },
    proto::supervisor::{
        Identity, Mount, ProxyPlan, SandboxPlan, SessionNetworkPlan, WithoutGatewayPlan, mount::Kind,
    },
    sandbox::{
        cgroup::{SandboxCgroup, gateway::PrincipalCgroup},
        host::{Host, processors::PROCESSORS, ptys::PtyReservation, warm_launcher::WarmLauncher},
        launch::{
            commands_id,
            error::LaunchError,
            filters::{missing_of_programs, plan_gate, plan_landlock, plan_seccomp, record_missing},
            identity::{AssignedIdentity, assign_identity},
            listen::{listen, socket_file},
            mapped_groups, named_links,
            private_files::PrivateFiles,
            rootfs,
            rootfs_error::RootfsError,
            shown,
        },
        protections::Protections,
        roots, sandbox_state,
        session_network::{LaunchShare, SessionNetwork},
        spec::{SandboxSpec, Shortfall, WithoutGateway},
    },
    sandbox_program::SandboxProgram,
    sys::rights::Rights,
    wire::{
        gate::SOCKET_NAME,
        launch::{CONTROL_SOCKET, PLAN_VERSION},
    },
};

/// The socket by which commands reach their caller's SSH agent, in the sandbox's directory.
const AGENT_SOCKET: &str = "ssh-agent.sock";

/// How long removing a failed launch's cgroups may take.
const CLEANUP_TIMEOUT: Duration = Duration::from_secs(2);

/// A launch that is prepared; nothing is started.
pub(super) struct PreparedLaunch {
    pub(super) plan: SandboxPlan,
    pub(super) identity: Identity,
    pub(super) listener: UnixListener,
    pub(super) socket_file: Option<OwnedFd>,
    pub(super) gate_listener: Option<UnixListener>,
    pub(super) agent_listener: Option<UnixListener>,
    pub(super) unix_listeners: Vec<UnixListener>,
    pub(super) cgroup_descriptors: Vec<OwnedFd>,
    pub(super) sources: Vec<OwnedFd>,
    pub(super) claim: Option<OwnedFd>,
    pub(super) session_claim: Option<Arc<OwnedFd>>,
    pub(super) shared_network: Option<LaunchShare>,
    pub(super) shortfalls: Vec<Shortfall>,
    pub(super) protections: Protections,
    pub(super) ptys: PtyReservation,
    pub(super) program: Arc<SandboxProgram>,
    pub(super) warm_launcher: Arc<WarmLauncher>,
    pub(super) cleanup: LaunchCleanup,
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// What a failed launch removes.
pub(super) struct LaunchCleanup {
    pub(super) directory: PathBuf,
    pub(super) cgroup: SandboxCgroup,
    pub(super) keep: Keep,
}

#[derive(PartialEq, Eq)]
pub(super) enum Keep {
    Nothing,
    Everything,
}

impl Drop for LaunchCleanup {
    fn drop(&mut self) {
        if self.keep == Keep::Nothing {
            // Best effort: the launch has failed with an error of its own, and stale directories are removed later.
            let _ = self.cgroup.kill();
            // Keep the directory when the cgroup stays: the next gateway finds it by the directory.
            if self.cgroup.remove_blocking(CLEANUP_TIMEOUT).is_ok() {
                let _ = std::fs::remove_dir_all(&self.directory);
            }
        }
    }
}

/// Prepares a launch.
pub(super) fn prepare(
    host: &Host,
    state: &Path,
    mut spec: SandboxSpec,
) -> Result<PreparedLaunch, LaunchError> {
    let profile = Arc::clone(&spec.profile);
    let profile = &*profile;
    let mut shortfalls = Vec::new();
    let gate = plan_gate(profile, &mut shortfalls)?;
    let seccomp = plan_seccomp(profile, &gate, &mut shortfalls)?;
    let landlock = plan_landlock(host, profile, spec.network, &mut shortfalls)?;
    let owner = commands_id::roots_owner(host, &spec, &mut shortfalls)?;
    commands_id::leave_out_foreign_volumes(host, owner, &mut spec)?;
    let groups = match host.is_privileged() {
        true => mapped_groups::groups_of_roots(&spec).map_err(LaunchError::Root)?,
        // Without a mapping the caller's groups apply as they are.
        false => Vec::new(),
    };
    let AssignedIdentity { identity, claim, session_claim } =
        assign_identity(host, profile, groups, &gate, &spec.session_files, owner)?;
    // Checked again: since the session was opened, directories may have moved and a policy may have been loaded.
    let caches = spec.caches.iter().filter_map(|cache| cache.below.own()).map(|own| &**own);
    let shown: Vec<_> = spec.roots.iter().chain(caches).map(roots::visible).collect();
    let about = spec.roots.first().map_or(Path::new("/"), |root| &root.path);
    let governing = spec.governing.look(about)?;
    governing.check(&shown).and_then(|()| governing.check_profile_paths(&profile.filesystem))?;
    let shared_network = spec.session_network.as_ref().map(SessionNetwork::share);
    let caller = Rights { uid: spec.owner.uid, gid: spec.owner.gid, groups: spec.groups.clone() };
    let private = PrivateFiles {
        caller: &spec.caller_home,
        caches: &spec.caches,
        session: &spec.session_files,
        named: &named_links::find(&spec.named, &caller),
        resolver: shared_network.as_ref().map_or(Ipv4Addr::LOCALHOST, |shared| shared.own_address.0),
    };
    let governs = rootfs::Governs { view: &governing, programs: spec.governing.read_only_programs() };
    let mut view = rootfs::plan(profile, spec.roots, spec.network, &identity, spec.owner, &private, governs)
        .map_err(|error| match error {
            RootfsError::Governing(error) => LaunchError::Governing(error),
            error => error.into(),
        })?;
    shortfalls.extend(view.shortfall.take());
    commands_id::leave_unmapped(host, owner, &mut view.mounts, &view.sources)?;
    let protections = Protections::of_plan(&view.mounts, &profile.filesystem);
    let ptys = reserve_ptys(host, spec.owner.uid, &mut view.mounts, &mut shortfalls);

    let directory = state.join("sandboxes").join(&spec.id);
    let mut cleanup = LaunchCleanup { directory, cgroup: SandboxCgroup::absent(), keep: Keep::Nothing };
    make_private_directory(&cleanup.directory)?;
    let principal = PrincipalCgroup { uid: spec.owner.uid, limits: host.principal_limits() };
    cleanup.cgroup = make_cgroup(host, state, &spec.id, &principal, profile, &identity, &mut shortfalls)?;
    failpoint::reach("sandbox.grouped");
    if spec.has_program_rules {
        shortfalls.extend(missing_of_programs(host, &cleanup.cgroup));
    }
    let (cgroups, groups) = cleanup.cgroup.to_plan()?;
    let listener = listen(&cleanup.directory, CONTROL_SOCKET)?;
    let watched = spec.without_gateway.filter(|_| !spec.die_with_gateway);
    let socket_file = watched.map(|_| socket_file(&cleanup.directory, CONTROL_SOCKET)).transpose()?;
    let gate_listener = gate.enabled.then(|| listen(&cleanup.directory, SOCKET_NAME)).transpose()?;

    let agent_listener = match spec.agent.is_some() {
        false => None,
        true => {
            let listener = listen(&cleanup.directory, AGENT_SOCKET)?;
            let unseen = |cause| LaunchError::State { path: cleanup.directory.join(AGENT_SOCKET), cause };
            let (mount, socket) =
                shown::show_socket(&cleanup.directory, AGENT_SOCKET, SSH_AGENT_SOCKET).map_err(unseen)?;
            view.mounts.push(mount);
            view.sources.push(socket);
            Some(listener)
        }
    };

    let sockets: &[_] = if spec.network == Network::Proxy { &profile.network.sockets } else { &[] };
    let mut unix_listeners = Vec::with_capacity(sockets.len());
    for (index, socket) in sockets.iter().enumerate() {
        let name = format!("host-{index}.sock");
        let listener = listen(&cleanup.directory, &name)?;
        let unseen = |cause| LaunchError::State { path: cleanup.directory.join(&name), cause };
        listener.set_nonblocking(true).map_err(unseen)?;
        let inside = socket.inside().to_string_lossy();
        let (mount, source) = shown::show_socket(&cleanup.directory, &name, &inside).map_err(unseen)?;
        view.mounts.push(mount);
        view.sources.push(source);
        unix_listeners.push(listener);
    }

    if let Some(directory) = &spec.certificates {
        let unseen = |cause| LaunchError::State { path: directory.clone(), cause };
        let (mount, source) = shown::show_directory(directory, CERTIFICATES_DIRECTORY).map_err(unseen)?;
        view.mounts.push(mount);
        view.sources.push(source);
    }
    // A host that says nothing of its processors, as in some containers, has sandboxes without it.
    if let Some(processors) = host.processors(state)
        && let Ok((mount, source)) = shown::show_directory(processors, PROCESSORS)
    {
        view.mounts.push(mount);
        view.sources.push(source);
    }

    let plan = SandboxPlan {
        protocol_version: PLAN_VERSION,
        hostname: OWN_NAME.into(),
        sandbox_id: spec.id,
        identity: Some(identity.clone()),
        own_network: match spec.network {
            Network::None | Network::Proxy => true,
            Network::Host => false,
        },
        proxy: Some(ProxyPlan {
            enabled: spec.network == Network::Proxy,
            unix_sockets: sockets.iter().map(|one| one.host.to_string_lossy().into_owned()).collect(),
        }),
        session_network: shared_network.as_ref().map(|shared| SessionNetworkPlan {
            descriptors: shared.given.len() as u32,
            resolver: shared.own_address.0.into(),
        }),
        mounts: view.mounts,
        cgroups,
        seccomp: Some(seccomp),
        gate: Some(gate),
        landlock: Some(landlock),
        die_with_gateway: spec.die_with_gateway,
        without_gateway: watched.map(|WithoutGateway { unreachable_max, max }| WithoutGatewayPlan {
            unreachable_ms: milliseconds(unreachable_max),
            max_ms: max.map_or(0, milliseconds),
        }),
        fail_at: spec.fail_at.unwrap_or_default(),
    };
    sandbox_state::write(
        &cleanup.directory,
        &spec.profile_name,
        spec.network,
        &spec.assignment,
        &shortfalls,
        &plan,
    )
    .map_err(|cause| LaunchError::State { path: cleanup.directory.clone(), cause })?;
    failpoint::reach("sandbox.recorded");
    let program = Arc::clone(host.program().map_err(LaunchError::Start)?);
    Ok(PreparedLaunch {
        plan,
        identity,
        listener,
        socket_file,
        gate_listener,
        agent_listener,
        unix_listeners,
        cgroup_descriptors: groups,
        sources: view.sources,
        claim,
        session_claim,
        shared_network,
        shortfalls,
        protections,
        ptys,
        program,
        warm_launcher: Arc::clone(host.warm_launcher()),
        cleanup,
    })
}

/// Reserves the sandbox's pseudo-terminals. A principal that has used up its share gets none, and a shortfall.
fn reserve_ptys(
    host: &Host,
    uid: u32,
    mounts: &mut [Mount],
    shortfalls: &mut Vec<Shortfall>,
) -> PtyReservation {
    let ptys = host.ptys().reserve(uid);
    for dev in mounts.iter_mut().filter(|mount| mount.kind() == Kind::Dev) {
        dev.ptys = Some(ptys.count());
    }
    if ptys.count() == 0 {
        let reason =
            "the principal's other sandboxes have all that one principal may have of kernel.pty.max".into();
        shortfalls.push(Shortfall { protection: "pseudo-terminals".into(), reason });
    }
    ptys
}

fn make_private_directory(directory: &Path) -> Result<(), LaunchError> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory)
        .map_err(|cause| LaunchError::State { path: directory.to_owned(), cause })
}

fn make_cgroup(
    host: &Host,
    state: &Path,
    sandbox_id: &str,
    principal: &PrincipalCgroup,
    profile: &Profile,
    identity: &Identity,
    shortfalls: &mut Vec<Shortfall>,
) -> Result<SandboxCgroup, LaunchError> {
    let groups = host.gateway_cgroups(state);
    let limits = &profile.limits;
    for missing in groups.missing() {
        let wanted = |limits: &CgroupLimits| match missing.controller {
            "memory" => limits.memory_bytes.is_some() || limits.swap_bytes.is_some(),
            "pids" => limits.pids.is_some(),
            _ => limits.cpu_millis.is_some(),
        };
        if wanted(&limits.session) || wanted(&limits.terminal) {
            let protection = match missing.controller {
                "memory" => "cgroup-memory",
                "pids" => "cgroup-pids",
                _ => "cgroup-cpu",
            };
            record_missing(protection, missing.reason.clone(), limits.requirement, shortfalls)?;
        }
    }
    if !groups.has_v2() {
        let reason = "no v2 group can be written; trees are killed by their PID 1".into();
        record_missing("cgroup-v2", reason, limits.requirement, shortfalls)?;
    }
    let CgroupLimits { memory_bytes, swap_bytes, pids, cpu_millis } = limits.session;
    let socket_bytes = Some(SOCKET_BYTES);
    let limits =
        CgroupLimitValues { memory_bytes, swap_bytes, socket_bytes, pids, cpu_millis, cpu_weight: None };
    // With subordinate ids the supervisor takes its part of them by itself.
    let owner = match identity.privileged {
        true => (identity.supervisor_host_uid, identity.supervisor_host_gid),
        false => (identity.command_host_uid, identity.command_host_gid),
    };
    Ok(groups.make_sandbox(sandbox_id, principal, owner, &limits)?)
}
