//! The host as this process can use it, with what all its sandboxes share: ids, cgroups, pseudo-terminals, the warm
//! launcher, threads for launches.
//!
//! Launches nothing. What protections the host has is found by [`crate::sandbox::probe`].

use std::{
    collections::HashMap,
    io,
    os::fd::BorrowedFd,
    path::{Component, Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
};

use caps::{CapSet, Capability};
use nix::{
    errno::Errno,
    sys::statfs::{BTRFS_SUPER_MAGIC, EXT4_SUPER_MAGIC, XFS_SUPER_MAGIC},
};

use crate::{
    cgroup::{
        directory::CgroupLimitValues,
        hierarchy::{self, OwnCgroup},
    },
    pool::Pool,
    sandbox::{
        cgroup::{
            PrincipalLimits,
            gateway::{self, GatewayCgroups},
        },
        host::{
            host_ids::{self, HostIdRange},
            processors,
            ptys::PtyPool,
            subordinate_ids::SubordinateIds,
            warm_launcher::{LAUNCH_TIMEOUT, WarmLauncher},
        },
    },
    sandbox_program::SandboxProgram,
    sys::{landlock, mount, own_process, sock_diag},
};

/// Why sandboxes cannot be made in a cgroup.
#[derive(Debug, thiserror::Error)]
pub enum HostCgroupError {
    /// It is not written as /proc/PID/cgroup would.
    #[error("the cgroup {} is not absolute, or has \"..\" or a line's end in it", crate::printable::path(.0))]
    Malformed(PathBuf),
    /// No hierarchy has it.
    #[error("there is no cgroup {}", crate::printable::path(.0))]
    Missing(PathBuf),
    /// /proc cannot be read.
    #[error("cannot find the cgroup {}", crate::printable::path(group))]
    Proc {
        /// Which one.
        group: PathBuf,
        /// Why.
        #[source]
        errno: Errno,
    },
}

/// Concurrent launches of one user; more wait.
const MAX_LAUNCHES_PER_USER: usize = 8;
/// Concurrent launches of all users.
const MAX_LAUNCHES: usize = 64;

/// A host as this process can use it.
#[derive(Debug)]
pub struct Host {
    privileged: bool,
    mapping_devices: Mutex<HashMap<u64, bool>>,
    uid: u32,
    gid: u32,
    ids: HostIdRange,
    subordinate_ids: OnceLock<Option<SubordinateIds>>,
    landlock_abi: u32,
    finds_connections: OnceLock<bool>,
    own_cgroups: Vec<OwnCgroup>,
    program: Option<Arc<SandboxProgram>>,
    warm_launcher: Arc<WarmLauncher>,
    principal_limits: CgroupLimitValues,
    launch_pool: Pool,
    ptys: Arc<PtyPool>,
    processors: OnceLock<Option<PathBuf>>,
    gateway_cgroups: Mutex<Vec<(PathBuf, Arc<GatewayCgroups>)>>,
}

impl Host {
    /// Detects what this process may do. Cheap: some reads and a few system calls.
    #[must_use]
    pub fn detect() -> Self {
        let uid = nix::unistd::geteuid();
        Self {
            privileged: uid.is_root() && missing_to_map(&HostIdRange::default()).is_none(),
            mapping_devices: Mutex::default(),
            uid: uid.as_raw(),
            gid: nix::unistd::getegid().as_raw(),
            ids: HostIdRange::default(),
            subordinate_ids: OnceLock::new(),
            landlock_abi: landlock::abi(),
            finds_connections: OnceLock::new(),
            // Without /proc no cgroup is found, and nothing else works either.
            own_cgroups: gateway::find_own_cgroups().unwrap_or_default(),
            program: None,
            warm_launcher: Arc::default(),
            principal_limits: PrincipalLimits::default().on_this_host(),
            launch_pool: Pool::new(MAX_LAUNCHES_PER_USER, MAX_LAUNCHES),
            ptys: PtyPool::of_host(),
            processors: OnceLock::new(),
            gateway_cgroups: Mutex::default(),
        }
    }

    /// Takes host ids from another range than the default one.
    #[must_use]
    pub fn with_ids(mut self, ids: HostIdRange) -> Self {
        self.privileged = self.uid == 0 && missing_to_map(&ids).is_none();
        self.ids = ids;
        self
    }

    /// What sandboxes show of the host's processors, in the state directory of this process. The first call writes it; `None` where it
    /// cannot be had.
    pub(crate) fn processors(&self, state: &Path) -> Option<&Path> {
        self.processors.get_or_init(|| processors::copy(state).ok()).as_deref()
    }

    /// Lowers this process's OOM score, if it may, so that the kernel kills other processes first.
    pub fn protect_gateway(&self) {
        if own_process::protect_gateway() {
            tracing::info!(
                oom_score_adj = own_process::GATEWAY_OOM_SCORE,
                "the kernel ends others first when memory runs out"
            );
        }
    }

    /// Limits all sandboxes of one principal together by these instead of the defaults.
    #[must_use]
    pub fn with_principal_limits(mut self, limits: PrincipalLimits) -> Self {
        self.principal_limits = limits.on_this_host();
        self
    }

    pub(crate) fn ptys(&self) -> &Arc<PtyPool> {
        &self.ptys
    }

    pub(crate) fn principal_limits(&self) -> CgroupLimitValues {
        self.principal_limits
    }

    /// Makes sandboxes below this cgroup, named as in /proc/PID/cgroup, instead of the gateway's own.
    ///
    /// # Errors
    /// [`HostCgroupError`].
    pub fn with_cgroup(mut self, group: &Path) -> Result<Self, HostCgroupError> {
        let plain = |part| matches!(part, Component::RootDir | Component::Normal(_));
        let line = group.to_str().is_some_and(|text| !text.contains('\n'));
        if !group.is_absolute() || !line || !group.components().all(plain) {
            return Err(HostCgroupError::Malformed(group.to_owned()));
        }
        self.own_cgroups = hierarchy::find_named(group)
            .map_err(|errno| HostCgroupError::Proc { group: group.to_owned(), errno })?;
        if self.own_cgroups.is_empty() {
            return Err(HostCgroupError::Missing(group.to_owned()));
        }
        Ok(self)
    }

    /// Starts the processes of sandboxes from this program. Without one, it starts none.
    #[must_use]
    pub fn with_program(mut self, program: SandboxProgram) -> Self {
        self.program = Some(Arc::new(program));
        self
    }

    pub(crate) fn program(&self) -> io::Result<&Arc<SandboxProgram>> {
        self.program
            .as_ref()
            .ok_or_else(|| io::Error::other("nobody has said of which program sandboxes are"))
    }

    /// Threads for launches, which read the roots: these may be on a file system that hangs.
    pub(crate) fn launch_pool(&self) -> &Pool {
        &self.launch_pool
    }

    pub(crate) fn warm_launcher(&self) -> &Arc<WarmLauncher> {
        &self.warm_launcher
    }

    /// Starts a launcher ahead of the first launch, and makes the gateway's cgroups, which it will use. Saves time
    /// for the first command; never necessary.
    pub fn prewarm_launcher(&self, state: &Path) {
        self.gateway_cgroups(state);
        if let Ok(program) = self.program() {
            self.warm_launcher.refill(program, LAUNCH_TIMEOUT);
        }
    }

    /// Whether sandboxes get host ids of their own and id-mapped roots.
    #[must_use]
    pub fn is_privileged(&self) -> bool {
        self.privileged
    }

    /// What root lacks to give sandboxes ids of their own. `None`: nothing, or it is another user.
    #[must_use]
    pub fn lacks_of_root(&self) -> Option<String> {
        if self.uid == 0 && !self.privileged { missing_to_map(&self.ids) } else { None }
    }

    /// Whether the file system of an open directory or file can map ids. Tried once for each device, where it is not known.
    pub(crate) fn maps_ids(&self, object: BorrowedFd<'_>) -> Result<bool, Errno> {
        let kind = nix::sys::statfs::fstatfs(object)?.filesystem_type();
        if [EXT4_SUPER_MAGIC, XFS_SUPER_MAGIC, BTRFS_SUPER_MAGIC].contains(&kind) {
            return Ok(true);
        }
        let found = nix::sys::stat::fstat(object)?;
        let mut known = self.mapping_devices.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(maps) = known.get(&found.st_dev) {
            return Ok(*maps);
        }
        let maps = match mount::try_map_ids(object, (found.st_uid, found.st_gid), host_ids::DEFAULT_FIRST_ID)
        {
            Ok(()) => true,
            // The file system cannot, or belongs to a user namespace above, or has mapped ids already.
            Err(Errno::EINVAL | Errno::EPERM) => false,
            // It is told by the launch that needs it.
            Err(_) => return Ok(true),
        };
        known.insert(found.st_dev, maps);
        Ok(maps)
    }

    /// The landlock ABI, 0 for none.
    #[must_use]
    pub fn landlock_abi(&self) -> u32 {
        self.landlock_abi
    }

    /// Whether the kernel finds a TCP connection by its ends: sock_diag(7).
    #[must_use]
    pub fn finds_connections(&self) -> bool {
        *self.finds_connections.get_or_init(sock_diag::knows_tcp)
    }

    /// Whether this process may see what files and descriptors commands have, which may have another user id.
    #[must_use]
    pub fn sees_descriptors(&self) -> bool {
        !self.privileged || has_capability(Capability::CAP_SYS_PTRACE)
    }

    pub(crate) fn own_cgroups(&self) -> &[OwnCgroup] {
        &self.own_cgroups
    }

    pub(crate) fn own_ids(&self) -> (u32, u32) {
        (self.uid, self.gid)
    }

    /// The ids of an ordinary user whose supervisors have ids of their own by them. They are looked for once.
    pub(crate) fn subordinate_ids(&self) -> Option<SubordinateIds> {
        *self.subordinate_ids.get_or_init(|| match self.privileged || self.uid == 0 {
            true => None,
            false => SubordinateIds::of(self.uid),
        })
    }

    pub(crate) fn ids(&self) -> &HostIdRange {
        &self.ids
    }

    /// Whether a terminal's processes can be killed by their own cgroup. If not, only the end of a sandbox's PID 1
    /// kills them all, and each terminal needs a sandbox of its own.
    #[must_use]
    pub fn kills_trees_by_cgroup(&self, state: &Path) -> bool {
        self.gateway_cgroups(state).has_v2()
    }

    /// The controllers whose limits this host cannot give, each with the reason.
    #[must_use]
    pub fn missing_controllers(&self, state: &Path) -> Vec<(&'static str, String)> {
        let cgroups = self.gateway_cgroups(state);
        cgroups.missing().iter().map(|missing| (missing.controller, missing.reason.clone())).collect()
    }

    /// Removes the cgroups of unknown sandboxes. Returns the names of those in which something runs, which stay.
    #[must_use]
    pub fn sweep_cgroups(&self, state: &Path, is_known: impl Fn(&str) -> bool) -> Vec<String> {
        self.gateway_cgroups(state).sweep(is_known)
    }

    /// Removes the cgroups of this process's gateways. Called at exit, when connections may still hold the gateway.
    pub fn remove_cgroups(&self) {
        let made = self.gateway_cgroups.lock().unwrap_or_else(PoisonError::into_inner);
        made.iter().for_each(|(_, groups)| groups.remove());
    }

    /// The cgroups of the gateway with this state directory, made on first use.
    pub(crate) fn gateway_cgroups(&self, state: &Path) -> Arc<GatewayCgroups> {
        let mut made: MutexGuard<'_, _> = self.gateway_cgroups.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, groups)) = made.iter().find(|(of, _)| of == state) {
            return Arc::clone(groups);
        }
        // Drop the cgroups of removed state directories, unless a launch uses them.
        made.retain(|(of, groups)| of.exists() || Arc::strong_count(groups) > 1);
        if made.len() >= MAX_STATES {
            // They are made again on use; sandboxes in the oldest ones stay.
            made.remove(0);
        }
        let groups = Arc::new(GatewayCgroups::make(&self.own_cgroups, state));
        made.push((state.to_owned(), Arc::clone(&groups)));
        groups
    }
}

/// State directories whose cgroups are held at once. A gateway has one.
const MAX_STATES: usize = 64;

/// Needed to write other processes' id maps and for id-mapped mounts.
const NEEDED_TO_MAP: [Capability; 5] = [
    Capability::CAP_SYS_ADMIN,
    Capability::CAP_SETUID,
    Capability::CAP_SETGID,
    Capability::CAP_CHOWN,
    Capability::CAP_KILL,
];

fn missing_to_map(ids: &HostIdRange) -> Option<String> {
    let missing = NEEDED_TO_MAP.into_iter().find(|capability| !has_capability(*capability));
    match missing {
        Some(capability) => Some(format!("{capability}")),
        None if !maps_all(ids) => Some(format!(
            "the ids from {} on, which are not mapped in its user namespace",
            ids.numbers().start
        )),
        None => None,
    }
}

fn has_capability(capability: Capability) -> bool {
    caps::has_cap(None, CapSet::Effective, capability).unwrap_or(false)
}

/// In a container with its own id map, root may not have the range.
fn maps_all(ids: &HostIdRange) -> bool {
    let ids = ids.numbers();
    let map = std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    map.lines().any(|line| {
        let mut numbers = line.split_whitespace().map(str::parse::<u64>);
        matches!(
            (numbers.next(), numbers.next(), numbers.next()),
            (Some(Ok(inside)), Some(Ok(_)), Some(Ok(count)))
                if inside <= u64::from(ids.start) && inside + count >= u64::from(ids.end)
        )
    })
}
