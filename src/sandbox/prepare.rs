//! Everything that a launch needs, decided and made before anything is started: filters, ids, view, folders, socket.
//!
//! What was made is taken away again unless the launch succeeds. Starts nothing.

use std::{
    fs::DirBuilder,
    io,
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
        unix::{
            fs::{DirBuilderExt, OpenOptionsExt},
            net::UnixListener,
        },
    },
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use super::{
    cgroup::SandboxCgroup,
    facts, file_groups,
    groups::PrincipalPlace,
    host::Host,
    identity::Claim,
    launch_error::LaunchError,
    roots,
    seccomp::{self, Machine},
    spare::Spare,
    spec::{SandboxSpec, Shortfall},
    terminals::PtyShare,
    view,
};
use crate::{
    cgroup::limits::{FolderLimits, SOCKET_BYTES},
    failpoint,
    policy::profile::{CgroupLimits, Demand, Network, Profile},
    proto::supervisor::{Identity, LandlockPlan, MappedGroup, Mount, SandboxPlan, SeccompPlan, mount::Kind},
    wire::launch::PLAN_VERSION,
};

/// In a sandbox, the group of whatever has none there.
const NOGROUP: u32 = 65_534;
/// Groups whose number is another one's in a sandbox have one from here on.
const RENAMED_GROUPS_FROM: u32 = 60_000;

/// How long a failed launch's cgroups are waited for.
const CLEANUP_DEADLINE: Duration = Duration::from_secs(2);

/// Everything decided and made, nothing started.
pub(super) struct Prepared {
    pub(super) plan: SandboxPlan,
    pub(super) identity: Identity,
    pub(super) listener: UnixListener,
    pub(super) groups: Vec<OwnedFd>,
    pub(super) sources: Vec<OwnedFd>,
    pub(super) claim: Option<OwnedFd>,
    pub(super) shortfalls: Vec<Shortfall>,
    pub(super) ptys: PtyShare,
    pub(super) launcher: PathBuf,
    pub(super) spare: Arc<Spare>,
    pub(super) left: Leftovers,
}

/// What a launch that fails takes away again.
pub(super) struct Leftovers {
    pub(super) folder: PathBuf,
    pub(super) cgroup: SandboxCgroup,
    pub(super) keep: Keep,
}

#[derive(PartialEq, Eq)]
pub(super) enum Keep {
    Nothing,
    Everything,
}

impl Drop for Leftovers {
    fn drop(&mut self) {
        if self.keep == Keep::Nothing {
            // Best effort by nature: the launch has failed with an error of its own. Stale folders are swept later.
            let _ = self.cgroup.kill();
            // The folder is how the next gateway finds what is left.
            if self.cgroup.remove_blocking(CLEANUP_DEADLINE).is_ok() {
                let _ = std::fs::remove_dir_all(&self.folder);
            }
        }
    }
}

/// Prepares a launch.
pub(super) fn prepare(host: &Host, state: &Path, spec: SandboxSpec) -> Result<Prepared, LaunchError> {
    let profile = &*spec.profile;
    let mut shortfalls = Vec::new();
    let seccomp = plan_seccomp(profile, &mut shortfalls)?;
    let landlock = plan_landlock(host, profile, &mut shortfalls)?;
    let groups = match host.is_privileged() {
        true => file_groups::of_roots(&spec).map_err(LaunchError::Root)?,
        // There the kernel knows the caller's groups as they are.
        false => Vec::new(),
    };
    let (identity, claim) = identify(host, profile, groups)?;
    // Again: since its session was opened, directories were moved, files were linked, a policy was loaded.
    let shown: Vec<_> = spec.roots.iter().map(roots::shown).collect();
    spec.governing.check(&shown).and_then(|()| spec.governing.check_extras(&profile.filesystem))?;
    let covered = spec.governing.covered();
    let mut view = view::plan(profile, spec.roots, spec.network, &identity, spec.owner, covered)?;
    let ptys = share_ptys(host, spec.owner.uid, &mut view.mounts, &mut shortfalls);

    let folder = state.join("sandboxes").join(&spec.id);
    let mut left = Leftovers { folder, cgroup: SandboxCgroup::absent(), keep: Keep::Nothing };
    make_private_folder(&left.folder)?;
    let principal = PrincipalPlace { uid: spec.owner.uid, limits: host.principal_limits() };
    left.cgroup = make_cgroup(host, state, &spec.id, &principal, profile, &identity, &mut shortfalls)?;
    failpoint::reach("sandbox.grouped");
    let (cgroups, groups) = left.cgroup.plan()?;
    let listener = listen(&left.folder)?;

    let plan = SandboxPlan {
        protocol_version: PLAN_VERSION,
        hostname: "sandbox".into(),
        sandbox_id: spec.id,
        identity: Some(identity.clone()),
        own_network: spec.network == Network::None,
        mounts: view.mounts,
        cgroups,
        seccomp: Some(seccomp),
        landlock: Some(landlock),
        die_with_gateway: spec.die_with_gateway,
        fail_at: spec.fail_at.unwrap_or_default(),
    };
    facts::write(&left.folder, &spec.profile_name, spec.network, &spec.holder, &shortfalls, &plan)
        .map_err(|cause| LaunchError::State { path: left.folder.clone(), cause })?;
    failpoint::reach("sandbox.recorded");
    let launcher = host.launcher().to_owned();
    Ok(Prepared {
        plan,
        identity,
        listener,
        groups,
        sources: view.sources,
        claim,
        shortfalls,
        ptys,
        launcher,
        spare: Arc::clone(host.spare()),
        left,
    })
}

fn plan_seccomp(profile: &Profile, shortfalls: &mut Vec<Shortfall>) -> Result<SeccompPlan, LaunchError> {
    if !profile.seccomp.enabled {
        return Ok(SeccompPlan::default());
    }
    match Machine::native() {
        Some(machine) => Ok(SeccompPlan { enabled: true, program: seccomp::program(machine).into() }),
        None => {
            let why = "no filter is written for this processor".into();
            lack("seccomp", why, profile.seccomp.demand, shortfalls)?;
            Ok(SeccompPlan::default())
        }
    }
}

fn plan_landlock(
    host: &Host,
    profile: &Profile,
    shortfalls: &mut Vec<Shortfall>,
) -> Result<LandlockPlan, LaunchError> {
    let enabled = profile.landlock.enabled && host.landlock_abi() > 0;
    if profile.landlock.enabled && !enabled {
        let why = "the kernel does not offer it".into();
        lack("landlock", why, profile.landlock.demand, shortfalls)?;
    }
    Ok(LandlockPlan { enabled })
}

/// Gives the sandbox its pseudo-terminals. Where its principal has none left it goes without, which is said.
fn share_ptys(host: &Host, uid: u32, mounts: &mut [Mount], shortfalls: &mut Vec<Shortfall>) -> PtyShare {
    let ptys = host.ptys().share(uid);
    for dev in mounts.iter_mut().filter(|mount| mount.kind() == Kind::Dev) {
        dev.ptys = Some(ptys.count());
    }
    if ptys.count() == 0 {
        let why =
            "the principal's other sandboxes have all that one principal may have of kernel.pty.max".into();
        shortfalls.push(Shortfall { protection: "pseudo-terminals".into(), why });
    }
    ptys
}

/// Says that something is lacking: an error if the profile requires it, a shortfall if it prefers it.
fn lack(
    protection: &'static str,
    why: String,
    demand: Demand,
    shortfalls: &mut Vec<Shortfall>,
) -> Result<(), LaunchError> {
    match demand {
        Demand::Require => Err(LaunchError::Unavailable { protection, why }),
        Demand::Prefer => {
            shortfalls.push(Shortfall { protection: protection.into(), why });
            Ok(())
        }
    }
}

fn identify(
    host: &Host,
    profile: &Profile,
    mut groups: Vec<MappedGroup>,
) -> Result<(Identity, Option<OwnedFd>), LaunchError> {
    let rule = &profile.identity;
    let common = Identity {
        command_user_name: rule.user.clone(),
        home: rule.home.to_string_lossy().into_owned(),
        ..Identity::default()
    };
    if host.is_privileged() {
        let Claim { supervisor, command, groups: ids, lock } = host.ids().claim(groups.len())?;
        for (index, (group, host_gid)) in groups.iter_mut().zip(ids).enumerate() {
            // As on the host, unless it means something else in a sandbox.
            let has_meaning = [0, rule.gid, NOGROUP].contains(&group.disk_gid);
            group.inside_gid = if has_meaning { RENAMED_GROUPS_FROM + index as u32 } else { group.disk_gid };
            group.host_gid = host_gid;
        }
        let identity = Identity {
            privileged: true,
            supervisor_host_uid: supervisor,
            supervisor_host_gid: supervisor,
            command_host_uid: command,
            command_host_gid: command,
            command_uid: rule.uid,
            command_gid: rule.gid,
            groups,
            ..common
        };
        return Ok((identity, Some(lock)));
    }
    let (uid, gid) = host.own_ids();
    let identity = Identity {
        privileged: false,
        supervisor_host_uid: uid,
        supervisor_host_gid: gid,
        command_host_uid: uid,
        command_host_gid: gid,
        command_uid: uid,
        command_gid: gid,
        ..common
    };
    Ok((identity, None))
}

fn make_private_folder(folder: &Path) -> Result<(), LaunchError> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)
        .map_err(|cause| LaunchError::State { path: folder.to_owned(), cause })
}

fn make_cgroup(
    host: &Host,
    state: &Path,
    sandbox_id: &str,
    principal: &PrincipalPlace,
    profile: &Profile,
    identity: &Identity,
    shortfalls: &mut Vec<Shortfall>,
) -> Result<SandboxCgroup, LaunchError> {
    let groups = host.gateway_groups(state);
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
            lack(protection, missing.why.clone(), limits.demand, shortfalls)?;
        }
    }
    if !groups.has_v2() {
        let why = "no v2 group can be written; trees are killed by their PID 1".into();
        lack("cgroup-v2", why, limits.demand, shortfalls)?;
    }
    let CgroupLimits { memory_bytes, swap_bytes, pids, cpu_millis } = limits.session;
    let socket_bytes = Some(SOCKET_BYTES);
    let limits = FolderLimits { memory_bytes, swap_bytes, socket_bytes, pids, cpu_millis, cpu_weight: None };
    let owner = (identity.supervisor_host_uid, identity.supervisor_host_gid);
    Ok(groups.make_sandbox(sandbox_id, principal, owner, &limits)?)
}

/// Listens in the sandbox's folder, whatever the length of its path.
fn listen(folder: &Path) -> Result<UnixListener, LaunchError> {
    let path = folder.join("control.sock");
    let error = |cause| LaunchError::State { path: path.clone(), cause };
    let opened = open_folder(folder).map_err(error)?;
    UnixListener::bind(dial_path(opened.as_fd())).map_err(error)
}

/// The control socket in an open folder by a path that is short enough for a socket address.
#[must_use]
pub fn dial_path(folder: BorrowedFd<'_>) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}/control.sock", folder.as_raw_fd()))
}

fn open_folder(folder: &Path) -> io::Result<OwnedFd> {
    let options = libc::O_DIRECTORY | libc::O_NOFOLLOW;
    std::fs::OpenOptions::new().read(true).custom_flags(options).open(folder).map(OwnedFd::from)
}
